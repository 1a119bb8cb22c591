//! The dispatcher as the HTTP side sees it: each call timed and counted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use metrics::{Label, SharedString};
use sutler_catalog::Snapshot;
use sutler_ledger::{Audit, AuditFilter};
use sutler_logs::{LogLine, StreamOptions};
use sutler_model::{Fault, Inquiry, Pair, Request};

use crate::dispatcher::{Dispatcher, Inner};
use crate::operations::call_error;
use crate::provisioner::{
    Asker, CallError, EventView, HandleView, ObservedView, OperationFilter, OperationView, Outcome, PlanView,
    PluginView, Provisioner, Work,
};

/// Times one call and counts how it ended.
async fn counted<T>(
    export: &'static str,
    pair: SharedString,
    work: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    let started = Instant::now();
    let out = work.await;
    let outcome = match &out {
        Ok(Ok(_)) => "succeeded",
        Ok(Err(f)) if f.fault_id.is_some() => "fault",
        Ok(Err(_)) => "failed",
        Err(_) => "refused",
    };
    let labels = [
        Label::from_static_parts("export", export),
        Label::new("pair", pair),
        Label::from_static_parts("outcome", outcome),
    ];
    metrics::counter!("sutler_calls_total", labels.iter()).increment(1);
    metrics::histogram!("sutler_call_seconds", "export" => export).record(started.elapsed().as_secs_f64());
    out
}

/// A pair as a label: only served pairs, so that callers cannot make labels without end.
fn label(inner: &Inner, pair: &Pair) -> SharedString {
    let snapshot = inner.catalog.snapshot();
    let served = snapshot.get(pair).and_then(|e| e.pairs.get(pair));
    served.map_or(SharedString::const_str("unknown"), |p| SharedString::from_shared(p.label.clone()))
}

impl Provisioner for Dispatcher {
    fn plan(&self, request: Request) -> BoxFuture<'_, Outcome<PlanView>> {
        let request = Arc::new(request);
        Box::pin(async move { counted("plan", label(&self.0, &request.pair), self.0.plan(&request)).await })
    }

    fn apply(
        &self,
        caller: Arc<str>,
        request: Request,
        plan_hash: Option<String>,
    ) -> BoxFuture<'_, Outcome<Work>> {
        let request = Arc::new(request);
        Box::pin(async move {
            let work = self.0.apply(&caller, &request, plan_hash.as_deref());
            counted("apply", label(&self.0, &request.pair), work).await
        })
    }

    fn operation(&self, asker: Asker, id: String) -> BoxFuture<'_, Result<OperationView, CallError>> {
        Box::pin(async move { self.0.operation(&asker, &id).await })
    }

    fn operations(
        &self,
        asker: Asker,
        filter: OperationFilter,
    ) -> BoxFuture<'_, Result<Vec<OperationView>, CallError>> {
        Box::pin(async move { self.0.list(&asker, filter).await })
    }

    fn operation_events(
        &self,
        asker: Asker,
        id: String,
        after: u64,
        limit: u32,
    ) -> BoxFuture<'_, Result<(Vec<EventView>, bool), CallError>> {
        Box::pin(async move { self.0.events(&asker, &id, after, limit).await })
    }

    fn inspect(&self, inquiry: Inquiry) -> BoxFuture<'_, Outcome<Vec<ObservedView>>> {
        Box::pin(
            async move { counted("inspect", label(&self.0, &inquiry.pair), self.0.inspect(&inquiry)).await },
        )
    }

    fn logs(
        &self,
        inquiry: Inquiry,
        options: StreamOptions,
    ) -> BoxFuture<'_, Outcome<BoxStream<'static, LogLine>>> {
        Box::pin(async move {
            counted("locate", label(&self.0, &inquiry.pair), self.0.logs(inquiry, options)).await
        })
    }

    fn handles(&self) -> Vec<HandleView> {
        let lost = self.0.lost.load();
        let snapshot = self.0.catalog.snapshot();
        let served = snapshot.pairs().into_iter().filter(|(p, _)| !lost.contains(p));
        served
            .filter_map(|(pair, e)| {
                let d = e.pairs.get(pair)?;
                let newest = snapshot.files.get(e.plugin.name.as_str()).is_none_or(|f| f.reason.is_none());
                Some(HandleView {
                    pair: pair.clone(),
                    summary: d.summary.clone(),
                    settings_schema: d.settings.text().clone(),
                    outputs_schema: d.outputs.text().clone(),
                    steps: d.steps.clone(),
                    logs: e.plugin.has_logs(),
                    plugin: e.plugin.name.to_string(),
                    version: e.descriptor.version.clone(),
                    digest: e.plugin.digest.to_string(),
                    health: if newest { "healthy" } else { "outdated" },
                })
            })
            .collect()
    }

    fn plugins(&self) -> Vec<PluginView> {
        let snapshot = self.0.catalog.snapshot();
        views(&snapshot, &self.0)
    }

    fn faults(&self, plugin: &str) -> Option<Vec<Fault>> {
        let known = self.0.catalog.snapshot().files.contains_key(plugin);
        known.then(|| self.0.catalog.faults().of(plugin))
    }

    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<Audit>, CallError>> {
        Box::pin(async move { self.0.operations.audited(filter).await.map_err(call_error) })
    }

    fn reload(&self, operator: Arc<str>) -> BoxFuture<'_, Result<Vec<PluginView>, CallError>> {
        Box::pin(async move {
            // Plugins are brought in order while the ledger is away, too.
            if let Err(e) = self.0.operations.audit(&operator, "reload").await {
                tracing::warn!(event = "audit-not-written", %operator, action = "reload", "{e}");
            }
            let snapshot = self.0.catalog.reload().await.map_err(CallError::Unavailable)?;
            Ok(views(&snapshot, &self.0))
        })
    }

    fn not_ready(&self) -> Vec<String> {
        let snapshot = self.0.catalog.snapshot();
        self.0.readiness.iter().filter_map(|r| r(&snapshot)).collect()
    }

    fn lose_pair(&self, pair: &Pair) {
        tracing::warn!(event = "pair-lost", %pair, "the control plane gave this pair to another provisioner; it is answered pair-not-handled");
        self.0.lost.rcu(|lost| {
            let mut next = HashSet::clone(lost);
            next.insert(pair.clone());
            next
        });
    }
}

fn views(snapshot: &Snapshot, inner: &Inner) -> Vec<PluginView> {
    let view = |(name, file): (&String, &sutler_catalog::FileState)| {
        let e = file.entry.as_ref();
        let mut pairs: Vec<Pair> = e.map(|e| e.pairs.keys().cloned().collect()).unwrap_or_default();
        pairs.sort();
        PluginView {
            name: name.clone(),
            state: match (e, &file.reason) {
                (Some(_), None) => "loaded",
                (Some(_), Some(_)) => "outdated",
                (None, _) => "refused",
            },
            reason: file.reason.clone(),
            version: e.map(|e| e.descriptor.version.clone()),
            digest: e.map(|e| e.plugin.digest.to_string()),
            pairs,
            faults: inner.catalog.faults().count(name),
        }
    };
    snapshot.files.iter().map(view).collect()
}
