//! An apply that runs within the call: steps one after the other until it is done, stops, or takes too long.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sutler_catalog::{Entry, PairEntry};
use sutler_model::{Applied, Checkpoint, Failure, Mode, Planned, Progress, Request, Stopped};
use sutler_runtime::{Pins, RunError};

use crate::answers;
use crate::dispatcher::Inner;
use crate::provisioner::{CallError, Failed};

/// The least pause between two calls of a waiting step (contract section 3).
const LEAST_PAUSE: Duration = Duration::from_millis(250);
/// Calls of one apply; more than any honest one needs.
const MOST_CALLS: u32 = 10_000;

type Done = Result<Vec<Applied>, Failed>;

/// Runs the steps. `planned` is what the plan said would come, `pins` the charts that it found.
pub(crate) async fn run(
    inner: &Inner,
    entry: &Entry,
    pair: &PairEntry,
    request: &Request,
    (planned, pins): (&[Planned], &Pins),
) -> Result<Done, CallError> {
    let until = Instant::now() + inner.config.apply_within();
    let grants = entry.grants(&request.application);
    let mut at = Checkpoint::start();
    for _ in 0..MOST_CALLS {
        let result = entry.plugin.apply(Mode::Apply, (request, &pair.context), &at, grants, pins).await;
        at.written_by.clone_from(&entry.descriptor.version);
        let progress = match result {
            Ok(Ok(p)) => p,
            Ok(Err(s)) => return Ok(Err(stopped(inner, entry, pair, request, s))),
            Err(RunError::Overloaded { what, limit }) if at.step.is_empty() && at.state == "{}" => {
                return Err(CallError::Overloaded { what, limit, retry_after_seconds: 1 });
            }
            // Work that has begun goes on as soon as there is a place again.
            Err(RunError::Overloaded { .. }) if Instant::now() < until => {
                tokio::time::sleep(LEAST_PAUSE).await;
                continue;
            }
            Err(RunError::Overloaded { .. }) => return Ok(Err(needs_operations(inner, &at))),
            Err(e) => return Ok(Err(answers::run_error(e, inner.catalog.faults())?)),
        };
        let pause = match progress {
            Progress::Done(applied) => return Ok(done(inner, entry, pair, request, applied, planned)),
            Progress::Save(state) => {
                at.state = state;
                Duration::ZERO
            }
            Progress::Wait(w) => {
                at.state = w.state;
                w.after.max(LEAST_PAUSE)
            }
            Progress::Next(n) => {
                if let Err(text) = later_step(pair, &at.step, &n.step) {
                    return Ok(Err(broke(inner, entry, text)));
                }
                at = Checkpoint { step: n.step, state: n.state, ..at };
                Duration::ZERO
            }
        };
        if Instant::now() + pause >= until {
            return Ok(Err(needs_operations(inner, &at)));
        }
        tokio::time::sleep(pause).await;
    }
    Ok(Err(needs_operations(inner, &at)))
}

/// `next` may only name a declared step that comes later.
fn later_step(pair: &PairEntry, now: &str, next: &str) -> Result<(), String> {
    let index = |name: &str| pair.steps.iter().position(|s| s.name == name);
    match (index(next), index(now)) {
        (None, _) => Err(format!("it went on to step {next:?}, which it does not declare")),
        (Some(n), Some(i)) if n <= i => Err(format!("it went from step {now:?} back to step {next:?}")),
        _ => Ok(()),
    }
}

fn needs_operations(inner: &Inner, at: &Checkpoint) -> Failed {
    let step = if at.step.is_empty() { "its first step" } else { at.step.as_str() };
    answers::failed(
        Failure::new(
            "needs-operations",
            format!(
                "The work was still in {step} after {} s and this host has no durable operations; what it did stays, and the same request goes on from there.",
                inner.config.apply_within_seconds
            ),
        )
        .retryable(),
    )
}

fn broke(inner: &Inner, entry: &Entry, text: String) -> Failed {
    answers::fault(&inner.contract_fault(entry, Mode::Apply, text), inner.catalog.faults())
}

/// Everything asked for is there once, and its outputs are what the plugin declared.
fn done(
    inner: &Inner,
    entry: &Entry,
    pair: &PairEntry,
    request: &Request,
    applied: Vec<Applied>,
    planned: &[Planned],
) -> Done {
    let asked: HashSet<&str> = request.changes.iter().map(|c| c.resource.as_str()).collect();
    let mut seen = HashSet::new();
    for a in &applied {
        let name = a.resource.as_str();
        if !asked.contains(name) || !seen.insert(name) {
            return Err(broke(
                inner,
                entry,
                format!("it applied resource {name} twice or without being asked"),
            ));
        }
    }
    if let Some(missing) = asked.iter().find(|n| !seen.contains(*n)) {
        return Err(broke(inner, entry, format!("it ended without resource {missing}")));
    }
    if let Err(text) = outputs(pair, request, &applied) {
        return Err(broke(inner, entry, text));
    }
    match differs(pair, planned, &applied) {
        Some(failure) => Err(Failed { applied, ..answers::failed(failure) }),
        None => Ok(applied),
    }
}

fn outputs(pair: &PairEntry, request: &Request, applied: &[Applied]) -> Result<(), String> {
    for a in applied {
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

/// A planned value that is also an output, and known, has to come out as planned.
fn differs(pair: &PairEntry, planned: &[Planned], applied: &[Applied]) -> Option<Failure> {
    for a in applied {
        let Some(p) = planned.iter().find(|p| p.resource == a.resource) else { continue };
        let (Some(after), Some(outputs)) =
            (p.after.as_ref().and_then(|v| v.as_object()), a.outputs.as_object())
        else {
            continue;
        };
        for (key, value) in outputs {
            let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            let known =
                after.get(key).filter(|_| !p.unknown.contains(&path) && !pair.outputs.sensitive(&path));
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

fn stopped(inner: &Inner, entry: &Entry, pair: &PairEntry, request: &Request, s: Stopped) -> Failed {
    match outputs(pair, request, &s.applied) {
        Ok(()) => Failed { failure: s.failure, applied: s.applied, fault_id: None },
        Err(text) => broke(inner, entry, text),
    }
}
