//! Making a job and running it here.

use std::sync::Arc;
use std::time::Duration;

use sutler_ledger::{
    Begun, Happened, Job, JobId, JobKind, JobMode, LedgerError, Millis, NewJob, Standing, failpoint,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::OperationError;
use crate::host::Host;
use crate::lease::Lane;
use crate::machine::replay;
use crate::operations::{New, unreadable};
use crate::run::{self, Run};
use crate::stored::Kept;
use crate::wait;
use crate::write::Pauses;

/// The route of the repeat's key.
pub(crate) const ROUTE: &str = "apply";
/// How often the ledger is asked whether it made the job, where it could not say.
const TRIES: u32 = 5;

pub(crate) enum Begin {
    /// This host works on it; the row comes when it is parked or ended.
    Running {
        id: JobId,
        settled: oneshot::Receiver<Job>,
    },
    /// It waits for a place.
    Queued(Job),
    Joined(Job),
    Repeated(Job),
}

/// In a future of its own: a caller that goes away does not leave a job that nobody runs.
pub(crate) async fn begin(host: &Arc<Host>, new: New) -> Result<Begin, OperationError> {
    let (to, begun) = oneshot::channel();
    let this = host.clone();
    host.run(async move {
        let (answer, run) = match make(&this, new).await {
            Ok((answer, run)) => (Ok(answer), run),
            Err(e) => (Err(e), None),
        };
        let _nobody_waits = to.send(answer);
        if let Some(run) = run {
            run.run(true).await;
        }
    });
    begun.await.unwrap_or(Err(OperationError::Stopping))
}

async fn make(host: &Arc<Host>, new: New) -> Result<(Begin, Option<Run>), OperationError> {
    let here = host.leases.room(&Lane::of_new(&new), &host.policy.limits);
    let row = new_job(host, new, here)?;
    let id = row.job.id.clone();
    let from = Instant::now();
    failpoint("jobs-before-begin");
    let begun = written(host, row).await;
    failpoint("jobs-after-begin");
    match begun.map_err(OperationError::Ledger)? {
        Begun::Created(job) if here => running(host, job, from).await,
        // The first answer was lost.
        Begun::Repeated(job) if job.id == id && here && holds(host, &job) => running(host, job, from).await,
        Begun::Created(job) => {
            host.nudge.notify_one();
            Ok((Begin::Queued(job), None))
        }
        Begun::Repeated(job) if job.id == id => Ok((Begin::Queued(job), None)),
        Begun::Repeated(job) => Ok((Begin::Repeated(job), None)),
        Begun::Joined(job) => Ok((Begin::Joined(job), None)),
        Begun::Reused(id) => Err(OperationError::ReusedId(id)),
        Begun::OverQuota(over) => Err(OperationError::OverQuota(over)),
        Begun::Busy(id) => Err(OperationError::Busy { id, retry_after: wait::SOON }),
    }
}

async fn running(host: &Arc<Host>, job: Job, from: Instant) -> Result<(Begin, Option<Run>), OperationError> {
    let id = job.id.clone();
    let mut run = match Run::new(host.clone(), job, from) {
        Ok(run) => run,
        Err(unread) => {
            let (job, why) = *unread;
            let e = unreadable(&job, &why);
            run::leave_unreadable(host, job, why).await;
            return Err(e);
        }
    };
    let (to, settled) = oneshot::channel();
    run.settled = Some(to);
    Ok((Begin::Running { id, settled }, Some(run)))
}

/// The lease that came with the job is still ours.
fn holds(host: &Host, job: &Job) -> bool {
    job.token == 1 && job.revision == 1 && job.lease.as_ref().is_some_and(|l| l.holder == host.holder)
}

/// Where the ledger cannot say whether it made the job, it is asked again: the same id comes back if it did.
async fn written(host: &Host, new: NewJob) -> Result<Begun, LedgerError> {
    let mut pauses = Pauses::new();
    let mut answer = host.ledger.begin(new.clone()).await;
    let unknown = matches!(answer, Err(LedgerError::Unknown(_)));
    for _ in 0..TRIES {
        match answer {
            Err(LedgerError::Unknown(_)) => {}
            Err(LedgerError::Unavailable(_)) if unknown => {}
            other => return other,
        }
        pauses.pause().await;
        answer = host.ledger.begin(new.clone()).await;
    }
    answer
}

/// The row, and its lease and first attempt where this host runs it: all in one commit.
fn new_job(host: &Host, mut new: New, here: bool) -> Result<NewJob, OperationError> {
    let mode = JobMode::Create;
    let mut events = vec![Happened::Submitted];
    if here {
        events.push(Happened::Claimed { token: 1, holder: host.holder.to_string() });
        events.push(Happened::StepStarted { step: String::new(), attempt: 1 });
    }
    let standing = replay(mode, &events)?;
    let pair = new.asked.request.pair.clone();
    let (body, takes) = (new.body, std::mem::take(&mut new.takes));
    let actions = new.asked.request.changes.iter().map(|c| c.action).collect();
    let lease = here.then(|| (host.holder.clone(), host.length(&pair)));
    Ok(NewJob {
        job: row(new, mode, standing),
        due_after: Duration::ZERO,
        deadline_after: host.policy.deadline(&pair),
        lease,
        route: ROUTE,
        body,
        events,
        takes,
        actions,
    })
}

fn row(new: New, mode: JobMode, standing: Standing) -> Job {
    let request = &new.asked.request;
    Job {
        id: JobId::operation(),
        kind: JobKind::Provisioning,
        mode,
        subject_type: "application".into(),
        subject_id: request.application.id.to_string(),
        pair: request.pair.clone(),
        application: request.application.clone(),
        resources: request.changes.iter().map(|c| c.resource.clone()).collect(),
        plugin: new.plugin,
        digest: new.digest,
        request_id: request.id.as_str().into(),
        request: new.asked.to_json().into(),
        caller: new.caller,
        standing,
        due: Millis(0),
        lease: None,
        token: 0,
        revision: 0,
        deadline: Millis(0),
        created: Millis(0),
        updated: Millis(0),
        state: Kept::start().to_json().into(),
        answer: None,
    }
}
