//! `[helm]` and `[registries."HOST[:PORT]"]` of the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_model::Secret;

use crate::oci::{CredentialFiles, Keyring, Signers};

/// `[helm]`: limits, times and the cache of charts.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HelmConfig {
    /// Folder of the chart cache; a folder under the system's temporary one when left out.
    pub cache_folder: Option<PathBuf>,
    /// What the folder may hold, in MiB; the oldest files go first.
    pub cache_mib: u64,
    /// What parsed charts may hold in memory, in MiB.
    pub memory_cache_mib: u64,
    /// The largest chart that is downloaded, in MiB.
    pub max_chart_mib: u64,
    /// How long the digest of a tag, and a list of tags, is trusted before the registry is asked again.
    pub resolve_seconds: u64,
    /// The longest wait for one answer of a registry or of the API server.
    pub timeout_seconds: u64,
    /// The longest that one rendering may take.
    pub render_seconds: u64,
    /// Sign in as the user of this host does, to registries without credentials of their own: from Helm's file
    /// (`HELM_REGISTRY_CONFIG`, or `helm/registry/config.json` in the user's configuration folder), then from
    /// Docker's (`config.json` in `DOCKER_CONFIG` or `~/.docker`), with the credential helpers that they name. Without
    /// this key no home folder is read.
    pub user_credentials: bool,
}

impl Default for HelmConfig {
    fn default() -> Self {
        Self {
            cache_folder: None,
            cache_mib: 512,
            memory_cache_mib: 64,
            max_chart_mib: 20,
            resolve_seconds: 60,
            timeout_seconds: 30,
            render_seconds: 30,
            user_credentials: false,
        }
    }
}

/// `[registries."registry.example:5000"]`: how one registry is reached.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RegistryConfig {
    /// Who signs in; with a password.
    pub username: Option<String>,
    /// The password itself; better in a file or a variable.
    #[schemars(with = "Option<String>")]
    pub password: Option<Secret>,
    /// File that holds the password.
    pub password_file: Option<PathBuf>,
    /// Environment variable that holds the password.
    pub password_env: Option<String>,
    /// A bearer token that is sent as it is.
    #[schemars(with = "Option<String>")]
    pub token: Option<Secret>,
    /// File that holds the token.
    pub token_file: Option<PathBuf>,
    /// Environment variable that holds the token.
    pub token_env: Option<String>,
    /// File with credentials as Docker keeps them (`config.json`, also a mounted `.dockerconfigjson`): `auths`,
    /// `credHelpers`, `credsStore`. It is read again as it changes; helpers are programs `docker-credential-NAME` of
    /// the host's PATH.
    pub docker_config: Option<PathBuf>,
    /// PEM file of the authority that signs the registry's certificate: with it no other is trusted.
    pub ca: Option<PathBuf>,
    /// Environment variable that holds that PEM in base64, in place of the file.
    pub ca_env: Option<String>,
    /// Speak HTTP without TLS.
    pub plain_http: bool,
    /// Address of the HTTP proxy towards this registry, or `none`. When left out, the variables HTTPS_PROXY, HTTP_PROXY,
    /// ALL_PROXY and NO_PROXY decide; loopback addresses are then reached directly.
    #[schemars(with = "Option<String>")]
    pub proxy: Option<Secret>,
    /// File of OpenPGP public keys (`gpg --export`, armoured or not). With it only charts are accepted that one of
    /// them signed: with `helm package --sign`, pushed together with their `.prov` file.
    pub verify: Option<PathBuf>,
    /// File of PEM public keys (ECDSA P-256, as `cosign generate-key-pair` writes it). With it only charts are accepted
    /// whose manifest one of them signed: `cosign sign --key cosign.key REGISTRY/PATH@DIGEST`. Neither certificates nor
    /// transparency logs are asked.
    pub cosign_key: Option<PathBuf>,
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("registry {registry}: {what} {} cannot be read: {why}", path.display())]
    File { registry: String, what: &'static str, path: PathBuf, why: String },
    #[error("registry {registry}: the environment variable {name} is not set")]
    Env { registry: String, name: String },
    #[error("registry {registry}: set only one of {what}, {what}-file and {what}-env")]
    Twice { registry: String, what: &'static str },
    #[error("{0} is not the address of an HTTP proxy; write http://HOST:PORT")]
    Proxy(String),
    #[error("registry {registry}: {why}")]
    Registry { registry: String, why: String },
    #[error("helm.cache-folder {} cannot be used: {why}", path.display())]
    Cache { path: PathBuf, why: String },
    #[error("no TLS client could be made: {0}")]
    Tls(String),
}

/// How requests to a registry are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    Anonymous,
    Basic {
        username: String,
        password: Secret,
    },
    /// Sent as it is.
    Token(Secret),
    /// Changed for tokens at the token endpoint: Docker's identity token, OAuth 2's refresh token.
    Identity(Secret),
}

