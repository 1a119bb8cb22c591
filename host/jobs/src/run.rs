//! One job in the hands of this host, from its claim until it is parked, ended or lost.

use std::sync::Arc;
use std::time::Duration;

use sutler_ledger::{Job, LeaseChange, Phase, Write, failpoint};
use sutler_model::{Checkpoint, Progress};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::decide::{self, At, Change, Then};
use crate::host::Host;
use crate::lease::Holding;
use crate::machine::Illegal;
use crate::stored::{Asked, Kept, StoredError};
use crate::worker::Ran;
use crate::write::{self, Written};

/// When a job is looked at again whose row this version cannot read.
const UNREADABLE: Duration = Duration::from_secs(60);

/// Calls that may follow one another at once while a host has a job. After them each waits a little, as a plugin that
/// waits does: one that saves without end fills no ledger and lets others have their turn.
const UNPACED: u32 = 100;

pub(crate) struct Run {
    host: Arc<Host>,
    job: Job,
    asked: Asked,
    kept: Kept,
    holding: Arc<Holding>,
    deadline: Instant,
    /// Told the row when it is parked or ended; dropped when it is lost.
    pub(crate) settled: Option<oneshot::Sender<Job>>,
}

/// Why a change is due.
#[expect(clippy::large_enum_variant, reason = "a run has one at a time")]
enum Did {
    /// Nothing yet: the job was just claimed.
    Claimed,
    Ran(Ran),
    /// The call was stopped, because the job is to be taken back.
    Cancelled,
    /// The call was stopped, because the host stops.
    Stopped,
}

impl Drop for Run {
    /// Whatever ends a run, a panic too, its lease is renewed no longer.
    fn drop(&mut self) {
        self.host.leases.drop(&self.holding);
    }
}

impl Run {
    /// `from` is the moment before the claim was sent.
    pub(crate) fn new(host: Arc<Host>, job: Job, from: Instant) -> Result<Self, Box<(Job, StoredError)>> {
        let read = Asked::from_json(&job.request).and_then(|a| Ok((a, Kept::of(&job)?)));
        let (asked, kept) = match read {
            Ok(r) => r,
            Err(e) => return Err(Box::new((job, e))),
        };
        let length = job.lease.as_ref().map(|l| l.until.since(job.updated)).unwrap_or_default();
        let holding = host.leases.take(&job, length, from);
        let deadline = from + job.deadline.since(job.updated);
        Ok(Self { host, job, asked, kept, holding, deadline, settled: None })
    }

    /// `begun`: the first attempt is in the ledger already.
    pub(crate) async fn run(mut self, begun: bool) {
        let holding = self.holding.clone();
        let settled = tokio::select! {
            biased;
            () = holding.lost() => false,
            settled = self.drive(begun) => settled,
        };
        if settled && let Some(to) = self.settled.take() {
            let _nobody_waits = to.send(self.job.clone());
        }
        let host = self.host.clone();
        drop(self);
        host.changed.notify_waiters();
        if host.policy.limited() {
            // The place may be what another job waits for.
            host.nudge.notify_one();
        }
    }

    /// Whether the job was parked or ended.
    async fn drive(&mut self, begun: bool) -> bool {
        let mut did = if begun { self.call().await } else { Did::Claimed };
        let mut calls = 0_u32;
        loop {
            match self.write(&did).await {
                Some(Then::Call) => {
                    calls += 1;
                    if calls > UNPACED {
                        tokio::time::sleep(decide::LEAST_PAUSE).await;
                    }
                    did = self.call().await;
                }
                Some(Then::Parked | Then::Ended) => return true,
                None => return false,
            }
        }
    }

    async fn call(&self) -> Did {
        let s = &self.job.standing;
        if self.host.stopping.is_cancelled() {
            return Did::Stopped;
        }
        let at = Checkpoint {
            step: s.step.clone(),
            state: self.kept.state.clone(),
            attempt: s.attempt,
            written_by: self.kept.written_by.clone(),
        };
        let span = tracing::info_span!("step", job = %self.job.id, step = %s.step, attempt = s.attempt, phase = %s.phase);
        let call = self.host.worker.run(&self.job, at, &self.asked, s.phase, self.holding.fence.clone());
        failpoint("jobs-before-call");
        let started = Instant::now();
        let did = tokio::select! {
            biased;
            () = self.holding.cancel.cancelled(), if s.phase == Phase::Forward => Did::Cancelled,
            () = self.host.dropping.cancelled() => Did::Stopped,
            ran = call.instrument(span) => Did::Ran(ran),
        };
        failpoint("jobs-after-call");
        let labels = [("pair", self.job.pair.to_string()), ("outcome", did.name().to_owned())];
        metrics::histogram!("sutler_step_seconds", &labels).record(started.elapsed().as_secs_f64());
        if let Did::Ran(Ran::CannotRun(why)) = &did {
            tracing::warn!(event = "job-not-runnable", job = %self.job.id, digest = %self.job.digest, why, "left to another host");
        }
        did
    }

