//! Repeats and overlap.

use std::collections::HashSet;
use std::time::Duration;

use super::rig::{Rig, SECRET, Sample, claim, end, history, row, write};
use crate::{Begun, Lease, Status};

pub async fn what_is_begun_is_there(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let now = ledger.now().await.unwrap();
    let sample = Sample { lease: Some(("host-1", 30)), resources: vec!["b", "a"], ..Sample::default() };
    let job = sample.create(&*ledger).await;
    assert_eq!((job.token, job.revision), (1, 1));
    assert!(job.created >= now && job.created == job.updated);
    assert_eq!(job.deadline, job.created.plus(Duration::from_secs(86400)));
    let until = job.created.plus(Duration::from_secs(30));
    assert_eq!(job.lease, Some(Lease { holder: "host-1".into(), until }));
    assert!(job.request.contains(SECRET));
    let read = row(&*ledger, &job).await;
    assert!(read == job, "what is read back differs: {read:?} {job:?}");
    let brief = ledger.brief(job.id.clone()).await.unwrap().unwrap();
    assert!(brief == crate::Job { request: "".into(), ..job.clone() }, "{brief:?}");
    assert_eq!(history(&*ledger, &job).await, ["submitted", "claimed", "step-started"]);

    let parked =
        Sample { due_after: Duration::from_secs(5), ..Sample::default() }.nth(2).create(&*ledger).await;
    assert_eq!((parked.token, parked.lease.clone()), (0, None));
    assert_eq!(parked.due, parked.created.plus(Duration::from_secs(5)));
    assert!(ledger.job(crate::JobId::operation()).await.unwrap().is_none());
    assert!(ledger.brief(crate::JobId::operation()).await.unwrap().is_none());
}

pub async fn repeats_are_the_same_job(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let sample = Sample { lease: Some(("host-1", 30)), ..Sample::default() };
    assert!(ledger.asked("axual", "apply", "r-1").await.unwrap().is_none());
    let job = sample.create(&*ledger).await;
    assert!(ledger.begin(sample.new_job()).await.unwrap() == Begun::Repeated(job.clone()));
    let asked = ledger.asked("axual", "apply", "r-1").await.unwrap();
    assert!(asked == Some((job.clone(), [1; 32])));
    assert!(ledger.asked("axual", "plan", "r-1").await.unwrap().is_none());
    assert!(ledger.asked("other", "apply", "r-1").await.unwrap().is_none());
    assert_eq!(history(&*ledger, &job).await.len(), 3, "a repeat writes nothing");
}

pub async fn a_request_id_with_another_body_is_reused(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample::default().create(&*ledger).await;
    // The repeat is looked for first: the other body also overlaps.
    let other = Sample { body: 2, ..Sample::default() };
    assert_eq!(ledger.begin(other.new_job()).await.unwrap(), Begun::Reused(job.id.clone()));
    let elsewhere = Sample { body: 2, resources: vec!["other"], ..Sample::default() };
    assert_eq!(ledger.begin(elsewhere.new_job()).await.unwrap(), Begun::Reused(job.id));
    // Another caller's request ids are its own.
    let stranger = Sample { caller: "other", body: 2, ..elsewhere };
    stranger.create(&*ledger).await;
}

pub async fn an_equal_body_joins(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let two = Sample { resources: vec!["a", "b"], ..Sample::default() };
    let job = two.create(&*ledger).await;
    let again = Sample { request_id: "r-2".into(), resources: vec!["b", "a"], ..two.clone() };
    assert!(ledger.begin(again.new_job()).await.unwrap() == Begun::Joined(job.clone()));
    // Another caller joins under the same request id, and not under one of its own.
    let stranger = Sample { caller: "other", request_id: "r-9".into(), ..two.clone() };
    assert_eq!(ledger.begin(stranger.new_job()).await.unwrap(), Begun::Busy(job.id.clone()));
    let friend = Sample { caller: "friend", ..two.clone() };
    assert!(ledger.begin(friend.new_job()).await.unwrap() == Begun::Joined(job.clone()));
    let other = Sample { caller: "friend", body: 2, ..two.clone() };
    assert_eq!(ledger.begin(other.new_job()).await.unwrap(), Begun::Reused(job.id.clone()));

    // What joined is remembered beyond the end.
    ledger.commit(end(&job, Status::Completed)).await.unwrap();
    let done = row(&*ledger, &job).await;
    for again in [&again, &friend] {
        assert!(ledger.begin(again.new_job()).await.unwrap() == Begun::Repeated(done.clone()));
    }
    assert!(ledger.asked("other", "apply", "r-9").await.unwrap().is_none());
    let changed = Sample { body: 7, ..again };
    assert_eq!(ledger.begin(changed.new_job()).await.unwrap(), Begun::Reused(job.id));
    stranger.create(&*ledger).await;
}

