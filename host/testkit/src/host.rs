//! The built binary as a process.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::guests::target_dir;

/// How long a host may take until it is ready (Helm's engine is compiled once), and to stop.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running `sutler serve`. Dropping it kills it.
pub struct SutlerProcess {
    /// `http://127.0.0.1:PORT`, or https.
    pub url: String,
    /// The admin listener's, where there is one.
    pub admin_url: Option<String>,
    log: PathBuf,
    child: Child,
    _folder: Folder,
}

/// The built `sutler`: `SUTLER_BIN`, or the one in the target folder.
///
/// # Panics
/// When it has not been built.
#[expect(clippy::panic, reason = "the test cannot go on, and says what to do")]
pub fn sutler_binary() -> PathBuf {
    let path =
        std::env::var_os("SUTLER_BIN").map_or_else(|| target_dir().join("debug/sutler"), PathBuf::from);
    if !path.is_file() {
        panic!("there is no {}: run cargo build -p sutler, or set SUTLER_BIN", path.display());
    }
    path
}

impl SutlerProcess {
    /// Starts the binary with this configuration and these variables, and waits until `/readyz` says yes.
    ///
    /// # Panics
    /// When it does not become ready; the text has the end of its log.
    pub async fn start(config: &str, env: &[(&str, &str)]) -> Self {
        let process = Self::start_unready(config, env).await;
        process.wait_ready().await;
        process
    }

    /// As [`Self::start`], without waiting for readiness: only until it listens.
    ///
    /// # Panics
    /// When it does not listen.
    #[expect(clippy::panic, reason = "the test has failed")]
    pub async fn start_unready(config: &str, env: &[(&str, &str)]) -> Self {
        match Self::try_start(config, env).await {
            Ok(process) => process,
            Err(ended) => panic!("sutler ended before it listened: {ended}"),
        }
    }

    /// As [`Self::start_unready`], for a host that may end before it listens.
    ///
    /// # Errors
    /// How it ended, and its log.
    ///
    /// # Panics
    /// When it neither ends nor listens.
    pub async fn try_start(config: &str, env: &[(&str, &str)]) -> Result<Self, String> {
        Self::try_start_of(&sutler_binary(), config, env).await
    }

