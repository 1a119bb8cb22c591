//! Leases: kept by the heartbeat, lost in time, taken over by others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sutler_jobs::{Ended, Operations, OperationsConfig, Ran};
use sutler_ledger::Ledger;
use tokio::time::Instant;

use crate::common::{
    Script, Seen, accepted, config, done, ended, ended_code, goes_on, history, host, host_with, ledger, new,
    row,
};

fn after(secs: u64, ran: Ran) -> BoxFuture<'static, Ran> {
    Box::pin(async move {
        tokio::time::sleep(Duration::from_secs(secs)).await;
        ran
    })
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_its_lease() {
    let (ledger, _) = ledger();
    let (a, worker) = host(&ledger, Script::slow("a", |_| after(600, done())));
    let (b, other) = host(&ledger, Script::slow("b", |_| after(600, done())));
    a.start();
    b.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    let fence = worker.seen.lock().unwrap()[0].fence.clone();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let left = fence.left_at(Instant::now().into_std());
        assert!(left >= Duration::from_secs(15) && left <= Duration::from_secs(30), "{left:?}");
    }
    assert_eq!(ended_code(&ended(&a, &id).await), "succeeded");
    assert_eq!((worker.calls().len(), other.calls().len()), (1, 0));
    assert!(fence.left_at(Instant::now().into_std()).is_zero(), "nothing is held any more");
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlasts_the_longest_step() {
    let (ledger, _) = ledger();
    let mut script = Script::slow("a", |_| after(5, done()));
    script.longest = BTreeMap::from([("deployment/ksml".parse().unwrap(), Duration::from_secs(300))]);
    let (a, _) = host(&ledger, script);
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    let (job, _) = row(&ledger, &id).await;
    assert_eq!(job.lease.unwrap().until.since(job.updated), Duration::from_secs(310));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_stops_the_call_before_it_ends() {
    let (ledger, trouble) = ledger();
    let stopped = Arc::new(AtomicBool::new(false));
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let s = stopped.clone();
    let play = move |_: Seen| -> BoxFuture<'static, Ran> {
        let flag = Flag(s.clone());
        Box::pin(async move {
            let _flag = flag;
            after(100, goes_on("never")).await
        })
    };
    let (a, worker) = host(&ledger, Script::slow("a", play));
    a.start();
    let began = Instant::now();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    trouble.down.store(true, Ordering::SeqCst);
    let fence = worker.seen.lock().unwrap()[0].fence.clone();
    while !stopped.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(fence.left_at(Instant::now().into_std()).is_zero());
    let took = began.elapsed();
    assert!(took > Duration::from_secs(28) && took < Duration::from_secs(30), "{took:?}");
    // Its answer is thrown away: the attempt had none.
    trouble.down.store(false, Ordering::SeqCst);
    let (job, _) = row(&ledger, &id).await;
    assert_eq!((job.standing.step.as_str(), job.standing.attempt, job.token), ("", 1, 1));
}

/// A host that dies in the middle of its calls: everything it spawned is dropped.
fn mortal(
    ledger: &Arc<sutler_ledger::Memory>,
    worker: Script,
    config: &OperationsConfig,
) -> (Operations, Arc<Script>, Arc<tokio::sync::Notify>) {
    let death = Arc::new(tokio::sync::Notify::new());
    let d = death.clone();
    let worker = Arc::new(worker);
    let wrap = move |work: BoxFuture<'static, ()>| -> BoxFuture<'static, ()> {
        let d = d.clone();
        Box::pin(async move {
            let died = d.notified();
            tokio::select! { biased; () = died => {}, () = work => {} }
        })
    };
    let ledger: Arc<dyn Ledger> = ledger.clone();
    let ops = Operations::wrapped(ledger, worker.clone(), config, "mortal", Arc::new(wrap)).unwrap();
    (ops, worker, death)
}

#[tokio::test(start_paused = true)]
async fn a_dead_hosts_job_is_taken_over_after_its_lease() {
    let (ledger, _) = ledger();
    let play = |s: Seen| if s.step.is_empty() { after(0, goes_on("two")) } else { after(600, done()) };
    let (a, worker, death) = mortal(&ledger, Script::slow("a", play), &config());
    let (b, other) = host(&ledger, Script::new("b", |_| done()));
    b.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    let held_until = Duration::from_secs(30);
    death.notify_waiters();
    assert_eq!(ended_code(&ended(&b, &id).await), "succeeded");
    let seen = other.seen.lock().unwrap()[0].clone();
    assert_eq!((seen.step.as_str(), seen.attempt, seen.token), ("two", 2, 2), "the step is run again");
    let waited = held_until + Duration::from_secs(15);
    assert!(seen.at >= waited && seen.at < waited + Duration::from_secs(2), "{:?}", seen.at);
    assert_eq!(worker.calls().len(), 2);
    history(&ledger, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_hosts_runs_out_of_attempts() {
    let (ledger, _) = ledger();
    let mut killed = 0;
    let mut id = None;
    let last = loop {
        let (ops, worker, death) = mortal(&ledger, Script::slow("a", |_| after(3600, done())), &config());
        ops.start();
        let job = match &id {
            None => accepted(&ops.begin(new("r-1")).await.unwrap()),
            Some(id) => sutler_ledger::JobId::clone(id),
        };
        id = Some(job.clone());
        let mut ends = Box::pin(ended(&ops, &job));
        let over = loop {
            if !worker.calls().is_empty() {
                break None;
            }
            if let Some(e) = (&mut ends).now_or_never() {
                break Some(e);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        drop(ends);
        death.notify_waiters();
        match over {
            Some(e) => break e,
            None => killed += 1,
        }
        assert!(killed < 10);
    };
    let Ended::Failed { failure, .. } = last else { panic!() };
    assert_eq!((failure.code.as_str(), failure.retryable, killed), ("attempts-used-up", false, 3));
    history(&ledger, &id.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_worker_leaves_the_job_to_others() {
    let (ledger, _) = ledger();
    let config = OperationsConfig { lease_seconds: 5, takeover_after_seconds: 1, ..config() };
    let (a, _) = host_with(
        &ledger,
        Script::new("a", |s| if s.attempt == 1 { panic!("a mistake") } else { done() }),
        &config,
    );
    a.start();
    let id = accepted(&a.begin(new("r-1")).await.unwrap());
    assert_eq!(ended_code(&ended(&a, &id).await), "succeeded");
    history(&ledger, &id).await;
}
