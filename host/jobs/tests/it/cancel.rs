//! Work that is taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_jobs::{Ended, Ran, Who};
use sutler_ledger::{Phase, Status};
use tokio::time::Instant;

use crate::common::{
    Script, Seen, accepted, done, ended, ended_code, goes_on, history, host, ledger, new, row, stops, wait,
};

const ANY: Who<'static> = Who::Operator("ops");

fn hangs() -> BoxFuture<'static, Ran> {
    Box::pin(futures::future::pending())
}
fn at_once(ran: Ran) -> BoxFuture<'static, Ran> {
    Box::pin(async move { ran })
}

/// Two steps, the second of which hangs; the clean-up has two as well.
fn two_steps(s: Seen) -> BoxFuture<'static, Ran> {
    match (s.phase, s.step.as_str()) {
        (Phase::Forward, "") => at_once(goes_on("two")),
        (Phase::Forward, _) => hangs(),
        (Phase::Cleanup, "two") => at_once(goes_on("undo")),
        (Phase::Cleanup, _) => at_once(done()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_call_is_stopped_at_once_and_cleaned_up() {
    let (ledger, _) = ledger();
    let (ops, worker) = host(&ledger, Script::slow("a", two_steps));
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    let started = Instant::now();
    let op = ops.cancel(ANY, &id).await.unwrap();
    assert!(op.cancelling());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(worker.running.load(Ordering::SeqCst), 0, "the hanging call is gone at once");
    // What it sent may still be on its way; the clean-up waits for that.
    let answer = ended(&ops, &id).await;
    let took = started.elapsed();
    assert!(took >= Duration::from_secs(15) && took < Duration::from_millis(15_100), "{took:?}");
    assert_eq!(ended_code(&answer), "cancelled");
    let seen = worker.seen.lock().unwrap().clone();
    let cleanup: Vec<_> = seen.iter().filter(|s| s.phase == Phase::Cleanup).collect();
    assert_eq!(cleanup[0].state, "{\"to\":\"two\"}", "from the last stored state");
    assert_eq!(
        cleanup.iter().map(|s| (s.step.as_str(), s.attempt)).collect::<Vec<_>>(),
        [("two", 1), ("undo", 1)]
    );
    assert_eq!(
        history(&ledger, &id).await[4..],
        [
            "step-started",
            "cancel-requested",
            "cleanup-started",
            "claimed",
            "step-started",
            "step-finished",
            "step-started",
            "cancelled"
        ]
    );
    // Asking again changes nothing.
    let again = ops.cancel(ANY, &id).await.unwrap();
    assert_eq!(again.job.standing.status, Status::Cancelled);
    assert_eq!(ops.stop(Duration::from_secs(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_through_another_host_reaches_the_one_at_work() {
    let (ledger, _) = ledger();
    let (a, worker) = host(&ledger, Script::slow("a", two_steps));
    let (b, other) = host(&ledger, Script::slow("b", two_steps));
    a.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    let started = Instant::now();
    b.cancel(ANY, &id).await.unwrap();
    while worker.running.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    assert_eq!(ended_code(&ended(&b, &id).await), "cancelled");
    assert_eq!((worker.calls().len(), other.calls().len()), (4, 0));
    history(&ledger, &id).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_last_call_answered_is_kept_for_the_clean_up() {
    let (ledger, _) = ledger();
    let (b, _) = host(&ledger, Script::new("b", |_| done()));
    // The cancel comes through another host in the middle of a call that then answers.
    let play = move |s: Seen| -> BoxFuture<'static, Ran> {
        let b = b.clone();
        Box::pin(async move {
            if s.phase == Phase::Cleanup {
                return done();
            }
            b.cancel(ANY, &s.id).await.unwrap();
            goes_on("two")
        })
    };
    let (a, worker) = host(&ledger, Script::slow("a", play));
    let answer = a.begin(new("r-1")).await.unwrap();
    assert_eq!(crate::common::code(&answer), "cancelled");
    let last = worker.seen.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        (last.phase, last.step.as_str(), last.state.as_str()),
        (Phase::Cleanup, "two", "{\"to\":\"two\"}")
    );
}

#[tokio::test(start_paused = true)]
async fn parked_failed_and_completed_work_is_taken_back() {
    for (first, code_before) in
        [(wait(60_000), ""), (stops("broken", false), "broken"), (done(), "succeeded")]
    {
        let (ledger, _) = ledger();
        let f = first.clone();
        let script = Script::new("a", move |s| if s.phase == Phase::Cleanup { done() } else { f.clone() });
        let (ops, worker) = host(&ledger, script);
        ops.start();
        let answer = ops.begin(new("r-1")).await.unwrap();
        let id = match &answer {
            sutler_jobs::Answered::Done(id, e) => {
                assert_eq!(ended_code(e), code_before);
                id.clone()
            }
            sutler_jobs::Answered::Accepted { id, .. } => id.clone(),
        };
        let op = ops.cancel(Who::Caller("platform"), &id).await.unwrap();
        assert_eq!((op.job.standing.status, op.job.standing.phase), (Status::Running, Phase::Cleanup));
        assert!(op.ended.is_none(), "the answer before counts no longer");
        let started = Instant::now();
        assert_eq!(ended_code(&ended(&ops, &id).await), "cancelled");
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(worker.calls().len(), 2);
        history(&ledger, &id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_never_began_is_cancelled_at_once() {
    let (ledger, _) = ledger();
    let mut config = crate::common::config();
    config.limits.each_tenant = Some(1);
    let (ops, worker) = crate::common::host_with(&ledger, Script::slow("a", |_| hangs()), &config);
    let _first = accepted(&ops.begin(new("r-1")).await.unwrap());
    let second = crate::common::new_of(crate::common::asked_of("r-2", "invoices", None), [2; 32]);
    let id = accepted(&ops.begin(second).await.unwrap());
    assert_eq!(row(&ledger, &id).await.0.standing.status, Status::Queued);
    let op = ops.cancel(ANY, &id).await.unwrap();
    assert_eq!(op.job.standing.status, Status::Cancelled);
    assert_eq!(op.ended.as_ref().map(ended_code).as_deref(), Some("cancelled"));
    assert_eq!(history(&ledger, &id).await, ["submitted", "cancel-requested", "cancelled"]);
    assert_eq!(worker.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_fails_can_be_retried() {
    let (ledger, _) = ledger();
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let b = broken.clone();
    let script = Script::new("a", move |s| match s.phase {
        Phase::Forward => wait(60_000),
        Phase::Cleanup if b.load(Ordering::SeqCst) => stops("in-use", false),
        Phase::Cleanup => done(),
    });
    let (ops, _) = host(&ledger, script);
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    ops.cancel(ANY, &id).await.unwrap();
    let answer = ended(&ops, &id).await;
    let Ended::Failed { failure, .. } = &answer else { panic!() };
    assert_eq!(failure.code, "in-use");
    let (job, _) = row(&ledger, &id).await;
    assert_eq!((job.standing.status, job.standing.phase), (Status::Failed, Phase::Cleanup));
    broken.store(false, Ordering::SeqCst);
    ops.retry(ANY, &id, false).await.unwrap();
    assert_eq!(ended_code(&ended(&ops, &id).await), "cancelled");
    history(&ledger, &id).await;
}
