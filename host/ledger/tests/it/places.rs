//! One file by several names, and whether it can be written.

use std::os::unix::fs::symlink;
use std::path::Path;

use rusqlite::Connection;
use sutler_ledger::contract::Sample;
use sutler_ledger::{Keys, Ledger, LedgerError, Sqlite, SqliteOptions};

use crate::sqlite::{held, rig, save};

fn serve(path: &Path, keys: &Path) -> Result<Sqlite, LedgerError> {
    let options = SqliteOptions { serving: true, ..SqliteOptions::default() };
    Sqlite::open(path, Keys::open(keys).unwrap(), options)
}

#[tokio::test]
async fn a_file_is_served_once_by_whichever_name() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    let keys = at("ledger.key");
    Keys::rotate(&keys).unwrap();
    for folder in ["real", "other"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    symlink(at("real"), at("linked")).unwrap();
    symlink("../real/ledger.db", at("other/link.db")).unwrap();
    // The first host makes it through a link that leads nowhere yet.
    let host = serve(&at("other/link.db"), &keys).unwrap();
    assert!(at("real/ledger.db").is_file());
    let job = Sample { lease: Some(("host-1", 3600)), ..Sample::default() }.create(&host).await;
    std::fs::hard_link(at("real/ledger.db"), at("other/hard.db")).unwrap();
    let names =
        ["real/ledger.db", "linked/ledger.db", "other/link.db", "real/../real/ledger.db", "other/hard.db"];
    for name in names {
        let Err(LedgerError::Open(why)) = serve(&at(name), &keys) else { panic!("{name} is served twice") };
        assert!(why.contains("another host serves the ledger") && why.contains("is locked"), "{name}: {why}");
    }
    // It was not taken for dead, and goes on.
    assert!(host.job(job.id.clone()).await.unwrap() == Some(job.clone()));
    host.commit(save(&job, "{}")).await.unwrap();
    drop(host);
    std::fs::remove_file(at("other/hard.db")).unwrap();
    for name in ["linked/ledger.db", "other/link.db"] {
        assert!(serve(&at(name), &keys).unwrap().job(job.id.clone()).await.unwrap().is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_probe_finds_a_disk_that_takes_nothing() {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    for (full, read_only, words) in [(true, false, "full"), (false, true, "read-only")] {
        rig.ledger.trouble(full, read_only).await.unwrap();
        let got = rig.ledger.probe().await;
        assert!(matches!(&got, Err(LedgerError::Unavailable(why)) if why.contains(words)), "{got:?}");
        rig.ledger.trouble(false, false).await.unwrap();
        rig.ledger.probe().await.unwrap();
    }
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

/// What a probe writes goes to the disk: the log beside the file grows, and its pages are what they were.
#[tokio::test]
async fn a_probe_writes_to_the_log() {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    Connection::open(rig.file()).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let log = || std::fs::metadata(rig.folder.path().join("ledger.db-wal")).unwrap().len();
    assert_eq!(log(), 0);
    rig.ledger.probe().await.unwrap();
    assert!(log() > 4096, "{}", log());
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}
