//! Guarded writes.

use std::time::Duration;

use sutler_model::{Digest, PluginName};

use super::rig::{Rig, Sample, claim, claimed, end, history, is_stale, park, row, write};
use crate::{Begun, Event, Happened, Job, JobId, LeaseChange, LedgerError, Millis, Phase, Status};

fn held() -> Sample {
    Sample { lease: Some(("host-1", 30)), ..Sample::default() }
}

pub async fn a_write_changes_row_and_events(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = held().create(&*ledger).await;
    rig.advance(Duration::from_secs(1)).await;
    let mut w = write(&job);
    w.standing.step = "create-network".into();
    w.standing.attempt = 3;
    w.standing.cancel_requested = true;
    w.lease = LeaseChange::Extend(Duration::from_secs(60));
    w.state = Some("{\"vpc\":1}".into());
    w.generation = Some((PluginName::parse("topics-2").unwrap(), Digest::of(b"2")));
    w.deadline_after = Some(Duration::from_secs(100));
    w.due_after = Duration::from_secs(7);
    w.events = vec![
        Happened::StepFinished { next: "create-network".into() },
        Happened::StepStarted { step: "create-network".into(), attempt: 3 },
    ];
    let next = ledger.commit(w.clone()).await.unwrap();
    assert!(next.updated > job.updated);
    assert_eq!((next.revision, next.token, next.created), (2, 1, job.created));
    assert_eq!(next.standing, w.standing);
    assert_eq!(next.lease.as_ref().unwrap().until, next.updated.plus(Duration::from_secs(60)));
    assert_eq!(&*next.lease.as_ref().unwrap().holder, "host-1");
    assert_eq!(next.deadline, next.updated.plus(Duration::from_secs(100)));
    assert_eq!(next.due, next.updated.plus(Duration::from_secs(7)));
    assert_eq!((&*next.state, next.plugin.as_str()), ("{\"vpc\":1}", "topics-2"));
    assert_eq!(next.digest, Digest::of(b"2"));
    assert_eq!(next.request, job.request);
    assert!(row(&*ledger, &job).await == next);
    let names = ["submitted", "claimed", "step-started", "step-finished", "step-started"];
    assert_eq!(history(&*ledger, &job).await, names);

    // What a write does not name stays, and an answer can be taken away again.
    let failed = ledger.commit(end(&next, Status::Failed)).await.unwrap();
    assert_eq!((&*failed.state, failed.deadline), ("{\"vpc\":1}", next.deadline));
    assert!(failed.answer.is_some());
    assert_eq!(failed.lease, None, "a final job is nobody's");
    let mut w = write(&failed);
    w.standing.status = Status::Queued;
    w.answer = Some(None);
    assert_eq!(ledger.commit(w).await.unwrap().answer, None);
    assert_eq!(row(&*ledger, &job).await.answer, None);
}

pub async fn a_stale_write_is_refused(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = held().create(&*ledger).await;
    let first = ledger.commit(write(&job)).await.unwrap();
    assert!(is_stale(&ledger.commit(write(&job)).await));
    let mut wrong = write(&first);
    wrong.token = Some(first.token + 1);
    assert!(is_stale(&ledger.commit(wrong).await));
    let mut nobody = write(&first);
    nobody.id = JobId::operation();
    assert!(matches!(ledger.commit(nobody.clone()).await, Err(LedgerError::NotFound(id)) if id == nobody.id));
    assert!(row(&*ledger, &job).await == first, "a refused write leaves nothing");
    assert_eq!(history(&*ledger, &job).await.len(), 4);
    // A lease that nobody has cannot be extended.
    let parked = ledger.commit(park(&first, Duration::ZERO)).await.unwrap();
    let mut w = write(&parked);
    w.lease = LeaseChange::Extend(Duration::from_secs(30));
    assert!(is_stale(&ledger.commit(w).await));
}

pub async fn a_token_that_was_overtaken_is_refused(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = held().create(&*ledger).await;
    rig.advance(Duration::from_secs(41)).await;
    let taken = claimed(&*ledger, claim("host-2", 1)).await;
    assert_eq!(taken[0].token, 2);
    // The stale worker even knows the new revision.
    let mut w = write(&job);
    w.revision = taken[0].revision;
    assert!(is_stale(&ledger.commit(w).await));
    ledger.commit(write(&taken[0])).await.unwrap();
}

