//! Leases: claiming, losing, taking over.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Rig, Sample, claim, claimed, end, history, park, row};
use crate::{Held, JobId, Status};

const SECOND: Duration = Duration::from_secs(1);

fn held(job: &crate::Job, lease: u64) -> Held {
    Held { id: job.id.clone(), token: job.token, lease: Duration::from_secs(lease) }
}

pub async fn due_jobs_are_claimed_once(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample::default().create(&*ledger).await;
    rig.advance(SECOND).await;
    let mut c = claim("host-1", 5);
    c.lease_of.insert(job.pair.clone(), Duration::from_secs(77));
    let taken = claimed(&*ledger, c).await;
    assert_eq!(taken.len(), 1);
    let t = &taken[0];
    assert_eq!((t.standing.status, t.token, t.revision), (Status::Running, 1, 2));
    assert_eq!(t.lease.as_ref().unwrap().until, t.updated.plus(Duration::from_secs(77)));
    assert_eq!(t.request, job.request);
    assert!(row(&*ledger, &job).await == *t);
    assert_eq!(history(&*ledger, &job).await, ["submitted", "claimed"]);
    let last = ledger.events(job.id.clone(), 1, 1).await.unwrap().remove(0);
    assert_eq!(last.what, crate::Happened::Claimed { token: 1, holder: "host-1".into() });
    assert!(claimed(&*ledger, claim("host-2", 5)).await.is_empty());
    assert!(claimed(&*ledger, claim("host-2", 0)).await.is_empty());
}

pub async fn parked_jobs_are_claimed_after_their_pause(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample { lease: Some(("host-1", 30)), ..Sample::default() }.create(&*ledger).await;
    ledger.commit(park(&job, Duration::from_secs(60))).await.unwrap();
    let late =
        Sample { due_after: Duration::from_secs(61), ..Sample::default() }.nth(2).create(&*ledger).await;
    rig.advance(Duration::from_secs(59)).await;
    assert!(claimed(&*ledger, claim("host-2", 5)).await.is_empty());
    rig.advance(SECOND).await;
    let taken = claimed(&*ledger, claim("host-2", 5)).await;
    assert_eq!(taken.iter().map(|j| &j.id).collect::<Vec<_>>(), [&job.id]);
    assert_eq!(taken[0].token, 2);
    rig.advance(SECOND).await;
    assert_eq!(claimed(&*ledger, claim("host-2", 5)).await[0].id, late.id);
}

pub async fn drafts_and_final_jobs_are_not_claimed(rig: &dyn Rig) {
    let ledger = rig.ledger();
    Sample { status: Status::Draft, ..Sample::default() }.nth(77).create(&*ledger).await;
    for (n, status) in [Status::Completed, Status::Failed, Status::Cancelled].into_iter().enumerate() {
        let job = Sample { lease: Some(("host-1", 1)), ..Sample::default() }.nth(n).create(&*ledger).await;
        ledger.commit(end(&job, status)).await.unwrap();
    }
    rig.advance(Duration::from_secs(3600)).await;
    assert!(claimed(&*ledger, claim("host-2", 5)).await.is_empty());
    assert_eq!(ledger.depth().await.unwrap().due, 0);
}

pub async fn a_lease_is_taken_over_only_after_the_delay(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample { lease: Some(("host-1", 30)), ..Sample::default() }.create(&*ledger).await;
    rig.advance(Duration::from_secs(31)).await;
    assert!(claimed(&*ledger, claim("host-2", 5)).await.is_empty(), "its last request may be on its way");
    rig.advance(Duration::from_secs(8)).await;
    assert!(claimed(&*ledger, claim("host-2", 5)).await.is_empty());
    rig.advance(SECOND).await;
    let taken = claimed(&*ledger, claim("host-2", 5)).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].token, &*taken[0].lease.as_ref().unwrap().holder), (2, "host-2"));
    assert_eq!(taken[0].id, job.id);
}

pub async fn a_released_job_is_claimed_at_once(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample { lease: Some(("host-1", 30)), ..Sample::default() }.create(&*ledger).await;
    ledger.commit(park(&job, Duration::ZERO)).await.unwrap();
    assert_eq!(claimed(&*ledger, claim("host-2", 5)).await.len(), 1);
}

pub async fn renewing_keeps_a_lease_and_names_the_lost(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let base = Sample { lease: Some(("host-1", 30)), ..Sample::default() };
    let kept = base.nth(1).create(&*ledger).await;
    let lost = base.nth(2).create(&*ledger).await;
    let parked = base.nth(3).create(&*ledger).await;
    ledger.commit(park(&parked, Duration::from_secs(600))).await.unwrap();
    let gone = Held { id: JobId::operation(), ..held(&kept, 30) };
    let holder: Arc<str> = "host-1".into();
    let all = vec![held(&kept, 60), held(&parked, 60), gone.clone()];
    assert_eq!(ledger.renew(holder.clone(), all).await.unwrap(), [parked.id.clone(), gone.id]);
    rig.advance(Duration::from_secs(41)).await;
    let taken = claimed(&*ledger, claim("host-2", 5)).await;
    assert_eq!(taken.iter().map(|j| &j.id).collect::<Vec<_>>(), [&lost.id], "only what was not renewed");
    let got = ledger.renew(holder, vec![held(&kept, 60), held(&lost, 60)]).await.unwrap();
    assert_eq!(got, std::slice::from_ref(&lost.id));
    let renewed = row(&*ledger, &kept).await;
    assert_eq!((renewed.revision, renewed.token), (1, 1), "a renewal is no write of the job");
    let until = renewed.created.plus(Duration::from_secs(101));
    assert_eq!(renewed.lease.unwrap().until, until);
    assert_eq!(&*row(&*ledger, &lost).await.lease.unwrap().holder, "host-2");
    // Another's lease is not renewed even with its token.
    let thief: Arc<str> = "host-3".into();
    assert_eq!(ledger.renew(thief, vec![held(&kept, 60)]).await.unwrap(), [kept.id]);
}

pub async fn concurrent_claims_never_share_a_job(rig: &dyn Rig) {
    let ledger = rig.ledger();
    for n in 0..60 {
        Sample::default().nth(n).tenant(format!("t-{}", n % 7)).create(&*ledger).await;
    }
    let hosts: Vec<_> = (0..8)
        .map(|h| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let got = claimed(&*ledger, claim(&format!("host-{h}"), 3)).await;
                    if got.is_empty() {
                        return mine;
                    }
                    mine.extend(got);
                }
            })
        })
        .collect();
    let mut ids = HashSet::new();
    for host in hosts {
        for job in host.await.unwrap() {
            assert_eq!(job.token, 1);
            assert!(ids.insert(job.id), "claimed twice");
        }
    }
    assert_eq!(ids.len(), 60);
}