    /// Writes what follows, whatever others do to the row meanwhile. `None`: the job is no longer ours.
    async fn write(&mut self, did: &Did) -> Option<Then> {
        if matches!(did, Did::Cancelled) {
            self.job = *write::read(&*self.host.ledger, &self.holding).await?;
        }
        loop {
            let change = match self.change(did) {
                Ok(c) => c,
                Err(e) => {
                    tracing::error!(event = "illegal-transition", job = %self.job.id, error = %e, "the job is left alone; this is a mistake in sutler");
                    return None;
                }
            };
            let from = Instant::now();
            let write = row_write(&self.job, self.holding.length, &change);
            self.holding.give_back(change.then != Then::Call);
            match write::write(&*self.host.ledger, &self.holding, &write).await {
                Written::Done(job) => {
                    let then = change.then;
                    self.took(*job, change, from);
                    return Some(then);
                }
                Written::Moved(job) => self.job = *job,
                Written::Gone => {
                    self.holding.lose("the ledger has another holder");
                    return None;
                }
            }
        }
    }

    fn change(&self, did: &Did) -> Result<Change, Illegal> {
        let version = self.host.worker.version(&self.job.digest);
        let at = At {
            policy: &self.host.policy,
            deadline_left: self.deadline.saturating_duration_since(Instant::now()),
            jitter: fastrand::f64(),
            stopping: self.host.stopping.is_cancelled(),
            version: &version,
        };
        match did {
            Did::Claimed => decide::open(&self.job, &self.kept, &at),
            Did::Cancelled => decide::interrupted(&self.job, &self.kept, &at),
            Did::Ran(ran) => decide::settle(&self.job, &self.kept, ran, &at),
            Did::Stopped => decide::give_back(&self.job, &self.kept),
        }
    }

    /// The row is written; `from` is the moment before.
    fn took(&mut self, job: Job, change: Change, from: Instant) {
        self.job = job;
        if let Some(kept) = change.kept {
            self.kept = kept;
        }
        if let Some(d) = change.deadline {
            self.deadline = from + d;
        }
        if change.then == Then::Call {
            self.holding.extend(from);
        }
        tracing::debug!(event = "job-written", job = %self.job.id, status = %self.job.standing.status, step = %self.job.standing.step, revision = self.job.revision);
    }
}

impl Did {
    const fn name(&self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Ran(Ran::Progress(Progress::Done(_))) => "done",
            Self::Ran(Ran::Progress(Progress::Next(_))) => "next",
            Self::Ran(Ran::Progress(Progress::Save(_))) => "save",
            Self::Ran(Ran::Progress(Progress::Wait(_))) => "wait",
            Self::Ran(Ran::Stopped(_, None)) => "failed",
            Self::Ran(Ran::Stopped(_, Some(_))) => "fault",
            Self::Ran(Ran::NoRoom) => "no-room",
            Self::Ran(Ran::CannotRun(_)) => "cannot-run",
            Self::Cancelled => "cancelled",
            Self::Stopped => "stopped",
        }
    }
}

fn row_write(job: &Job, lease: Duration, change: &Change) -> Write {
    let lease = if change.then == Then::Call { LeaseChange::Extend(lease) } else { LeaseChange::Release };
    Write { token: Some(job.token), lease, ..bare_write(job, change) }
}

/// A write that needs no lease and leaves it.
pub(crate) fn bare_write(job: &Job, change: &Change) -> Write {
    Write {
        id: job.id.clone(),
        revision: job.revision,
        token: None,
        standing: change.standing.clone(),
        due_after: change.due,
        lease: LeaseChange::Keep,
        state: change.kept.as_ref().map(|k| k.to_json().into()),
        answer: change.answer.as_ref().map(|a| a.as_ref().map(|e| e.to_json().into())),
        generation: None,
        deadline_after: change.deadline,
        events: change.events.clone(),
        deed: None,
    }
}

/// Gives a job back whose stored texts this version cannot read: a newer host may. Once its time is over, or where it is
/// to be taken back, it ends.
pub(crate) async fn leave_unreadable(host: &Host, job: Job, why: StoredError) {
    let over = job.standing.cancel_requested || job.deadline <= job.updated;
    let ended = over.then(|| decide::unreadable(&job).ok()).flatten();
    let what = if ended.is_some() { "ended" } else { "left to another host" };
    tracing::error!(event = "job-unreadable", job = %job.id, error = %why, "{what}");
    let left = || Write {
        id: job.id.clone(),
        revision: job.revision,
        token: Some(job.token),
        standing: job.standing.clone(),
        due_after: UNREADABLE,
        lease: LeaseChange::Release,
        state: None,
        answer: None,
        generation: None,
        deadline_after: None,
        events: vec![],
        deed: None,
    };
    let write = ended.map_or_else(left, |change| row_write(&job, Duration::ZERO, &change));
    if let Err(e) = host.ledger.commit(write).await {
        tracing::warn!(event = "ledger-write-failed", job = %job.id, error = %e, "its lease runs out instead");
    }
}
