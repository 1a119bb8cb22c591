//! Where the server is and how it is spoken to: the URL, and the certificate authorities that are believed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::LedgerError;

pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// Everything that a connection needs.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// Without user and password.
    pub(super) shown: String,
}

fn wrong(why: impl std::fmt::Display) -> LedgerError {
    LedgerError::Open(format!("[ledger] url is not right: {why}; write postgres://user@host:port/database"))
}

impl Address {
    /// `sslmode` disable, prefer and require mean what they mean to libpq, but that a certificate is always verified,
    /// as by verify-full. `sslrootcert` names a file of authorities, as `ca_file` does.
    pub(super) fn parse(url: &str, ca_file: Option<&Path>) -> Result<Self, LedgerError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong("it begins with neither postgres:// nor postgresql://"));
        }
        let (url, roots) = plain(url)?;
        let mut config: Config = url.parse().map_err(wrong)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong("it names no host"));
        }
        config.application_name("sutler").connect_timeout(CONNECT);
        config.keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(10));
        config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(30));
        let secure = config.get_ssl_mode() != SslMode::Disable;
        let tls = tls(ca_file.or(roots.as_deref()).filter(|_| secure), secure)?;
        let shown = shown(&config);
        Ok(Self { config, tls, shown })
    }
}

/// The URL in the words that the client knows, and the file that `sslrootcert` names.
fn plain(url: &str) -> Result<(String, Option<PathBuf>), LedgerError> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let mut roots = None;
    let mut kept: Vec<&str> = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
            Some(("sslmode", mode)) if !["disable", "prefer", "require"].contains(&mode) => {
                return Err(LedgerError::Open(format!(
                    "[ledger] url is not right: sslmode is {:?}; use disable, prefer, require, verify-ca or verify-full",
                    mode.chars().take(40).collect::<String>()
                )));
            }
            Some(("sslrootcert", _)) => {
                let file = url::form_urlencoded::parse(pair.as_bytes()).next();
                roots = file.map(|(_, file)| PathBuf::from(file.as_ref()));
            }
            _ => kept.push(pair),
        }
    }
    let query = kept.join("&");
    Ok((if query.is_empty() { base.to_owned() } else { format!("{base}?{query}") }, roots))
}

fn tls(ca_file: Option<&Path>, secure: bool) -> Result<MakeRustlsConnect, LedgerError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let failed = |e: &dyn std::fmt::Display| {
            LedgerError::Open(format!("the ledger's CA file {} cannot be used: {e}", path.display()))
        };
        for cert in CertificateDer::pem_file_iter(path).map_err(|e| failed(&e))? {
            roots.add(cert.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
        }
        if roots.is_empty() {
            return Err(failed(&"there is no certificate in it"));
        }
    } else if secure {
        // What cannot be read of the system's is left out; a server that needs it is then not believed.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| LedgerError::Open(format!("TLS to the ledger cannot be set up: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(n, host): (usize, &Host)| {
        let port = ports.get(n).or_else(|| ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    format!("postgres://{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_libpqs_words_are_understood() {
        for (url, config, roots) in [
            ("postgres://h/db", "postgres://h/db", None),
            ("postgres://h/db?sslmode=verify-full", "postgres://h/db?sslmode=require", None),
            (
                "postgres://h/db?sslrootcert=%2Fa%20b&sslmode=prefer",
                "postgres://h/db?sslmode=prefer",
                Some("/a b"),
            ),
            ("postgres://h/db?sslrootcert=/ca", "postgres://h/db", Some("/ca")),
            (
                "postgres://h/db?connect_timeout=3&sslmode=verify-ca",
                "postgres://h/db?connect_timeout=3&sslmode=require",
                None,
            ),
        ] {
            assert_eq!(plain(url).unwrap(), (config.to_owned(), roots.map(PathBuf::from)), "{url}");
        }
    }

    #[test]
    fn what_is_shown_holds_no_password() {
        let address = Address::parse("postgres://me:hidden@a:1,b:2/jobs?sslmode=disable", None).unwrap();
        assert_eq!(address.shown, "postgres://a:1,b:2/jobs");
    }

    #[test]
    fn wrong_urls_are_refused_with_words_and_without_the_password() {
        for url in ["mysql://me:hidden@h/db", "postgres:///db", "postgres://me:hidden@h/db?sslmode=sometimes"]
        {
            let Err(LedgerError::Open(why)) = Address::parse(url, None) else { panic!("{url} was accepted") };
            assert!(why.contains("[ledger] url") && !why.contains("hidden"), "{why}");
        }
        for mode in ["bogus", "", "Require", "allow"] {
            let url = format!("postgres://me:hidden@h/db?connect_timeout=3&sslmode={mode}");
            let Err(LedgerError::Open(why)) = Address::parse(&url, None) else {
                panic!("{url} was accepted")
            };
            assert!(why.contains(&format!("sslmode is {mode:?}; use disable, prefer, require")), "{why}");
        }
        let missing = Address::parse("postgres://h/db", Some(Path::new("/nonexistent/ca.pem")));
        assert!(matches!(missing, Err(LedgerError::Open(why)) if why.contains("/nonexistent/ca.pem")));
    }
}
