//! A host behind the API that does what the request's id says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::json;
use sutler_access::{Access, AccessConfig, CallerConfig, OperatorConfig, hash_token};
use sutler_api::{Api, ApiConfig};
use sutler_dispatch::{
    Asker, Audit, AuditFilter, CallError, EventView, Failed, HandleView, ObservedView, OperationFilter,
    OperationView, Outcome, PlanView, PlannedField, PlannedView, PluginView, Provisioner, Work,
};
use sutler_logs::{LogLine, StreamOptions};
use sutler_model::{
    Action, Applied, Difference, DifferenceClass, Failure, Fault, FaultKind, FieldChange, Inquiry, Pair,
    Presence, Request, Step,
};
use tokio::sync::Notify;

pub(crate) use crate::client::{body, get, post, send, shown, text};
pub(crate) use crate::fake_operation::{OPERATION, id};
use crate::fake_operation::{change, operation};

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) plans: Mutex<Vec<Request>>,
    pub(crate) inquiries: Mutex<Vec<(Inquiry, StreamOptions)>>,
    pub(crate) lost: Mutex<Vec<Pair>>,
    pub(crate) filters: Mutex<Vec<OperationFilter>>,
    pub(crate) audits: Mutex<Vec<AuditFilter>>,
    pub(crate) not_ready: Mutex<Vec<String>>,
    pub(crate) pairs: Mutex<Vec<Pair>>,
    /// Lets go of requests named `slow`.
    pub(crate) go: Notify,
    /// Told when an apply has finished.
    pub(crate) applied: Notify,
}

fn steps() -> Vec<Step> {
    vec![Step { name: "install".into(), title: "Install the chart".into(), timeout_seconds: 60 }]
}

fn applied() -> Vec<Applied> {
    vec![Applied {
        resource: id("main"),
        outputs: json!({"url": "http://orders"}),
        secret_outputs: json!({"password": "hunter2"}),
    }]
}

