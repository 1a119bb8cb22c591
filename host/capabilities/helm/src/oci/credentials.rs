//! Credentials as Docker and Helm keep them: `config.json` and the programs that it names (Docker's configuration
//! file; the protocol of docker-credential-helpers). What a program says reaches no log and no error.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use sutler_model::Secret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::error::RegistryError;
use crate::config::Login;

const FILE_LIMIT: u64 = 1 << 20;
const ANSWER_LIMIT: u64 = 64 << 10;
/// The longest that a helper may take.
const HELPER_TIME: Duration = Duration::from_secs(10);
/// Docker Hub's name in these files.
const HUB: &str = "https://index.docker.io/v1/";

/// Files that are asked one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct CredentialFiles {
    files: Vec<PathBuf>,
    /// A file that is not there is no mistake.
    optional: bool,
    /// Where helpers are looked for, instead of the host's PATH.
    programs: Option<OsString>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DockerConfig {
    auths: HashMap<String, Entry>,
    cred_helpers: HashMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    /// base64 of `user:password`.
    auth: Option<Secret>,
    username: Option<String>,
    password: Option<Secret>,
    identitytoken: Option<Secret>,
    registrytoken: Option<Secret>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: Secret,
}

fn given(secret: Option<Secret>) -> Option<Secret> {
    secret.filter(|s| !s.expose().is_empty())
}

impl Entry {
    fn login(self) -> Option<Login> {
        use base64::Engine as _;
        if let Some(token) = given(self.registrytoken) {
            return Some(Login::Token(token));
        }
        if let Some(token) = given(self.identitytoken) {
            return Some(Login::Identity(token));
        }
        if let (Some(username), Some(password)) =
            (self.username.filter(|u| !u.is_empty()), given(self.password))
        {
            return Some(Login::Basic { username, password });
        }
        let auth = given(self.auth)?;
        let pair = base64::engine::general_purpose::STANDARD.decode(auth.expose().trim()).ok()?;
        let pair = String::from_utf8(pair).ok()?;
        let (username, password) = pair.split_once(':')?;
        // Docker pads passwords with zero bytes in old files.
        let password = Secret::new(password.trim_end_matches('\0'));
        Some(Login::Basic { username: username.to_owned(), password })
    }
}

