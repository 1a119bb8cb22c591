//! Retries, deadlines, places, and a clean stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_jobs::{Ended, OperationError, OperationsConfig, Ran, Who};
use sutler_ledger::{Happened, Ledger, Memory, Record, Status};
use sutler_model::Digest;
use tokio::time::Instant;

use crate::common::{
    Script, Seen, accepted, asked_of, config, done, ended, ended_code, goes_on, history, host, host_with,
    ledger, new, new_of, row, save, stops, wait,
};

fn after(millis: u64, ran: Ran) -> BoxFuture<'static, Ran> {
    Box::pin(async move {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        ran
    })
}

#[tokio::test(start_paused = true)]
async fn retries_back_off_and_end_with_the_last_failure() {
    let (ledger, _) = ledger();
    let config = OperationsConfig { attempts: 5, longest_backoff_seconds: 4, ..config() };
    let (ops, worker) = host_with(&ledger, Script::new("a", |_| stops("unavailable", true)), &config);
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    let Ended::Failed { failure, .. } = ended(&ops, &id).await else { panic!() };
    assert_eq!((failure.code.as_str(), failure.retryable), ("unavailable", true));
    let at: Vec<Duration> = worker.seen.lock().unwrap().iter().map(|s| s.at).collect();
    let pauses: Vec<Duration> = at.windows(2).map(|w| w[1] - w[0]).collect();
    for (pause, most) in pauses.iter().zip([1000, 2000, 4000, 4000]) {
        let (least, most) = (Duration::from_millis(most / 2), Duration::from_millis(most + 50));
        assert!(*pause >= least && *pause <= most, "{pauses:?}");
    }
    assert_eq!(worker.calls().iter().map(|c| c.1).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    history(&ledger, &id).await;
}

#[tokio::test(start_paused = true)]
async fn faults_are_not_tried_again() {
    let (ledger, _) = ledger();
    let script = Script::new("a", |_| {
        let Ran::Stopped(s, _) = stops("plugin-fault", true) else { panic!() };
        Ran::Stopped(s, Some("flt_000000000001".into()))
    });
    let (ops, worker) = host(&ledger, script);
    let sutler_jobs::Answered::Done(_, Ended::Failed { failure, fault_id, .. }) =
        ops.begin(new("r-1")).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((failure.code.as_str(), fault_id.as_deref()), ("plugin-fault", Some("flt_000000000001")));
    assert_eq!(worker.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_waiting_and_retrying() {
    let (ledger, _) = ledger();
    let config = OperationsConfig { deadline_seconds: 10, attempts: 100, ..config() };
    let (ops, _) = host_with(&ledger, Script::new("a", |_| wait(3_600_000)), &config);
    ops.start();
    let started = Instant::now();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    assert_eq!(ended_code(&ended(&ops, &id).await), "deadline-exceeded");
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    history(&ledger, &id).await;
    // A failure that would be tried again only after the deadline ends the job with its own code.
    let (other, _) =
        host_with(&crate::common::ledger().0, Script::new("a", |_| stops("unavailable", true)), &config);
    other.start();
    let id = accepted(&other.begin(new("r-1")).await.unwrap());
    assert_eq!(ended_code(&ended(&other, &id).await), "unavailable");
}

#[tokio::test(start_paused = true)]
async fn a_short_pause_is_at_least_a_quarter_of_a_second() {
    let (ledger, _) = ledger();
    let script = Script::new("a", |s| if s.state == "{}" { wait(0) } else { done() });
    let (ops, worker) = host(&ledger, script);
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    ended(&ops, &id).await;
    let at: Vec<Duration> = worker.seen.lock().unwrap().iter().map(|s| s.at).collect();
    let pause = at[1] - at[0];
    assert!(pause >= Duration::from_millis(250) && pause < Duration::from_millis(300), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_saves_without_end_is_slowed_down() {
    let (ledger, _) = ledger();
    let config = OperationsConfig { deadline_seconds: 60, ..config() };
    let (ops, worker) = host_with(&ledger, Script::new("a", |s| save(&s.state)), &config);
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    assert_eq!(ended_code(&ended(&ops, &id).await), "deadline-exceeded");
    let calls = worker.calls().len();
    assert!((101..=100 + 60 * 4 + 1).contains(&calls), "{calls} calls in a minute");
    let at: Vec<Duration> = worker.seen.lock().unwrap().iter().map(|s| s.at).collect();
    assert!(
        at[99] - at[0] < Duration::from_millis(250),
        "the first ones go on at once: {:?}",
        at[99] - at[0]
    );
}

/// A job whose texts no host reads is left to newer ones until its time is over or somebody wants it gone.
#[tokio::test(start_paused = true)]
async fn what_nobody_can_read_ends_all_the_same() {
    let config = OperationsConfig { deadline_seconds: 600, ..config() };
    for cancelled in [false, true] {
        let (ledger, _) = ledger();
        let (ops, worker) = host_with(&ledger, Script::new("a", |_| wait(60_000)), &config);
        let id = accepted(&ops.begin(new("r-1")).await.unwrap());
        let (mut job, events) = row(&ledger, &id).await;
        job.request = "{}".into();
        let other = Arc::new(Memory::new(crate::common::clock()));
        let record = Record::Job { job: Box::new(job), events, route: "apply".into(), body: [1; 32] };
        other.import(record).await.unwrap();
        let (ops, after) = host_with(&other, Script::new("b", |_| done()), &config);
        ops.start();
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(
            ops.operation(Who::Operator("ops"), &id).await.unwrap().ended,
            None,
            "a newer host may read it"
        );
        if cancelled {
            ops.cancel(Who::Operator("ops"), &id).await.unwrap();
        }
        let code = ended_code(&ended(&ops, &id).await);
        assert_eq!(code, if cancelled { "cancelled" } else { "deadline-exceeded" });
        assert_eq!((worker.calls().len(), after.calls().len()), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn no_room_and_a_foreign_digest_are_no_attempts() {
    let (ledger, _) = ledger();
    let n = Arc::new(AtomicU32::new(0));
    let script = Script::new("a", move |_| match n.fetch_add(1, Ordering::SeqCst) {
        0..=4 => Ran::NoRoom,
        5 => Ran::CannotRun("its engine differs".into()),
        _ => done(),
    });
    let (ops, worker) = host(&ledger, script);
    ops.start();
    let id = accepted(&ops.begin(new("r-1")).await.unwrap());
    assert_eq!(ended_code(&ended(&ops, &id).await), "succeeded", "with three attempts allowed");
    assert!(worker.calls().iter().all(|c| c.1 == 1), "{:?}", worker.calls());
    assert_eq!(history(&ledger, &id).await.iter().filter(|n| **n == "released").count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_host_claims_only_what_it_can_run() {
    let (ledger, _) = ledger();
    let (a, _) = host(&ledger, Script::new("a", |_| wait(1000)));
    let mut script = Script::new("b", |_| done());
    script.runnable = Some(vec![Digest::of(b"two")]);
    let (b, foreign) = host(&ledger, script);
    b.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(foreign.calls().is_empty());
    let mut script = Script::new("c", |_| done());
    script.runnable = Some(vec![Digest::of(b"one")]);
    let (c, _) = host(&ledger, script);
    c.start();
    assert_eq!(ended_code(&ended(&c, &id).await), "succeeded");
}

#[tokio::test(start_paused = true)]
async fn no_more_jobs_run_than_there_are_places() {
    let (ledger, _) = ledger();
    let config = OperationsConfig { workers: 3, ..config() };
    let play = |s: Seen| if s.state == "{}" { after(0, wait(1000)) } else { after(1000, done()) };
    let (ops, worker) = host_with(&ledger, Script::slow("a", play), &config);
    let mut ids = vec![];
    for n in 0..12 {
        let new = new_of(asked_of(&format!("r-{n}"), &format!("app-{n}"), None), [n; 32]);
        ids.push(accepted(&ops.begin(new).await.unwrap()));
    }
    worker.most.store(0, Ordering::SeqCst);
    ops.start();
    for id in &ids {
        assert_eq!(ended_code(&ended(&ops, id).await), "succeeded");
    }
    assert_eq!(worker.most.load(Ordering::SeqCst), 3);
    let last = worker.seen.lock().unwrap().last().unwrap().at;
    assert!(last < Duration::from_millis(4500), "a free place is taken at once: {last:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_hold_for_new_applies_too() {
    let (ledger, _) = ledger();
    let mut config = config();
    config.limits.pairs.insert("deployment/ksml".into(), 2);
    let (ops, worker) = host_with(&ledger, Script::slow("a", |_| after(5000, done())), &config);
    ops.start();
    let begin = |n: u8| {
        let ops = ops.clone();
        let new = new_of(asked_of(&format!("r-{n}"), &format!("app-{n}"), None), [n; 32]);
        async move { ops.begin(new).await.unwrap() }
    };
    let answers = futures::future::join_all((0..6).map(begin)).await;
    for a in &answers {
        assert_eq!(ended_code(&ended(&ops, &accepted(a)).await), "succeeded");
    }
    assert_eq!(worker.most.load(Ordering::SeqCst), 2);
    let last = worker.seen.lock().unwrap().last().unwrap().at;
    assert!(last < Duration::from_millis(10_100), "a free place is taken at once: {last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_calls_end_and_gives_leases_back() {
    let (ledger, _) = ledger();
    let (a, _) = host(&ledger, Script::slow("a", |_| after(3000, goes_on("two"))));
    a.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    let (b, other) = host(&ledger, Script::new("b", |_| done()));
    b.start();
    assert_eq!(a.stop(Duration::from_secs(5)).await, 0);
    assert!(matches!(a.begin(new("r-2")).await, Err(OperationError::Stopping)));
    let stopped = Instant::now();
    assert_eq!(ended_code(&ended(&b, &id).await), "succeeded");
    assert!(stopped.elapsed() < Duration::from_millis(100), "{:?}", stopped.elapsed());
    assert_eq!(other.calls(), [("two".to_owned(), 1)], "what the last call reached is kept");
    history(&ledger, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_grace_is_stopped_and_does_not_count() {
    let (ledger, _) = ledger();
    let (a, worker) = host(&ledger, Script::slow("a", |_| after(60_000, done())));
    a.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    let (b, other) = host(&ledger, Script::new("b", |_| done()));
    b.start();
    let began = Instant::now();
    assert_eq!(a.stop(Duration::from_secs(5)).await, 0);
    assert!(began.elapsed() < Duration::from_millis(5100));
    assert_eq!(worker.running.load(Ordering::SeqCst), 0);
    assert_eq!(ended_code(&ended(&b, &id).await), "succeeded");
    assert!(began.elapsed() < Duration::from_millis(5200), "{:?}", began.elapsed());
    assert_eq!(other.calls(), [(String::new(), 1)]);
    let (_, events) = row(&ledger, &id).await;
    assert!(matches!(events[3].what, Happened::Released { due } if due == events[3].at), "{:?}", events[3]);
    history(&ledger, &id).await;
}

#[tokio::test(start_paused = true)]
async fn many_parked_jobs_wake_in_time() {
    let (ledger, _) = ledger();
    let script = Script::new("a", |s| if s.state == "{}" { wait(10_000) } else { done() });
    let (ops, worker) = host(&ledger, script);
    ops.start();
    let mut ids = vec![];
    for n in 0..200_u8 {
        let new = new_of(asked_of(&format!("r-{n}"), &format!("app-{n}"), None), [n; 32]);
        ids.push(accepted(&ops.begin(new).await.unwrap()));
    }
    tokio::time::sleep(Duration::from_millis(11_000)).await;
    for id in &ids {
        assert_eq!(row(&ledger, id).await.0.standing.status, Status::Completed);
    }
    assert_eq!(worker.calls().len(), 400);
    let op = ops.operation(Who::Operator("ops"), &ids[0]).await.unwrap();
    assert_eq!(op.ended.as_ref().map(ended_code).as_deref(), Some("succeeded"));
}

/// The same with real time and several threads: two hosts, and work that is parked again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_threads_bring_everything_to_its_end() {
    let (ledger, _) = ledger();
    let play = |s: Seen| match s.step.as_str() {
        "" => after(1, goes_on("two")),
        "two" if s.state != "{\"waited\":1}" => after(1, wait(250)),
        _ => after(1, done()),
    };
    let (a, _) = host(&ledger, Script::slow("a", play));
    let (b, _) = host(&ledger, Script::slow("b", play));
    a.start();
    b.start();
    let begin = |n: u8| {
        let ops = if n.is_multiple_of(2) { a.clone() } else { b.clone() };
        let new = new_of(asked_of(&format!("r-{n}"), &format!("app-{n}"), None), [n; 32]);
        tokio::spawn(async move { ops.begin(new).await.unwrap() })
    };
    for answer in futures::future::join_all((0..200).map(begin)).await {
        let id = accepted(&answer.unwrap());
        assert_eq!(ended_code(&ended(&a, &id).await), "succeeded");
        history(&ledger, &id).await;
    }
    assert_eq!((a.stop(Duration::from_secs(5)).await, b.stop(Duration::from_secs(5)).await), (0, 0));
}
