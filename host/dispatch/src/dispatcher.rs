//! The provisioner that serves: catalog, plugins and capabilities behind one trait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::stream::BoxStream;
use serde_json::Value;
use sutler_catalog::{Catalog, Entry, PairEntry, Snapshot};
use sutler_jobs::{Asked, New, Operations};
use sutler_ledger::Ledger;
use sutler_logs::{LogLine, Logs, StreamOptions};
use sutler_model::{
    Action, Call, Failure, Fault, FaultKind, Identifier, Inquiry, Known, Mode, Observed, Owner, Pair,
    Proposal, Request,
};
use sutler_runtime::Pins;

use crate::large::{aside, large};
use crate::operations::{self, KeptPlugins};
use crate::provisioner::{CallError, Failed, ObservedView, Outcome, PlanView, Work};
use crate::quotas::QuotaTable;
use crate::{answers, drift, plan, settings, worker};

/// Says what a part of the host is not ready for, in words.
pub type Readiness = Box<dyn Fn(&Snapshot) -> Option<String> + Send + Sync>;

pub(crate) struct Inner {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) operations: Operations,
    kept: KeptPlugins,
    logs: Option<Arc<Logs>>,
    hash_key: [u8; 32],
    pub(crate) quotas: QuotaTable,
    pub(crate) lost: ArcSwap<HashSet<Pair>>,
    pub(crate) readiness: Vec<Readiness>,
}

/// Cloning is cheap; all clones are the same host.
#[derive(Clone)]
pub struct Dispatcher(pub(crate) Arc<Inner>);

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}

impl Inner {
    fn find(&self, pair: &Pair) -> Option<Arc<Entry>> {
        if self.lost.load().contains(pair) {
            return None;
        }
        self.catalog.snapshot().get(pair).cloned()
    }

    pub(crate) fn contract_fault(&self, entry: &Entry, mode: Mode, message: String) -> Fault {
        entry.plugin.fault(mode, FaultKind::Contract, message)
    }

    async fn proposal(
        &self,
        entry: &Entry,
        pair: &PairEntry,
        request: &Arc<Request>,
    ) -> Result<Result<(Proposal, Pins), Failed>, CallError> {
        let asked = request.changes.iter().filter_map(|c| c.settings.as_ref());
        if let Err(f) = aside(large(asked), || settings::check(request, pair)) {
            return Ok(Err(answers::failed(f)));
        }
        match entry.plugin.plan(request, &pair.context, entry.grants(&request.application)).await {
            Ok(Ok((p, pins))) => Ok(match plan::check(request, pair, &p) {
                Ok(()) => Ok((p, pins)),
                Err(text) => {
                    Err(answers::fault(&self.contract_fault(entry, Mode::Plan, text), self.catalog.faults()))
                }
            }),
            Ok(Err(f)) => Ok(Err(answers::failed(f))),
            Err(e) => Ok(Err(answers::run_error(e, self.catalog.faults())?)),
        }
    }

    pub(crate) async fn plan(&self, request: &Arc<Request>) -> Outcome<PlanView> {
        let Some(entry) = self.find(&request.pair) else {
            return Ok(Err(answers::not_handled(&request.pair)));
        };
        let Some(pair) = entry.pairs.get(&request.pair) else {
            return Ok(Err(answers::not_handled(&request.pair)));
        };
        let (proposal, pins) = match self.proposal(&entry, pair, request).await? {
            Ok(p) => p,
            Err(f) => return Ok(Err(f)),
        };
        self.within_quotas(request, pair, &proposal).await?;
        let view = || plan::view(request, pair, &proposal, &pins, &self.hash_key);
        Ok(Ok(aside(large(sides(&proposal)), view)))
    }

    /// Plans, and hands what is agreed to to the operations.
    pub(crate) async fn apply(
        &self,
        caller: &str,
        request: &Arc<Request>,
        plan_hash: Option<&str>,
    ) -> Outcome<Work> {
        let body = operations::body_hash(request, plan_hash, &self.hash_key);
        let repeat = self.operations.asked(caller, request.id.as_str(), &body).await;
        if let Some(answered) = repeat.map_err(operations::call_error)? {
            return Ok(operations::outcome(answered));
        }
        let Some(entry) = self.find(&request.pair) else {
            return Ok(Err(answers::not_handled(&request.pair)));
        };
        let Some(pair) = entry.pairs.get(&request.pair) else {
            return Ok(Err(answers::not_handled(&request.pair)));
        };
        let (proposal, pins) = match self.proposal(&entry, pair, request).await? {
            Ok(p) => p,
            Err(f) => return Ok(Err(f)),
        };
        let allowed = || self.allowed(request, pair, (&proposal, &pins), plan_hash);
        if let Err(f) = aside(large(sides(&proposal)), allowed) {
            return Ok(Err(answers::failed(f)));
        }
        self.kept.keep(entry.plugin.digest, &entry.wasm).await.map_err(operations::ledger_error)?;
        let takes = self.takes(request, pair, &proposal);
        let new = New {
            caller: caller.into(),
            asked: Asked {
                request: Request::clone(request),
                planned: proposal.changes,
                pins: worker::pins_out(&pins),
            },
            plugin: entry.plugin.name.clone(),
            digest: entry.plugin.digest,
            body,
            takes,
        };
        Ok(operations::outcome(self.operations.begin(new).await.map_err(operations::call_error)?))
    }