pub async fn final_jobs_free_their_resources(rig: &dyn Rig) {
    let ledger = rig.ledger();
    for (n, status) in [Status::Completed, Status::Failed, Status::Cancelled].into_iter().enumerate() {
        let job =
            Sample { request_id: format!("r-{n}"), body: 10 + n as u8, ..held() }.create(&*ledger).await;
        let waiting = Sample { request_id: "r-x".into(), body: 99, ..held() };
        assert_eq!(ledger.begin(waiting.new_job()).await.unwrap(), Begun::Busy(job.id.clone()));
        let ended = ledger.commit(end(&job, status)).await.unwrap();
        assert!(row(&*ledger, &job).await == ended && !ended.state.is_empty() && ended.answer.is_some());
        let told = ledger.brief(job.id).await.unwrap().unwrap();
        assert!(told == Job { request: "".into(), state: "".into(), ..ended }, "{told:?}");
    }
}

pub async fn a_retry_takes_the_resources_again(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let both = Sample { resources: vec!["a", "b"], ..held() };
    let job = both.create(&*ledger).await;
    let failed = ledger.commit(end(&job, Status::Failed)).await.unwrap();
    let other =
        Sample { resources: vec!["b"], body: 2, request_id: "r-2".into(), ..held() }.create(&*ledger).await;
    let mut retry = write(&failed);
    retry.token = None;
    retry.standing.status = Status::Queued;
    retry.events = vec![Happened::Retried { phase: Phase::Forward }];
    assert!(matches!(ledger.commit(retry.clone()).await, Err(LedgerError::Busy(id)) if id == other.id));
    assert!(row(&*ledger, &job).await == failed, "a refused retry leaves nothing");
    // a, which was free, is still free.
    let third =
        Sample { resources: vec!["a"], body: 3, request_id: "r-3".into(), ..held() }.create(&*ledger).await;
    for j in [&other, &third] {
        ledger.commit(end(j, Status::Completed)).await.unwrap();
    }
    // Nobody told what these take: then nobody knows that they changed anything.
    let again = ledger.commit(retry).await.unwrap();
    assert_eq!(again.standing.status, Status::Queued);
    let late = Sample { resources: vec!["a"], body: 4, request_id: "r-4".into(), ..held() };
    assert_eq!(ledger.begin(late.new_job()).await.unwrap(), Begun::Busy(job.id.clone()));
    assert_eq!(claimed(&*ledger, claim("host-2", 5)).await.len(), 1);
}

pub async fn times_in_events_are_counted_from_now(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = held().create(&*ledger).await;
    let mut w = park(&job, Duration::from_millis(250));
    w.events.push(Happened::StepFailed { code: "throttled".into(), due: Millis(1000) });
    w.events.push(Happened::Released { due: Millis(0) });
    let parked = ledger.commit(w).await.unwrap();
    let events = ledger.events(job.id.clone(), 3, 10).await.unwrap();
    let at = parked.updated;
    let expected = [
        Happened::Waiting { due: at.plus(Duration::from_millis(250)) },
        Happened::StepFailed { code: "throttled".into(), due: at.plus(Duration::from_secs(1)) },
        Happened::Released { due: at },
    ];
    let expected: Vec<Event> = (4..).zip(expected).map(|(seq, what)| Event { seq, at, what }).collect();
    assert_eq!(events, expected);
    assert_eq!(parked.due, at.plus(Duration::from_millis(250)));
}

pub async fn one_failing_write_harms_no_other(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let mut jobs = Vec::new();
    for n in 0..40 {
        jobs.push(held().nth(n).create(&*ledger).await);
    }
    // Every third write is stale; all are sent at once.
    let writes = jobs.iter().enumerate().map(|(n, job)| {
        let mut w = write(job);
        w.state = Some(format!("{{\"n\":{n}}}").into());
        w.revision += u64::from(n % 3 == 0);
        ledger.commit(w)
    });
    let got = futures::future::join_all(writes).await;
    for (n, (job, got)) in jobs.iter().zip(got).enumerate() {
        let now = row(&*ledger, job).await;
        if n % 3 == 0 {
            assert!(is_stale(&got), "{n}");
            assert!(now == *job);
        } else {
            assert!(now == got.unwrap());
            assert_eq!(&*now.state, format!("{{\"n\":{n}}}"));
        }
        assert_eq!(history(&*ledger, job).await.len(), if n % 3 == 0 { 3 } else { 4 });
    }
}

pub async fn a_writer_without_token_may_write(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = held().create(&*ledger).await;
    let mut cancel = write(&job);
    cancel.token = None;
    cancel.standing.cancel_requested = true;
    cancel.events = vec![Happened::CancelRequested];
    let asked = ledger.commit(cancel).await.unwrap();
    assert_eq!((asked.lease.clone(), asked.token), (job.lease.clone(), 1), "the worker keeps its lease");
    assert!(is_stale(&ledger.commit(write(&job)).await), "and learns of it by its next write");
    ledger.commit(write(&asked)).await.unwrap();
}
