//! A process that writes is killed by SIGKILL at every point of the writer; what it had an answer for is there
//! afterwards, and nothing is there by halves.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use sutler_ledger::{Begun, FAILPOINTS, Job, Keys, Ledger, Sqlite, SqliteOptions, Status};

use crate::sqlite::{answer, held, save};

const FOLDER: &str = "SUTLER_CRASH_TEST_FOLDER";
pub(crate) const WRITERS: usize = 6;
pub(crate) const JOBS: usize = 3;
pub(crate) const SAVES: u64 = 3;

fn open(folder: &Path) -> Sqlite {
    let path = folder.join("ledger.db");
    let keys = Keys::open_or_make(&folder.join("ledger.key"), &path).unwrap();
    Sqlite::open(&path, keys, SqliteOptions { serving: true, ..SqliteOptions::default() }).unwrap()
}

/// Says what it has an answer for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that the test below kills"]
async fn killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let ledger = std::sync::Arc::new(open(Path::new(&folder)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for n in 0..JOBS {
                    finish(&*ledger, 100 * w + n).await;
                }
            })
        })
        .collect();
    for w in writers {
        w.await.unwrap();
    }
    println!("\nall");
}

pub(crate) async fn finish(ledger: &dyn Ledger, n: usize) {
    let said = |job: &Job| println!("\nhas {} {}", job.id, job.revision);
    let mut job = match ledger.begin(held().nth(n).new_job()).await.unwrap() {
        Begun::Created(job) | Begun::Repeated(job) => job,
        other => panic!("{other:?}"),
    };
    said(&job);
    while job.standing.status != Status::Completed {
        let next = job.revision + 1;
        let state = format!("{{\"saves\":{next}}}");
        let write = if next > SAVES + 1 { answer(&job, &state) } else { save(&job, &state) };
        job = ledger.commit(write).await.unwrap();
        said(&job);
    }
}

fn run(folder: &Path, failpoint: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::killed", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env("SUTLER_FAILPOINT", failpoint)
        .output()
        .unwrap()
}

/// The newest revision of each job that the process had an answer for.
pub(crate) fn acknowledged(output: &Output, known: &mut HashMap<String, u64>) {
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let ["has", id, revision] = line.split(' ').collect::<Vec<_>>()[..] {
            let revision = revision.parse().unwrap();
            let seen = known.entry(id.to_owned()).or_default();
            assert!(*seen <= revision, "{id} went back to {revision} from {seen}");
            *seen = revision;
        }
    }
}

pub(crate) async fn whole(ledger: &dyn Ledger, known: &HashMap<String, u64>, at: &str) {
    assert_eq!(ledger.check().await.unwrap(), [], "{at}");
    for (id, revision) in known {
        let read = async || {
            let job = ledger.job(id.parse().unwrap()).await.unwrap();
            job.unwrap_or_else(|| panic!("{at}: {id} is lost"))
        };
        // A server may still end what a dead process had sent it.
        let (job, events) = loop {
            let job = read().await;
            let events = ledger.events(job.id.clone(), 0, 100).await.unwrap();
            if read().await.revision == job.revision {
                break (job, events);
            }
        };
        assert!(job.revision >= *revision, "{at}: {id} is at {} and was at {revision}", job.revision);
        // Row, text and events went together.
        assert_eq!(events.len() as u64, 2 + job.revision, "{at}");
        let last = job.answer.clone().filter(|_| job.standing.status == Status::Completed);
        let state = last.unwrap_or_else(|| job.state.clone());
        let expected =
            if job.revision == 1 { "{}".into() } else { format!("{{\"saves\":{}}}", job.revision) };
        assert_eq!(&*state, expected, "{at}");
    }
}

#[tokio::test]
async fn nothing_that_was_answered_is_lost_wherever_the_process_dies() {
    for point in FAILPOINTS {
        let folder = tempfile::tempdir().unwrap();
        let mut known = HashMap::new();
        for n in [1, 2, 3, 5, 8] {
            let at = format!("{point}:{n}");
            let output = run(folder.path(), &at);
            assert_eq!(output.status.signal(), Some(9), "{at}: {output:?}");
            acknowledged(&output, &mut known);
            whole(&open(folder.path()), &known, &at).await;
        }
        let output = run(folder.path(), "none:1");
        assert!(output.status.success(), "{output:?}");
        acknowledged(&output, &mut known);
        assert_eq!(known.len(), WRITERS * JOBS);
        assert!(known.values().all(|revision| *revision == SAVES + 2), "{known:?}");
        whole(&open(folder.path()), &known, point).await;
    }
}
