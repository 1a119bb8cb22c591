//! Operations as callers see them: repeats by the hash of the body, views, errors.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use sutler_jobs::{Answered, Ended, Operation, OperationError, Who};
use sutler_ledger::{Filter, JobId, Ledger, LedgerError};
use sutler_model::{Digest, Request, canonical_into};
use tokio::time::Instant;

use crate::dispatcher::Inner;
use crate::provisioner::{
    Asker, CallError, EventView, Failed, OperationFilter, OperationView, ProgressView, Work,
};

/// HMAC over what a body asks, whatever its spelling. The request's id is the key beside it and not in it.
pub(crate) fn body_hash(request: &Request, plan_hash: Option<&str>, key: &[u8; 32]) -> [u8; 32] {
    let a = &request.application;
    let name = |i: &Option<sutler_model::Identifier>| i.as_ref().map(ToString::to_string);
    let changes: Vec<Value> = request
        .changes
        .iter()
        .map(|c| {
            let beliefs = [&c.previous_settings, &c.previous_outputs];
            serde_json::json!([c.resource.as_str(), c.action.as_str(), c.settings, beliefs])
        })
        .collect();
    let all = serde_json::json!([
        request.pair.to_string(),
        [name(&a.instance), name(&a.tenant), Some(a.environment.to_string()), Some(a.id.to_string())],
        changes,
        plan_hash
    ]);
    let mut text = b"body\n".to_vec();
    canonical_into(&all, &mut text);
    // HMAC takes keys of every length.
    let Ok(mut m) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    m.update(&text);
    m.finalize().into_bytes().into()
}

pub(crate) fn outcome(answered: Answered) -> Result<Work, Failed> {
    match answered {
        Answered::Accepted { id, retry_after } => Ok(Work::Accepted { id: id.to_string(), retry_after }),
        Answered::Done(_, ended) => ended_view(ended).map(Work::Done),
    }
}

fn ended_view(ended: Ended) -> Result<Vec<sutler_model::Applied>, Failed> {
    match ended {
        Ended::Succeeded(applied) => Ok(applied),
        Ended::Failed { failure, applied, fault_id } => Err(Failed { failure, applied, fault_id }),
    }
}

pub(crate) fn call_error(e: OperationError) -> CallError {
    let message = e.to_string();
    match e {
        OperationError::ReusedId(id) => CallError::Conflict {
            code: "request-id-reused",
            operation: id.to_string(),
            message,
            retry_after: None,
        },
        OperationError::Busy { id, retry_after } => CallError::Conflict {
            code: "operation-running",
            operation: id.to_string(),
            message,
            retry_after: Some(retry_after),
        },
        OperationError::Superseded { by, .. } => {
            CallError::Conflict { code: "superseded", operation: by.to_string(), message, retry_after: None }
        }
        OperationError::Conflict { id, .. } | OperationError::Contended(id) => CallError::Conflict {
            code: "operation-running",
            operation: id.to_string(),
            message,
            retry_after: Some(Duration::from_secs(1)),
        },
        OperationError::OverQuota(over) => CallError::OverQuota(over),
        OperationError::NotFound(_) => CallError::NotFound(message),
        OperationError::Stopping => CallError::Stopping,
        OperationError::Ledger(e) => ledger_error(e),
        // The operator's affair: words for the log, not for callers.
        OperationError::Unreadable { .. } | OperationError::Illegal(_) | OperationError::Config(_) => {
            tracing::error!(event = "operation-broken", "{message}");
            CallError::Unavailable("this operation cannot be read by this host; ask its operator".into())
        }
    }
}

pub(crate) fn ledger_error(e: LedgerError) -> CallError {
    match e {
        LedgerError::NotFound(id) => CallError::NotFound(format!("there is no operation {id}")),
        e => {
            tracing::warn!(event = "ledger-unavailable", "{e}");
            CallError::Unavailable("the ledger cannot be reached or written; try again".into())
        }
    }
}

/// Which plugins' bytes are in the ledger already, and since when this host knows.
pub(crate) struct KeptPlugins {
    ledger: Arc<dyn Ledger>,
    known: Mutex<HashMap<Digest, Instant>>,
}

/// How long it is known. A ledger forgets a plugin that no job has, a day after it was kept at the earliest.
const KNOWN: Duration = Duration::from_secs(3600);

