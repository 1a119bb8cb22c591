//! The credentials of registries for others that pull from them: images of containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::credentials::CredentialFiles;
use crate::config::{ConfigError, Credentials, HelmConfig, Login, RegistryConfig};

/// The logins of `[registries]`, and of the host's user where `[helm] user-credentials` says so.
#[derive(Debug)]
pub struct RegistryLogins {
    configured: BTreeMap<String, Credentials>,
    others: Option<Arc<CredentialFiles>>,
}

impl RegistryLogins {
    /// # Errors
    /// What in the configuration cannot be used.
    pub fn new(helm: &HelmConfig, tables: &BTreeMap<String, RegistryConfig>) -> Result<Self, ConfigError> {
        let others =
            helm.user_credentials.then(|| Arc::new(CredentialFiles::of_user(|name| std::env::var_os(name))));
        let each = tables.iter().map(|(host, table)| {
            Ok((host.to_ascii_lowercase(), table.resolve(host, others.as_ref())?.credentials))
        });
        Ok(Self { configured: each.collect::<Result<_, ConfigError>>()?, others })
    }

    /// `host`: as in `[registries."HOST"]`.
    ///
    /// # Errors
    /// Words about a file that cannot be read or a helper that fails, without a secret.
    pub async fn of(&self, host: &str) -> Result<Login, String> {
        let files = match (self.configured.get(host), &self.others) {
            (Some(Credentials::Given(login)), _) => return Ok(login.clone()),
            (Some(Credentials::Files(files)), _) | (None, Some(files)) => files,
            (None, None) => return Ok(Login::Anonymous),
        };
        files.login(host).await.map_err(|e| e.to_string())
    }
}
