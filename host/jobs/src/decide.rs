//! What a worker writes next, as functions of the row and of what the plugin answered.

use std::time::Duration;

use sutler_ledger::{Happened, Job, JobMode, Millis, Phase, Standing, Status};
use sutler_model::{Failure, Progress, Stopped};

use crate::backoff::backoff;
use crate::config::Policy;
use crate::machine::{Illegal, next};
use crate::stored::{Ended, Kept};
use crate::worker::Ran;

/// The least pause between two calls of a waiting step (contract section 3).
pub(crate) const LEAST_PAUSE: Duration = Duration::from_millis(250);
/// When a job is looked at again that this host has no sandbox for.
const NO_ROOM: Duration = Duration::from_millis(500);
/// When a job is looked at again whose generation this host cannot run.
const CANNOT_RUN: Duration = Duration::from_secs(5);

/// What a decision rests on besides the row.
pub(crate) struct At<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) deadline_left: Duration,
    /// From 0 to 1, by chance.
    pub(crate) jitter: f64,
    /// The host takes up no further call.
    pub(crate) stopping: bool,
    /// Of the generation that ran.
    pub(crate) version: &'a str,
}

/// What follows a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next call, under the same lease; its attempt is in the change.
    Call,
    /// Nobody holds the job; it is claimed again when it is due.
    Parked,
    Ended,
}

/// One change of the row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) events: Vec<Happened>,
    pub(crate) standing: Standing,
    pub(crate) due: Duration,
    pub(crate) kept: Option<Kept>,
    pub(crate) answer: Option<Option<Ended>>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) then: Then,
}

/// After a call was stopped because its work is to be taken back.
///
/// Its sandbox is gone at once, but what it sent may still arrive: the clean-up begins when it has, so that nothing
/// is made after it was removed.
pub(crate) fn interrupted(job: &Job, kept: &Kept, at: &At<'_>) -> Result<Change, Illegal> {
    let draft = Draft::of(job, kept);
    if !draft.stopping() || job.mode == JobMode::Adopt {
        return draft.onward(at);
    }
    Ok(draft.cleanup(at.policy)?.parked(at.policy.takeover_after))
}

/// Before a call of a job that was just claimed.
pub(crate) fn open(job: &Job, kept: &Kept, at: &At<'_>) -> Result<Change, Illegal> {
    Draft::of(job, kept).onward(at)
}

/// After a call.
pub(crate) fn settle(job: &Job, kept: &Kept, ran: &Ran, at: &At<'_>) -> Result<Change, Illegal> {
    let mut draft = Draft::of(job, kept);
    match ran {
        Ran::Progress(Progress::Next(n)) => {
            draft.event(Happened::StepFinished { next: n.step.clone() })?;
            draft.keep(&n.state, "", at);
            draft.onward(at)
        }
        Ran::Progress(Progress::Save(state)) => {
            draft.event(Happened::Saved)?;
            draft.keep(state, "", at);
            draft.onward(at)
        }
        Ran::Progress(Progress::Wait(p)) if draft.stopping() => {
            draft.event(Happened::Saved)?;
            draft.keep(&p.state, "", at);
            draft.onward(at)
        }
        Ran::Progress(Progress::Wait(p)) => {
            // Not beyond the deadline, so that it is noticed in time.
            let pause = p.after.min(at.deadline_left).max(LEAST_PAUSE);
            draft.event(Happened::Waiting { due: distance(pause) })?;
            draft.keep(&p.state, &p.message, at);
            Ok(draft.parked(pause))
        }
        Ran::Progress(Progress::Done(_)) if draft.stopping() => draft.onward(at),
        Ran::Progress(Progress::Done(applied)) => match job.standing.phase {
            Phase::Forward => draft.ended(Happened::Completed, Ended::Succeeded(applied.clone())),
            Phase::Cleanup => draft.ended(Happened::Cancelled, cancelled(applied.clone())),
        },
        Ran::Stopped(s, _) if draft.stopping() => {
            draft.event(Happened::Saved)?;
            draft.keep(&s.state, "", at);
            draft.onward(at)
        }
        Ran::Stopped(s, fault_id) => draft.stopped(s, fault_id.as_ref(), at),
        Ran::NoRoom | Ran::CannotRun(_) if draft.stopping() => draft.onward(at),
        Ran::NoRoom => draft.released(NO_ROOM.mul_f64(0.5 + at.jitter)),
        Ran::CannotRun(_) => draft.released(CANNOT_RUN.mul_f64(0.5 + at.jitter)),
    }
}

