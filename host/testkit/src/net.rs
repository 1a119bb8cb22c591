//! A server that ends with its handle, and that can hang up without an answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// The loopback address with a port of the system's choice.
pub(crate) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// As an extension of a response: close the connection instead of answering.
#[derive(Clone, Copy)]
pub(crate) struct HangUp;

/// Serves until dropped; dropping closes every connection.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(
        listen: SocketAddr,
        tls: Option<Arc<rustls::ServerConfig>>,
        router: Router,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, tls.map(TlsAcceptor::from), router));
        Ok(Self { address, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, tls.clone(), router.clone()));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve(TokioIo::new(stream), router).await,
        Some(acceptor) => {
            let handshake = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                serve(TokioIo::new(stream), router).await;
            }
        }
    }
}

async fn serve<I: Read + Write + Unpin + Send + 'static>(io: I, router: Router) {
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let router = router.clone();
        async move {
            let Ok(response) = router.oneshot(request.map(axum::body::Body::new)).await;
            match response.extensions().get::<HangUp>() {
                Some(HangUp) => Err(io::Error::other("asked to hang up")),
                None => Ok(response),
            }
        }
    });
    // An error here is a client that went away, or a hang-up that was asked for.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
}
