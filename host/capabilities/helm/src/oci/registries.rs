//! The registries of the configuration, and any other that a grant names.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::client::Remote;
use super::cosign::Signers;
use super::credentials::CredentialFiles;
use super::error::RegistryError;
use super::network::Network;
use super::provenance::Keyring;
use crate::config::{ConfigError, HelmConfig, Proxy, Registry, RegistryConfig};

pub(super) struct Registries {
    configured: HashMap<String, (Registry, reqwest::Client)>,
    /// For registries without a table of their own.
    other: (Registry, reqwest::Client),
    /// Made at first use; only hosts that grants name get here, so it stays small.
    remotes: Mutex<HashMap<String, Arc<Remote>>>,
}

impl Registries {
    pub(super) fn new(
        helm: &HelmConfig,
        tables: &BTreeMap<String, RegistryConfig>,
    ) -> Result<Self, ConfigError> {
        let of_user =
            helm.user_credentials.then(|| Arc::new(CredentialFiles::of_user(|name| std::env::var_os(name))));
        let network = Network::of_host(Duration::from_secs(helm.timeout_seconds))?;
        let plain = network.client(None, &Proxy::Environment)?;
        let mut configured = HashMap::new();
        for (host, table) in tables {
            let registry = table.resolve(host, of_user.as_ref())?;
            let client = if registry.ca.is_none() && registry.proxy == Proxy::Environment {
                plain.clone()
            } else {
                network
                    .client(registry.ca.as_deref(), &registry.proxy)
                    .map_err(|e| ConfigError::Registry { registry: host.clone(), why: e.to_string() })?
            };
            configured.insert(host.to_ascii_lowercase(), (registry, client));
        }
        let other = RegistryConfig::default().resolve("", of_user.as_ref())?;
        Ok(Self { configured, other: (other, plain), remotes: Mutex::default() })
    }

    pub(super) fn get(&self, host: &str) -> Result<Arc<Remote>, RegistryError> {
        let mut remotes = self.remotes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(remote) = remotes.get(host) {
            return Ok(remote.clone());
        }
        let (registry, http) = self.configured.get(host).unwrap_or(&self.other).clone();
        let remote = Arc::new(Remote::new(host, registry, http)?);
        remotes.insert(host.to_owned(), remote.clone());
        Ok(remote)
    }

    /// The keys of which one must have signed a registry's charts.
    pub(super) fn keyring(&self, host: &str) -> Option<&Arc<Keyring>> {
        self.configured.get(host).and_then(|(registry, _)| registry.keyring.as_ref())
    }

    /// The keys of which one must have signed the manifests of a registry's charts.
    pub(super) fn signers(&self, host: &str) -> Option<&Signers> {
        self.configured.get(host).and_then(|(registry, _)| registry.signers.as_ref())
    }
}
