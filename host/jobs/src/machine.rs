//! The state machine (contract section 3): one pure function says what an event makes of a job, or that it may
//! not happen. Nothing else decides transitions.

use sutler_ledger::{Happened, JobMode, Phase, Standing, Status};

/// An event that may not happen to a job as it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    #[error("a job does not begin with {0}")]
    First(&'static str),
    #[error(
        "{event} does not happen to a job that is {status} ({phase}, attempt {attempt} of step {step:?})"
    )]
    Event { event: &'static str, status: Status, phase: Phase, step: String, attempt: u32 },
    #[error("the history is empty")]
    Empty,
    #[error("the job was cancelled without cleaning up, although a step of it had begun")]
    Effects,
}

/// Where a job stands after an event; `None` is a job that does not exist yet.
///
/// An attempt counts from `StepStarted` on. An answer that goes on (`StepFinished`, `Saved`, `Waiting`) sets the
/// count back, `StepFailed` keeps it, `Released` takes the attempt back as if it had not been made.
///
/// # Errors
/// `Illegal` where the event is not in the table.
pub fn next(mode: JobMode, from: Option<&Standing>, event: &Happened) -> Result<Standing, Illegal> {
    let Some(from) = from else { return first(event) };
    let legal = match from.status {
        Status::Draft => draft(from, event),
        Status::Queued => queued(mode, from, event),
        Status::Running => running(mode, from, event),
        Status::Completed | Status::Failed => ended(mode, from, event),
        Status::Cancelled => None,
    };
    legal.ok_or_else(|| Illegal::Event {
        event: event.name(),
        status: from.status,
        phase: from.phase,
        step: from.step.clone(),
        attempt: from.attempt,
    })
}

/// Where a job stands after all of its events.
///
/// # Errors
/// `Illegal` for the first event that may not happen, and for a job that was cancelled at once although it may
/// have had effects.
pub fn replay<'a>(
    mode: JobMode,
    events: impl IntoIterator<Item = &'a Happened>,
) -> Result<Standing, Illegal> {
    let mut at: Option<Standing> = None;
    let mut effects = false;
    for event in events {
        effects |= matches!(event, Happened::StepStarted { .. });
        let before = at.as_ref().map(|s| s.status);
        if before == Some(Status::Queued)
            && *event == Happened::Cancelled
            && effects
            && mode != JobMode::Adopt
        {
            return Err(Illegal::Effects);
        }
        at = Some(next(mode, at.as_ref(), event)?);
    }
    at.ok_or(Illegal::Empty)
}

fn first(event: &Happened) -> Result<Standing, Illegal> {
    let status = match event {
        Happened::Drafted => Status::Draft,
        Happened::Submitted => Status::Queued,
        other => return Err(Illegal::First(other.name())),
    };
    Ok(Standing { status, phase: Phase::Forward, step: String::new(), attempt: 0, cancel_requested: false })
}

fn to(from: &Standing, status: Status) -> Standing {
    Standing { status, ..from.clone() }
}

fn draft(from: &Standing, event: &Happened) -> Option<Standing> {
    match event {
        Happened::Submitted => Some(to(from, Status::Queued)),
        Happened::CancelRequested if !from.cancel_requested => asked(from),
        Happened::Cancelled if from.cancel_requested => Some(to(from, Status::Cancelled)),
        _ => None,
    }
}

fn queued(mode: JobMode, from: &Standing, event: &Happened) -> Option<Standing> {
    let forward = from.phase == Phase::Forward;
    match event {
        Happened::Claimed { .. } => Some(to(from, Status::Running)),
        // A job that is being taken back already has nothing more to be cancelled.
        Happened::CancelRequested if forward && !from.cancel_requested => asked(from),
        Happened::Cancelled if from.cancel_requested && (at_once(mode) || untouched(from)) => {
            Some(to(from, Status::Cancelled))
        }
        _ => None,
    }
}

fn running(mode: JobMode, from: &Standing, event: &Happened) -> Option<Standing> {
    let open = from.attempt > 0;
    let forward = from.phase == Phase::Forward;
    // Work that is to be taken back does not go on; what its last call answered is still kept.
    let stopping = forward && from.cancel_requested;
    match event {
        // Parked, or its lease ran out.
        Happened::Claimed { .. } => Some(from.clone()),
        Happened::StepStarted { step, attempt } => {
            let follows = *step == from.step && from.attempt.checked_add(1) == Some(*attempt);
            (follows && !stopping).then(|| Standing { attempt: *attempt, ..from.clone() })
        }
        Happened::StepFinished { next } if open && !next.is_empty() && *next != from.step => {
            Some(Standing { step: next.clone(), attempt: 0, ..from.clone() })
        }
        Happened::Saved if open => Some(Standing { attempt: 0, ..from.clone() }),
        Happened::Waiting { .. } if open && !stopping => Some(Standing { attempt: 0, ..from.clone() }),
        Happened::StepFailed { .. } if open && !stopping => Some(from.clone()),
        Happened::Released { .. } if open => Some(Standing { attempt: from.attempt - 1, ..from.clone() }),
        Happened::Completed if open && forward && !stopping => Some(to(from, Status::Completed)),
        // Also without an open attempt: the deadline is over, the attempts are used up.
        Happened::Failed { .. } if !stopping => Some(to(from, Status::Failed)),
        Happened::CancelRequested if forward && !from.cancel_requested => asked(from),
        Happened::CleanupStarted if stopping && !at_once(mode) => Some(cleanup(from)),
        Happened::Cancelled if stopping => at_once(mode).then(|| to(from, Status::Cancelled)),
        Happened::Cancelled if open && !forward => Some(to(from, Status::Cancelled)),
        _ => None,
    }
}

fn ended(mode: JobMode, from: &Standing, event: &Happened) -> Option<Standing> {
    match event {
        Happened::Retried { phase } => (from.status == Status::Failed && *phase == from.phase)
            .then(|| Standing { attempt: 0, ..to(from, Status::Queued) }),
        // New work on the same subject.
        Happened::Submitted if from.status == Status::Completed => {
            Some(Standing { step: String::new(), attempt: 0, ..to(from, Status::Queued) })
        }
        // A clean-up that failed may be asked for again.
        Happened::CancelRequested if !from.cancel_requested || from.phase == Phase::Cleanup => asked(from),
        Happened::CleanupStarted if from.cancel_requested && !at_once(mode) => Some(cleanup(from)),
        Happened::Cancelled if from.cancel_requested && at_once(mode) => Some(to(from, Status::Cancelled)),
        _ => None,
    }
}

fn asked(from: &Standing) -> Option<Standing> {
    Some(Standing { cancel_requested: true, ..from.clone() })
}

fn cleanup(from: &Standing) -> Standing {
    Standing { phase: Phase::Cleanup, attempt: 0, ..to(from, Status::Running) }
}

/// Taking back what was only adopted does nothing (checklist C9).
fn at_once(mode: JobMode) -> bool {
    mode == JobMode::Adopt
}

/// As far as the standing tells; a job that was retried before its first step ended looks the same, which
/// [`replay`] and the fencing token tell apart.
fn untouched(from: &Standing) -> bool {
    from.phase == Phase::Forward && from.step.is_empty() && from.attempt == 0
}
