//! Kubeconfig files: one that is read for its way to a cluster, and one that is written.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The first cluster of a kubeconfig.
pub(crate) struct Access {
    /// `https://HOST:PORT`
    pub(crate) server: String,
    /// It trusts the cluster's authority alone and shows the first user's certificate, where there are such.
    pub(crate) client: reqwest::Client,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("it is no kubeconfig with one cluster: {0}")]
    Form(String),
    #[error("its certificates cannot be used: {0}")]
    Certificates(#[from] reqwest::Error),
}

/// Reads certificates that stand in the file itself; tokens and helpers are not used.
pub(crate) fn access(file: &Path) -> Result<Access, Unusable> {
    let config: Value = serde_saphyr::from_slice(&std::fs::read(file)?)
        .map_err(|e| Unusable::Form(format!("{}: {e}", file.display())))?;
    let part = |pointer: &str| config.pointer(pointer).and_then(Value::as_str);
    let decoded = |pointer: &str| part(pointer).map(|text| STANDARD.decode(text)).transpose();
    let broken = |e: base64::DecodeError| Unusable::Form(e.to_string());
    let server =
        part("/clusters/0/cluster/server").ok_or_else(|| Unusable::Form("it names no server".into()))?;
    // An error says that the process has chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = reqwest::Client::builder().no_proxy();
    if let Some(ca) = decoded("/clusters/0/cluster/certificate-authority-data").map_err(broken)? {
        client = client.tls_certs_only([reqwest::Certificate::from_pem(&ca)?]);
    }
    let certificate = decoded("/users/0/user/client-certificate-data").map_err(broken)?;
    let key = decoded("/users/0/user/client-key-data").map_err(broken)?;
    if let (Some(mut pem), Some(key)) = (certificate, key) {
        pem.extend(key);
        client = client.identity(reqwest::Identity::from_pem(&pem)?);
    }
    Ok(Access { server: server.trim_end_matches('/').to_owned(), client: client.build()? })
}

/// A kubeconfig (YAML) of a server that asks for nothing.
pub(crate) fn plain(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster:\n    server: {server}\n\
         users:\n- name: test\n  user: {{}}\n\
         contexts:\n- name: test\n  context:\n    cluster: test\n    user: test\n    namespace: default\n"
    )
}
