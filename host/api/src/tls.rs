//! Certificates: read, checked together, read again when a file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum_server::tls_rustls::RustlsConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::ApiError;

/// TLS of a listener. Changed files are taken up within seconds, without a restart.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate and its chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
    /// Certificate authorities, PEM: with it, only clients with a certificate of one of these may connect.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

const LOOK_EVERY: Duration = Duration::from_secs(5);

impl TlsConfig {
    /// # Errors
    /// `ApiError` naming the file that cannot be read or used.
    pub(crate) fn load(&self) -> Result<ServerConfig, ApiError> {
        let certificate = certificates("the certificate", "certificate", &self.certificate)?;
        let pem = read("the private key", "key", &self.key)?;
        let key =
            PrivateKeyDer::from_pem_slice(&pem).map_err(|e| content("the private key", &self.key, e))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for ca in certificates("the client CA", "client-ca", path)? {
                    roots.add(ca)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|e| content("the client CA", path, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(certificate, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Reads the files again when one has changed, until `stop`. What cannot be used is told and left.
    pub(crate) async fn watch(self, target: RustlsConfig, stop: CancellationToken) {
        let mut seen = self.stamps();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let now = self.stamps();
            if now == seen {
                continue;
            }
            match self.load() {
                Ok(config) => {
                    // Only now, so that a file caught half written is tried again.
                    seen = now;
                    target.reload_from_config(Arc::new(config));
                    tracing::info!(event = "tls-reloaded", certificate = %self.certificate.display());
                }
                Err(error) => {
                    tracing::warn!(event = "tls-not-reloaded", %error, "the former certificate stays in use")
                }
            }
        }
    }

    fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let stamp = |p: &PathBuf| std::fs::metadata(p).ok().and_then(|m| Some((m.modified().ok()?, m.len())));
        [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(stamp)
            .collect()
    }
}

fn read(what: &'static str, key: &'static str, path: &Path) -> Result<Vec<u8>, ApiError> {
    std::fs::read(path).map_err(|source| ApiError::TlsFile { what, key, path: path.into(), source })
}

fn content(what: &'static str, path: &Path, reason: impl ToString) -> ApiError {
    ApiError::TlsContent { what, path: path.into(), reason: reason.to_string() }
}

fn certificates(
    what: &'static str,
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ApiError> {
    let pem = read(what, key, path)?;
    let found = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| content(what, path, e))?;
    if found.is_empty() {
        return Err(content(what, path, "it has no certificate"));
    }
    Ok(found)
}
