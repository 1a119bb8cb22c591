//! What is particular to the file: sealing, full disks, locks, clocks, keys, restarts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rusqlite::Connection;
use sutler_ledger::contract::{Rig, SECRET, Sample};
use sutler_ledger::{
    Begun, Happened, Job, Keys, LeaseChange, Ledger, LedgerError, ManualClock, Millis, Sqlite, SqliteOptions,
    Status, Write,
};
use tempfile::TempDir;

use crate::damage::refused;
use crate::scale::claim;

pub(crate) struct InFile {
    pub(crate) clock: ManualClock,
    pub(crate) folder: TempDir,
    pub(crate) ledger: Arc<Sqlite>,
}

pub(crate) fn open(folder: &Path, clock: &ManualClock) -> Result<Sqlite, LedgerError> {
    let path = folder.join("ledger.db");
    let keys = Keys::open_or_make(&folder.join("ledger.key"), &path)?;
    let busy = Some(Duration::from_millis(200));
    let options = SqliteOptions { clock: Some(clock.clock()), busy, ..SqliteOptions::default() };
    Sqlite::open(&path, keys, options)
}

pub(crate) async fn rig() -> InFile {
    let clock = ManualClock::new(Millis(1_800_000_000_000));
    let folder = tempfile::tempdir().unwrap();
    InFile { ledger: Arc::new(open(folder.path(), &clock).unwrap()), folder, clock }
}

impl InFile {
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }
    /// Closes the ledger and opens it again, as after a restart.
    fn again(self) -> Self {
        let Self { clock, folder, ledger } = self;
        drop(Arc::into_inner(ledger).unwrap());
        InFile { ledger: Arc::new(open(folder.path(), &clock).unwrap()), folder, clock }
    }
    /// Closes the ledger and changes its file by hand.
    pub(crate) fn by_hand(self, sql: &str) -> (TempDir, ManualClock) {
        let Self { clock, folder, ledger } = self;
        drop(Arc::into_inner(ledger).unwrap());
        Connection::open(folder.path().join("ledger.db")).unwrap().execute_batch(sql).unwrap();
        (folder, clock)
    }
}

impl Rig for InFile {
    fn ledger(&self) -> Arc<dyn Ledger> {
        self.ledger.clone()
    }
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(by);
        Box::pin(async {})
    }
    fn another(&self) -> BoxFuture<'_, Arc<dyn Ledger>> {
        let folder = self.folder.path().join("another");
        std::fs::create_dir(&folder).unwrap();
        let other: Arc<dyn Ledger> = Arc::new(open(&folder, &self.clock).unwrap());
        Box::pin(async { other })
    }
}

mod contract {
    sutler_ledger::contract_tests!(super::rig);
}

pub(crate) fn held() -> Sample {
    Sample { lease: Some(("host-1", 30)), ..Sample::default() }
}

pub(crate) fn save(job: &Job, state: &str) -> Write {
    Write {
        id: job.id.clone(),
        revision: job.revision,
        token: Some(job.token),
        standing: job.standing.clone(),
        due_after: Duration::ZERO,
        lease: LeaseChange::Keep,
        state: Some(state.into()),
        answer: None,
        generation: None,
        deadline_after: None,
        events: vec![Happened::Saved],
        deed: None,
    }
}

pub(crate) fn answer(job: &Job, answer: &str) -> Write {
    let mut w = save(job, "{}");
    w.standing.status = Status::Completed;
    w.answer = Some(Some(answer.into()));
    w.events = vec![Happened::Completed];
    w
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let mut rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    let saved = rig.ledger.commit(save(&job, "{\"vpc\":1}")).await.unwrap();
    rig = rig.again();
    assert!(rig.ledger.job(job.id.clone()).await.unwrap() == Some(saved.clone()));
    assert!(rig.ledger.begin(held().new_job()).await.unwrap() == Begun::Repeated(saved));
}

