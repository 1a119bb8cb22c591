//! The front: what an apply goes through, and what callers and operators ask of operations.

use std::sync::Arc;

use sutler_ledger::{Deed, Event, Filter, Job, JobId, Ledger, LedgerError, Phase, Status, Takes};
use sutler_model::{Application, Digest, Identifier, OverQuota, Pair, PluginName};
use tokio::time::Instant;

use crate::begin::{self, Begin};
use crate::config::OperationsConfig;
use crate::decide::{self, Change};
use crate::error::OperationError;
use crate::host::{Host, Wrap};
use crate::run::bare_write;
use crate::stored::{Asked, Ended, Kept, StoredError};
use crate::wait::{self, Settled};
use crate::worker::Worker;

/// How often a change is tried again that others got in the way of.
const TRIES: u32 = 10;

/// An apply that is neither a repeat nor joins another.
#[derive(Debug, Clone)]
pub struct New {
    /// The name of the token that asks.
    pub caller: String,
    pub asked: Asked,
    pub plugin: PluginName,
    pub digest: Digest,
    /// HMAC of the canonical body.
    pub body: [u8; 32],
    /// What it makes of what its application takes, and the quotas that must allow it.
    pub takes: Takes,
}

/// What the caller hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    /// The final answer.
    Done(JobId, Ended),
    /// The work goes on; worth asking again after so long.
    Accepted { id: JobId, retry_after: std::time::Duration },
}

/// Whose operations are meant.
#[derive(Debug, Clone, Copy)]
pub enum Who<'a> {
    /// Only this caller's own, and those that it joined; those of others are not there.
    Caller(&'a str),
    /// Of these only those of one instance of the control plane; those of others are not there either.
    Within(&'a str, &'a Identifier),
    /// Of this name.
    Operator(&'a str),
}

impl Who<'_> {
    /// For the audit.
    fn deed(&self, action: &'static str) -> Deed {
        let (Self::Caller(name) | Self::Within(name, _) | Self::Operator(name)) = self;
        Deed { actor: (*name).to_owned(), action }
    }
}

/// An operation as it is read.
#[derive(Debug, Clone)]
pub struct Operation {
    pub job: Job,
    /// Once it is final.
    pub ended: Option<Ended>,
    /// What the plugin last said it waits for; in a list, why the operation cannot be read.
    pub message: String,
    pub retry_after: std::time::Duration,
}

/// The operations of one host. Cloning is cheap; all clones are the same.
#[derive(Clone)]
pub struct Operations(pub(crate) Arc<Host>);

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("holder", &self.0.holder).finish_non_exhaustive()
    }
}

