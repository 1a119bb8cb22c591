//! Requests over loopback, as many as fit in a time, from a few connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Method;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

/// Connections that ask at the same time.
const CONNECTIONS: usize = 4;

/// What is asked again and again, and how the answer begins that is right.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) begins: &'static str,
}

/// Answers a second, and the median time of one.
pub(crate) async fn rate(address: SocketAddr, ask: &Ask, time: Duration) -> Result<(f64, Duration)> {
    let started = Instant::now();
    let tasks: Vec<_> =
        (0..CONNECTIONS).map(|_| tokio::spawn(one(address, ask.clone(), started + time))).collect();
    let mut times = Vec::new();
    for t in tasks {
        times.extend(t.await??);
    }
    let rate = times.len() as f64 / started.elapsed().as_secs_f64();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok((rate, median))
}

async fn one(address: SocketAddr, ask: Ask, until: Instant) -> Result<Vec<Duration>> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let mut times = Vec::new();
    while Instant::now() < until {
        let request = hyper::Request::builder()
            .method(&ask.method)
            .uri(&ask.path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(ask.body.clone()))?;
        let began = Instant::now();
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        times.push(began.elapsed());
        ensure!(
            status == 200 && bytes.starts_with(ask.begins.as_bytes()),
            "{status}: {}",
            String::from_utf8_lossy(&bytes)
        );
    }
    driver.abort();
    Ok(times)
}