impl KeptPlugins {
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, known: Mutex::default() }
    }

    /// # Errors
    /// What the ledger says.
    pub(crate) async fn keep(&self, digest: Digest, wasm: &Bytes) -> Result<(), LedgerError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if known().get(&digest).is_some_and(|kept| now.duration_since(*kept) < KNOWN) {
            return Ok(());
        }
        self.ledger.keep_plugin(digest, wasm.clone()).await?;
        known().insert(digest, now);
        Ok(())
    }
}

impl Inner {
    fn view(&self, o: Operation) -> OperationView {
        let standing = &o.job.standing;
        let snapshot = self.catalog.snapshot();
        let steps =
            snapshot.get(&o.job.pair).and_then(|e| e.pairs.get(&o.job.pair)).map(|p| p.steps.as_slice());
        let steps = steps.unwrap_or_default();
        // Before its first step, a job stands at the pair's first one.
        let step = if standing.step.is_empty() { steps.first() } else { None };
        let name = step.map_or(standing.step.as_str(), |s| s.name.as_str());
        let index = steps.iter().position(|s| s.name == name);
        let title = index.and_then(|i| steps.get(i)).map(|s| s.title.clone()).unwrap_or_default();
        OperationView {
            id: o.job.id.to_string(),
            status: standing.status.as_str(),
            cancelling: o.cancelling(),
            progress: ProgressView {
                step: name.to_owned(),
                title,
                index,
                total: steps.len(),
                message: o.message,
                attempt: standing.attempt,
            },
            retry_after: o.retry_after,
            answer: o.ended.map(ended_view),
            created: o.job.created.0,
            updated: o.job.updated.0,
            pair: o.job.pair,
            application: o.job.application,
            resources: o.job.resources,
            request_id: o.job.request_id,
        }
    }

    pub(crate) async fn operation(&self, asker: &Asker, id: &str) -> Result<OperationView, CallError> {
        let found = self.operations.operation(who(asker), &job_id(id)?).await;
        found.map(|o| self.view(o)).map_err(call_error)
    }

    pub(crate) async fn list(
        &self,
        asker: &Asker,
        f: OperationFilter,
    ) -> Result<Vec<OperationView>, CallError> {
        let filter = Filter {
            caller: None,
            status: f.status.as_deref().and_then(|s| s.parse().ok()),
            pair: f.pair,
            instance: f.instance,
            tenant: f.tenant,
            application: f.application,
            environment: f.environment,
            before: f.before.as_deref().map(job_id).transpose()?,
            limit: f.limit,
        };
        let found = self.operations.list(who(asker), filter).await.map_err(call_error)?;
        Ok(found.into_iter().map(|o| self.view(o)).collect())
    }

    pub(crate) async fn events(
        &self,
        asker: &Asker,
        id: &str,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<EventView>, bool), CallError> {
        let (who, id) = (who(asker), job_id(id)?);
        // The row first: what is final then has all its events.
        let ended = self.operations.operation(who, &id).await.map_err(call_error)?.ended.is_some();
        let events = self.operations.events(who, &id, after, limit).await.map_err(call_error)?;
        let view = |e: sutler_ledger::Event| EventView {
            seq: e.seq,
            name: e.what.name(),
            data: serde_json::to_value(&e).unwrap_or_default(),
        };
        Ok((events.into_iter().map(view).collect(), ended))
    }
}

fn who(asker: &Asker) -> Who<'_> {
    match &asker.instance {
        Some(instance) => Who::Within(&asker.caller, instance),
        None => Who::Caller(&asker.caller),
    }
}

fn job_id(text: &str) -> Result<JobId, CallError> {
    text.parse().map_err(|_| CallError::NotFound("there is no such operation".into()))
}

#[cfg(test)]
mod tests {
    use sutler_ledger::{Clock, Memory, Millis};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_the_ledger_forgot_is_kept_again() {
        const DAY: Duration = Duration::from_secs(86_400);
        let start = Instant::now();
        let ledger = Arc::new(Memory::new(Clock::from_fn(move || Millis(0).plus(start.elapsed()))));
        let (kept, digest, wasm) =
            (KeptPlugins::new(ledger.clone()), Digest::of(b"one"), Bytes::from_static(b"one"));
        for _ in 0..2 {
            kept.keep(digest, &wasm).await.unwrap();
            assert_eq!(ledger.plugin(digest).await.unwrap(), Some(wasm.clone()));
            tokio::time::advance(2 * DAY).await;
            ledger.purge(DAY).await.unwrap();
            assert_eq!(ledger.plugin(digest).await.unwrap(), None);
        }
    }
}
