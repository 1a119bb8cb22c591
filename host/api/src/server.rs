//! A listener: plain or TLS, slow clients cut off, an end that lets running requests finish.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use tokio_util::sync::CancellationToken;

use crate::in_flight::Running;
use crate::{Api, ApiConfig, ApiError, TlsConfig};

/// Limits of a listener's connections.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// From the connection to its first request, and for each further header section.
    pub header_timeout: Duration,
    pub max_header_bytes: u32,
    /// How long running requests may take once the host stops.
    pub shutdown_grace: Duration,
}

impl From<&ApiConfig> for ServerOptions {
    fn from(c: &ApiConfig) -> Self {
        Self {
            header_timeout: Duration::from_secs(c.header_timeout_seconds),
            max_header_bytes: c.max_header_bytes,
            shutdown_grace: Duration::from_secs(c.shutdown_grace_seconds),
        }
    }
}

/// An address that is listened on, before anything is served.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    tls: Option<(TlsConfig, rustls::ServerConfig)>,
    options: ServerOptions,
}

impl Server {
    /// Listens, and reads the certificates, so that what is wrong shows at once. The caller asks `Access` first
    /// whether this address is allowed.
    ///
    /// # Errors
    /// `ApiError` naming the address or the file, and what to do.
    pub fn bind(
        address: SocketAddr,
        tls: Option<TlsConfig>,
        options: ServerOptions,
    ) -> Result<Self, ApiError> {
        let tls = tls.map(|t| t.load().map(|loaded| (t, loaded))).transpose()?;
        let failed = |source: std::io::Error| ApiError::Listen { address, hint: hint(&source), source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { address, listener, tls, options })
    }

    /// The address, with the port that port 0 became.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`; then takes no more connections, ends streams, lets running requests finish for the
    /// grace, and answers those that did not.
    ///
    /// # Errors
    /// `ApiError::Serve` when the listener itself broke.
    pub async fn run(
        self,
        router: Router,
        api: &Api,
        shutdown: CancellationToken,
    ) -> Result<Vec<Running>, ApiError> {
        let address = self.address;
        let handle = Handle::new();
        let watching = CancellationToken::new();
        let _stop_watching = watching.clone().drop_guard();
        let service = router.into_make_service();
        let server =
            axum_server::from_tcp(self.listener).map_err(|source| ApiError::Serve { address, source })?;
        let mut server = server.handle(handle.clone()).first_request_timeout(self.options.header_timeout);
        let builder = server.http_builder();
        builder
            .http1()
            .header_read_timeout(self.options.header_timeout)
            .max_buf_size(self.options.max_header_bytes as usize);
        builder
            .http2()
            .max_header_list_size(self.options.max_header_bytes)
            .max_concurrent_streams(256)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        let serving = match self.tls {
            None => tokio::spawn(server.acceptor(NoDelayAcceptor::new()).serve(service)),
            Some((tls, loaded)) => {
                let config = RustlsConfig::from_config(Arc::new(loaded));
                tokio::spawn(tls.watch(config.clone(), watching.clone()));
                let acceptor = RustlsAcceptor::new(config).acceptor(NoDelayAcceptor::new());
                tokio::spawn(server.acceptor(acceptor).serve(service))
            }
        };
        finish(address, serving, &handle, api, &self.options, shutdown).await
    }
}

type Serving = tokio::task::JoinHandle<std::io::Result<()>>;

async fn finish(
    address: SocketAddr,
    mut serving: Serving,
    handle: &Handle<SocketAddr>,
    api: &Api,
    options: &ServerOptions,
    shutdown: CancellationToken,
) -> Result<Vec<Running>, ApiError> {
    let broke = |source| ApiError::Serve { address, source };
    tokio::select! {
        () = shutdown.cancelled() => {}
        ended = &mut serving => return ended.map_err(std::io::Error::other).and_then(|r| r).map(|()| Vec::new()).map_err(broke),
    }
    api.stop();
    handle.graceful_shutdown(None);
    let done = async {
        let ended = (&mut serving).await;
        // An apply goes on without its client, so no connection does not mean no work.
        api.inner.in_flight.idle().await;
        ended
    };
    match tokio::time::timeout(options.shutdown_grace, done).await {
        Ok(ended) => ended.map_err(std::io::Error::other).and_then(|r| r).map(|()| Vec::new()).map_err(broke),
        Err(_) => {
            let unfinished = api.inner.in_flight.report();
            handle.shutdown();
            for r in &unfinished {
                tracing::warn!(
                    event = "unfinished",
                    method = r.method,
                    route = r.route,
                    request_id = &*r.request_id,
                    running_ms = r.since.as_secs_f64() * 1000.0
                );
            }
            Ok(unfinished)
        }
    }
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => "another process listens there; stop it or choose another port",
        std::io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege; choose a higher one",
        std::io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; use one it has, or 0.0.0.0"
        }
        _ => "check the address",
    }
}
