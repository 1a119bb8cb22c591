//! Fairness, limits, and knowing when to look.

use std::time::Duration;

use sutler_model::{Digest, PluginName};

use super::rig::{Rig, Sample, claim, claimed, end, park};
use crate::{Job, Ledger, Status};

async fn queue(ledger: &dyn Ledger, tenant: &str, from: usize, count: usize) {
    for n in from..from + count {
        Sample::default().nth(n).tenant(tenant).create(ledger).await;
    }
}

fn tenants(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|j| j.application.tenant.as_ref().map_or("", |t| t.as_str())).collect()
}

pub async fn claims_are_fair_by_tenant(rig: &dyn Rig) {
    let ledger = rig.ledger();
    queue(&*ledger, "big", 0, 200).await;
    rig.advance(Duration::from_secs(1)).await;
    queue(&*ledger, "small", 1000, 1).await;
    queue(&*ledger, "", 2000, 2).await;
    let mut taken = claimed(&*ledger, claim("host-1", 6)).await;
    let mut got = tenants(&taken);
    got.sort_unstable();
    assert_eq!(got, ["", "", "big", "big", "big", "small"]);
    // The oldest of a tenant goes first.
    taken.retain(|j| tenants(std::slice::from_ref(j)) == ["big"]);
    let apps: Vec<_> = taken.iter().map(|j| j.application.id.to_string()).collect();
    let due: Vec<_> = taken.iter().map(|j| j.due).collect();
    assert!(due.is_sorted(), "{apps:?}");
}

pub async fn one_place_goes_round_the_tenants(rig: &dyn Rig) {
    let ledger = rig.ledger();
    for (t, tenant) in ["a", "b", "c"].into_iter().enumerate() {
        queue(&*ledger, tenant, 100 * t, 10).await;
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        let got = claimed(&*ledger, claim("host-1", 1)).await;
        seen.push(tenants(&got).join(","));
    }
    let (first, second) = seen.split_at(3);
    assert_eq!(first, second, "the same turn again");
    let mut sorted = first.to_vec();
    sorted.sort();
    assert_eq!(sorted, ["a", "b", "c"]);
}

pub async fn limits_hold(rig: &dyn Rig) {
    let ledger = rig.ledger();
    queue(&*ledger, "a", 0, 10).await;
    queue(&*ledger, "b", 100, 10).await;
    let mut c = claim("host-1", 20);
    c.limits.each_tenant = Some(2);
    let first = claimed(&*ledger, c.clone()).await;
    let mut got = tenants(&first);
    got.sort_unstable();
    assert_eq!(got, ["a", "a", "b", "b"]);
    assert!(claimed(&*ledger, c.clone()).await.is_empty(), "over all claims, not each");
    ledger.commit(end(&first[0], Status::Completed)).await.unwrap();
    assert_eq!(claimed(&*ledger, c.clone()).await.len(), 1, "an end makes room");
    // A lease that has run out counts until it may be taken over.
    rig.advance(Duration::from_secs(35)).await;
    assert!(claimed(&*ledger, c.clone()).await.is_empty());
    c.limits.each_tenant = None;
    c.limits.plugins.insert(PluginName::parse("topics").unwrap(), 5);
    assert_eq!(claimed(&*ledger, c.clone()).await.len(), 1);
    c.limits.plugins.clear();
    c.limits.pairs.insert("deployment/ksml".parse().unwrap(), 8);
    assert_eq!(claimed(&*ledger, c.clone()).await.len(), 3);
    c.limits.pairs.insert("deployment/ksml".parse().unwrap(), 0);
    assert!(claimed(&*ledger, c).await.is_empty());
}

pub async fn a_full_lane_does_not_block_its_tenant(rig: &dyn Rig) {
    let ledger = rig.ledger();
    queue(&*ledger, "a", 0, 50).await;
    rig.advance(Duration::from_secs(1)).await;
    let other = Sample { plugin: "other", pair: "tool/other", ..Sample::default() };
    let late = other.nth(900).tenant("a").create(&*ledger).await;
    let mut c = claim("host-1", 5);
    c.limits.plugins.insert(PluginName::parse("topics").unwrap(), 1);
    let got = claimed(&*ledger, c).await;
    assert_eq!(got.len(), 2);
    assert!(got.iter().any(|j| j.id == late.id));
}

pub async fn only_digests_that_the_host_runs_are_claimed(rig: &dyn Rig) {
    let ledger = rig.ledger();
    queue(&*ledger, "a", 0, 30).await;
    let other = Sample { plugin: "other", ..Sample::default() }.nth(99).tenant("a").create(&*ledger).await;
    let mut c = claim("host-1", 50);
    c.digests = Some(vec![Digest::of(b"other")]);
    let got = claimed(&*ledger, c.clone()).await;
    assert_eq!(got.iter().map(|j| &j.id).collect::<Vec<_>>(), [&other.id]);
    c.digests = Some(vec![]);
    assert!(claimed(&*ledger, c.clone()).await.is_empty());
    c.digests = None;
    assert_eq!(claimed(&*ledger, c).await.len(), 30);
}

pub async fn the_next_due_time_is_known(rig: &dyn Rig) {
    let ledger = rig.ledger();
    assert_eq!(ledger.next_due().await.unwrap(), None);
    let base = Sample { lease: Some(("host-1", 30)), ..Sample::default() };
    let a = base.nth(1).create(&*ledger).await;
    let a = ledger.commit(park(&a, Duration::from_secs(90))).await.unwrap();
    assert_eq!(ledger.next_due().await.unwrap(), Some(a.due));
    let soon =
        Sample { due_after: Duration::from_secs(20), ..Sample::default() }.nth(2).create(&*ledger).await;
    assert_eq!(ledger.next_due().await.unwrap(), Some(soon.due));
    rig.advance(Duration::from_secs(25)).await;
    assert_eq!(ledger.next_due().await.unwrap(), Some(a.due), "what is due already is not the next");
    claimed(&*ledger, claim("host-1", 5)).await;
    rig.advance(Duration::from_secs(1)).await;
    let next = ledger.next_due().await.unwrap().unwrap();
    assert!(next < a.due, "a lease that runs out makes a job due");
}

pub async fn a_write_wakes_waiters(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let long = Duration::from_secs(600);
    let waiting = tokio::spawn({
        let ledger = ledger.clone();
        async move { ledger.woken(long).await }
    });
    let job = Sample::default().create(&*ledger).await;
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("begin wakes").unwrap();
    let taken = claimed(&*ledger, claim("host-1", 1)).await.remove(0);
    assert_eq!(taken.id, job.id);
    // A write before the wait is not missed.
    ledger.commit(park(&taken, Duration::ZERO)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), ledger.woken(long)).await.expect("a release wakes");
}
