//! What keeps the HTTP side from starting or going on.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("[instances.{instance}] base-path {path:?}: {why}")]
    BasePath { instance: String, path: String, why: String },
    #[error("{table} {key} cannot be 0; use at least 1, or leave it out")]
    NoShare { table: String, key: &'static str },
    #[error("[api] {key} cannot be used: {rule}")]
    Config { key: &'static str, rule: &'static str },
    #[error("cannot listen on {address}: {source}; {hint}")]
    Listen { address: SocketAddr, hint: &'static str, source: std::io::Error },
    #[error("listening on {address} ended: {source}")]
    Serve { address: SocketAddr, source: std::io::Error },
    #[error("cannot read {what} {}: {source}; check tls.{key} and the file's permissions", path.display())]
    TlsFile { what: &'static str, key: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{what} {} cannot be used: {reason}; it must be PEM", path.display())]
    TlsContent { what: &'static str, path: PathBuf, reason: String },
    #[error("the certificate and the key of [tls] cannot be used together: {0}")]
    Tls(#[from] rustls::Error),
    #[error("[register] {key} cannot be used: {rule}")]
    Register { key: &'static str, rule: String },
    #[error("no client for the control plane: {0}")]
    Client(#[from] reqwest::Error),
}
