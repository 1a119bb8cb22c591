//! Whether a registry can be used as it is configured, without pulling anything (OCI distribution 1.1, "Determining
//! support").

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};

use super::auth::Operation;
use super::client::{Clock, Remote, Request};
use super::error::RegistryError;
use super::registries::Registries;
use crate::config::{ConfigError, HelmConfig, Login, RegistryConfig};

/// What a registry says to its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistryAccess {
    /// It took the credentials.
    SignedIn,
    /// It asks for none, and none are configured.
    Open,
    /// It did not ask for those that are configured, so they were not tried.
    Untried,
    /// It asks for some, and none are configured: at most what is public can be pulled.
    Closed,
}

/// Asks registries who they let in.
pub struct RegistryProbe {
    registries: Registries,
    each: Duration,
}

impl std::fmt::Debug for RegistryProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryProbe").finish_non_exhaustive()
    }
}

impl RegistryProbe {
    /// # Errors
    /// What in the configuration cannot be used.
    pub fn new(config: &HelmConfig, tables: &BTreeMap<String, RegistryConfig>) -> Result<Self, ConfigError> {
        let each = Duration::from_secs(config.timeout_seconds.max(1));
        Ok(Self { registries: Registries::new(config, tables)?, each })
    }

    /// `host`: as in `[registries."HOST"]`.
    ///
    /// # Errors
    /// `Unreachable` (also where its certificate is not trusted), `Slow`, `Refused`, `NotOci`, and what it answers.
    pub async fn ask(&self, host: &str) -> Result<RegistryAccess, RegistryError> {
        let remote = self.registries.get(&host.to_ascii_lowercase())?;
        // So that a slow answer is told as one.
        remote.access(Clock { deadline: Instant::now() + self.each * 8, each: self.each }).await
    }
}

impl Remote {
    async fn access(&self, clock: Clock) -> Result<RegistryAccess, RegistryError> {
        let operation = Operation::Pull;
        let request =
            Request { repository: "", operation, accept: "application/json", what: "its version", clock };
        let anonymous = matches!(self.login(clock).await?, Login::Anonymous);
        let response = match self.send(Method::GET, self.base.clone(), &request).await {
            Err(RegistryError::Refused { .. }) if anonymous => return Ok(RegistryAccess::Closed),
            response => self.no_page(response?, request.what)?,
        };
        if response.status() != StatusCode::OK {
            return Err(self.status(response.status(), request.what));
        }
        let asked = self.tickets.get("", operation).is_some();
        Ok(match (anonymous, asked || matches!(self.login(clock).await?, Login::Token(_))) {
            (true, _) => RegistryAccess::Open,
            (false, true) => RegistryAccess::SignedIn,
            (false, false) => RegistryAccess::Untried,
        })
    }
}
