//! Files that are cut, corrupted, another's, or wrong inside.

use std::path::Path;

use futures::StreamExt as _;
use rusqlite::Connection;
use sutler_ledger::{Keys, Ledger, LedgerError, ManualClock, Millis};

use crate::sqlite::{InFile, held, open, rig};

pub(crate) fn refused(folder: &Path, clock: &ManualClock) -> String {
    match open(folder, clock) {
        Err(e @ (LedgerError::Unreadable(_) | LedgerError::MissingKey { .. } | LedgerError::Open(_))) => {
            e.to_string()
        }
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

async fn filled() -> InFile {
    let rig = rig().await;
    for n in 0..200 {
        held().nth(n).create(&*rig.ledger).await;
    }
    rig
}

#[tokio::test]
async fn a_cut_file_is_found_when_it_is_opened() {
    for keep in [0, 1, 100, 4096, 40_960] {
        let (folder, clock) = filled().await.by_hand("");
        let path = folder.path().join("ledger.db");
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        assert!(file.metadata().unwrap().len() > 100_000);
        file.set_len(keep).unwrap();
        let why = refused(folder.path(), &clock);
        assert!(why.contains("restore a backup"), "{keep}: {why}");
    }
}

#[tokio::test]
async fn a_corrupted_page_is_found_when_it_is_opened() {
    use std::os::unix::fs::FileExt as _;
    let (folder, clock) = filled().await.by_hand("");
    let path = folder.path().join("ledger.db");
    let pages = std::fs::metadata(&path).unwrap().len() / 4096;
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for page in 1..pages {
        file.write_all_at(&[0x5a; 64], page * 4096).unwrap();
    }
    let why = refused(folder.path(), &clock);
    assert!(why.contains("damaged") && why.contains("sutler ledger export"), "{why}");
}

#[tokio::test]
async fn what_is_no_ledger_is_refused() {
    let clock = ManualClock::new(Millis(0));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    Keys::rotate(&folder.path().join("ledger.key")).unwrap();
    std::fs::write(&path, "# not a database, but a file of somebody's own\n".repeat(200)).unwrap();
    assert!(refused(folder.path(), &clock).contains("damaged"));
    std::fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    assert!(refused(folder.path(), &clock).contains("not a ledger of sutler"));
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let sql = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
               SELECT max(version) + 7, 'later', applied_on, checksum FROM refinery_schema_history";
    let (folder, clock) = rig().await.by_hand(sql);
    let why = refused(folder.path(), &clock);
    assert!(why.contains("newer version of sutler") && why.contains("schema 10"), "{why}");
}

#[tokio::test]
async fn check_names_what_is_wrong() {
    for (sql, words) in [
        ("DELETE FROM job_events WHERE seq = 2", "event 2 is missing"),
        ("DELETE FROM job_events WHERE seq = 3", "ends with another event"),
        ("DELETE FROM job_resources", "does not have the resource"),
        ("UPDATE provisioning_jobs SET status = 'sleeping'", "\"sleeping\" is no Status"),
        ("UPDATE provisioning_jobs SET queue = 3", "waits in queue 3"),
        (
            "UPDATE job_events SET what = '{\"event\":\"danced\"}' WHERE seq = 1",
            "an event in the ledger cannot be read",
        ),
        ("UPDATE sealed_states SET sealed = zeroblob(99)", "not a sealed text"),
        ("UPDATE sealed_states SET sealed = (SELECT sealed FROM sealed_requests)", "state of op_"),
        ("DELETE FROM sealed_requests", "it is missing"),
        ("DELETE FROM job_requests", "not remembered by their request id"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM provisioning_jobs", "hold a resource for no job"),
        (
            "INSERT INTO audit (at, actor, action, resource_type, resource_id, operation) VALUES (1, 'a', 'b', 'c', 'd', 'e')",
            "row 1 of the audit",
        ),
    ] {
        let rig = rig().await;
        held().create(&*rig.ledger).await;
        let (folder, clock) = rig.by_hand(sql);
        let ledger = open(folder.path(), &clock).unwrap();
        let problems = ledger.check().await.unwrap();
        assert!(problems.iter().any(|p| p.message.contains(words)), "{sql}: {problems:?}");
    }
}

#[tokio::test]
async fn damaged_jobs_do_not_keep_the_others_from_being_claimed() {
    for sql in [
        "UPDATE sealed_states SET sealed = zeroblob(9) WHERE job = 1",
        "DELETE FROM sealed_states WHERE job = 1",
        "UPDATE provisioning_jobs SET phase = 'sideways' WHERE n = 1",
    ] {
        let rig = rig().await;
        for n in 0..3 {
            let mut sample = held();
            sample.lease = None;
            sample.nth(n).create(&*rig.ledger).await;
        }
        let (folder, clock) = rig.by_hand(sql);
        let ledger = open(folder.path(), &clock).unwrap();
        let claim = crate::scale::claim(5);
        assert_eq!(ledger.claim(claim.clone()).await.unwrap().len(), 2, "{sql}");
        assert!(ledger.claim(claim).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_export_of_a_damaged_ledger_gives_the_rest() {
    let rig = rig().await;
    for n in 0..3 {
        held().nth(n).create(&*rig.ledger).await;
    }
    let (folder, clock) = rig.by_hand("UPDATE sealed_states SET sealed = zeroblob(9) WHERE job = 2");
    let ledger = open(folder.path(), &clock).unwrap();
    let records: Vec<_> = ledger.export().collect().await;
    assert_eq!(records.iter().filter(|r| r.is_ok()).count(), 2);
    assert_eq!(records.len(), 3);
}
