//! From what a run came to, to what the caller hears.

use sutler_catalog::FaultLog;
use sutler_model::{Failure, Fault, FaultKind, Pair};
use sutler_runtime::RunError;

use crate::provisioner::{CallError, Failed};

/// Seconds after which an overloaded host is worth another try.
const RETRY_AFTER: u32 = 1;

/// Records a fault and turns it into the answer; no free sandbox is the call's error.
pub(crate) fn run_error(e: RunError, faults: &FaultLog) -> Result<Failed, CallError> {
    match e {
        RunError::Overloaded { what, limit } => {
            metrics::counter!("sutler_overload_total", "what" => what.clone()).increment(1);
            Err(CallError::Overloaded { what, limit, retry_after_seconds: RETRY_AFTER })
        }
        RunError::Fault(f) => Ok(fault(&f, faults)),
    }
}

pub(crate) fn fault(f: &Fault, faults: &FaultLog) -> Failed {
    record(f, faults);
    Failed { failure: failure(f), applied: vec![], fault_id: Some(f.id.clone()) }
}

pub(crate) fn record(f: &Fault, faults: &FaultLog) {
    faults.record(f);
    metrics::counter!("sutler_faults_total", "plugin" => f.plugin.clone(), "kind" => f.kind.as_str())
        .increment(1);
}

/// A fault as callers hear of it.
pub(crate) fn failure(f: &Fault) -> Failure {
    let advice = match f.kind {
        FaultKind::DependencyTimeout => "try again; if it stays, ask the operator with the fault id",
        _ => "the operator finds the details under the fault id",
    };
    let reason = format!("Plugin {} failed in {}: {}; {advice} {}.", f.plugin, f.export, f.message, f.id);
    let mut failure = Failure::new(f.kind.code(), reason);
    failure.retryable = matches!(f.kind, FaultKind::DependencyTimeout);
    failure
}

pub(crate) fn failed(failure: Failure) -> Failed {
    Failed { failure, applied: vec![], fault_id: None }
}

pub(crate) fn not_handled(pair: &Pair) -> Failed {
    let reason = format!("This host does not handle {pair}; GET /handles lists the pairs that it does.");
    failed(Failure::new("pair-not-handled", reason))
}
