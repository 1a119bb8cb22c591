//! Takes jobs that are due and runs them, renews this host's leases, and looks after the ledger.

use std::sync::Arc;
use std::time::Duration;

use sutler_ledger::{Claim, Phase, Status, failpoint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::host::Host;
use crate::operations::Operations;
use crate::run::{self, Run};

/// Claims are no closer together than this, unless the last one left jobs behind.
const LEAST: Duration = Duration::from_millis(10);
/// How often the depth of the queue is counted.
const DEPTH: Duration = Duration::from_secs(10);
/// How often old jobs are looked for.
const PURGE: Duration = Duration::from_secs(600);
/// How long the last writes of a stopping host may take.
const LAST_WRITES: Duration = Duration::from_secs(5);

impl Operations {
    /// Begins to claim jobs, in futures that [`Operations::stop`] ends and joins.
    pub fn start(&self) {
        describe();
        let host = self.0.clone();
        for (pair, given, held) in host.policy.short(&host.worker.longest()) {
            let (given, held) = (given.as_secs(), held.as_secs());
            tracing::warn!(event = "lease-too-short", %pair, given, held,
                "[operations.leases] {pair} = {given} is shorter than a step may take, so that {held} s hold; write that");
        }
        // Among the runs: what a last claim took is still given back.
        host.run(claims(host.clone()));
        host.serve(until_done(self.0.clone(), |h| async move {
            h.leases.heartbeat(&*h.ledger, &h.holder).await;
        }));
        host.serve(until_done(self.0.clone(), |h| async move { watch_cancels(&h).await }));
        host.serve(until_done(self.0.clone(), |h| async move { look_after(&h).await }));
    }

    /// Takes no further job, lets calls end within `grace`, stops those that do not, and gives every lease back, so
    /// that another host goes on at once. Answers how many jobs could not be given back; their leases run out.
    pub async fn stop(&self, grace: Duration) -> usize {
        let host = &self.0;
        host.stopping.cancel();
        host.runs.close();
        if tokio::time::timeout(grace, host.runs.wait()).await.is_err() {
            host.dropping.cancel();
            let _left = tokio::time::timeout(LAST_WRITES, host.runs.wait()).await;
        }
        host.done.cancel();
        host.services.close();
        host.services.wait().await;
        host.runs.len()
    }
}

fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_gauge!("sutler_jobs", "Jobs in the ledger, by status.");
    describe_histogram!("sutler_step_seconds", Unit::Seconds, "How long single calls of steps took.");
    describe_histogram!("sutler_wake_lag_seconds", Unit::Seconds, "How long due jobs waited for a worker.");
    describe_counter!("sutler_leases_lost_total", "Leases that this host lost while it worked.");
}

async fn until_done<F: Future<Output = ()>>(host: Arc<Host>, work: impl FnOnce(Arc<Host>) -> F) {
    let done = host.done.clone();
    tokio::select! {
        biased;
        () = done.cancelled() => {}
        () = work(host) => {}
    }
}

async fn claims(host: Arc<Host>) {
    let places = Arc::new(Semaphore::new(host.policy.workers));
    loop {
        tokio::select! {
            biased;
            () = host.stopping.cancelled() => return,
            // One place is enough to begin with.
            _free = places.acquire() => {}
        }
        let last = Instant::now();
        let free = places.available_permits();
        let taken = claim(&host, &places, free).await;
        if taken == Some(free) {
            continue;
        }
        tokio::select! {
            biased;
            () = host.stopping.cancelled() => return,
            () = idle(&host) => {}
        }
        tokio::time::sleep_until(last + LEAST).await;
    }
}

/// Until jobs may have become due.
async fn idle(host: &Host) {
    let poll = host.policy.poll;
    let at_most = match (host.ledger.next_due().await, host.ledger.now().await) {
        (Ok(Some(due)), Ok(now)) => due.since(now).min(poll),
        _ => poll,
    };
    tokio::select! {
        biased;
        () = host.nudge.notified() => {}
        () = host.ledger.woken(at_most) => {}
    }
}

/// How many jobs were taken; `None` where the ledger could not say.
async fn claim(host: &Arc<Host>, places: &Arc<Semaphore>, free: usize) -> Option<usize> {
    let from = Instant::now();
    let claim = Claim {
        holder: host.holder.clone(),
        places: u32::try_from(free).unwrap_or(u32::MAX),
        lease_of: host.lengths(),
        lease: host.policy.lease,
        takeover_after: host.policy.takeover_after,
        digests: host.worker.runnable(),
        limits: host.policy.limits.clone(),
    };
    let jobs = match host.ledger.claim(claim).await {
        Ok(jobs) => jobs,
        Err(e) => {
            tracing::warn!(event = "claim-failed", error = %e, "jobs that are due wait");
            return None;
        }
    };
    let taken = jobs.len();
    for job in jobs {
        failpoint("jobs-after-claim");
        let lag = job.updated.since(job.due);
        metrics::histogram!("sutler_wake_lag_seconds").record(lag.as_secs_f64());
        tracing::debug!(event = "job-claimed", job = %job.id, token = job.token, step = %job.standing.step);
        let place = places.clone().try_acquire_owned().ok();
        host.run(run_claimed(host.clone(), job, from, place));
    }
    Some(taken)
}

async fn run_claimed(
    host: Arc<Host>,
    job: sutler_ledger::Job,
    from: Instant,
    _place: Option<OwnedSemaphorePermit>,
) {
    match Run::new(host.clone(), job, from) {
        Ok(run) => run.run(false).await,
        Err(unread) => {
            let (job, why) = *unread;
            run::leave_unreadable(&host, job, why).await;
        }
    }
}

/// Finds out about cancels that came through other hosts while a call runs here.
async fn watch_cancels(host: &Host) {
    loop {
        tokio::time::sleep(host.policy.poll).await;
        for holding in host.leases.all() {
            if holding.cancel.is_cancelled() || holding.since.elapsed() < host.policy.poll {
                continue;
            }
            if let Ok(Some(job)) = host.ledger.brief(holding.id.clone()).await
                && job.token == holding.token
                && job.standing.cancel_requested
                && job.standing.phase == Phase::Forward
            {
                holding.cancel.cancel();
            }
        }
    }
}

/// Counts for the metrics, and forgets what is old.
async fn look_after(host: &Host) {
    let mut purge_at = Instant::now() + PURGE;
    loop {
        tokio::time::sleep(DEPTH).await;
        if let Ok(depth) = host.ledger.depth().await {
            for status in Status::ALL {
                let n = depth.jobs.get(status.as_str()).copied().unwrap_or(0);
                #[expect(clippy::cast_precision_loss, reason = "a gauge")]
                metrics::gauge!("sutler_jobs", "status" => status.as_str()).set(n as f64);
            }
        }
        if Instant::now() < purge_at {
            continue;
        }
        purge_at = Instant::now() + PURGE;
        // At most a few hundred at once.
        while matches!(host.ledger.purge(host.policy.keep).await, Ok(n) if n > 0) {}
        while matches!(host.ledger.forget_audited(host.policy.keep_audit).await, Ok(n) if n > 0) {}
    }
}
