//! Waiting for an operation that somebody works on.

use std::time::Duration;

use sutler_ledger::{Job, JobId, Status};
use tokio::time::Instant;

use crate::error::OperationError;
use crate::host::Host;
use crate::operations::{Answered, unreadable};
use crate::stored::Ended;

/// When it is worth asking again for what is being worked on.
pub(crate) const SOON: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(60);
/// Another host's work is looked at so often.
const LOOK: Duration = Duration::from_millis(250);

/// How a row answers a caller.
#[derive(Debug)]
pub(crate) enum Settled {
    Ended(Ended),
    /// Nobody holds it, and it is not due yet.
    Parked,
    Working,
}

pub(crate) fn settled(job: &Job) -> Result<Settled, OperationError> {
    if job.standing.status.is_final() {
        let ended = Ended::of(job).map_err(|e| unreadable(job, &e))?;
        return ended.map(Settled::Ended).ok_or_else(|| OperationError::Unreadable {
            id: job.id.clone(),
            why: "it has ended and has no answer".into(),
        });
    }
    let parked = job.standing.status == Status::Running && job.lease.is_none() && job.due > job.updated;
    Ok(if parked { Settled::Parked } else { Settled::Working })
}

pub(crate) fn accepted(job: &Job) -> Answered {
    Answered::Accepted { id: job.id.clone(), retry_after: retry_after(job) }
}

/// In whole seconds.
pub(crate) fn retry_after(job: &Job) -> Duration {
    let parked = if job.lease.is_none() { job.due.since(job.updated) } else { Duration::ZERO };
    Duration::from_secs(parked.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)).clamp(SOON, LATEST)
}

/// Until it has ended, is parked, or the time is over. It is known to exist: a ledger that cannot be read is no
/// error.
pub(crate) async fn wait(host: &Host, mut job: Job, until: Instant) -> Result<Answered, OperationError> {
    loop {
        match settled(&job)? {
            Settled::Ended(e) => return Ok(Answered::Done(job.id, e)),
            Settled::Parked => return Ok(accepted(&job)),
            Settled::Working => {}
        }
        match look(host, &job.id, until).await {
            Some(next) => job = next,
            None => return Ok(accepted(&job)),
        }
    }
}

pub(crate) async fn wait_id(host: &Host, id: JobId, until: Instant) -> Result<Answered, OperationError> {
    match look(host, &id, until).await {
        Some(job) => wait(host, job, until).await,
        None => Ok(Answered::Accepted { id, retry_after: SOON }),
    }
}

/// The row after the next change, or a moment later.
async fn look(host: &Host, id: &JobId, until: Instant) -> Option<Job> {
    let changed = host.changed.notified();
    tokio::select! {
        biased;
        () = tokio::time::sleep_until(until) => return None,
        () = changed => {}
        () = tokio::time::sleep(LOOK) => {}
    }
    host.ledger.brief(id.clone()).await.ok().flatten()
}
