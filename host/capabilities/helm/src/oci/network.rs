//! HTTP clients for registries: whom they trust, and by which proxy they go.

use std::time::Duration;

use reqwest::NoProxy;

use crate::config::{ConfigError, Proxy};

/// Reached directly whatever the environment says, as Go's clients do.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// The system's authorities and the environment's proxies, read once.
pub(super) struct Network {
    authorities: rustls::RootCertStore,
    proxies: Vec<reqwest::Proxy>,
    timeout: Duration,
}

impl Network {
    /// # Errors
    /// A proxy variable that holds no address.
    pub(super) fn of_host(timeout: Duration) -> Result<Self, ConfigError> {
        let mut authorities = rustls::RootCertStore::empty();
        // A container without certificates still reaches registries with a `ca` of their own.
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let proxies = from_environment(|name| std::env::var(name).ok())?;
        Ok(Self { authorities, proxies, timeout })
    }

    /// A client that follows no redirect by itself and trusts `ca` alone, or the system's authorities.
    ///
    /// # Errors
    /// No certificate in `ca`, a proxy that is no address.
    pub(super) fn client(&self, ca: Option<&[u8]>, proxy: &Proxy) -> Result<reqwest::Client, ConfigError> {
        use rustls::pki_types::{CertificateDer, pem::PemObject as _};
        let tls = |e: &dyn std::fmt::Display| ConfigError::Tls(e.to_string());
        let mut roots = rustls::RootCertStore::empty();
        match ca {
            None => roots.clone_from(&self.authorities),
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    roots.add(certificate.map_err(|e| tls(&e))?).map_err(|e| tls(&e))?;
                }
                if roots.is_empty() {
                    return Err(ConfigError::Tls("the ca file holds no PEM certificate".into()));
                }
            }
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| tls(&e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let proxies = match proxy {
            Proxy::Environment => self.proxies.clone(),
            Proxy::Direct => Vec::new(),
            Proxy::At(address) => {
                vec![at("proxy", address.expose(), |a| reqwest::Proxy::all(a))?]
            }
        };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.timeout.min(Duration::from_secs(10)))
            .user_agent(concat!("sutler/", env!("CARGO_PKG_VERSION")))
            // What the environment says was read already.
            .no_proxy();
        proxies.into_iter().fold(client, reqwest::ClientBuilder::proxy).build().map_err(|e| tls(&e))
    }
}

type Make = fn(&str) -> reqwest::Result<reqwest::Proxy>;

/// One proxy. An address may hold a password: it is not repeated.
fn at(what: &str, address: &str, make: Make) -> Result<reqwest::Proxy, ConfigError> {
    let bad = || ConfigError::Proxy(what.to_owned());
    let whole = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let url = url::Url::parse(&whole).map_err(|_| bad())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(bad());
    }
    make(&whole).map_err(|_| bad())
}

/// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, in small letters first (as curl reads them).
fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<reqwest::Proxy>, ConfigError> {
    let given = |name: &str| {
        [name.to_ascii_lowercase(), name.to_owned()]
            .into_iter()
            .find_map(|n| variable(&n).filter(|v| !v.is_empty()))
    };
    let except = given("NO_PROXY").map_or_else(|| LOOPBACK.to_owned(), |list| format!("{list},{LOOPBACK}"));
    let all = given("ALL_PROXY");
    let mut out = Vec::new();
    let schemes: [(&str, Make); 2] =
        [("HTTPS_PROXY", |a| reqwest::Proxy::https(a)), ("HTTP_PROXY", |a| reqwest::Proxy::http(a))];
    for (name, make) in schemes {
        let (name, address) = match (given(name), &all) {
            (Some(address), _) => (name, address),
            (None, Some(address)) => ("ALL_PROXY", address.clone()),
            (None, None) => continue,
        };
        out.push(at(name, &address, make)?.no_proxy(NoProxy::from_string(&except)));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Result<usize, String> {
        from_environment(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
            .map(|p| p.len())
            .map_err(|e| e.to_string())
    }

    #[test]
    fn variables() {
        assert_eq!(of(&[]), Ok(0));
        assert_eq!(of(&[("HTTPS_PROXY", "proxy.example:3128")]), Ok(1));
        assert_eq!(of(&[("https_proxy", "http://u:p@proxy.example"), ("HTTP_PROXY", "proxy")]), Ok(2));
        assert_eq!(of(&[("ALL_PROXY", "http://proxy.example")]), Ok(2));
        assert_eq!(of(&[("HTTPS_PROXY", "")]), Ok(0));
        for bad in ["socks5://u:hunter2@proxy", "http://", "http://u:hunter2@[x]:1"] {
            let network = Network {
                authorities: rustls::RootCertStore::empty(),
                proxies: Vec::new(),
                timeout: Duration::from_secs(1),
            };
            let key =
                network.client(None, &Proxy::At(sutler_model::Secret::new(bad))).unwrap_err().to_string();
            assert!(key.starts_with("proxy is not the address") && !key.contains("hunter2"), "{key}");
            let e = of(&[("HTTPS_PROXY", bad)]).unwrap_err();
            assert!(e.contains("HTTPS_PROXY is not the address") && !e.contains("hunter2"), "{e}");
        }
    }
}
