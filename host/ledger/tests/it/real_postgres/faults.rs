//! Servers that die, connections that break.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use sutler_ledger::contract::Sample;
use sutler_ledger::{Begun, Job, JobId, Ledger, LedgerError, Postgres, PostgresOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::contract::{keys, open, rig};
use crate::scale::claim;
use crate::sqlite::{held, save};
use sutler_testkit::postgres::{Cut, Proxy, Server};

const LONG: Duration = Duration::from_secs(60);

/// As a caller does: asks again until the ledger is there.
async fn back<T>(mut ask: impl AsyncFnMut() -> Result<T, LedgerError>) -> T {
    let start = Instant::now();
    loop {
        match ask().await {
            Ok(got) => return got,
            Err(e) => assert!(start.elapsed() < LONG, "the ledger does not come back: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Begins one job after the other until the ledger fails; answers those that were promised and the one that was not.
async fn until_it_fails(ledger: Arc<Postgres>, writer: usize) -> (Vec<JobId>, usize, LedgerError) {
    let mut promised = Vec::new();
    for n in 0.. {
        match ledger.begin(held().nth(writer * 1_000_000 + n).new_job()).await {
            Ok(Begun::Created(job)) => promised.push(job.id),
            Ok(other) => panic!("{other:?}"),
            Err(e) => return (promised, writer * 1_000_000 + n, e),
        }
    }
    unreachable!("it fails some day")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_loses_nothing_and_the_ledger_recovers() {
    lose_and_recover(Server::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_shut_down_loses_nothing_and_the_ledger_recovers() {
    lose_and_recover(Server::shut_down).await;
}

async fn lose_and_recover(stop: fn(&Server)) {
    let server = Server::start(|_| Vec::new());
    let (url, folder) = (server.database().await, TempDir::new().unwrap());
    let (ledger, other) = (open(&url, &folder).await, open(&url, &folder).await);
    let first = held().create(&*ledger).await;
    let mut writers = JoinSet::new();
    for writer in 1..=8 {
        writers.spawn(until_it_fails(ledger.clone(), writer));
    }
    // In the midst of it.
    back(async || match ledger.depth().await?.jobs.values().sum::<u64>() {
        0..100 => Err(LedgerError::Unavailable("not yet".into())),
        _ => Ok(()),
    })
    .await;
    stop(&server);
    let ended = tokio::time::timeout(LONG, writers.join_all()).await.unwrap();
    for (_, _, e) in &ended {
        assert!(matches!(e, LedgerError::Unavailable(_) | LedgerError::Unknown(_)), "{e}");
    }
    let down = ledger.begin(held().nth(1).new_job()).await;
    assert!(matches!(down, Err(LedgerError::Unavailable(_))), "nothing was sent: {down:?}");
    assert!(matches!(ledger.job(first.id.clone()).await, Err(LedgerError::Unavailable(_))));
    assert!(matches!(ledger.claim(claim(1)).await, Err(LedgerError::Unavailable(_))));
    let deaf = tokio::spawn(async move {
        // Interrupted, and back.
        other.woken(LONG).await;
        other
    });
    server.start_again();

    assert!(back(async || ledger.job(first.id.clone()).await).await == Some(first));
    let mut promised_jobs = 0;
    for (promised, last, e) in ended {
        promised_jobs += promised.len();
        for id in promised {
            assert!(ledger.job(id.clone()).await.unwrap().is_some(), "{id} was promised and is lost");
        }
        let asked = ledger.asked("axual", "apply", &format!("r-{last}")).await.unwrap();
        assert!(asked.is_none() || matches!(e, LedgerError::Unknown(_)), "{e}, and it was written");
    }
    println!("{promised_jobs} jobs were promised when the server stopped");
    assert_eq!(ledger.check().await.unwrap(), []);
    // Notifications are heard again.
    let other = tokio::time::timeout(LONG, deaf).await.unwrap().unwrap();
    while tokio::time::timeout(Duration::from_millis(300), other.woken(LONG)).await.is_ok() {}
    let waiting = tokio::spawn(async move { other.woken(LONG).await });
    let mut sample = held().nth(2);
    sample.lease = None;
    sample.create(&*ledger).await;
    tokio::time::timeout(LONG / 2, waiting).await.unwrap().unwrap();
}

/// A ledger behind a proxy, and one that reaches the server directly.
async fn behind_a_proxy() -> (Proxy, Arc<Postgres>, Arc<Postgres>) {
    let rig = rig().await;
    let port = Server::shared().port();
    let proxy = Proxy::to(port).await;
    let url = rig.url.replace(&port.to_string(), &proxy.port.to_string());
    let cut = open(&url, &rig.folder).await;
    (proxy, cut, rig.ledger.clone())
}

fn unknown<T>(got: &Result<T, LedgerError>) -> bool {
    matches!(got, Err(LedgerError::Unknown(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown_and_the_row_tells() {
    let (proxy, ledger, direct) = behind_a_proxy().await;
    let mut job: Job = held().create(&*ledger).await;
    for (n, cut) in [Cut::Before, Cut::After, Cut::Before, Cut::After].into_iter().enumerate() {
        let mut write = save(&job, "{\"cut\":true}");
        write.standing.step = format!("marked-step-{n}");
        proxy.arm(cut, &write.standing.step);
        let got = ledger.commit(write.clone()).await;
        assert!(proxy.was_cut());
        assert!(unknown(&got), "{cut:?}: {got:?}");
        // The next question goes over another connection. The server may still be at it.
        let row = back(async || ledger.job(job.id.clone()).await).await.unwrap();
        job = match cut {
            Cut::Before => {
                assert!(row == job, "nothing was written");
                ledger.commit(write).await.unwrap()
            }
            Cut::Silence => panic!("not here"),
            Cut::After => {
                assert_eq!((row.revision, &row.standing.step), (job.revision + 1, &write.standing.step));
                assert!(matches!(ledger.commit(write).await, Err(LedgerError::Stale(_))));
                row
            }
        };
        assert!(direct.job(job.id.clone()).await.unwrap().unwrap() == job);
    }
    assert_eq!(direct.events(job.id, 0, 99).await.unwrap().len(), 3 + 4);
    assert_eq!(direct.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_whose_answer_is_lost_is_unknown_and_a_repeat_tells() {
    let (proxy, ledger, direct) = behind_a_proxy().await;
    // Statements are prepared before: the cut is at the work itself.
    held().nth(0).create(&*ledger).await;
    for (n, cut) in [(1, Cut::Before), (2, Cut::After)] {
        let sample = Sample { request_id: format!("marked-request-{n}"), ..held().nth(n) };
        proxy.arm(cut, &sample.request_id);
        let got = ledger.begin(sample.new_job()).await;
        assert!(proxy.was_cut() && unknown(&got), "{cut:?}: {got:?}");
        match (cut, back(async || ledger.begin(sample.new_job()).await).await) {
            (Cut::Before, Begun::Created(_)) | (Cut::After, Begun::Repeated(_)) => {}
            (_, other) => panic!("{cut:?}: {other:?}"),
        }
    }
    assert_eq!(direct.depth().await.unwrap().jobs.values().sum::<u64>(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_leaves_the_jobs_to_their_lease() {
    let rig = rig().await;
    let port = Server::shared().port();
    let proxy = Proxy::to(port).await;
    let ledger = open(&rig.url.replace(&port.to_string(), &proxy.port.to_string()), &rig.folder).await;
    let mut sample = held();
    sample.lease = None;
    let job = sample.create(&*ledger).await;
    for (limited, cut, token) in
        [(false, Cut::Before, 0), (true, Cut::Before, 0), (false, Cut::After, 1), (true, Cut::After, 2)]
    {
        let mut wanted = claim(1);
        wanted.holder = format!("marked-holder-{limited}-{cut:?}").into();
        if !limited {
            wanted.limits = Default::default();
        }
        proxy.arm(cut, &wanted.holder);
        let got = ledger.claim(wanted).await;
        assert!(proxy.was_cut(), "{limited} {cut:?}");
        assert!(matches!(got, Err(LedgerError::Unknown(_) | LedgerError::Unavailable(_))), "{got:?}");
        // A transaction whose client has gone is given up; the next claim finds its turn free.
        let row = back(async || ledger.job(job.id.clone()).await).await.unwrap();
        if limited && cut == Cut::After {
            assert!(row.token == 2 || row.token == 1, "{row:?}");
        } else {
            assert_eq!(row.token, token, "{limited} {cut:?}");
        }
        if cut == Cut::After {
            rig.pass(Duration::from_secs(3611)).await;
        }
    }
    let taken = rig.ledger.claim(claim(1)).await.unwrap();
    assert_eq!(taken.iter().map(|j| &j.id).collect::<Vec<_>>(), [&job.id]);
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://sutler@127.0.0.1:{}/ledger", silent.local_addr().unwrap().port());
    let folder = TempDir::new().unwrap();
    let start = Instant::now();
    let got = Postgres::open(&url, keys(&folder), PostgresOptions::default()).await;
    assert!(
        matches!(&got, Err(LedgerError::Unavailable(why)) if why.contains("no answer")),
        "{:?}",
        got.err()
    );
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_falls_silent_is_given_up() {
    let (proxy, ledger, direct) = behind_a_proxy().await;
    let job = held().create(&*ledger).await;
    let mut write = save(&job, "{}");
    write.standing.step = "marked-step".into();
    proxy.arm(Cut::Silence, "marked-step");
    let start = Instant::now();
    let got = tokio::time::timeout(LONG, ledger.commit(write.clone())).await.unwrap();
    println!("given up after {:?}", start.elapsed());
    assert!(proxy.was_cut() && unknown(&got), "{got:?}");
    assert!(ledger.job(job.id.clone()).await.unwrap() == Some(job));
    ledger.commit(write).await.unwrap();
    assert_eq!(direct.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_connection_is_not_waited_for_for_ever() {
    let rig = rig().await;
    let options = PostgresOptions { connections: Some(1), ..PostgresOptions::default() };
    let ledger = Postgres::open(&rig.url, keys(&rig.folder), options).await.unwrap();
    for n in 0..120 {
        held().nth(n).create(&ledger).await;
    }
    // An export that nobody reads on has the only connection.
    let mut export = ledger.export();
    export.next().await.unwrap().unwrap();
    let got = tokio::time::timeout(LONG, ledger.begin(held().nth(500).new_job())).await.unwrap();
    assert!(matches!(&got, Err(LedgerError::Unavailable(why)) if why.contains("busy")), "{got:?}");
    drop(export);
    back(async || ledger.begin(held().nth(500).new_job()).await).await;
}