pub async fn another_body_is_busy(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample { resources: vec!["a", "b"], ..Sample::default() }.create(&*ledger).await;
    let busy = |body, resources| Sample { request_id: "r-2".into(), body, resources, ..Sample::default() };
    for other in [busy(2, vec!["b", "c"]), busy(1, vec!["a"]), busy(1, vec!["a", "b", "c"])] {
        let got = ledger.begin(other.new_job()).await.unwrap();
        assert_eq!(got, Begun::Busy(job.id.clone()), "{other:?}");
    }
    assert!(ledger.asked("axual", "apply", "r-2").await.unwrap().is_none());
    // Nothing of a refused job stays: c is free, and so is the request id.
    busy(2, vec!["c"]).create(&*ledger).await;
}

pub async fn other_scopes_do_not_meet(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let base = Sample { body: 1, ..Sample::default() };
    base.create(&*ledger).await;
    let others = [
        Sample { tenant: "globex".into(), ..base.clone() },
        Sample { tenant: String::new(), ..base.clone() },
        Sample { application: "bills".into(), ..base.clone() },
        Sample { pair: "tool/ksml", ..base.clone() },
        Sample { pair: "deployment/flink", ..base.clone() },
    ];
    for (n, s) in others.into_iter().enumerate() {
        Sample { request_id: format!("r-1{n}"), body: 9, ..s }.create(&*ledger).await;
    }
}

pub async fn concurrent_begins_make_one_job(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let ledger = ledger.clone();
            // Half of them repeat one request id, half join under their own.
            let request_id = if n % 2 == 0 { "r-1".to_owned() } else { format!("r-1{n}") };
            let sample = Sample { request_id, lease: Some(("host-1", 30)), ..Sample::default() };
            tokio::spawn(async move { ledger.begin(sample.new_job()).await.unwrap() })
        })
        .collect();
    let (mut ids, mut created) = (HashSet::new(), 0);
    for task in tasks {
        match task.await.unwrap() {
            Begun::Created(job) => {
                created += 1;
                ids.insert(job.id);
            }
            Begun::Repeated(job) | Begun::Joined(job) => {
                ids.insert(job.id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((created, ids.len()), (1, 1));
    assert_eq!(ledger.depth().await.unwrap().jobs.values().sum::<u64>(), 1);
}

pub async fn a_repeat_of_a_final_job_is_answered(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let sample = Sample { lease: Some(("host-1", 30)), ..Sample::default() };
    let job = sample.create(&*ledger).await;
    let mut w = end(&job, Status::Failed);
    w.answer = Some(Some("{\"outcome\":\"failed\"}".into()));
    let done = ledger.commit(w).await.unwrap();
    match ledger.begin(sample.new_job()).await.unwrap() {
        Begun::Repeated(got) => {
            assert!(got == done);
            assert_eq!(got.answer.as_deref(), Some("{\"outcome\":\"failed\"}"));
        }
        other => panic!("{other:?}"),
    }
    // A final job does not stand in the way of new work.
    let next = Sample { request_id: "r-2".into(), body: 2, ..Sample::default() }.create(&*ledger).await;
    assert_eq!(super::rig::claimed(&*ledger, claim("host-2", 9)).await.len(), 1);
    let moved = row(&*ledger, &next).await;
    ledger.commit(write(&moved)).await.unwrap();
}