impl Operations {
    /// `holder` names this start of this host; no other has or had it. Nothing runs before [`Operations::start`].
    ///
    /// # Errors
    /// `OperationError::Config` where the configuration names no pair or plugin.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        worker: Arc<dyn Worker>,
        config: &OperationsConfig,
        holder: &str,
    ) -> Result<Self, OperationError> {
        Self::wrapped(ledger, worker, config, holder, Arc::new(|work| work))
    }

    /// With something around every future that is spawned: simulations pause and drop them.
    ///
    /// # Errors
    /// As [`Operations::new`].
    pub fn wrapped(
        ledger: Arc<dyn Ledger>,
        worker: Arc<dyn Worker>,
        config: &OperationsConfig,
        holder: &str,
        wrap: Wrap,
    ) -> Result<Self, OperationError> {
        Ok(Self(Arc::new(Host::new(ledger, worker, config.policy()?, holder, wrap))))
    }

    /// Looks for what the caller has asked for before under this request id: its answer, the same operation while
    /// it runs, or the same operation resumed after a failure that is worth it. `None`: it is new.
    ///
    /// # Errors
    /// `ReusedId` for another body; `Stopping`; what the ledger says.
    pub async fn asked(
        &self,
        caller: &str,
        request_id: &str,
        body: &[u8; 32],
    ) -> Result<Option<Answered>, OperationError> {
        let until = Instant::now() + self.0.policy.answer_within;
        let found =
            self.0.ledger.asked(caller, begin::ROUTE, request_id).await.map_err(OperationError::Ledger)?;
        match found {
            None => Ok(None),
            Some((job, known)) if known != *body => Err(OperationError::ReusedId(job.id)),
            Some((job, _)) => self.repeat(caller, job, until).await.map(Some),
        }
    }

    /// Makes the job, with its intent in the ledger before the plugin runs, and runs it here.
    ///
    /// # Errors
    /// `ReusedId`, `Busy`, `OverQuota`, `Stopping`; what the ledger says.
    pub async fn begin(&self, new: New) -> Result<Answered, OperationError> {
        if self.0.stopping.is_cancelled() {
            return Err(OperationError::Stopping);
        }
        let until = Instant::now() + self.0.policy.answer_within;
        let caller = new.caller.clone();
        match begin::begin(&self.0, new).await? {
            Begin::Running { id, settled } => match tokio::time::timeout_at(until, settled).await {
                Ok(Ok(job)) => match wait::settled(&job)? {
                    Settled::Ended(e) => Ok(Answered::Done(id, e)),
                    Settled::Parked | Settled::Working => Ok(wait::accepted(&job)),
                },
                // The lease was lost: somebody else answers.
                Ok(Err(_)) => wait::wait_id(&self.0, id, until).await,
                Err(_) => Ok(Answered::Accepted { id, retry_after: wait::SOON }),
            },
            Begin::Queued(job) | Begin::Joined(job) => wait::wait(&self.0, job, until).await,
            Begin::Repeated(job) => self.repeat(&caller, job, until).await,
        }
    }

    /// What would keep work from being begun now, by the quotas that it is held against.
    ///
    /// # Errors
    /// What the ledger says.
    pub async fn over_quota(
        &self,
        application: &Application,
        pair: &Pair,
        takes: Takes,
    ) -> Result<Option<OverQuota>, OperationError> {
        let over = self.0.ledger.over_quota(application.clone(), pair.clone(), takes).await;
        over.map_err(OperationError::Ledger)
    }

    async fn repeat(&self, caller: &str, mut job: Job, until: Instant) -> Result<Answered, OperationError> {
        for _ in 0..TRIES {
            match wait::settled(&job)? {
                Settled::Ended(e) if job.standing.status == Status::Failed && e.resumable() => {
                    if self.0.stopping.is_cancelled() {
                        return Err(OperationError::Stopping);
                    }
                    match self.retry_once(Who::Caller(caller), &job, false).await? {
                        Some(job) => return wait::wait(&self.0, job, until).await,
                        None => job = self.read(Who::Operator(caller), &job.id).await?,
                    }
                }
                Settled::Ended(e) => return Ok(Answered::Done(job.id, e)),
                Settled::Parked | Settled::Working => return wait::wait(&self.0, job, until).await,
            }
        }
        Err(OperationError::Contended(job.id))
    }

    /// # Errors
    /// `NotFound`, also for another caller's; what the ledger says.
    pub async fn operation(&self, who: Who<'_>, id: &JobId) -> Result<Operation, OperationError> {
        view(self.look(who, id).await?)
    }

    /// The newest first.
    ///
    /// # Errors
    /// What the ledger says.
    pub async fn list(&self, who: Who<'_>, mut filter: Filter) -> Result<Vec<Operation>, OperationError> {
        match who {
            Who::Operator(_) => {}
            Who::Caller(name) => filter.caller = Some(name.into()),
            Who::Within(name, instance) => {
                filter.caller = Some(name.into());
                filter.instance = Some(instance.to_string());
            }
        }
        let jobs = self.0.ledger.jobs(filter).await.map_err(OperationError::Ledger)?;
        Ok(jobs.into_iter().map(listed).collect())
    }

    /// What happened to it after event `after`, at most `limit` events.
    ///
    /// # Errors
    /// As [`Operations::operation`].
    pub async fn events(
        &self,
        who: Who<'_>,
        id: &JobId,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Event>, OperationError> {
        let job = self.look(who, id).await?;
        self.0.ledger.events(job.id, after, limit).await.map_err(OperationError::Ledger)
    }

    /// Has the work taken back; asking again changes nothing. Answers the job as it is then.
    ///
    /// # Errors
    /// As [`Operations::operation`]; `Busy` where another job has the resources by now, `Superseded` where
    /// another had them since.
    pub async fn cancel(&self, who: Who<'_>, id: &JobId) -> Result<Operation, OperationError> {
        for _ in 0..TRIES {
            let job = self.read(who, id).await?;
            let Some(change) = decide::cancel(&job, &kept(&job)?, &self.0.policy)? else { return view(job) };
            let deed = who.deed("cancel");
            if let Some(job) = self.write(&job, &change, None, deed).await? {
                if let Some(holding) = self.0.leases.get(&job.id) {
                    holding.cancel.cancel();
                }
                return view(job);
            }
        }
        Err(OperationError::Contended(id.clone()))
    }

    /// Lets a failed operation go on where it stopped, on the current generation or on the one that it had.
    ///
    /// # Errors
    /// `Conflict` for one that has not failed; else as [`Operations::cancel`].
    pub async fn retry(
        &self,
        who: Who<'_>,
        id: &JobId,
        same_digest: bool,
    ) -> Result<Operation, OperationError> {
        for _ in 0..TRIES {
            let job = self.read(who, id).await?;
            let status = job.standing.status;
            if status != Status::Failed {
                let why = "only one that has failed can be retried";
                return Err(OperationError::Conflict { id: job.id, status, why });
            }
            if let Some(job) = self.retry_once(who, &job, same_digest).await? {
                return view(job);
            }
        }
        Err(OperationError::Contended(id.clone()))
    }

    /// `None`: others changed it meanwhile.
    async fn retry_once(
        &self,
        who: Who<'_>,
        job: &Job,
        same_digest: bool,
    ) -> Result<Option<Job>, OperationError> {
        let change = decide::retry(job, &kept(job)?, &self.0.policy)?;
        let current = if same_digest { None } else { self.0.worker.current(&job.pair) };
        let current = current.filter(|(p, d)| *p != job.plugin || *d != job.digest);
        let deed = who.deed("retry");
        self.write(job, &change, current, deed).await
    }

    /// A change that needs no lease. `None`: it has to be looked at again.
    async fn write(
        &self,
        job: &Job,
        change: &Change,
        generation: Option<(PluginName, Digest)>,
        deed: Deed,
    ) -> Result<Option<Job>, OperationError> {
        let mut write = bare_write(job, change);
        write.generation = generation;
        write.deed = Some(deed);
        match self.0.ledger.commit(write).await {
            Ok(job) => {
                self.0.nudge.notify_one();
                self.0.changed.notify_waiters();
                Ok(Some(job))
            }
            Err(LedgerError::Stale(_) | LedgerError::Unknown(_)) => Ok(None),
            Err(LedgerError::Busy(id)) => Err(OperationError::Busy { id, retry_after: wait::SOON }),
            Err(LedgerError::Superseded(by)) => Err(OperationError::Superseded { id: job.id.clone(), by }),
            Err(LedgerError::NotFound(id)) => Err(OperationError::NotFound(id)),
            Err(e) => Err(OperationError::Ledger(e)),
        }
    }

    async fn read(&self, who: Who<'_>, id: &JobId) -> Result<Job, OperationError> {
        self.visible(who, id, self.0.ledger.job(id.clone()).await).await
    }

    /// Without its request, and without its state where it has ended.
    async fn look(&self, who: Who<'_>, id: &JobId) -> Result<Job, OperationError> {
        self.visible(who, id, self.0.ledger.brief(id.clone()).await).await
    }

    async fn visible(
        &self,
        who: Who<'_>,
        id: &JobId,
        found: Result<Option<Job>, LedgerError>,
    ) -> Result<Job, OperationError> {
        let found = found.map_err(OperationError::Ledger)?;
        let Some(job) = found else { return Err(OperationError::NotFound(id.clone())) };
        let visible = match who {
            Who::Operator(_) => true,
            Who::Caller(name) => job.caller == name || self.joined(name, &job).await?,
            Who::Within(_, instance) if job.application.instance.as_ref() != Some(instance) => false,
            Who::Within(name, _) => job.caller == name || self.joined(name, &job).await?,
        };
        if visible { Ok(job) } else { Err(OperationError::NotFound(id.clone())) }
    }

    /// Whether another caller's operation is this one's too, because it asked for the same.
    async fn joined(&self, caller: &str, job: &Job) -> Result<bool, OperationError> {
        let asked = self.0.ledger.asked(caller, begin::ROUTE, &job.request_id).await;
        Ok(asked.map_err(OperationError::Ledger)?.is_some_and(|(other, _)| other.id == job.id))
    }
}

fn kept(job: &Job) -> Result<Kept, OperationError> {
    Kept::of(job).map_err(|e| unreadable(job, &e))
}

pub(crate) fn unreadable(job: &Job, why: &StoredError) -> OperationError {
    OperationError::Unreadable { id: job.id.clone(), why: why.to_string() }
}

fn view(job: Job) -> Result<Operation, OperationError> {
    let ended = Ended::of(&job).map_err(|e| unreadable(&job, &e))?;
    let message = if job.standing.status.is_final() { String::new() } else { kept(&job)?.message };
    let retry_after = wait::retry_after(&job);
    Ok(Operation { ended, message, retry_after, job })
}

/// One row that cannot be read does not hide the others.
fn listed(job: Job) -> Operation {
    view(job.clone()).unwrap_or_else(|e| Operation {
        ended: None,
        message: e.to_string(),
        retry_after: wait::retry_after(&job),
        job,
    })
}

impl Operation {
    /// Whether it is being taken back, or will be.
    pub fn cancelling(&self) -> bool {
        self.job.standing.cancel_requested || self.job.standing.phase == Phase::Cleanup
    }
}
