//! Several hosts on one ledger: every race has one winner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use sutler_ledger::contract::Sample;
use sutler_ledger::{Begun, Hold, Job, Ledger, LedgerError, Postgres, PostgresOptions, Write};
use sutler_testkit::postgres::client;
use tokio::sync::Barrier;

use super::contract::{Shared, keys, rig};
use crate::scale::claim;
use crate::sqlite::{answer, held, save};

async fn two() -> (Shared, [Arc<Postgres>; 2]) {
    let rig = rig().await;
    let hosts = [rig.ledger.clone(), rig.host().await];
    (rig, hosts)
}

/// All at the same instant, on one host and the other in turn.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    hosts: &[Arc<Postgres>; 2],
    count: usize,
    work: impl Fn(Arc<Postgres>, usize) -> F,
) -> Vec<T> {
    let barrier = Arc::new(Barrier::new(count));
    let tasks = hosts.iter().cycle().take(count).enumerate().map(|(n, host)| {
        let (barrier, work) = (barrier.clone(), work(host.clone(), n));
        tokio::spawn(async move {
            barrier.wait().await;
            work.await
        })
    });
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

fn job_of(begun: &Begun) -> &Job {
    match begun {
        Begun::Created(job) | Begun::Repeated(job) | Begun::Joined(job) => job,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn equal_begins_at_the_same_instant_make_one_job() {
    let (rig, hosts) = two().await;
    for round in 0..15 {
        let got = at_once(&hosts, 24, |ledger, n| async move {
            // Two thirds repeat one request id, the others join under their own.
            let request_id = if n % 3 == 0 { format!("own-{round}-{n}") } else { format!("one-{round}") };
            let sample = Sample { request_id, application: format!("app-{round}"), ..held() };
            ledger.begin(sample.new_job()).await.unwrap()
        })
        .await;
        let created = got.iter().filter(|b| matches!(b, Begun::Created(_))).count();
        let ids: HashSet<_> = got.iter().map(|b| job_of(b).id.clone()).collect();
        assert_eq!((created, ids.len()), (1, 1), "round {round}");
        assert_eq!(rig.ledger.events(job_of(&got[0]).id.clone(), 0, 99).await.unwrap().len(), 3);
    }
    assert_eq!(rig.ledger.depth().await.unwrap().jobs.values().sum::<u64>(), 15);
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn overlapping_begins_leave_one_holder_of_each_resource() {
    let (rig, hosts) = two().await;
    for round in 0..15 {
        let got = at_once(&hosts, 16, |ledger, n| async move {
            // In either order, so that hosts that wait for one another would wait for ever.
            let resources = if n % 4 < 2 { vec!["a", "b"] } else { vec!["b", "a"] };
            let (request_id, application) = (format!("r-{round}-{n}"), format!("app-{round}"));
            let sample = Sample { request_id, application, resources, body: n as u8, ..held() };
            ledger.begin(sample.new_job()).await.unwrap()
        })
        .await;
        let created: Vec<_> = got.iter().filter(|b| matches!(b, Begun::Created(_))).map(job_of).collect();
        assert_eq!(created.len(), 1, "round {round}");
        for b in &got {
            assert!(matches!(b, Begun::Created(_)) || *b == Begun::Busy(created[0].id.clone()), "{b:?}");
        }
    }
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_writes_with_one_revision_one_is_done() {
    let (rig, hosts) = two().await;
    let mut job = held().create(&*rig.ledger).await;
    for round in 0..20 {
        let write = save(&job, "{\"round\":1}");
        let got = at_once(&hosts, 8, |ledger, _| {
            let write = write.clone();
            async move { ledger.commit(write).await }
        })
        .await;
        let done: Vec<_> = got.iter().flatten().collect();
        assert_eq!(done.len(), 1, "round {round}: {got:?}");
        assert!(got.iter().all(|g| matches!(g, Ok(_) | Err(LedgerError::Stale(_)))), "{got:?}");
        job = done[0].clone();
    }
    assert_eq!(job.revision, 21);
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

/// A retry of a failed job and a new job want the same resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_retry_and_a_begin_do_not_both_win() {
    let (rig, hosts) = two().await;
    let mut winners = HashMap::new();
    for round in 0..20 {
        let base = Sample { application: format!("app-{round}"), ..held() };
        let job = Sample { request_id: format!("old-{round}"), ..base.clone() }.create(&*rig.ledger).await;
        let done = rig.ledger.commit(answer(&job, "{}")).await.unwrap();
        let mut retry: Write = save(&done, "{}");
        retry.token = None;
        retry.standing.status = sutler_ledger::Status::Queued;
        let new = Sample { request_id: format!("new-{round}"), body: 2, ..base };
        let got = at_once(&hosts, 2, |ledger, n| {
            let (retry, new) = (retry.clone(), new.new_job());
            async move {
                if n == round % 2 {
                    ledger.commit(retry).await.map(|_| "retry").map_err(|e| e.to_string())
                } else {
                    match ledger.begin(new).await.unwrap() {
                        Begun::Created(_) => Ok("begin"),
                        other => Err(format!("{other:?}")),
                    }
                }
            }
        })
        .await;
        let won: Vec<_> = got.iter().flatten().collect();
        assert_eq!(won.len(), 1, "round {round}: {got:?}");
        *winners.entry(*won[0]).or_insert(0) += 1;
    }
    println!("{winners:?}");
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_job_is_claimed_twice() {
    let (rig, hosts) = two().await;
    for n in 0..300 {
        let mut sample = held().nth(n).tenant(format!("t-{}", n % 9));
        sample.lease = None;
        sample.create(&*rig.ledger).await;
    }
    let mut ids = HashSet::new();
    let mut rounds = 0;
    while ids.len() < 300 {
        rounds += 1;
        assert!(rounds < 200, "{} of 300 jobs were claimed", ids.len());
        let before = ids.len();
        let got = at_once(&hosts, 6, |ledger, n| async move {
            let mut wanted = claim(4);
            (wanted.limits, wanted.holder) = (Default::default(), format!("host-{}", n % 2).into());
            ledger.claim(wanted).await.unwrap()
        })
        .await;
        for job in got.into_iter().flatten() {
            assert_eq!(job.token, 1);
            assert!(ids.insert(job.id), "claimed twice");
        }
        assert!(ids.len() > before, "somebody gets something");
    }
    println!("300 jobs claimed by six claimers of four places in {rounds} rounds");
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limits_hold_over_hosts_that_claim_at_once() {
    let (rig, hosts) = two().await;
    for n in 0..120 {
        let mut sample = held().nth(n).tenant(format!("t-{}", n % 3));
        sample.lease = None;
        sample.create(&*rig.ledger).await;
    }
    for round in 1..=5 {
        let got = at_once(&hosts, 8, |ledger, _| async move {
            let mut wanted = claim(5);
            wanted.limits.each_tenant = Some(2);
            ledger.claim(wanted).await.unwrap()
        })
        .await;
        let taken: Vec<Job> = got.into_iter().flatten().collect();
        let mut each: HashMap<_, u32> = HashMap::new();
        for job in &taken {
            *each.entry(job.application.tenant.clone()).or_default() += 1;
        }
        assert_eq!(each.values().copied().collect::<Vec<_>>(), [2, 2, 2], "round {round}");
        for job in &taken {
            rig.ledger.commit(answer(job, "{}")).await.unwrap();
        }
    }
}

/// A renewal and a takeover of the same lease: it is one host's afterwards, and each knows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_renewal_and_a_takeover_do_not_both_win() {
    let (rig, hosts) = two().await;
    for round in 0..20 {
        let job = held().nth(round).create(&*rig.ledger).await;
        rig.pass(Duration::from_secs(41)).await;
        let lease = sutler_ledger::Held { id: job.id.clone(), token: 1, lease: Duration::from_secs(3600) };
        let got = at_once(&hosts, 2, |ledger, n| {
            let lease = lease.clone();
            async move {
                if n == 0 {
                    ledger.renew("host-1".into(), vec![lease]).await.unwrap().is_empty()
                } else {
                    let mut wanted = claim(1);
                    wanted.holder = "host-2".into();
                    ledger.claim(wanted).await.unwrap().len() == 1
                }
            }
        })
        .await;
        let row = rig.ledger.job(job.id).await.unwrap().unwrap();
        let holder = row.lease.as_ref().unwrap().holder.clone();
        match (got[0], got[1]) {
            (true, false) => assert_eq!((&*holder, row.token), ("host-1", 1)),
            // Renewed just before it was taken: the host learns of it by its next write or renewal.
            (_, true) => assert_eq!((&*holder, row.token), ("host-2", 2)),
            (false, false) => panic!("round {round}: nobody has it: {row:?}"),
        }
        assert!(!(got[0] && got[1]), "a lease that was renewed for an hour was taken over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_notification_wakes_another_host() {
    let (_rig, [one, two]) = two().await;
    // The first thing that a host hears is that it can hear.
    two.woken(Duration::from_secs(30)).await;
    let mut lags = Vec::new();
    for n in 0..20 {
        // One write may wake twice: until there is nothing left.
        while tokio::time::timeout(Duration::from_millis(50), two.woken(Duration::from_secs(30)))
            .await
            .is_ok()
        {}
        let mut sample = held().nth(n);
        sample.lease = None;
        let start = Instant::now();
        let heard = async {
            two.woken(Duration::from_secs(30)).await;
            start.elapsed()
        };
        let (_, lag) = tokio::join!(sample.create(&*one), heard);
        lags.push(lag);
    }
    lags.sort();
    println!("woken after {:?}, at the latest {:?}", lags[lags.len() / 2], lags[lags.len() - 1]);
    assert!(lags[lags.len() / 2] < Duration::from_millis(200), "{lags:?}");
    assert!(lags[lags.len() - 1] < Duration::from_secs(10), "{lags:?}");
}

#[tokio::test]
async fn a_host_with_a_wrong_clock_changes_nothing() {
    // The server's clock stands in the future of this machine's: what counts is the server's.
    let rig = rig().await;
    let job = held().create(&*rig.ledger).await;
    assert_eq!(job.created.0, super::contract::START);
    assert_eq!(job.lease.as_ref().unwrap().until.0, super::contract::START + 30_000);
    rig.pass(Duration::from_secs(3600)).await;
    let taken = rig.ledger.claim(claim(1)).await.unwrap();
    assert_eq!(taken[0].id, job.id);
    // A server's clock that is set back, as after a failover, takes no time back.
    super::contract::set_clock(&rig.url, super::contract::START).await;
    assert_eq!(rig.ledger.now().await.unwrap(), taken[0].updated);
    let other = rig.host().await;
    let saved = other.commit(save(&taken[0], "{}")).await.unwrap();
    assert_eq!(saved.updated, taken[0].updated);
    assert_eq!(rig.ledger.check().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_share_a_ledger_and_an_import_has_it_alone() {
    let rig = rig().await;
    let open = async |hold| {
        let options = PostgresOptions { hold, ..PostgresOptions::default() };
        Postgres::open(&rig.url, keys(&rig.folder), options).await
    };
    let refused = |got: Result<Postgres, LedgerError>, words: &str| match got {
        Err(LedgerError::Open(why)) => assert!(why.contains(words), "{why}"),
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("it was opened"),
    };
    // A session's end may be noticed a little later.
    let soon = async |hold| {
        for _ in 0..100 {
            if let Ok(ledger) = open(hold).await {
                return ledger;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("it stays in use")
    };
    let hosts = [open(Hold::Serving).await.unwrap(), open(Hold::Serving).await.unwrap()];
    refused(open(Hold::Alone).await, "a host serves it");
    drop(hosts);
    let import = soon(Hold::Alone).await;
    refused(open(Hold::Alone).await, "another import is under way");
    refused(open(Hold::Serving).await, "an import into it is under way");
    open(Hold::Nothing).await.unwrap();
    drop(import);
    soon(Hold::Serving).await;
}

/// Takes the lock of an import as soon as the session that holds the ledger is killed.
async fn kill_the_holder_and_hold(url: &str) -> tokio_postgres::Client {
    let (import, killer) = (client(url).await, client(url).await);
    let lock = "SELECT pg_advisory_lock((classid::int8 << 32) + objid::int8) FROM pg_locks l JOIN pg_database d \
                ON d.oid = l.database AND d.datname = current_database() WHERE locktype = 'advisory' AND granted";
    let waits = tokio::spawn(async move {
        import.query_one(lock, &[]).await.unwrap();
        import
    });
    let kill = "SELECT pg_terminate_backend(h.pid) FROM pg_locks h, pg_locks w WHERE h.locktype = 'advisory' AND h.granted \
                AND w.locktype = 'advisory' AND NOT w.granted AND h.objid = w.objid AND h.classid = w.classid \
                AND h.database = w.database";
    while killer.query(kill, &[]).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    waits.await.unwrap()
}

/// Asks until the answer is as wanted.
async fn until(ledger: &Postgres, wanted: impl Fn(&Result<Begun, LedgerError>) -> bool) {
    for n in 0..300 {
        let sample = Sample { request_id: format!("until-{n}"), application: format!("app-{n}"), ..held() };
        let got = ledger.begin(sample.new_job()).await;
        if wanted(&got) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_lost_its_hold_writes_nothing_until_it_has_it_again() {
    let rig = rig().await;
    let options = PostgresOptions { hold: Hold::Serving, ..PostgresOptions::default() };
    let host = Postgres::open(&rig.url, keys(&rig.folder), options).await.unwrap();
    until(&host, Result::is_ok).await;
    let import = kill_the_holder_and_hold(&rig.url).await;
    let lost = |got: &Result<Begun, LedgerError>| matches!(got, Err(LedgerError::Unavailable(why)) if why.contains("keeps hosts and imports apart"));
    until(&host, lost).await;
    drop(import);
    until(&host, Result::is_ok).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_lost_its_hold_writes_nothing_more() {
    let rig = rig().await;
    let options = PostgresOptions { hold: Hold::Alone, ..PostgresOptions::default() };
    let import = Postgres::open(&rig.url, keys(&rig.folder), options).await.unwrap();
    until(&import, Result::is_ok).await;
    drop(kill_the_holder_and_hold(&rig.url).await);
    until(&import, Result::is_err).await;
    // Nobody holds it, and yet: others may have been at it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sample = Sample { request_id: "late".into(), application: "late".into(), ..held() };
    assert!(import.begin(sample.new_job()).await.is_err());
}