/// Where a registry's login comes from.
#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    Given(Login),
    Files(Arc<CredentialFiles>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Proxy {
    /// What the environment says.
    #[default]
    Environment,
    Direct,
    At(Secret),
}

/// A registry's configuration with its secrets read.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    pub(crate) credentials: Credentials,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) plain_http: bool,
    pub(crate) proxy: Proxy,
    pub(crate) keyring: Option<Arc<Keyring>>,
    pub(crate) signers: Option<Signers>,
}

/// What a variable holds in base64.
fn decoded(registry: &str, name: &str) -> Result<Vec<u8>, ConfigError> {
    use base64::Engine as _;
    let text =
        std::env::var(name).map_err(|_| ConfigError::Env { registry: registry.into(), name: name.into() })?;
    base64::engine::general_purpose::STANDARD.decode(text.split_whitespace().collect::<String>()).map_err(
        |_| {
            let why = format!("ca-env: the variable {name} does not hold base64");
            ConfigError::Registry { registry: registry.into(), why }
        },
    )
}

fn read(registry: &str, what: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|e| ConfigError::File {
        registry: registry.into(),
        what,
        path: path.into(),
        why: e.to_string(),
    })
}

fn secret(
    registry: &str,
    what: &'static str,
    text: Option<&Secret>,
    file: Option<&Path>,
    env: Option<&str>,
) -> Result<Option<Secret>, ConfigError> {
    match (text, file, env) {
        (None, None, None) => Ok(None),
        (Some(s), None, None) => Ok(Some(s.clone())),
        (None, Some(path), None) => {
            let bytes = read(registry, what, path)?;
            let text = String::from_utf8(bytes).map_err(|_| ConfigError::Registry {
                registry: registry.into(),
                why: format!("{what}-file is not UTF-8"),
            })?;
            Ok(Some(Secret::new(text.trim_end_matches(['\r', '\n']))))
        }
        (None, None, Some(name)) => std::env::var(name)
            .map(|v| Some(Secret::new(v)))
            .map_err(|_| ConfigError::Env { registry: registry.into(), name: name.into() }),
        _ => Err(ConfigError::Twice { registry: registry.into(), what }),
    }
}

impl RegistryConfig {
    /// Reads files and variables once, at load. `others` is where a login is looked for when none is configured.
    pub(crate) fn resolve(
        &self,
        registry: &str,
        others: Option<&Arc<CredentialFiles>>,
    ) -> Result<Registry, ConfigError> {
        let bad = |why: &str| ConfigError::Registry { registry: registry.into(), why: why.into() };
        let login = self.login(registry)?;
        let credentials = match (&self.docker_config, login) {
            (Some(_), Some(_)) => return Err(bad("set either docker-config or credentials, not both")),
            (Some(path), None) => {
                let files = CredentialFiles::one(path.clone());
                files.check().map_err(|e| bad(&e))?;
                Credentials::Files(Arc::new(files))
            }
            (None, Some(login)) => Credentials::Given(login),
            (None, None) => others.cloned().map_or(Credentials::Given(Login::Anonymous), Credentials::Files),
        };
        let ca = match (&self.ca, &self.ca_env) {
            (Some(_), Some(_)) => return Err(bad("set only one of ca and ca-env")),
            (None, Some(name)) => Some(decoded(registry, name)?),
            (file, None) => file.as_deref().map(|p| read(registry, "ca", p)).transpose()?,
        };
        if self.plain_http && ca.is_some() {
            return Err(bad("ca has no meaning with plain-http"));
        }
        let keyring = match &self.verify {
            None => None,
            Some(path) => {
                let keys = Keyring::read(&read(registry, "verify", path)?);
                Some(Arc::new(keys.map_err(|why| bad(&format!("verify {}: {why}", path.display())))?))
            }
        };
        let proxy = match &self.proxy {
            None => Proxy::Environment,
            Some(text) if text.expose() == "none" => Proxy::Direct,
            Some(text) => Proxy::At(text.clone()),
        };
        let signers = match &self.cosign_key {
            None => None,
            Some(path) => {
                let keys = Signers::read(&read(registry, "cosign-key", path)?);
                Some(keys.map_err(|why| bad(&format!("cosign-key {}: {why}", path.display())))?)
            }
        };
        Ok(Registry { credentials, ca, plain_http: self.plain_http, proxy, keyring, signers })
    }

