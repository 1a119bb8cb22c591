//! Versions of the schema, and binaries of different versions beside each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use futures::future::join_all;
use sutler_ledger::contract::Sample;
use sutler_ledger::{Keys, Ledger, LedgerError, Postgres, PostgresOptions};
use tempfile::TempDir;

use super::contract::{keys, open, rig};
use crate::scale::claim;
use crate::sqlite::{answer, held, save};
use sutler_testkit::postgres::{Server, client, sql};

async fn refused(url: &str, keys: Keys, unmigrated: bool) -> String {
    let options = PostgresOptions { unmigrated, ..PostgresOptions::default() };
    match Postgres::open(url, keys, options).await {
        Err(e @ (LedgerError::Open(_) | LedgerError::Unreadable(_) | LedgerError::MissingKey { .. })) => {
            e.to_string()
        }
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

const NEWER: &str = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
                     SELECT version + 1, 'later', applied_on, '1' FROM refinery_schema_history \
                     ORDER BY version DESC LIMIT 1";

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let rig = rig().await;
    sql(&rig.url, NEWER).await;
    for unmigrated in [false, true] {
        let why = refused(&rig.url, keys(&rig.folder), unmigrated).await;
        assert!(why.contains("newer version of sutler (schema 4, this one knows 3)"), "{why}");
    }
    // Who has it open goes on.
    held().create(&*rig.ledger).await;
}

#[tokio::test]
async fn an_older_schema_is_refused_where_it_is_not_to_be_migrated() {
    let (url, folder) = (Server::shared().database().await, TempDir::new().unwrap());
    let why = refused(&url, keys(&folder), true).await;
    assert!(why.contains("schema 0") && why.contains("sutler ledger migrate"), "{why}");
    Postgres::migrate(&url, None).await.unwrap();
    Postgres::migrate(&url, None).await.unwrap();
    let options = PostgresOptions { unmigrated: true, ..PostgresOptions::default() };
    let ledger = Postgres::open(&url, keys(&folder), options).await.unwrap();
    held().create(&ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hosts_that_start_at_once_migrate_once() {
    let (url, folder) = (Server::shared().database().await, TempDir::new().unwrap());
    keys(&folder);
    let hosts = join_all((0..8).map(|_| open(&url, &folder))).await;
    let job = held().create(&*hosts[0]).await;
    for host in &hosts {
        assert!(host.job(job.id.clone()).await.unwrap().is_some());
    }
    let rows = client(&url).await.query("SELECT version FROM refinery_schema_history", &[]).await.unwrap();
    let versions: Vec<i32> = rows.iter().map(|r| r.get(0)).collect();
    assert_eq!(versions, [1, 2, 3], "each once");
}

/// What a later version may add under a running one of this version.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_expanding_migration_does_not_disturb_a_running_host() {
    let rig = rig().await;
    let stop = Arc::new(AtomicBool::new(false));
    let work = tokio::spawn({
        let (ledger, stop) = (rig.ledger.clone(), stop.clone());
        async move {
            let mut n = 0;
            while !stop.load(Ordering::SeqCst) || n < 50 {
                n += 1;
                let job = held().nth(n).create(&*ledger).await;
                let saved = ledger.commit(save(&job, "{\"n\":1}")).await.unwrap();
                ledger.commit(answer(&saved, "{}")).await.unwrap();
                let mut sample = held().nth(n + 1_000_000);
                sample.lease = None;
                sample.create(&*ledger).await;
                assert_eq!(ledger.claim(claim(9)).await.unwrap().len(), 1);
            }
            n
        }
    });
    sql(&rig.url, "ALTER TABLE provisioning_jobs ADD COLUMN note TEXT").await;
    sql(&rig.url, "ALTER TABLE provisioning_jobs ADD COLUMN stars BIGINT NOT NULL DEFAULT 3").await;
    sql(&rig.url, "CREATE TABLE notes (job BIGINT PRIMARY KEY, note TEXT NOT NULL)").await;
    sql(&rig.url, "CREATE INDEX jobs_by_note ON provisioning_jobs (note)").await;
    sql(&rig.url, "ALTER TABLE job_events ADD COLUMN note TEXT").await;
    sql(&rig.url, NEWER).await;
    stop.store(true, Ordering::SeqCst);
    let n = work.await.unwrap();
    println!("{n} rounds of work while the schema was expanded");
    assert_eq!(rig.ledger.check().await.unwrap(), []);
    assert_eq!(rig.ledger.export().map(Result::unwrap).count().await, 2 * n);
}

#[tokio::test]
async fn no_row_of_the_audit_is_changed() {
    let rig = rig().await;
    let sample = Sample { actions: vec![sutler_model::Action::Create], ..held() };
    sample.create(&*rig.ledger).await;
    let client = client(&rig.url).await;
    for change in ["UPDATE audit SET actor = 'somebody'", "TRUNCATE audit"] {
        let why = client.batch_execute(change).await.unwrap_err();
        let why = why.as_db_error().unwrap().message().to_owned();
        assert!(why.contains("append-only"), "{why}");
    }
}

#[tokio::test]
async fn the_wrong_key_is_found_at_the_start() {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    let elsewhere = TempDir::new().unwrap();
    let why = refused(&rig.url, keys(&elsewhere), false).await;
    assert!(why.contains("put that key back"), "{why}");
}

#[tokio::test]
async fn another_key_seals_everything_again() {
    let rig = rig().await;
    for n in 0..120 {
        let job = held().nth(n).create(&*rig.ledger).await;
        if n == 7 {
            rig.ledger.commit(answer(&job, "{\"password\":\"only-the-caller-knows\"}")).await.unwrap();
        }
    }
    let file = rig.folder.path().join("ledger.key");
    let id = Keys::rotate(&file).unwrap();
    assert_eq!(rig.ledger.reseal().await.unwrap(), 120 + 120 + 1);
    assert_eq!(rig.ledger.reseal().await.unwrap(), 0);
    let text = std::fs::read_to_string(&file).unwrap();
    let kept = |l: &&str| !l.starts_with('k') || l.starts_with(&id);
    let kept: Vec<&str> = text.lines().filter(kept).collect();
    std::fs::write(&file, kept.join("\n")).unwrap();
    let again = rig.host().await;
    assert_eq!(again.check().await.unwrap(), []);
    assert_eq!(again.export().map(Result::unwrap).count().await, 120);
}

#[tokio::test]
async fn nothing_sealed_is_readable_in_the_database() {
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    rig.ledger.commit(answer(&job, "{\"password\":\"only-the-caller-knows\"}")).await.unwrap();
    let mut all = String::new();
    let client = client(&rig.url).await;
    for table in ["provisioning_jobs", "job_events", "job_requests", "job_resources"] {
        for row in client.query(&format!("SELECT t::text FROM {table} t"), &[]).await.unwrap() {
            all.push_str(row.get(0));
        }
    }
    for secret in [sutler_ledger::contract::SECRET, "only-the-caller-knows", "password"] {
        let hex: String = secret.bytes().map(|b| format!("{b:02x}")).collect();
        assert!(!all.contains(secret) && !all.contains(&hex), "{secret}");
    }
    assert!(
        all.contains(job.id.as_str()) && all.contains("step-started"),
        "the search would find what is there"
    );
}

/// What `check` must see, each done by hand.
#[tokio::test]
async fn damage_is_found() {
    for (damage, words) in [
        ("DELETE FROM job_events WHERE seq = 2", "event 2 is missing"),
        ("DELETE FROM job_events WHERE seq = 3", "ends with another event"),
        ("DELETE FROM job_events", "has no events"),
        ("DELETE FROM job_resources", "does not have the resource \"main\""),
        ("DELETE FROM job_requests", "not remembered by their request id"),
        ("UPDATE provisioning_jobs SET status = 'melted'", "\"melted\" is no Status"),
        ("UPDATE provisioning_jobs SET queue = 3", "waits in queue 3"),
        ("UPDATE provisioning_jobs SET state = request", "state of op_"),
        (
            "UPDATE job_events SET what = '{\"event\":\"danced\"}' WHERE seq = 2",
            "an event in the ledger cannot be read",
        ),
        ("UPDATE provisioning_jobs SET n = DEFAULT", "tell of no job"),
    ] {
        let rig = rig().await;
        held().create(&*rig.ledger).await;
        sql(&rig.url, damage).await;
        let found = rig.ledger.check().await.unwrap();
        assert!(found.iter().any(|p| p.message.contains(words)), "{damage}: {found:?}");
    }
}
