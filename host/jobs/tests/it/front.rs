//! What an apply goes through: answers, repeats, overlaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sutler_jobs::{Answered, Ended, New, OperationError, Ran, Who};
use sutler_ledger::{Filter, Ledger, LedgerError, Memory, Moment, Status};
use sutler_model::{Digest, PluginName};
use tokio::time::Instant;

use crate::common::{
    Script, Seen, accepted, applied, asked_of, code, done, ended, ended_code, goes_on, history, host, ledger,
    new, new_of, row, save, stops, wait,
};

const BODY: [u8; 32] = [1; 32];

#[tokio::test(start_paused = true)]
async fn done_within_the_call_takes_two_commits() {
    let (ledger, trouble) = ledger();
    let (ops, worker) = host(&ledger, Script::new("a", |_| done()));
    assert_eq!(ops.asked("platform", "r-1", &BODY).await.unwrap(), None);
    let Answered::Done(id, answer) = ops.begin(new("r-1")).await.unwrap() else { panic!() };
    assert_eq!(answer, Ended::Succeeded(applied()));
    assert_eq!(trouble.writes(), ["begin", "commit"]);
    assert_eq!(history(&ledger, &id).await, ["submitted", "claimed", "step-started", "completed"]);
    assert_eq!(worker.calls(), [(String::new(), 1)]);
    // A repeat hears the same and runs nothing.
    let again = ops.asked("platform", "r-1", &BODY).await.unwrap();
    assert_eq!(again, Some(Answered::Done(id.clone(), answer.clone())));
    assert_eq!(ops.begin(new("r-1")).await.unwrap(), Answered::Done(id, answer));
    assert_eq!(worker.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_written_before_the_plugin_runs() {
    let (ledger, _) = ledger();
    let look = ledger.clone();
    let play = move |s: Seen| -> futures::future::BoxFuture<'static, Ran> {
        let look = look.clone();
        Box::pin(async move {
            let (job, events) = row(&look, &s.id).await;
            assert_eq!((job.standing.status, job.standing.attempt), (Status::Running, s.attempt));
            assert_eq!(job.standing.step, s.step);
            assert_eq!(events.last().unwrap().what.name(), "step-started");
            if s.step == "b" { done() } else { goes_on("b") }
        })
    };
    let (ops, worker) = host(&ledger, Script::slow("a", play));
    let answer = ops.begin(new("r-1")).await.unwrap();
    assert_eq!(code(&answer), "succeeded");
    assert_eq!(worker.calls(), [(String::new(), 1), ("b".into(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn steps_and_saves_go_on_at_once_with_their_state() {
    let (ledger, trouble) = ledger();
    let script = Script::new("a", |s| match (s.step.as_str(), s.state.as_str()) {
        ("", _) => goes_on("one"),
        ("one", "{\"to\":\"one\"}") => save("{\"id\":7}"),
        ("one", "{\"id\":7}") => goes_on("two"),
        ("two", "{\"to\":\"two\"}") => done(),
        other => panic!("{other:?}"),
    });
    let (ops, worker) = host(&ledger, script);
    let Answered::Done(id, answer) = ops.begin(new("r-1")).await.unwrap() else { panic!() };
    assert_eq!(ended_code(&answer), "succeeded");
    // Each checkpoint is one commit, the next attempt in it.
    assert_eq!(trouble.writes(), ["begin", "commit", "commit", "commit", "commit"]);
    let seen = worker.seen.lock().unwrap().clone();
    assert_eq!(seen.iter().map(|s| s.attempt).collect::<Vec<_>>(), [1, 1, 1, 1]);
    assert_eq!(
        seen.iter().map(|s| s.written_by.as_str()).collect::<Vec<_>>(),
        ["", "1.0.0", "1.0.0", "1.0.0"]
    );
    let names = history(&ledger, &id).await;
    assert_eq!(names[3..6], ["step-finished", "step-started", "saved"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_wait_answers_at_once_and_parks() {
    let (ledger, _) = ledger();
    let script = Script::new("a", |s| if s.state == "{}" { wait(5000) } else { done() });
    let (ops, worker) = host(&ledger, script);
    ops.start();
    let started = Instant::now();
    let answer = ops.begin(new("r-1")).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(100));
    let id = accepted(&answer);
    assert_eq!(answer, Answered::Accepted { id: id.clone(), retry_after: Duration::from_secs(5) });
    let (job, _) = row(&ledger, &id).await;
    assert_eq!((job.lease, job.standing.attempt), (None, 0), "nobody holds it");
    let op = ops.operation(Who::Caller("platform"), &id).await.unwrap();
    assert_eq!((op.message.as_str(), op.ended), ("the database starts", None));
    // A repeat joins it.
    assert_eq!(accepted(&ops.asked("platform", "r-1", &BODY).await.unwrap().unwrap()), id);
    assert_eq!(ended_code(&ended(&ops, &id).await), "succeeded");
    let took = worker.seen.lock().unwrap()[1].at;
    assert!(took >= Duration::from_secs(5) && took < Duration::from_millis(5100), "{took:?}");
    assert_eq!(
        history(&ledger, &id).await,
        ["submitted", "claimed", "step-started", "waiting", "claimed", "step-started", "completed"]
    );
    assert_eq!(ops.stop(Duration::from_secs(1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn slow_work_answers_after_answer_within_and_goes_on() {
    let (ledger, _) = ledger();
    let play = |_: Seen| -> futures::future::BoxFuture<'static, Ran> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            done()
        })
    };
    let (ops, worker) = host(&ledger, Script::slow("a", play));
    let started = Instant::now();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    // A repeat waits as long, then gets the same operation; near its end it gets the answer.
    let again = ops.asked("platform", "r-1", &BODY).await.unwrap().unwrap();
    assert_eq!((accepted(&again), started.elapsed()), (id, Duration::from_secs(4)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(code(&ops.asked("platform", "r-1", &BODY).await.unwrap().unwrap()), "succeeded");
    assert_eq!(worker.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_its_work_running() {
    let (ledger, _) = ledger();
    let play = |_: Seen| -> futures::future::BoxFuture<'static, Ran> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            done()
        })
    };
    let (ops, _) = host(&ledger, Script::slow("a", play));
    let gone = tokio::time::timeout(Duration::from_millis(500), ops.begin(new("r-1"))).await;
    assert!(gone.is_err());
    let id = ops.list(Who::Operator("ops"), Filter { limit: 9, ..Filter::default() }).await.unwrap()[0]
        .job
        .id
        .clone();
    assert_eq!(ended_code(&ended(&ops, &id).await), "succeeded");
}

#[tokio::test(start_paused = true)]
async fn repeats() {
    let (ledger, _) = ledger();
    let tries = Arc::new(AtomicU32::new(0));
    let t = tries.clone();
    let script = Script::new("a", move |s| match (s.id.as_str().len(), s.step.as_str()) {
        (_, "") => goes_on("two"),
        (_, "two") if t.fetch_add(1, Ordering::SeqCst) < 3 => stops("quota-exceeded", true),
        _ => done(),
    });
    let (ops, worker) = host(&ledger, script);
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    let failed = ended(&ops, &id).await;
    let Ended::Failed { failure, .. } = &failed else { panic!() };
    assert_eq!((failure.code.as_str(), failure.retryable), ("quota-exceeded", true), "its own code stays");
    // Another body under the same id.
    let other = ops.asked("platform", "r-1", &[2; 32]).await;
    assert!(matches!(&other, Err(OperationError::ReusedId(i)) if *i == id), "{other:?}");
    let reused = ops.begin(new_of(asked_of("r-1", "orders", None), [2; 32])).await;
    assert!(matches!(&reused, Err(OperationError::ReusedId(i)) if *i == id), "{reused:?}");
    // Another caller's request id is another one.
    assert_eq!(ops.asked("somebody", "r-1", &BODY).await.unwrap(), None);
    // The same operation goes on at its checkpoint.
    let resumed = ops.asked("platform", "r-1", &BODY).await.unwrap().unwrap();
    let Answered::Done(same, answer) = resumed else { panic!("{resumed:?}") };
    assert_eq!((same, ended_code(&answer)), (id.clone(), "succeeded".into()));
    let calls = worker.calls();
    let two = |n| ("two".to_owned(), n);
    assert_eq!(calls, [(String::new(), 1), two(1), two(2), two(3), two(1)]);
    assert_eq!(worker.seen.lock().unwrap()[4].state, "{\"stopped\":\"quota-exceeded\"}");
    assert!(history(&ledger, &id).await.contains(&"retried"));
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_replayed() {
    let (ledger, _) = ledger();
    let (ops, worker) = host(&ledger, Script::new("a", |_| stops("quota-exceeded", false)));
    ops.start();
    let first = ops.begin(new("r-1")).await.unwrap();
    assert_eq!(code(&first), "quota-exceeded");
    assert_eq!(ops.asked("platform", "r-1", &BODY).await.unwrap(), Some(first));
    assert_eq!(worker.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn overlaps_join_or_are_refused() {
    let (ledger, _) = ledger();
    let (ops, worker) = host(&ledger, Script::new("a", |_| wait(60_000)));
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    assert_eq!(accepted(&ops.begin(new("r-2")).await.unwrap()), id, "an equal body joins");
    let busy = ops.begin(new_of(asked_of("r-3", "orders", None), [3; 32])).await;
    assert!(matches!(&busy, Err(OperationError::Busy { id: i, .. }) if *i == id), "{busy:?}");
    let theirs = ops.begin(New { caller: "somebody-else".into(), ..new("r-2") }).await;
    assert!(matches!(&theirs, Err(OperationError::Busy { id: i, .. }) if *i == id), "{theirs:?}");
    // Another caller of the same whole request, its id too, joins, and reads what it joined.
    let stranger = ops.operation(Who::Caller("friend"), &id).await;
    assert!(matches!(&stranger, Err(OperationError::NotFound(_))), "{stranger:?}");
    let friend = New { caller: "friend".into(), ..new("r-1") };
    assert_eq!(accepted(&ops.begin(friend).await.unwrap()), id);
    assert_eq!(ops.operation(Who::Caller("friend"), &id).await.unwrap().job.id, id);
    assert!(!ops.events(Who::Caller("friend"), &id, 0, 9).await.unwrap().is_empty());
    let other = accepted(&ops.begin(new_of(asked_of("r-4", "invoices", None), [4; 32])).await.unwrap());
    assert_ne!(other, id);
    let hers = ops.operation(Who::Caller("friend"), &other).await;
    assert!(matches!(&hers, Err(OperationError::NotFound(_))), "{hers:?}");
    assert_eq!(worker.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_equal_calls_on_two_hosts_are_one_job() {
    let (ledger, _) = ledger();
    let play = |_: Seen| -> futures::future::BoxFuture<'static, Ran> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            done()
        })
    };
    let (a, worker_a) = host(&ledger, Script::slow("a", play));
    let (b, worker_b) = host(&ledger, Script::slow("b", play));
    let (x, y) = tokio::join!(a.begin(new("r-1")), b.begin(new("r-1")));
    let x = x.unwrap();
    assert_eq!(code(&x), "succeeded");
    assert_eq!(x, y.unwrap());
    assert_eq!(worker_a.calls().len() + worker_b.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn operations_of_others_are_not_there() {
    let (ledger, _) = ledger();
    let (ops, _) = host(&ledger, Script::new("a", |_| wait(60_000)));
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    let other = Who::Caller("somebody");
    assert!(matches!(ops.operation(other, &id).await, Err(OperationError::NotFound(_))));
    assert!(matches!(ops.events(other, &id, 0, 9).await, Err(OperationError::NotFound(_))));
    assert!(matches!(ops.cancel(other, &id).await, Err(OperationError::NotFound(_))));
    assert!(matches!(ops.retry(other, &id, false).await, Err(OperationError::NotFound(_))));
    let filter = || Filter { limit: 9, ..Filter::default() };
    assert!(ops.list(other, filter()).await.unwrap().is_empty());
    assert_eq!(ops.list(Who::Caller("platform"), filter()).await.unwrap().len(), 1);
    let events = ops.events(Who::Caller("platform"), &id, 2, 9).await.unwrap();
    assert_eq!(events.iter().map(|e| e.seq).collect::<Vec<_>>(), [3, 4]);
}

async fn failed_job(
    ledger: &Arc<Memory>,
    script: Script,
) -> (sutler_jobs::Operations, Arc<Script>, sutler_ledger::JobId) {
    let (ops, worker) = host(ledger, script);
    let Answered::Done(id, _) = ops.begin(new("r-1")).await.unwrap() else { panic!() };
    ops.start();
    (ops, worker, id)
}

#[tokio::test(start_paused = true)]
async fn retry_takes_the_current_generation_unless_told_otherwise() {
    for (same, digest) in [(false, Digest::of(b"two")), (true, Digest::of(b"one"))] {
        let (ledger, _) = ledger();
        let tried = AtomicU32::new(0);
        let mut script = Script::new("a", move |_| {
            if tried.fetch_add(1, Ordering::SeqCst) == 0 { stops("broken", false) } else { done() }
        });
        script.current = Some((PluginName::parse("ksml").unwrap(), Digest::of(b"two")));
        let (ops, worker, id) = failed_job(&ledger, script).await;
        let op = ops.retry(Who::Operator("ops"), &id, same).await.unwrap();
        assert_eq!((op.job.standing.status, op.ended), (Status::Queued, None));
        assert_eq!(ended_code(&ended(&ops, &id).await), "succeeded");
        assert_eq!(worker.seen.lock().unwrap()[1].digest, digest);
        let again = ops.retry(Who::Operator("ops"), &id, same).await;
        assert!(
            matches!(again, Err(OperationError::Conflict { status: Status::Completed, .. })),
            "{again:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_finds_its_resources_taken() {
    let (ledger, _) = ledger();
    let tried = AtomicU32::new(0);
    let script = Script::new("a", move |_| {
        if tried.fetch_add(1, Ordering::SeqCst) == 0 { stops("broken", true) } else { wait(60_000) }
    });
    let (ops, _) = host(&ledger, script);
    let config = sutler_jobs::OperationsConfig { attempts: 1, ..crate::common::config() };
    let (once, _) = crate::common::host_with(&ledger, Script::new("b", |_| stops("broken", true)), &config);
    let Answered::Done(id, _) = once.begin(new("r-1")).await.unwrap() else { panic!() };
    let other = ops.begin(new_of(asked_of("r-2", "orders", None), [2; 32])).await.unwrap();
    let holder = accepted(&other);
    for refused in [
        ops.retry(Who::Operator("ops"), &id, true).await.map(|_| ()),
        ops.asked("platform", "r-1", &BODY).await.map(|_| ()),
    ] {
        assert!(matches!(&refused, Err(OperationError::Busy { id, .. }) if *id == holder), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_ledger_makes_no_second_job() {
    for moment in [Moment::Before, Moment::After] {
        let (ledger, trouble) = ledger();
        let (ops, worker) = host(&ledger, Script::new("a", |_| done()));
        trouble.next("begin", moment, LedgerError::Unknown("cut".into()));
        trouble.next("commit", moment, LedgerError::Unknown("cut".into()));
        assert_eq!(code(&ops.begin(new("r-1")).await.unwrap()), "succeeded", "{moment:?}");
        assert_eq!(worker.calls().len(), 1);
        let jobs = ledger.jobs(Filter { limit: 9, ..Filter::default() }).await.unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!(
            history(&ledger, &jobs[0].id).await,
            ["submitted", "claimed", "step-started", "completed"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_ledger_repeats_no_step() {
    for moment in [Moment::Before, Moment::After] {
        let (ledger, trouble) = ledger();
        let script = Script::new("a", |s| if s.step == "two" { done() } else { goes_on("two") });
        let (ops, worker) = host(&ledger, script);
        let started = Instant::now();
        trouble.next("commit", moment, LedgerError::Unknown("cut".into()));
        trouble.next("job", Moment::Before, LedgerError::Unavailable("cut".into()));
        let Answered::Done(id, answer) = ops.begin(new("r-1")).await.unwrap() else { panic!() };
        assert_eq!(ended_code(&answer), "succeeded", "{moment:?}");
        assert!(started.elapsed() < Duration::from_secs(1), "this host goes on with it");
        assert_eq!(worker.calls(), [(String::new(), 1), ("two".into(), 1)]);
        let names = history(&ledger, &id).await;
        assert_eq!(
            names,
            ["submitted", "claimed", "step-started", "step-finished", "step-started", "completed"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_ledger_nothing_is_begun() {
    let (ledger, trouble) = ledger();
    let (ops, worker) = host(&ledger, Script::new("a", |_| done()));
    trouble.down.store(true, Ordering::SeqCst);
    let down = ops.begin(new("r-1")).await;
    assert!(matches!(&down, Err(OperationError::Ledger(LedgerError::Unavailable(_)))), "{down:?}");
    assert!(worker.calls().is_empty());
    trouble.down.store(false, Ordering::SeqCst);
    assert_eq!(code(&ops.begin(new("r-1")).await.unwrap()), "succeeded");
}

#[tokio::test(start_paused = true)]
async fn an_answer_outlives_a_short_outage() {
    let (ledger, trouble) = ledger();
    let t = trouble.clone();
    let (ops, worker) = host(
        &ledger,
        Script::new("a", move |_| {
            t.down.store(true, Ordering::SeqCst);
            done()
        }),
    );
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    trouble.down.store(false, Ordering::SeqCst);
    assert_eq!(ended_code(&ended(&ops, &id).await), "succeeded");
    assert_eq!(worker.calls().len(), 1, "the plugin is not asked again");
}