    /// The plan that the caller saw still holds, and nothing is replaced that nobody agreed to.
    fn allowed(
        &self,
        request: &Request,
        pair: &PairEntry,
        (proposal, pins): (&Proposal, &Pins),
        plan_hash: Option<&str>,
    ) -> Result<(), Failure> {
        if let Some(hash) = plan_hash {
            let now = plan::hash(request, proposal, pins, &self.hash_key);
            return if now == hash {
                Ok(())
            } else {
                Err(Failure::new(
                    "plan-stale",
                    "What would happen now differs from the plan with this planHash; nothing was changed. Plan again.",
                ))
            };
        }
        for c in plan::replaced(pair, proposal) {
            let agreed =
                request.changes.iter().any(|r| r.resource == c.resource && r.action == Action::Replace);
            if !agreed {
                let reason = format!(
                    "{} would have to be replaced; nothing was changed. Send action \"replace\", or the planHash of a plan that shows it.",
                    c.resource
                );
                let failure = Failure::new("replace-required", reason).on(c.resource.as_str());
                return Err(match c.replace_because.first() {
                    Some(p) => failure.at(p.clone()),
                    None => failure,
                });
            }
        }
        Ok(())
    }

    pub(crate) async fn inspect(&self, inquiry: &Inquiry) -> Outcome<Vec<ObservedView>> {
        let Some(entry) = self.find(&inquiry.pair) else {
            return Ok(Err(answers::not_handled(&inquiry.pair)));
        };
        let Some(pair) = entry.pairs.get(&inquiry.pair) else {
            return Ok(Err(answers::not_handled(&inquiry.pair)));
        };
        let observed =
            match entry.plugin.inspect(inquiry, &pair.context, entry.grants(&inquiry.application)).await {
                Ok(Ok(o)) => o,
                Ok(Err(f)) => return Ok(Err(answers::failed(f))),
                Err(e) => return Ok(Err(answers::run_error(e, self.catalog.faults())?)),
            };
        if let Err(text) = drift::check(inquiry, &observed, pair) {
            return Ok(Err(answers::fault(
                &self.contract_fault(&entry, Mode::Inspect, text),
                self.catalog.faults(),
            )));
        }
        let mut by_name: HashMap<Identifier, Observed> =
            observed.into_iter().map(|o| (o.resource.clone(), o)).collect();
        let of = |k: &Known| {
            by_name.remove(&k.resource).map(|o| {
                let large = large([&o.settings, &o.outputs].into_iter().flatten());
                aside(large, || drift::view(k, o, pair))
            })
        };
        Ok(Ok(inquiry.resources.iter().filter_map(of).collect()))
    }

    pub(crate) async fn logs(
        &self,
        inquiry: Inquiry,
        options: StreamOptions,
    ) -> Outcome<BoxStream<'static, LogLine>> {
        let Some(entry) = self.find(&inquiry.pair) else {
            return Ok(Err(answers::not_handled(&inquiry.pair)));
        };
        let Some(pair) = entry.pairs.get(&inquiry.pair) else {
            return Ok(Err(answers::not_handled(&inquiry.pair)));
        };
        let grants = entry.grants(&inquiry.application);
        let sources = match entry.plugin.locate(&inquiry, &pair.context, grants).await {
            Ok(Some(Ok(s))) => s,
            Ok(Some(Err(f))) => return Ok(Err(answers::failed(f))),
            Ok(None) => return Err(CallError::NotFound(format!("{} has no logs", inquiry.pair))),
            Err(e) => return Ok(Err(answers::run_error(e, self.catalog.faults())?)),
        };
        let Some(logs) = &self.logs else {
            return Err(CallError::Unavailable(
                "this host has no cluster and no Docker daemon configured to read logs from".into(),
            ));
        };
        let call = Call {
            plugin: entry.plugin.name.clone(),
            owner: Owner { application: inquiry.application, pair: inquiry.pair },
            mode: Mode::Locate,
            request_id: inquiry.id.as_str().into(),
            deadline: Instant::now() + Duration::from_secs(30),
            job: None,
            fence: sutler_model::Fence::endless(),
        };
        match logs.open(&call, (&grants.logs, &grants.containers), sources, options).await {
            Ok(s) => Ok(Ok(s)),
            Err(sutler_logs::Error::Other { code: code @ "not-supported", message }) => {
                Ok(Err(answers::failed(Failure::new(code, message))))
            }
            Err(e) => Err(log_error(e)),
        }
    }
}

/// What a plan compares.
fn sides(proposal: &Proposal) -> impl Iterator<Item = &Value> {
    proposal.changes.iter().flat_map(|c| [&c.before, &c.after]).flatten()
}

fn log_error(e: sutler_logs::Error) -> CallError {
    match e {
        sutler_logs::Error::NotGranted(n) => CallError::Forbidden(n.to_string()),
        sutler_logs::Error::NotFound => CallError::NotFound("there is no such pod or container".into()),
        e => CallError::Unavailable(e.to_string()),
    }
}

impl Dispatcher {
    /// `hash_key` keys the plan hashes and the hashes of bodies; every host of one control plane has the same.
    pub fn new(
        catalog: Arc<Catalog>,
        operations: Operations,
        ledger: Arc<dyn Ledger>,
        logs: Option<Arc<Logs>>,
        hash_key: [u8; 32],
        quotas: QuotaTable,
        readiness: Vec<Readiness>,
    ) -> Self {
        Self(Arc::new(Inner {
            catalog,
            operations,
            kept: KeptPlugins::new(ledger),
            logs,
            hash_key,
            quotas,
            lost: ArcSwap::default(),
            readiness,
        }))
    }

    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    pub fn operations(&self) -> &Operations {
        &self.0.operations
    }
}