/// The host of an entry's name: `https://registry.example/v2/` is that of `registry.example`.
fn host(name: &str) -> &str {
    let name = name.strip_prefix("https://").or_else(|| name.strip_prefix("http://")).unwrap_or(name);
    match name.split('/').next().unwrap_or(name) {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

/// The exact name, or else the one with the same host.
fn find<T>(map: &mut HashMap<String, T>, registry: &str) -> Option<T> {
    let same = || map.keys().filter(|k| host(k).eq_ignore_ascii_case(registry)).min().cloned();
    let name = if map.contains_key(registry) { registry.to_owned() } else { same()? };
    map.remove(&name)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<DockerConfig, String> {
    // The parser's own text may repeat a secret.
    serde_json::from_slice(bytes).map_err(|e| match e.classify() {
        serde_json::error::Category::Data => {
            format!(
                "{} is not Docker's config.json (line {}, column {})",
                path.display(),
                e.line(),
                e.column()
            )
        }
        _ => format!("{} is not JSON (line {}, column {})", path.display(), e.line(), e.column()),
    })
}

impl CredentialFiles {
    /// A file that has to be there.
    pub(crate) fn one(path: PathBuf) -> Self {
        Self { files: vec![path], ..Self::default() }
    }

    /// The files of the host's user: Helm's, then Docker's; `variable` reads the environment.
    pub(crate) fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = folder("HOME");
        let below = |path: &str| home.as_ref().map(|h| h.join(path));
        let helm = folder("HELM_REGISTRY_CONFIG").or_else(|| {
            let configuration = folder("HELM_CONFIG_HOME")
                .or_else(|| folder("XDG_CONFIG_HOME").map(|p| p.join("helm")))
                .or_else(|| below(".config/helm"))?;
            Some(configuration.join("registry/config.json"))
        });
        let docker = folder("DOCKER_CONFIG").or_else(|| below(".docker")).map(|p| p.join("config.json"));
        Self { files: helm.into_iter().chain(docker).collect(), optional: true, programs: None }
    }

    /// Whether the files can be read, for the load of the configuration. Blocking.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.files.iter().try_for_each(|path| self.read(path).map(drop))
    }

    fn read(&self, path: &Path) -> Result<Option<DockerConfig>, String> {
        let cannot = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
        let file = match std::fs::File::open(path) {
            Err(e) if self.optional && e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(cannot)?,
        };
        let mut bytes = Vec::new();
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > FILE_LIMIT {
            return Err(format!("{} is larger than {FILE_LIMIT} bytes", path.display()));
        }
        parse(path, &bytes).map(Some)
    }

    /// The login for a registry, from the first file that has one. Helpers go before `auths`, as with Docker.
    ///
    /// # Errors
    /// A file that cannot be read, a helper that fails.
    pub(crate) async fn login(&self, registry: &str) -> Result<Login, RegistryError> {
        for path in &self.files {
            let (this, path) = (self.clone(), path.clone());
            let config = tokio::task::spawn_blocking(move || this.read(&path))
                .await
                .unwrap_or_else(|_| Err("reading its credentials was interrupted".into()))
                .map_err(|why| RegistryError::Credentials { registry: registry.into(), why })?;
            let Some(mut config) = config else { continue };
            let helper = find(&mut config.cred_helpers, registry).or(config.creds_store);
            if let Some(name) = helper.filter(|n| !n.is_empty())
                && let Some(login) = self.helper(&name, registry).await?
            {
                return Ok(login);
            }
            if let Some(login) = find(&mut config.auths, registry).and_then(Entry::login) {
                return Ok(login);
            }
        }
        Ok(Login::Anonymous)
    }

    /// Asks a helper; `None` where it knows nothing of the registry.
    async fn helper(&self, name: &str, registry: &str) -> Result<Option<Login>, RegistryError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let failed = |why: String| RegistryError::Helper {
            registry: registry.into(),
            helper: if name.bytes().all(plain) { name.into() } else { "?".into() },
            why,
        };
        if !name.bytes().all(plain) {
            return Err(failed("its name may hold letters, digits, '-', '_' and '.' only".into()));
        }
        let server = if registry == "docker.io" { HUB } else { registry };
        let asked = tokio::time::timeout(HELPER_TIME, self.ask(name, server)).await;
        let Ok(answered) = asked else {
            return Err(failed(format!("it did not answer within {} s", HELPER_TIME.as_secs())));
        };
        let (success, output) = answered.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => failed("there is no such program in the host's PATH".into()),
            kind => failed(format!("it cannot be run ({kind})")),
        })?;
        if !success {
            let unknown = output.windows(21).any(|w| w == b"credentials not found");
            return if unknown {
                Ok(None)
            } else {
                Err(failed("it failed; run it by hand, or sign in anew".into()))
            };
        }
        let answer: HelperAnswer =
            serde_json::from_slice(&output).map_err(|_| failed("its answer is no credentials".into()))?;
        let HelperAnswer { username, secret } = answer;
        Ok(match (username.as_str(), secret.expose()) {
            (_, "") => None,
            ("<token>", _) => Some(Login::Identity(secret)),
            _ => Some(Login::Basic { username, password: secret }),
        })
    }

    /// Whether the helper succeeded, and what it wrote. It ends when this is dropped.
    async fn ask(&self, name: &str, server: &str) -> std::io::Result<(bool, Vec<u8>)> {
        let mut command = tokio::process::Command::new(format!("docker-credential-{name}"));
        command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(programs) = &self.programs {
            command.env("PATH", programs);
        }
        let mut child = command.kill_on_drop(true).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A helper that does not listen has its own reasons; its answer counts.
            let _ = input.write_all(server.as_bytes()).await;
        }
        let mut output = Vec::new();
        if let Some(from) = child.stdout.take() {
            from.take(ANSWER_LIMIT).read_to_end(&mut output).await?;
        }
        Ok((child.wait().await?.success(), output))
    }
}

#[cfg(test)]
mod tests;
