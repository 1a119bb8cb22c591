//! The registries of the configuration, and any other that a grant names.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::client::{Remote, http_client};
use super::error::RegistryError;
use crate::config::{ConfigError, Login, Registry, RegistryConfig};

pub(super) struct Registries {
    configured: HashMap<String, (Registry, reqwest::Client)>,
    plain: reqwest::Client,
    /// Made at first use; only hosts that grants name get here, so it stays small.
    remotes: Mutex<HashMap<String, Arc<Remote>>>,
}

impl Registries {
    pub(super) fn new(
        config: &BTreeMap<String, RegistryConfig>,
        timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let mut system = rustls::RootCertStore::empty();
        // A container without certificates still reaches registries with a `ca` of their own.
        system.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let plain = http_client(None, &system, timeout)?;
        let mut configured = HashMap::new();
        for (host, c) in config {
            let registry = c.resolve(host)?;
            let client = match &registry.ca {
                Some(pem) => http_client(Some(pem), &system, timeout)
                    .map_err(|e| ConfigError::Registry { registry: host.clone(), why: e.to_string() })?,
                None => plain.clone(),
            };
            configured.insert(host.to_ascii_lowercase(), (registry, client));
        }
        Ok(Self { configured, plain, remotes: Mutex::default() })
    }

    pub(super) fn get(&self, host: &str) -> Result<Arc<Remote>, RegistryError> {
        let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remote) = remotes.get(host) {
            return Ok(remote.clone());
        }
        let anonymous = Registry { login: Login::Anonymous, ca: None, plain_http: false };
        let (registry, http) = self.configured.get(host).cloned().unwrap_or((anonymous, self.plain.clone()));
        let remote = Arc::new(Remote::new(host, registry, http)?);
        remotes.insert(host.to_owned(), remote.clone());
        Ok(remote)
    }
}
