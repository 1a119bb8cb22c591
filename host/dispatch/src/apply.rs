//! What one call of apply or cancel answered, checked against the contract before it counts.

use std::collections::HashSet;

use sutler_catalog::{Entry, PairEntry};
use sutler_jobs::{Asked, Ran};
use sutler_ledger::Phase;
use sutler_model::{
    Applied, Checkpoint, Failure, Fault, Identifier, Mode, Planned, Progress, Request, Stopped, pointer_part,
};
use sutler_runtime::RunError;

/// A call's answer, and the fault to be recorded where one is behind it.
pub(crate) fn ran(
    entry: &Entry,
    pair: &PairEntry,
    asked: &Asked,
    (phase, at): (Phase, &Checkpoint),
    result: Result<Result<Progress, Stopped>, RunError>,
) -> (Ran, Option<Fault>) {
    let faulted = |fault: Fault| {
        // What was reached before the call stays in the ledger; so does the state.
        let stopped =
            Stopped { failure: crate::answers::failure(&fault), applied: vec![], state: at.state.clone() };
        (Ran::Stopped(stopped, Some(fault.id.clone())), Some(fault))
    };
    let broke =
        |text: String| faulted(entry.plugin.fault(mode(phase), sutler_model::FaultKind::Contract, text));
    match result {
        Err(RunError::Overloaded { .. }) => (Ran::NoRoom, None),
        Err(RunError::Fault(f)) => faulted(*f),
        Ok(Err(s)) => match reached(pair, &asked.request, &s.applied) {
            Ok(()) => (Ran::Stopped(s, None), None),
            Err(text) => broke(text),
        },
        Ok(Ok(Progress::Next(n))) => match next(pair, phase, &at.step, &n.step) {
            Ok(()) => (Ran::Progress(Progress::Next(n)), None),
            Err(text) => broke(text),
        },
        Ok(Ok(Progress::Done(applied))) if phase == Phase::Forward => {
            match done(pair, &asked.request, &applied) {
                Err(text) => broke(text),
                Ok(()) => (finished(pair, &asked.planned, applied, at), None),
            }
        }
        Ok(Ok(Progress::Done(applied))) => match reached(pair, &asked.request, &applied) {
            Err(text) => broke(text),
            Ok(()) => (Ran::Progress(Progress::Done(applied)), None),
        },
        Ok(Ok(progress)) => (Ran::Progress(progress), None),
    }
}

pub(crate) const fn mode(phase: Phase) -> Mode {
    match phase {
        Phase::Forward => Mode::Apply,
        Phase::Cleanup => Mode::Cancel,
    }
}

/// `next` names a declared step; forward, one that comes later.
fn next(pair: &PairEntry, phase: Phase, now: &str, next: &str) -> Result<(), String> {
    let index = |name: &str| pair.steps.iter().position(|s| s.name == name);
    match (index(next), index(now)) {
        (None, _) => Err(format!("it went on to step {next:?}, which it does not declare")),
        (Some(n), Some(i)) if n == i || (n < i && phase == Phase::Forward) => {
            Err(format!("it went from step {now:?} back to step {next:?}"))
        }
        _ => Ok(()),
    }
}

/// Everything asked for is there once, and its outputs are what the plugin declared.
fn done(pair: &PairEntry, request: &Request, applied: &[Applied]) -> Result<(), String> {
    let there = |name: &Identifier| applied.iter().any(|a| a.resource == *name);
    if let Some(missing) = request.changes.iter().map(|c| &c.resource).find(|r| !there(r)) {
        return Err(format!("it ended without resource {missing}"));
    }
    reached(pair, request, applied)
}

/// Nothing is there that was not asked for, nothing twice, and outputs are what the plugin declared.
fn reached(pair: &PairEntry, request: &Request, applied: &[Applied]) -> Result<(), String> {
    let asked: HashSet<&str> = request.changes.iter().map(|c| c.resource.as_str()).collect();
    let mut seen = HashSet::new();
    for a in applied {
        let name = a.resource.as_str();
        if !asked.contains(name) || !seen.insert(name) {
            return Err(format!("it applied resource {name} twice or without being asked"));
        }
        let deleted = request.changes.iter().any(|c| c.resource == a.resource && c.settings.is_none());
        if deleted && a.outputs.as_object().is_some_and(serde_json::Map::is_empty) {
            continue;
        }
        pair.outputs.check(&a.outputs).map_err(|v| {
            format!("the outputs of {} break its own schema at {:?}: {}", a.resource, v.path, v.message)
        })?;
    }
    Ok(())
}

fn finished(pair: &PairEntry, planned: &[Planned], applied: Vec<Applied>, at: &Checkpoint) -> Ran {
    match differs(pair, planned, &applied) {
        Some(failure) => Ran::Stopped(Stopped { failure, applied, state: at.state.clone() }, None),
        None => Ran::Progress(Progress::Done(applied)),
    }
}

/// A planned value that is also an output, and known, has to come out as planned. What tells of a moment is no promise.
fn differs(pair: &PairEntry, planned: &[Planned], applied: &[Applied]) -> Option<Failure> {
    for a in applied {
        let Some(p) = planned.iter().find(|p| p.resource == a.resource) else { continue };
        let (Some(after), Some(outputs)) =
            (p.after.as_ref().and_then(|v| v.as_object()), a.outputs.as_object())
        else {
            continue;
        };
        for (key, value) in outputs {
            let path = format!("/{}", pointer_part(key));
            let free =
                p.unknown.contains(&path) || pair.outputs.sensitive(&path) || pair.outputs.volatile(&path);
            let known = after.get(key).filter(|_| !free);
            if known.is_some_and(|k| k != value) {
                let reason = format!(
                    "{key} of {} came out otherwise than planned; look at it with inspect.",
                    a.resource
                );
                return Some(Failure::new("apply-differs", reason).on(a.resource.as_str()).at(path));
            }
        }
    }
    None
}
