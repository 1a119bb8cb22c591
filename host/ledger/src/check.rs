//! What must hold of every job, wherever it is stored.

use crate::{Event, Job, Problem};

/// What is wrong with a job and its events.
pub(crate) fn job(job: &Job, events: &[Event]) -> Vec<Problem> {
    let mut out = Vec::new();
    let mut wrong = |message: String| out.push(Problem::new(job.id.as_str(), message));
    if events.is_empty() {
        wrong("has no events; restore a backup".into());
    }
    for (expected, event) in (1..).zip(events) {
        if event.seq != expected {
            wrong(format!("event {expected} is missing ({} follows); restore a backup", event.seq));
            break;
        }
    }
    if events.iter().zip(events.iter().skip(1)).any(|(a, b)| a.at > b.at) {
        wrong("its events go back in time".into());
    }
    if job.standing.status.is_final() && job.lease.is_some() {
        wrong("is final and still has a lease".into());
    }
    if job.resources.is_empty() {
        wrong("covers no resource".into());
    }
    out
}