/// A call was stopped because its host stops: the attempt does not count, another host goes on at once.
pub(crate) fn give_back(job: &Job, kept: &Kept) -> Result<Change, Illegal> {
    Draft::of(job, kept).released(Duration::ZERO)
}

/// Somebody wants the job taken back; `None` where that is under way or done.
pub(crate) fn cancel(job: &Job, kept: &Kept, policy: &Policy) -> Result<Option<Change>, Illegal> {
    let s = &job.standing;
    let under_way = !s.status.is_final() && (s.phase == Phase::Cleanup || s.cancel_requested);
    if s.status == Status::Cancelled || under_way {
        return Ok(None);
    }
    let mut draft = Draft::of(job, kept);
    draft.event(Happened::CancelRequested)?;
    let untouched = s.status == Status::Draft || (s.status == Status::Queued && job.token == 0);
    if (untouched || job.mode == JobMode::Adopt) && job.lease.is_none() {
        return draft.ended(Happened::Cancelled, cancelled(vec![])).map(Some);
    }
    // Whoever has the job stops its call first; a queued one is cleaned up by whoever claims it.
    if job.lease.is_none() && s.status != Status::Queued {
        draft = draft.cleanup(policy)?;
    }
    Ok(Some(draft.parked(Duration::ZERO)))
}

/// A failed job goes on where it stopped.
pub(crate) fn retry(job: &Job, kept: &Kept, policy: &Policy) -> Result<Change, Illegal> {
    let mut draft = Draft::of(job, kept);
    draft.event(Happened::Retried { phase: job.standing.phase })?;
    draft.change.deadline = Some(policy.deadline(&job.pair));
    draft.change.answer = Some(None);
    Ok(draft.parked(Duration::ZERO))
}

/// Nobody could read what the job is about until its time was over, or until it was to be taken back.
pub(crate) fn unreadable(job: &Job) -> Result<Change, Illegal> {
    let s = &job.standing;
    let (code, when) = if s.cancel_requested {
        ("cancelled", "was to be taken back")
    } else {
        ("deadline-exceeded", "was still there when its time was over")
    };
    let reason = format!(
        "The operation {when}, and this version of sutler cannot read what it is about; what it did up to {} stays. \
         Look at it with inspect; the operator finds why in the host's log.",
        place(s)
    );
    Draft::of(job, &Kept::start()).failed(Failure::new(code, reason))
}

/// The final answer of a job that was cancelled, with what is left of it.
pub(crate) fn cancelled(applied: Vec<sutler_model::Applied>) -> Ended {
    Ended::Failed {
        failure: Failure::new("cancelled", "The operation was cancelled."),
        applied,
        fault_id: None,
    }
}

fn distance(d: Duration) -> Millis {
    Millis(0).plus(d)
}

struct Draft<'a> {
    job: &'a Job,
    kept: &'a Kept,
    change: Change,
}

impl<'a> Draft<'a> {
    fn of(job: &'a Job, kept: &'a Kept) -> Self {
        let change = Change {
            events: vec![],
            standing: job.standing.clone(),
            due: Duration::ZERO,
            kept: None,
            answer: None,
            deadline: None,
            then: Then::Parked,
        };
        Self { job, kept, change }
    }

    fn event(&mut self, event: Happened) -> Result<(), Illegal> {
        self.change.standing = next(self.job.mode, Some(&self.change.standing), &event)?;
        self.change.events.push(event);
        Ok(())
    }

