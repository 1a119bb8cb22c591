//! The cost of a claim does not follow the number of parked jobs, and one tenant's crowd holds up nobody.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use sutler_ledger::{Claim, Job, Ledger, Limits, Sqlite};

use crate::sqlite::{InFile, held, rig};

/// Copies the job of number 1 with other ids, applications and resources; `queue` and `wake` as given.
fn copies(file: &std::path::Path, count: usize, tenancy: &str, queue: i64, wake: i64) {
    let conn = Connection::open(file).unwrap();
    let columns = "kind, mode, subject_type, subject_id, pair, instance, tenant, environment, resources, plugin, digest, \
                   caller, route, body, status, phase, step, attempt, cancel_requested, token, revision, \
                   deadline, created, updated, last_event";
    conn.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count})
         INSERT INTO provisioning_jobs (id, application, request_id, tenancy, queue, wake, due, {columns})
         SELECT printf('op_%032x', i + 1000000 * {queue}), 'copy-' || i, 'c-' || i, '{tenancy}', {queue}, {wake} + i,
                {wake} + i, {columns}
         FROM c, provisioning_jobs j WHERE j.n = 1;
         INSERT INTO sealed_requests SELECT j.n, s.sealed FROM provisioning_jobs j, sealed_requests s
         WHERE s.job = 1 AND j.n NOT IN (SELECT job FROM sealed_requests);
         INSERT INTO sealed_states SELECT j.n, s.sealed FROM provisioning_jobs j, sealed_states s
         WHERE s.job = 1 AND j.n NOT IN (SELECT job FROM sealed_states);
         COMMIT;"
    ))
    .unwrap();
}

pub(crate) fn claim(places: u32) -> Claim {
    let limits = Limits { each_tenant: Some(1_000_000), ..Limits::default() };
    Claim {
        holder: "host-1".into(),
        places,
        lease_of: Default::default(),
        lease: Duration::from_secs(3600),
        takeover_after: Duration::from_secs(10),
        digests: None,
        limits,
    }
}

/// The middle one of many claims that find one job, and of many that find none.
async fn cost(ledger: &Sqlite) -> (Duration, Duration) {
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for n in 10..50 {
        let mut sample = held().nth(n);
        sample.lease = None;
        let job = sample.create(ledger).await;
        let start = Instant::now();
        let got = ledger.claim(claim(4)).await.unwrap();
        full.push(start.elapsed());
        assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&job.id]);
        let start = Instant::now();
        assert!(ledger.claim(claim(4)).await.unwrap().is_empty());
        empty.push(start.elapsed());
    }
    full.sort();
    empty.sort();
    let middle = |times: &[Duration]| *times.get(times.len() / 2).unwrap();
    (middle(&full), middle(&empty))
}

async fn parked(count: usize) -> InFile {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    let far = rig.ledger.now().await.unwrap().0 + 86_400_000;
    copies(&rig.file(), count, "/parked", 0, far);
    rig
}

#[tokio::test]
async fn a_claim_costs_the_same_beside_a_hundred_times_the_parked_jobs() {
    let (few, many) = (parked(1_000).await, parked(100_000).await);
    let (few, many) = (cost(&few.ledger).await, cost(&many.ledger).await);
    println!("claims beside 1,000 parked jobs: {few:?}; beside 100,000: {many:?}");
    assert!(many.0 < few.0 * 4, "{few:?} beside 1,000 parked jobs, {many:?} beside 100,000");
    // Far less than a look at each job would take.
    assert!(many.1 < few.1 * 10, "{few:?} beside 1,000 parked jobs, {many:?} beside 100,000");
}

/// A crowd of another tenant's due jobs, and one job of a small tenant amidst them.
async fn crowd(from: i64) -> (InFile, Job) {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    let mut sample = held().nth(7).tenant("small");
    (sample.lease, sample.plugin) = (None, "other");
    let small = sample.create(&*rig.ledger).await;
    copies(&rig.file(), 100_000, "/crowd", 0, small.due.0 + from);
    rig.clock.advance(Duration::from_secs(100));
    (rig, small)
}

/// The crowd's plugin is at its limit.
fn beside_the_crowd() -> Claim {
    let mut claim = claim(3);
    claim.limits.plugins.insert("topics".parse().unwrap(), 0);
    claim
}

#[tokio::test]
async fn what_became_due_last_is_not_behind_a_crowd() {
    let (rig, small) = crowd(-200_000).await;
    let got = rig.ledger.claim(beside_the_crowd()).await.unwrap();
    assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&small.id]);
}

#[tokio::test]
async fn a_crowd_is_moved_on_without_further_claims() {
    let (rig, small) = crowd(-50_000).await;
    let start = Instant::now();
    let mut got = rig.ledger.claim(beside_the_crowd()).await.unwrap();
    assert!(got.is_empty(), "it is in the midst");
    while got.is_empty() {
        rig.ledger.woken(Duration::from_secs(60)).await;
        assert!(start.elapsed() < Duration::from_secs(30), "nothing moved on");
        got = rig.ledger.claim(beside_the_crowd()).await.unwrap();
    }
    println!("claimed amidst 100,000 due jobs of another tenant after {:?}", start.elapsed());
    assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&small.id]);
}