impl Fake {
    async fn obey(&self, request_id: &str) -> Result<(), Result<Failed, CallError>> {
        match request_id {
            "fail" => {
                let failure = Failure::new("quota-exceeded", "the namespace has no room for 4 cores")
                    .on("main")
                    .at("/size");
                Err(Ok(Failed { failure, applied: applied(), fault_id: None }))
            }
            "fault" => {
                let failure = Failure::new("plugin-fault", "plugin ksml broke").retryable();
                Err(Ok(Failed { failure, applied: Vec::new(), fault_id: Some("flt_0123456789ab".into()) }))
            }
            "overloaded" => Err(Err(CallError::Overloaded {
                what: "plugin ksml".into(),
                limit: 4,
                retry_after_seconds: 7,
            })),
            "stopping" => Err(Err(CallError::Stopping)),
            "unavailable" => Err(Err(CallError::Unavailable("the cluster is away".into()))),
            "panic" => panic!("as the test asked"),
            "slow" => {
                self.go.notified().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn outcome<T>(obeyed: Result<(), Result<Failed, CallError>>, value: impl FnOnce() -> T) -> Outcome<T> {
    match obeyed {
        Ok(()) => Ok(Ok(value())),
        Err(Ok(failed)) => Ok(Err(failed)),
        Err(Err(error)) => Err(error),
    }
}

impl Provisioner for Fake {
    fn plan(&self, request: Request) -> BoxFuture<'_, Outcome<PlanView>> {
        Box::pin(async move {
            let obeyed = self.obey(request.id.as_str()).await;
            self.plans.lock().unwrap().push(request);
            let field = |path: &str, sensitive| PlannedField {
                change: FieldChange { path: path.into(), before: None, after: Some(json!("seen")) },
                after_unknown: false,
                sensitive,
                requires_replace: false,
            };
            outcome(obeyed, || PlanView {
                plan_hash: "ab12".into(),
                changes: vec![PlannedView {
                    resource: id("main"),
                    action: Action::Create,
                    fields: vec![field("/size", false), field("/password", true)],
                    warnings: vec!["it is small".into()],
                }],
                steps: steps(),
            })
        })
    }
    fn apply(
        &self,
        caller: Arc<str>,
        request: Request,
        plan_hash: Option<String>,
    ) -> BoxFuture<'_, Outcome<Work>> {
        Box::pin(async move {
            match request.id.as_str() {
                "long" => {
                    let retry_after = Duration::from_millis(1_500);
                    return Ok(Ok(Work::Accepted { id: OPERATION.into(), retry_after }));
                }
                "reused" | "busy" => {
                    let busy = request.id.as_str() == "busy";
                    return Err(CallError::Conflict {
                        code: if busy { "operation-running" } else { "request-id-reused" },
                        operation: OPERATION.into(),
                        message: format!("asked by {caller}"),
                        retry_after: busy.then_some(Duration::from_secs(1)),
                    });
                }
                _ => {}
            }
            let obeyed = self.obey(request.id.as_str()).await;
            self.applied.notify_one();
            if plan_hash.as_deref() == Some("old") {
                return Ok(Err(Failed {
                    failure: Failure::new("plan-stale", "plan again"),
                    applied: Vec::new(),
                    fault_id: None,
                }));
            }
            outcome(obeyed, || Work::Done(applied()))
        })
    }
    fn operation(&self, asker: Asker, id: String) -> BoxFuture<'_, Result<OperationView, CallError>> {
        Box::pin(async move {
            match id.as_str() {
                OPERATION => Ok(operation(&asker.caller, None)),
                "op_done" => Ok(operation(&asker.caller, Some(Ok(applied())))),
                _ => Err(CallError::NotFound(format!("there is no operation {id}"))),
            }
        })
    }
    fn operations(
        &self,
        asker: Asker,
        filter: OperationFilter,
    ) -> BoxFuture<'_, Result<Vec<OperationView>, CallError>> {
        let page = filter.limit.min(2) as usize;
        self.filters.lock().unwrap().push(filter);
        Box::pin(async move { Ok(vec![operation(&asker.caller, None); page]) })
    }
    fn operation_events(
        &self,
        _: Asker,
        id: String,
        after: u64,
        _: u32,
    ) -> BoxFuture<'_, Result<(Vec<EventView>, bool), CallError>> {
        Box::pin(async move {
            if id != OPERATION {
                return Err(CallError::NotFound(format!("there is no operation {id}")));
            }
            let event = |seq, name| EventView { seq, name, data: json!({"seq": seq, "event": name}) };
            let all = [event(1, "submitted"), event(2, "claimed"), event(3, "completed")];
            Ok((all.into_iter().filter(|e| e.seq > after).collect(), true))
        })
    }
    fn inspect(&self, inquiry: Inquiry) -> BoxFuture<'_, Outcome<Vec<ObservedView>>> {
        Box::pin(async move {
            let obeyed = self.obey(inquiry.id.as_str()).await;
            outcome(obeyed, || {
                let drift = Difference {
                    at: "/size".into(),
                    class: DifferenceClass::ForeignOwner,
                    expected: Some(json!("S")),
                    actual: Some(json!("XL")),
                };
                vec![ObservedView {
                    resource: id("main"),
                    presence: Presence::Present,
                    settings: Some(json!({"size": "XL"})),
                    outputs: None,
                    drift: vec![drift],
                    warnings: Vec::new(),
                }]
            })
        })
    }
    fn logs(
        &self,
        inquiry: Inquiry,
        options: StreamOptions,
    ) -> BoxFuture<'_, Outcome<BoxStream<'static, LogLine>>> {
        Box::pin(async move {
            let line = |pod: &str, second: u32, text: &str| LogLine::Line {
                pod: pod.into(),
                container: "ksml".into(),
                timestamp: format!("2026-01-31T12:00:0{second}.000000001Z").into(),
                text: text.into(),
            };
            let gap = LogLine::Gap {
                pod: "orders-0".into(),
                container: "ksml".into(),
                from: Some("2026-01-31T12:00:01Z".into()),
                to: None,
                reason: "the log was rotated".into(),
            };
            let name = inquiry.application.id.as_str().to_owned();
            let follow = options.follow;
            self.inquiries.lock().unwrap().push((inquiry, options));
            match name.as_str() {
                "nothing" => return Err(CallError::NotFound("no pod is there".into())),
                "forbidden" => {
                    return Ok(Err(Failed {
                        failure: Failure::new("not-granted", "logs of acme are not granted"),
                        applied: Vec::new(),
                        fault_id: None,
                    }));
                }
                "unhandled" => {
                    return Ok(Err(Failed {
                        failure: Failure::new("pair-not-handled", "nobody handles it"),
                        applied: Vec::new(),
                        fault_id: None,
                    }));
                }
                "busy" | "broken" | "tenantless" => {
                    let failure = match name.as_str() {
                        "busy" => Failure::new("dependency-timeout", "try again").retryable(),
                        "broken" => Failure::new("trap", "it broke"),
                        _ => Failure::new("tenant-required", "name a tenant").at("/namespace"),
                    };
                    return Ok(Err(Failed { failure, applied: Vec::new(), fault_id: None }));
                }
                _ => {}
            }
            let lines = stream::iter([
                line("orders-0", 1, "one"),
                line("orders-0", 1, "two \"quoted\""),
                gap,
                line("orders-1", 2, "three"),
            ]);
            Ok(Ok(if follow { lines.chain(stream::pending()).boxed() } else { lines.boxed() }))
        })
    }
    fn handles(&self) -> Vec<HandleView> {
        let view = |pair: &Pair| HandleView {
            pair: pair.clone(),
            summary: "KSML".into(),
            settings_schema: json!({"type": "object"}),
            outputs_schema: json!({"type": "object"}),
            steps: steps(),
            logs: true,
            plugin: "ksml".into(),
            version: "0.1.0".into(),
            digest: "sha256:00".into(),
            health: if pair.type_name.as_str() == "sick" { "quarantined" } else { "healthy" },
        };
        self.pairs.lock().unwrap().iter().map(view).collect()
    }
    fn plugins(&self) -> Vec<PluginView> {
        vec![
            PluginView {
                name: "ksml".into(),
                state: "loaded",
                reason: None,
                version: Some("0.1.0".into()),
                digest: Some("sha256:00".into()),
                pairs: vec!["deployment/ksml".parse().unwrap()],
                faults: 1,
            },
            PluginView {
                name: "bad".into(),
                state: "broken",
                reason: Some("it is not a component".into()),
                version: None,
                digest: None,
                pairs: Vec::new(),
                faults: 0,
            },
        ]
    }
    fn faults(&self, plugin: &str) -> Option<Vec<Fault>> {
        (plugin == "ksml").then(|| {
            vec![Fault {
                id: "flt_0123456789ab".into(),
                kind: FaultKind::Trap,
                plugin: "ksml".into(),
                export: "plan".into(),
                message: "unreachable".into(),
                frames: vec!["ksml::plan".into()],
            }]
        })
    }
    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<Audit>, CallError>> {
        let (limit, before) = (filter.limit, filter.before.map_or(4, |place| place.n));
        self.audits.lock().unwrap().push(filter);
        // Three changes: 3, 2, 1.
        let rows = (1..before).rev().take(limit as usize).map(change).collect();
        Box::pin(async { Ok(rows) })
    }
    fn reload(&self, _: Arc<str>) -> BoxFuture<'_, Result<Vec<PluginView>, CallError>> {
        Box::pin(async move { Ok(self.plugins()) })
    }
    fn not_ready(&self) -> Vec<String> {
        self.not_ready.lock().unwrap().clone()
    }
    fn lose_pair(&self, pair: &Pair) {
        self.lost.lock().unwrap().push(pair.clone());
    }
}

pub(crate) fn fake() -> Arc<Fake> {
    let fake = Fake::default();
    *fake.pairs.lock().unwrap() = vec!["deployment/ksml".parse().unwrap(), "tool/sick".parse().unwrap()];
    Arc::new(fake)
}

/// Caller `axual` of tenant acme with token `caller`; operator `ops` with token `operator`.
pub(crate) fn access() -> Access {
    let config = AccessConfig {
        callers: vec![CallerConfig {
            name: "axual".into(),
            token_hash: vec![hash_token("caller")],
            tenants: vec!["acme".into()],
            instances: vec!["*".into()],
            max_requests: None,
            max_log_streams: None,
            audit: false,
        }],
        operators: vec![OperatorConfig {
            name: "ops".into(),
            token_hash: vec![hash_token("operator")],
            audit: false,
        }],
    };
    Access::new(&config, &[]).unwrap()
}

pub(crate) fn api(fake: &Arc<Fake>, access: Access, config: ApiConfig) -> Api {
    Api::new(fake.clone(), access, config, None).unwrap()
}

/// The public router with tokens and default limits.
pub(crate) fn public() -> Router {
    sutler_api::router(&api(&fake(), access(), ApiConfig::default()))
}
