//! A real Docker daemon, and Docker's own command line as judge of what is on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What stands in for KSML's runner, as an image that only the daemon has; its user is 65532.
pub const RUNNER: &str = "sutler.test/ksml-runner:docker";

/// Where the daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealDocker {
    pub socket: PathBuf,
}

/// The daemon where `SUTLER_REAL=1` asks for the real world, else `None`. With it a missing daemon fails the test.
///
/// # Panics
/// When it is asked for and not there.
#[expect(clippy::panic, reason = "the test cannot go on, and says what to do")]
pub fn real_docker() -> Option<RealDocker> {
    let given = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    if given("SUTLER_REAL").as_deref() != Some("1") {
        return None;
    }
    match given("SUTLER_REAL_DOCKER").map(PathBuf::from) {
        Some(socket) if socket.exists() => Some(RealDocker { socket }),
        Some(socket) => panic!("SUTLER_REAL=1, but there is no socket {}", socket.display()),
        None => panic!("SUTLER_REAL=1, but SUTLER_REAL_DOCKER (the socket of a Docker daemon) is not set"),
    }
}

fn testkit(path: &str) -> PathBuf {
    crate::checkout().join("host/testkit").join(path)
}

#[expect(clippy::panic, clippy::expect_used, reason = "the test has failed")]
impl RealDocker {
    /// Runs `docker`: what it printed, or what it said where it failed.
    ///
    /// # Errors
    /// The arguments and what it said.
    pub fn try_run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.socket.display())).args(words);
        let out = command.output().map_err(|e| format!("docker cannot be run: {e}"))?;
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        match out.status.success() {
            true => Ok(text(&out.stdout)),
            false => Err(format!("docker {words:?}: {}{}", text(&out.stdout), text(&out.stderr))),
        }
    }

    /// # Panics
    /// Where `docker` fails.
    pub fn run(&self, words: &[&str]) -> String {
        self.try_run(words).unwrap_or_else(|e| panic!("{e}"))
    }

    /// `docker inspect` of a container; `None` where there is none.
    pub fn inspect(&self, name: &str) -> Option<Value> {
        let text = self.try_run(&["container", "inspect", name]).ok()?;
        serde_json::from_str::<Value>(&text).ok().map(|mut all| all[0].take())
    }

    /// Names of the containers with a label, sorted.
    pub fn with_label(&self, label: &str) -> Vec<String> {
        let filter = format!("label={label}");
        let text = self.run(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]);
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Names of the volumes with a label.
    pub fn volumes_with_label(&self, label: &str) -> Vec<String> {
        let filter = format!("label={label}");
        let text = self.run(&["volume", "ls", "--filter", &filter, "--format", "{{.Name}}"]);
        text.lines().map(str::to_owned).collect()
    }

    /// A file of a container, running or not: its mode, its user and its text.
    ///
    /// # Panics
    /// Where it is not there.
    pub fn file(&self, container: &str, path: &str) -> (u32, u64, String) {
        use std::io::Read as _;
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.socket.display()));
        let out = command.args(["cp", &format!("{container}:{path}"), "-"]).output().expect("docker cp");
        let mut archive = tar::Archive::new(&out.stdout[..]);
        let mut entry = archive
            .entries()
            .ok()
            .and_then(|mut all| all.next())
            .and_then(Result::ok)
            .unwrap_or_else(|| panic!("{path}: {}", String::from_utf8_lossy(&out.stderr)));
        let (mode, user) = (entry.header().mode().expect("a mode"), entry.header().uid().expect("a user"));
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("a text");
        (mode & 0o7777, user, text)
    }

    /// Makes [`RUNNER`] with the project's own scripts and loads it.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub fn load_runner(&self, folder: &Path) {
        let root = folder.join("runner");
        std::fs::create_dir_all(root.join("tmp")).expect("a folder");
        let program = root.join("ksml-runner");
        let built = Command::new("sh").arg(testkit("images/ksml-runner/build.sh")).arg(&program).status();
        assert!(built.is_ok_and(|s| s.success()), "the image's program could not be built");
        let archive = folder.join("runner.tar");
        let made = Command::new(testkit("kubernetes/mkimage.sh"))
            .args([RUNNER.as_ref(), root.as_os_str(), archive.as_os_str()])
            .args([r#"["/ksml-runner"]"#, "65532:65532"])
            .status();
        assert!(made.is_ok_and(|s| s.success()), "the image could not be made");
        self.run(&["load", "--quiet", "--input", &archive.display().to_string()]);
    }

    /// Kills the process of a container behind Docker's back.
    ///
    /// # Panics
    /// Where it has none.
    pub fn kill_process(&self, container: &str) {
        let pid = self.inspect(container).and_then(|c| c["State"]["Pid"].as_u64()).unwrap_or_default();
        assert!(pid > 1, "{container} has no process");
        let killed = Command::new("sh").arg("-c").arg(format!("kill -KILL {pid}")).status();
        assert!(killed.is_ok_and(|s| s.success()), "process {pid} could not be killed");
    }
}