    fn keep(&mut self, state: &str, message: &str, at: &At<'_>) {
        self.change.kept = Some(Kept {
            state: state.into(),
            written_by: at.version.into(),
            message: message.into(),
            applied: self.kept.applied.clone(),
        });
    }

    /// Its work is to be taken back.
    fn stopping(&self) -> bool {
        self.change.standing.cancel_requested && self.change.standing.phase == Phase::Forward
    }

    fn cleanup(mut self, policy: &Policy) -> Result<Self, Illegal> {
        self.event(Happened::CleanupStarted)?;
        self.change.deadline = Some(policy.deadline(&self.job.pair));
        self.change.answer = Some(None);
        Ok(self)
    }

    fn parked(mut self, due: Duration) -> Change {
        self.change.due = due;
        self.change
    }

    fn released(mut self, due: Duration) -> Result<Change, Illegal> {
        self.event(Happened::Released { due: distance(due) })?;
        Ok(self.parked(due))
    }

    fn ended(mut self, event: Happened, answer: Ended) -> Result<Change, Illegal> {
        self.event(event)?;
        self.change.answer = Some(Some(answer));
        self.change.then = Then::Ended;
        Ok(self.change)
    }

    fn failed(self, failure: Failure) -> Result<Change, Illegal> {
        let applied = self.kept.applied.clone();
        let event = Happened::Failed { code: failure.code.clone() };
        self.ended(event, Ended::Failed { failure, applied, fault_id: None })
    }

    /// The next attempt, or why there is none.
    fn onward(mut self, at: &At<'_>) -> Result<Change, Illegal> {
        if self.stopping() {
            if self.job.mode == JobMode::Adopt {
                return self.ended(Happened::Cancelled, cancelled(vec![]));
            }
            self = self.cleanup(at.policy)?;
        } else if at.deadline_left.is_zero() {
            let reason = over(&self.change.standing);
            return self.failed(Failure::new("deadline-exceeded", reason));
        } else if self.change.standing.attempt >= at.policy.attempts {
            let reason = unanswered(&self.change.standing);
            return self.failed(Failure::new("attempts-used-up", reason));
        }
        if at.stopping {
            return Ok(self.parked(Duration::ZERO));
        }
        let s = &self.change.standing;
        let started = Happened::StepStarted { step: s.step.clone(), attempt: s.attempt.saturating_add(1) };
        self.event(started)?;
        self.change.then = Then::Call;
        Ok(self.change)
    }

    fn stopped(mut self, s: &Stopped, fault_id: Option<&String>, at: &At<'_>) -> Result<Change, Illegal> {
        self.keep(&s.state, "", at);
        if let Some(kept) = &mut self.change.kept {
            kept.applied.clone_from(&s.applied);
        }
        let attempt = self.change.standing.attempt;
        let pause = backoff(at.policy, &s.failure, attempt, at.jitter);
        let code = s.failure.code.clone();
        if let Some(pause) = pause.filter(|p| attempt < at.policy.attempts && *p < at.deadline_left) {
            self.event(Happened::StepFailed { code, due: distance(pause) })?;
            return Ok(self.parked(pause));
        }
        let (failure, applied) = (s.failure.clone(), s.applied.clone());
        self.ended(Happened::Failed { code }, Ended::Failed { failure, applied, fault_id: fault_id.cloned() })
    }
}

fn place(s: &Standing) -> String {
    if s.step.is_empty() { "its first step".into() } else { format!("step {}", s.step) }
}

fn over(s: &Standing) -> String {
    format!(
        "The operation was still in {} when its time was over; what it did stays. Look at it with inspect, then retry or cancel it.",
        place(s)
    )
}

fn unanswered(s: &Standing) -> String {
    format!(
        "{} attempts at {} had no answer, because the hosts that made them stopped; the operator finds why in their logs.",
        s.attempt,
        place(s)
    )
}

#[cfg(test)]
mod tests;
