//! The real things that some tests need: a cluster, registries, Helm's and Kubernetes' own tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the real things are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealWorld {
    pub kubeconfig: PathBuf,
    /// `HOST:PORT` of a registry without TLS and without users.
    pub registry: String,
    /// `HOST:PORT` of a registry with TLS and a user.
    pub registry_tls: String,
    pub registry_user: String,
    pub registry_password: String,
    /// The certificate of the authority behind it.
    pub registry_ca: PathBuf,
    pub helm: PathBuf,
    /// The last of Helm 3.
    pub helm3: PathBuf,
    pub kubectl: PathBuf,
}

/// The real world where `SUTLER_REAL=1` asks for it, else `None`. With it a missing part fails the test: what is
/// asked for is never skipped.
///
/// # Panics
/// When it is asked for and incomplete.
#[expect(clippy::panic, reason = "the test cannot go on, and says what to do")]
pub fn real() -> Option<RealWorld> {
    match RealWorld::from(|name| std::env::var(name).ok()) {
        Ok(world) => world,
        Err(missing) => panic!("SUTLER_REAL=1, but {}", missing.join("; ")),
    }
}

impl RealWorld {
    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, Vec<String>> {
        let given = |name: &str| variable(name).filter(|v| !v.is_empty());
        if given("SUTLER_REAL").as_deref() != Some("1") {
            return Ok(None);
        }
        let mut missing = Vec::new();
        let mut text = |name: &str, what: &str| {
            given(name).unwrap_or_else(|| {
                missing.push(format!("{name} ({what}) is not set"));
                String::new()
            })
        };
        let world = Self {
            kubeconfig: text("KUBECONFIG", "a file").into(),
            registry: given("SUTLER_REAL_REGISTRY").unwrap_or_else(|| "127.0.0.1:15000".into()),
            registry_tls: given("SUTLER_REAL_REGISTRY_TLS").unwrap_or_else(|| "127.0.0.1:15001".into()),
            registry_user: text("SUTLER_REAL_REGISTRY_USER", "of the registry with TLS"),
            registry_password: text("SUTLER_REAL_REGISTRY_PASSWORD", "of the registry with TLS"),
            registry_ca: text("SUTLER_REAL_REGISTRY_CA", "a PEM file").into(),
            helm: text("SUTLER_REAL_HELM", "helm's binary").into(),
            helm3: text("SUTLER_REAL_HELM3", "the binary of Helm 3").into(),
            kubectl: text("SUTLER_REAL_KUBECTL", "kubectl's binary").into(),
        };
        for path in [&world.kubeconfig, &world.registry_ca, &world.helm, &world.helm3, &world.kubectl] {
            if !path.as_os_str().is_empty() && !path.is_file() {
                missing.push(format!("there is no file {}", path.display()));
            }
        }
        if missing.is_empty() { Ok(Some(world)) } else { Err(missing) }
    }

    /// Runs `kubectl` or `helm` on the cluster: what it printed.
    ///
    /// # Errors
    /// The arguments and everything that it said, where it failed or cannot be run.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Result<String, String> {
        self.run_with(program, arguments, Stdio::null())
    }

    /// The same, with a file as its input.
    ///
    /// # Errors
    /// As [`RealWorld::run`].
    pub fn run_with(&self, program: &Path, arguments: &[&str], input: Stdio) -> Result<String, String> {
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).stdin(input);
        let out = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        if out.status.success() {
            Ok(text(&out.stdout))
        } else {
            Err(format!("{arguments:?}: {}{}", text(&out.stdout), text(&out.stderr)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_for_unless_it_is() {
        assert_eq!(RealWorld::from(|_| None), Ok(None));
        assert_eq!(RealWorld::from(|n| (n == "SUTLER_REAL").then(|| "0".into())), Ok(None));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = RealWorld::from(|name| match name {
            "SUTLER_REAL" => Some("1".into()),
            "KUBECONFIG" => Some("/no/such/file".into()),
            _ => None,
        })
        .unwrap_err();
        assert!(missing.iter().any(|m| m.contains("/no/such/file")), "{missing:?}");
        assert!(missing.iter().any(|m| m.contains("SUTLER_REAL_HELM")), "{missing:?}");
    }
}