#[tokio::test]
async fn nothing_sealed_is_readable_in_the_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    for file in ["ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.key"] {
        let mode = std::fs::metadata(rig.folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let saved = rig.ledger.commit(save(&job, "{\"state\":\"only-the-state-knows\"}")).await.unwrap();
    let done = rig.ledger.commit(answer(&saved, "{\"password\":\"only-the-caller-knows\"}")).await.unwrap();
    assert!(done.request.contains(SECRET) && done.answer.unwrap().contains("only-the-caller-knows"));
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(rig.folder.path()).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has(job.id.as_str()) && has("step-started"), "the search would find what is there");
    for secret in [SECRET, "only-the-state-knows", "only-the-caller-knows", "password"] {
        assert!(!has(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers_by_itself() {
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    rig.ledger.trouble(true, false).await.unwrap();
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(400_000));
    // Many at once: those that find no room are refused, and nothing of them is written.
    let news: Vec<_> = (0..20).map(|n| held().nth(n + 2)).collect();
    let writes = news.iter().map(|s| {
        let mut new = s.new_job();
        new.job.state = large.as_str().into();
        rig.ledger.begin(new)
    });
    for got in futures::future::join_all(writes).await {
        assert!(matches!(&got, Err(LedgerError::Unavailable(why)) if why.contains("full")), "{got:?}");
    }
    let got = rig.ledger.commit(save(&job, &large)).await;
    assert!(matches!(got, Err(LedgerError::Unavailable(_))), "{got:?}");
    assert!(rig.ledger.job(job.id.clone()).await.unwrap() == Some(job.clone()), "reading goes on");
    rig.ledger.trouble(false, false).await.unwrap();
    let saved = rig.ledger.commit(save(&job, &large)).await.unwrap();
    assert_eq!(saved.revision, 2);
    for s in &news {
        s.create(&*rig.ledger).await;
    }
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_small_write_passes_beside_one_that_finds_no_room() {
    let rig = rig().await;
    let mut jobs = Vec::new();
    for n in 0..30 {
        let mut new = held().nth(n).new_job();
        new.job.state = format!("{{\"x\":\"{}\"}}", "x".repeat(500)).into();
        let Begun::Created(job) = rig.ledger.begin(new).await.unwrap() else { panic!("new") };
        jobs.push(job);
    }
    rig.ledger.trouble(true, false).await.unwrap();
    // Every fifth wants many new pages; the others fit where their old states were.
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(400_000));
    let writes = jobs
        .iter()
        .enumerate()
        .map(|(n, job)| rig.ledger.commit(save(job, if n % 5 == 0 { &large } else { "{}" })));
    for (n, got) in futures::future::join_all(writes).await.into_iter().enumerate() {
        assert_eq!(got.is_ok(), n % 5 != 0, "{n}: {got:?}");
    }
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_read_only_disk_refuses_and_recovers_by_itself() {
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    rig.ledger.trouble(false, true).await.unwrap();
    for _ in 0..3 {
        let got = rig.ledger.commit(save(&job, "{}")).await;
        assert!(matches!(&got, Err(LedgerError::Unavailable(why)) if why.contains("read-only")), "{got:?}");
    }
    assert!(rig.ledger.asked("axual", "apply", "r-1").await.unwrap().is_some());
    rig.ledger.trouble(false, false).await.unwrap();
    assert_eq!(rig.ledger.commit(save(&job, "{}")).await.unwrap().revision, 2);
}

#[tokio::test]
async fn a_file_that_is_held_by_another_writer_is_unavailable_and_not_lost() {
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    let other = Connection::open(rig.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let got = rig.ledger.commit(save(&job, "{}")).await;
    assert!(matches!(&got, Err(LedgerError::Unavailable(why)) if why.contains("another process")), "{got:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(rig.ledger.commit(save(&job, "{}")).await.unwrap().revision, 2);
}

#[tokio::test]
async fn one_host_serves_a_file_and_commands_work_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let keys = Keys::open_or_make(&folder.path().join("ledger.key"), &path).unwrap();
    let serving = || SqliteOptions { serving: true, ..SqliteOptions::default() };
    let host = Sqlite::open(&path, keys.clone(), serving()).unwrap();
    let job = held().create(&host).await;
    let why = Sqlite::open(&path, keys.clone(), serving()).err().unwrap().to_string();
    assert!(why.contains("another host serves") && why.contains("PostgreSQL"), "{why}");
    let command = Sqlite::open(&path, keys.clone(), SqliteOptions::default()).unwrap();
    assert!(command.job(job.id.clone()).await.unwrap() == Some(job.clone()));
    command.commit(save(&job, "{}")).await.unwrap();
    assert_eq!(host.job(job.id).await.unwrap().unwrap().revision, 2);
    drop(host);
    Sqlite::open(&path, keys, serving()).unwrap();
}

#[tokio::test]
async fn the_next_host_of_a_file_ends_the_leases_of_the_one_before() {
    let rig = rig().await;
    let long = Sample { lease: Some(("host-1", 3600)), ..Sample::default() };
    let job = long.create(&*rig.ledger).await;
    let rig = rig.again();
    let read = rig.ledger.job(job.id.clone()).await.unwrap().unwrap();
    assert!(read == job, "who opens it beside a host leaves leases alone");
    let InFile { clock, folder, ledger } = rig;
    drop(Arc::into_inner(ledger).unwrap());
    clock.advance(Duration::from_secs(5));
    let path = folder.path().join("ledger.db");
    let keys = Keys::open(&folder.path().join("ledger.key")).unwrap();
    let options = SqliteOptions { serving: true, clock: Some(clock.clock()), ..SqliteOptions::default() };
    let host = Sqlite::open(&path, keys, options).unwrap();
    let read = host.job(job.id.clone()).await.unwrap().unwrap();
    assert_eq!(read.lease.map(|l| l.until), Some(clock.now()));
    // What the dead host sent may still be on its way.
    assert!(host.claim(claim(1)).await.unwrap().is_empty());
    clock.advance(claim(1).takeover_after);
    assert_eq!(host.claim(claim(1)).await.unwrap().len(), 1);
    assert_eq!(host.check().await.unwrap(), []);
}

#[tokio::test]
async fn an_older_schema_is_brought_forward_only_by_who_may() {
    let rig = rig().await;
    let (folder, _) = rig.by_hand("DELETE FROM refinery_schema_history");
    let path = folder.path().join("ledger.db");
    let keys = Keys::open(&folder.path().join("ledger.key")).unwrap();
    let options = SqliteOptions { unmigrated: true, ..SqliteOptions::default() };
    let why = Sqlite::open(&path, keys.clone(), options.clone()).err().unwrap().to_string();
    assert!(why.contains("schema 0") && why.contains("sutler ledger migrate"), "{why}");
    // A new one is made.
    std::fs::remove_file(&path).unwrap();
    held().create(&Sqlite::open(&path, keys, options).unwrap()).await;
}

#[tokio::test]
async fn no_row_of_the_audit_is_changed() {
    let rig = rig().await;
    let sample = Sample { actions: vec![sutler_model::Action::Create], ..held() };
    sample.create(&*rig.ledger).await;
    let conn = Connection::open(rig.folder.path().join("ledger.db")).unwrap();
    let why = conn.execute("UPDATE audit SET actor = 'somebody'", []).unwrap_err().to_string();
    assert!(why.contains("append-only"), "{why}");
}

#[tokio::test]
async fn the_clock_begins_at_the_newest_time_stored() {
    let mut rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    // The wall clock is set back a year while the host is down.
    rig.clock.set(Millis(job.updated.0 - 31_536_000_000));
    rig = rig.again();
    assert_eq!(rig.ledger.now().await.unwrap(), job.updated);
    let path = rig.file();
    let keys = Keys::open(&rig.folder.path().join("ledger.key")).unwrap();
    // The sample's times are of 2027; a steady clock goes on from there.
    let steady = Sqlite::open(&path, keys, SqliteOptions::default()).unwrap();
    assert!(steady.now().await.unwrap() >= job.updated);
}

#[tokio::test]
async fn keys_rotate_and_texts_are_sealed_again() {
    let rig = rig().await;
    let key_file = rig.folder.path().join("ledger.key");
    let old = std::fs::read_to_string(&key_file).unwrap();
    let mut jobs = Vec::new();
    for n in 0..150 {
        jobs.push(held().nth(n).create(&*rig.ledger).await);
    }
    rig.ledger.commit(answer(&jobs[0], "{\"a\":1}")).await.unwrap();
    let id = Keys::rotate(&key_file).unwrap();
    let both = std::fs::read_to_string(&key_file).unwrap();
    assert!(both.contains(&format!("active = \"{id}\"")) && both.len() > old.len() + 64);
    assert_eq!(rig.ledger.reseal().await.unwrap(), 150 + 150 + 1);
    assert_eq!(rig.ledger.reseal().await.unwrap(), 0);
    // With the old key taken out everything still opens.
    let kept: String =
        both.lines().filter(|l| !l.starts_with('k') || l.starts_with(&id)).fold(String::new(), |mut s, l| {
            s.push_str(l);
            s.push('\n');
            s
        });
    std::fs::write(&key_file, kept).unwrap();
    let rig = rig.again();
    assert_eq!(rig.ledger.check().await.unwrap(), []);
    assert!(rig.ledger.job(jobs[7].id.clone()).await.unwrap().unwrap().request == jobs[7].request);
    // With the old file alone it is refused, and the missing key is named.
    std::fs::write(&key_file, old).unwrap();
    let (folder, clock) = rig.by_hand("");
    let why = refused(folder.path(), &clock);
    assert!(why.contains(&id) && why.contains("ledger.key"), "{why}");
}

#[tokio::test]
async fn a_running_host_learns_of_a_rotation() {
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    let key_file = rig.folder.path().join("ledger.key");
    Keys::rotate(&key_file).unwrap();
    let command = open(rig.folder.path(), &rig.clock).unwrap();
    command.commit(save(&job, "{\"by\":\"new key\"}")).await.unwrap();
    let read = rig.ledger.job(job.id).await.unwrap().unwrap();
    assert_eq!(&*read.state, "{\"by\":\"new key\"}");
}

#[tokio::test]
async fn a_lost_key_file_is_not_replaced_by_a_new_one() {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    std::fs::remove_file(rig.folder.path().join("ledger.key")).unwrap();
    let (folder, clock) = rig.by_hand("");
    let why = refused(folder.path(), &clock);
    assert!(why.contains("restore the one that the ledger was made with"), "{why}");
}
