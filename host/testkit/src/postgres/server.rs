//! A PostgreSQL server of the tests' own: made, started, killed and removed with them.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

const MISSING: &str = "PostgreSQL is not installed, and these tests need it: apt-get install postgresql";

/// Dropping it ends the server and removes its folder.
pub struct Server {
    folder: PathBuf,
    port: u16,
    options: Vec<String>,
    server: Mutex<Option<Child>>,
    databases: AtomicU32,
    /// Kills the server and removes the folder when this process has gone, however it went.
    guard: Child,
}

fn programs() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| panic!("{MISSING}")).1
}

fn root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// PostgreSQL does not run as root.
fn command(program: &str) -> Command {
    let path = programs().join(program);
    if !root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]).arg(path);
    command
}

fn done(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Makes a file the server's own, so that it reads it.
pub fn give(path: &Path) {
    if root() {
        let id = |flag| {
            let out = Command::new("id").args([flag, "postgres"]).output().unwrap().stdout;
            String::from_utf8(out).unwrap().trim().parse::<u32>().unwrap_or_else(|_| panic!("{MISSING}"))
        };
        chown(path, Some(id("-u")), Some(id("-g"))).unwrap();
    }
}

impl Server {
    /// One for all tests of the process; each uses databases of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(|_| Vec::new()))
    }

    /// A server with further settings, for which `prepare` may put files into the folder.
    pub fn start(prepare: impl Fn(&Path) -> Vec<String>) -> Self {
        programs();
        let folder = tempfile::Builder::new().prefix("sutler-postgres-").tempdir().unwrap().keep();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        give(&folder);
        let script = "read -r _; kill -9 $(head -n 1 \"$0/data/postmaster.pid\") 2>/dev/null; rm -rf \"$0\"";
        let mut guard = Command::new("sh");
        guard
            .args(["-c", script])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let guard = guard.spawn().unwrap();
        let mut initdb = command("initdb");
        initdb.args(["--username=sutler", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        done(initdb.arg("-D").arg(folder.join("data")));
        let options = prepare(&folder);
        let (port, server, databases) = (0, Mutex::default(), AtomicU32::new(0));
        let mut this = Self { folder, port, options, server, databases, guard };
        // Another process may take the port in between.
        for _ in 0..5 {
            this.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if this.run() {
                return this;
            }
        }
        panic!("PostgreSQL does not start: {}", this.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn run(&self) -> bool {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut postgres = command("postgres");
        postgres.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        postgres.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=on"]);
        postgres.args(["-c", "max_connections=200"]).args(&self.options);
        let child =
            postgres.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
        *self.server.lock().unwrap() = Some(child);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            let mut ready = Command::new(programs().join("pg_isready"));
            ready.args(["-q", "-p", &self.port.to_string(), "-h"]).arg(&self.folder);
            if ready.status().unwrap().success() {
                return true;
            }
            if self.server.lock().unwrap().as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// As a loss of power: nothing is shut down. The server's other processes go with their parent.
    pub fn kill(&self) {
        let mut child = self.server.lock().unwrap().take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// As an administrator's restart: clients are sent away.
    pub fn shut_down(&self) {
        let mut child = self.server.lock().unwrap().take().unwrap();
        done(Command::new("kill").args(["-INT", &child.id().to_string()]));
        child.wait().unwrap();
    }

    /// As it was before it was killed or shut down.
    pub fn start_again(&self) {
        // The killed server's processes must have let go of its memory.
        let start = Instant::now();
        while !self.run() {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not start again: {}", self.log());
        }
    }

    /// A program that comes with the server.
    pub fn program(name: &str) -> PathBuf {
        programs().join(name)
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://sutler@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database's URL.
    pub async fn database(&self) -> String {
        let name = format!("ledger_{}", self.databases.fetch_add(1, Ordering::SeqCst));
        sql(&self.url("postgres"), &format!("CREATE DATABASE {name}")).await;
        self.url(&name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let ended: io::Result<_> = self.guard.wait();
        if let Some(child) = self.server.lock().unwrap().as_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        ended.unwrap();
    }
}

/// A connection to it.
pub async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Runs statements on it.
pub async fn sql(url: &str, text: &str) {
    client(url).await.batch_execute(text).await.unwrap_or_else(|e| panic!("{text}: {e:?}"));
}
