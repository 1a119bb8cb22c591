//! The cost of a claim does not follow the number of parked jobs, and one tenant's crowd holds up nobody.

use std::time::{Duration, Instant};

use sutler_ledger::{Claim, Job, Ledger};

use super::contract::{Shared, rig};
use crate::scale::claim;
use crate::sqlite::held;
use sutler_testkit::postgres::sql;

/// Copies the first job with other ids, applications and resources; `queue` and `wake` as given.
async fn copies(rig: &Shared, count: usize, tenancy: &str, wake: i64) {
    let columns = "kind, mode, subject_type, subject_id, pair, instance, tenant, environment, resources, plugin, digest, \
                   caller, route, body, status, phase, step, attempt, cancel_requested, token, revision, \
                   deadline, created, updated, last_event, scope, request, state";
    sql(
        &rig.url,
        &format!(
            "INSERT INTO provisioning_jobs (id, application, request_id, tenancy, queue, wake, due, {columns}) \
             SELECT 'op_' || lpad(to_hex(i), 32, '0'), 'copy-' || i, 'c-' || i, '{tenancy}', 0, {wake} + i, {wake} + i, \
             {columns} FROM provisioning_jobs j, generate_series(1, {count}) c (i) WHERE j.n = 1"
        ),
    )
    .await;
}

/// A claim that finds one job, and one that finds none.
async fn cost(rig: &Shared, n: usize, limited: bool) -> (Duration, Duration) {
    let wanted = || {
        let mut wanted: Claim = claim(4);
        if !limited {
            wanted.limits = Default::default();
        }
        wanted
    };
    let mut sample = held().nth(n + if limited { 1000 } else { 10 });
    sample.lease = None;
    let job = sample.create(&*rig.ledger).await;
    let start = Instant::now();
    let got = rig.ledger.claim(wanted()).await.unwrap();
    let full = start.elapsed();
    assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&job.id]);
    let start = Instant::now();
    assert!(rig.ledger.claim(wanted()).await.unwrap().is_empty());
    (full, start.elapsed())
}

async fn parked(count: usize) -> Shared {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    let far = rig.ledger.now().await.unwrap().0 + 86_400_000;
    copies(&rig, count, "/parked", far).await;
    // Sooner or later the server knows how many there are, and plans for it.
    sql(&rig.url, "ANALYZE").await;
    rig
}

#[tokio::test]
async fn a_claim_costs_the_same_beside_a_hundred_times_the_parked_jobs() {
    let (few, many) = (parked(1_000).await, parked(100_000).await);
    for limited in [false, true] {
        // The quickest of many in turn: what else the machine does is not the ledger's cost.
        let longest = (Duration::MAX, Duration::MAX);
        let (mut beside_few, mut beside_many) = (longest, longest);
        for n in 0..60 {
            for (rig, least) in [(&few, &mut beside_few), (&many, &mut beside_many)] {
                let (full, empty) = cost(rig, n, limited).await;
                *least = (least.0.min(full), least.1.min(empty));
            }
        }
        println!(
            "limited {limited}: claims beside 1,000 parked jobs {beside_few:?}, beside 100,000 {beside_many:?}"
        );
        assert!(beside_many.0 < beside_few.0 * 3, "{beside_few:?} {beside_many:?}");
        assert!(beside_many.1 < beside_few.1 * 3, "{beside_few:?} {beside_many:?}");
    }
}

/// A crowd of another tenant's due jobs, and one job of a small tenant amidst them.
async fn crowd(from: i64) -> (Shared, Job) {
    let rig = rig().await;
    held().create(&*rig.ledger).await;
    let mut sample = held().nth(7).tenant("small");
    (sample.lease, sample.plugin) = (None, "other");
    let small = sample.create(&*rig.ledger).await;
    copies(&rig, 100_000, "/crowd", small.due.0 + from).await;
    rig.pass(Duration::from_secs(100)).await;
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
        assert!(start.elapsed() < Duration::from_secs(120), "nothing moved on");
        got = rig.ledger.claim(beside_the_crowd()).await.unwrap();
    }
    println!("claimed amidst 100,000 due jobs of another tenant after {:?}", start.elapsed());
    assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&small.id]);
}

/// What a claim brings does not hang on how many tenants are at their limits.
#[tokio::test]
async fn many_full_tenants_do_not_hide_one_with_room() {
    let rig = rig().await;
    for n in 0..150 {
        let mut sample = held().nth(n).tenant(format!("a-{n:03}"));
        (sample.lease, sample.plugin) = (None, "full");
        sample.create(&*rig.ledger).await;
    }
    let mut sample = held().nth(900).tenant("z-last");
    sample.lease = None;
    let last = sample.create(&*rig.ledger).await;
    let mut wanted = claim(2);
    wanted.limits.plugins.insert("full".parse().unwrap(), 0);
    let got = rig.ledger.claim(wanted).await.unwrap();
    assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&last.id]);
}