    /// As [`Self::try_start`], of another binary than the built one.
    ///
    /// # Errors
    /// How it ended, and its log.
    ///
    /// # Panics
    /// When it neither ends nor listens.
    #[expect(clippy::panic, clippy::expect_used, reason = "the test has failed")]
    pub async fn try_start_of(binary: &Path, config: &str, env: &[(&str, &str)]) -> Result<Self, String> {
        let folder = Folder::new();
        let file = folder.0.join("sutler.toml");
        let log = folder.0.join("sutler.log");
        std::fs::write(&file, config).expect("a configuration file in the temporary folder");
        let out = std::fs::File::create(&log).expect("a log file in the temporary folder");
        let errors = out.try_clone().expect("a second handle of the log file");
        let mut command = Command::new(binary);
        // A ledger of its own, unless the test brings one.
        if !config.contains("[ledger]") {
            command.env("SUTLER__LEDGER__PATH", folder.0.join("ledger.db"));
        }
        let mut child = command
            .args(["serve", "--config"])
            .arg(&file)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .expect("the sutler binary to start");
        let end = Instant::now() + PATIENCE;
        loop {
            let lines = lines(&log);
            let (main, admin) = addresses(&lines);
            let ended = child.try_wait().expect("the state of the process");
            if let Some(status) = ended {
                return Err(format!("{status}\n{}", tail(&lines)));
            }
            // The admin listener is announced beside the other one, if there is one.
            if let (Some(url), true) = (main, admin.is_some() || !config.contains("admin-listen")) {
                return Ok(Self { url, admin_url: admin, log, child, _folder: folder });
            }
            if Instant::now() > end {
                panic!("sutler did not listen within {PATIENCE:?}:\n{}", tail(&lines));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Panics
    /// When it does not in time.
    #[expect(clippy::panic, reason = "the test has failed")]
    pub async fn wait_ready(&self) {
        // The client here does not know the authority of a test with TLS, and a host listens once it has loaded.
        if self.url.starts_with("https:") {
            return;
        }
        let client = crate::http::client();
        let end = Instant::now() + PATIENCE;
        let mut last = String::new();
        while Instant::now() < end {
            match client.get(format!("{}/readyz", self.url)).send().await {
                Ok(response) if response.status() == 200 => return,
                Ok(response) => {
                    last = format!("{} {}", response.status(), response.text().await.unwrap_or_default())
                }
                Err(e) => last = e.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("sutler was not ready within {PATIENCE:?} ({last}):\n{}", tail(&self.log_lines()));
    }

    /// What the process wrote so far, stdout and stderr.
    pub fn log_lines(&self) -> Vec<String> {
        lines(&self.log)
    }

    /// The log's lines that are JSON with this `event`.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let parsed = self.log_lines().into_iter().filter_map(|l| serde_json::from_str::<Value>(&l).ok());
        parsed.filter(|v| v["event"] == event || v["fields"]["event"] == event).collect()
    }

    /// The process id.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    ///
    /// # Panics
    /// When it does not end in time.
    #[expect(clippy::panic, clippy::expect_used, reason = "the test has failed")]
    pub async fn stop(&mut self) -> ExitStatus {
        self.signal("TERM").await;
        match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.expect("the end of the process"),
            Err(_) => panic!("sutler did not stop within {PATIENCE:?}:\n{}", tail(&self.log_lines())),
        }
    }

    /// Sends it a signal (`STOP`, `CONT`), unless it has ended.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub async fn signal(&self, name: &str) {
        if let Some(id) = self.child.id() {
            // By the shell's own kill: a signal by hand would need unsafe code.
            let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {id}")).status().await;
            assert!(sent.is_ok_and(|s| s.success()), "SIG{name} could not be sent to process {id}");
        }
    }

    /// Waits until it has been stopped (SIGSTOP), by itself or by somebody.
    ///
    /// # Panics
    /// When it is not in time.
    #[expect(clippy::panic, reason = "the test has failed")]
    pub async fn stopped(&self) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let stat = self.child.id().map(|id| std::fs::read_to_string(format!("/proc/{id}/stat")));
            // The state stands behind the name in parentheses.
            if let Some(Ok(stat)) = stat
                && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("sutler was not stopped within {PATIENCE:?}:\n{}", tail(&self.log_lines()));
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.wait().await;
    }

    /// Ends it at once (SIGKILL), as a crash does.
    pub async fn kill(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill().await;
    }
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    #[expect(clippy::expect_used, reason = "a test that cannot write files cannot go on")]
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("sutler-test-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lines(log: &Path) -> Vec<String> {
    let bytes = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

fn tail(lines: &[String]) -> String {
    lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
}

/// The addresses in the lines that say `listening`: the main one's and the admin one's.
fn addresses(lines: &[String]) -> (Option<String>, Option<String>) {
    let (mut main, mut admin) = (None, None);
    for line in lines.iter().filter(|l| l.contains("listening")) {
        let value = serde_json::from_str::<Value>(line).unwrap_or_default();
        let field = |name: &str| {
            let json = [&value[name], &value["fields"][name]].into_iter().find_map(Value::as_str);
            json.map(str::to_owned).or_else(|| plain(line, name))
        };
        let tls = [&value["tls"], &value["fields"]["tls"]].into_iter().any(|t| *t == true);
        let scheme = if tls { "https" } else { "http" };
        if let Some(address) = field("admin").or_else(|| field("admin-address")).filter(|a| a.contains(':')) {
            // The admin listener has no TLS.
            admin = Some(as_url("http", &address));
        }
        let Some(address) = field("address").or_else(|| field("url")).filter(|a| a.contains(':')) else {
            continue;
        };
        let of_admin = field("listener").is_some_and(|l| l == "admin") || value["admin"] == true;
        *(if of_admin { &mut admin } else { &mut main }) = Some(as_url(scheme, &address));
    }
    (main, admin)
}

/// `name=VALUE` of a line that is no JSON.
fn plain(line: &str, name: &str) -> Option<String> {
    let from = line.split_once(&format!(" {name}="))?.1;
    Some(from.split_whitespace().next()?.trim_matches('"').to_owned())
}

fn as_url(scheme: &str, address: &str) -> String {
    if address.contains("://") {
        address.trim_end_matches('/').into()
    } else {
        format!("{scheme}://{address}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_any_of_the_forms() {
        let both = (Some("http://127.0.0.1:1".to_owned()), Some("http://127.0.0.1:2".to_owned()));
        for log in [
            vec![r#"{"event":"listening","address":"127.0.0.1:1","admin":"127.0.0.1:2"}"#],
            vec![
                r#"{"level":"INFO","fields":{"event":"listening","listener":"admin","address":"127.0.0.1:2"}}"#,
                r#"{"level":"INFO","fields":{"event":"listening","listener":"api","address":"127.0.0.1:1"}}"#,
            ],
            vec!["starting", "INFO listening address=127.0.0.1:1 admin=127.0.0.1:2"],
            vec![r#"{"event":"listening","url":"http://127.0.0.1:1/","admin-address":"127.0.0.1:2"}"#],
        ] {
            let lines: Vec<String> = log.into_iter().map(str::to_owned).collect();
            assert_eq!(addresses(&lines), both, "{lines:?}");
        }
        assert_eq!(addresses(&["nothing".to_owned()]), (None, None));
    }
}