    fn login(&self, registry: &str) -> Result<Option<Login>, ConfigError> {
        let password = secret(
            registry,
            "password",
            self.password.as_ref(),
            self.password_file.as_deref(),
            self.password_env.as_deref(),
        )?;
        let token = secret(
            registry,
            "token",
            self.token.as_ref(),
            self.token_file.as_deref(),
            self.token_env.as_deref(),
        )?;
        let bad = |why: &str| Err(ConfigError::Registry { registry: registry.into(), why: why.into() });
        match (self.username.clone(), password, token) {
            (None, None, None) => Ok(None),
            (Some(username), Some(password), None) => Ok(Some(Login::Basic { username, password })),
            (None, None, Some(token)) => Ok(Some(Login::Token(token))),
            (_, _, Some(_)) => bad("set either a token or a username with a password"),
            _ => bad("username and password belong together; one of them is missing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve(v: serde_json::Value) -> Result<Registry, String> {
        serde_json::from_value::<RegistryConfig>(v)
            .map_err(|e| e.to_string())?
            .resolve("r.example", None)
            .map_err(|e| e.to_string())
    }

    fn login(v: serde_json::Value) -> Login {
        match resolve(v).unwrap().credentials {
            Credentials::Given(login) => login,
            Credentials::Files(_) => panic!("given"),
        }
    }

    #[test]
    fn logins() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let Login::Basic { password, .. } = login(json!({"username": "u", "password-file": file})) else {
            panic!("basic")
        };
        assert_eq!(password.expose(), "hunter2");
        assert!(matches!(login(json!({"token": "t"})), Login::Token(_)));
        assert_eq!(login(json!({})), Login::Anonymous);
        for (bad, part) in [
            (json!({"username": "u"}), "belong together"),
            (json!({"password": "p"}), "belong together"),
            (json!({"username": "u", "password": "p", "token": "t"}), "either a token or"),
            (json!({"username": "u", "password": "p", "password-env": "X"}), "only one of"),
            (
                json!({"username": "u", "password-env": "SUTLER_NO_SUCH_VARIABLE"}),
                "SUTLER_NO_SUCH_VARIABLE is not set",
            ),
            (json!({"ca": "/no/such/file"}), "/no/such/file"),
            (json!({"ca": "/no/such/file", "ca-env": "PATH"}), "only one of ca and ca-env"),
            (json!({"ca-env": "NO_SUCH_VARIABLE"}), "NO_SUCH_VARIABLE is not set"),
            (json!({"ca-env": "PATH"}), "the variable PATH does not hold base64"),
            (json!({"pasword": "p"}), "unknown field"),
            (json!({"docker-config": file}), "password is not JSON (line 1, column 1)"),
            (json!({"docker-config": "/no/such/file"}), "/no/such/file cannot be read"),
            (json!({"docker-config": file, "token": "t"}), "either docker-config or credentials"),
            (json!({"verify": file}), "holds no OpenPGP public key"),
            (json!({"cosign-key": file}), "key 1 is no PEM public key"),
            (json!({"plain-http": true, "ca": file}), "no meaning"),
        ] {
            let e = resolve(bad.clone()).unwrap_err();
            assert!(e.contains(part), "{bad}: {e}");
        }
        let shown = format!("{:?}", resolve(json!({"username": "u", "password": "hunter2"})).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
