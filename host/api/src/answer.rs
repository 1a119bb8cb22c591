//! What the routes answer: bodies with a fixed order of fields, made from the views of the dispatcher.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use sutler_dispatch::{Failed, HandleView, ObservedView, PlanView, PlannedField, PlannedView};
use sutler_model::{Action, Applied, Difference, DifferenceClass, Identifier, Presence, Step};
use utoipa::ToSchema;

/// What `POST /plan` answers.
#[derive(Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum PlanAnswer {
    Planned(PlannedBody),
    Failed(FailedBody),
}

/// What `POST /apply` answers.
#[derive(Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum ApplyAnswer {
    Succeeded(SucceededBody),
    Failed(FailedBody),
}

/// What `POST /inspect` answers.
#[derive(Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub(crate) enum InspectAnswer {
    Inspected(InspectedBody),
    Failed(FailedBody),
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlannedBody {
    /// Give it to `POST /apply`, and nothing else than this plan is applied.
    plan_hash: String,
    changes: Vec<PlannedChange>,
    steps: Vec<StepBody>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PlannedChange {
    #[schema(value_type = String)]
    resource: Identifier,
    #[schema(value_type = ActionName)]
    action: Action,
    fields: Vec<FieldBody>,
    warnings: Vec<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
#[allow(dead_code, reason = "it describes sutler_model::Action, which knows no HTTP")]
enum ActionName {
    Create,
    Update,
    Replace,
    Delete,
    NoOp,
}

/// One setting that changes. `before` and `after` are left out where there is none, and where `sensitive` is true.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct FieldBody {
    /// JSON Pointer into the settings.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
    after_unknown: bool,
    sensitive: bool,
    requires_replace: bool,
}

#[derive(Serialize, ToSchema)]
struct StepBody {
    name: String,
    title: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct SucceededBody {
    resources: Vec<AppliedBody>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AppliedBody {
    #[schema(value_type = String)]
    resource: Identifier,
    outputs: Value,
    /// Outputs that only the caller sees; they stand in no log.
    secret_outputs: Value,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct InspectedBody {
    resources: Vec<ObservedBody>,
}

/// `settings` and `outputs` are left out where nothing is known of them.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ObservedBody {
    #[schema(value_type = String)]
    resource: Identifier,
    presence: PresenceName,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<Value>,
    drift: Vec<DriftBody>,
    warnings: Vec<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum PresenceName {
    Present,
    Absent,
    Unknown,
}

#[derive(Serialize, ToSchema)]
struct DriftBody {
    /// JSON Pointer into the settings or outputs.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<Value>,
    class: ClassName,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum ClassName {
    Drift,
    Normalized,
    Missing,
    ForeignOwner,
}

/// The work failed: the call itself was fine. Fields that have no value are left out.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailedBody {
    /// Kebab-case and stable: branch on it.
    #[schema(example = "quota-exceeded")]
    code: String,
    /// For a person: what failed, on what, what to do.
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    /// JSON Pointer into the resource's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    /// What was reached before.
    resources: Vec<AppliedBody>,
    /// Name it to the operator of this host, who finds the fault by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault_id: Option<String>,
}

/// What `GET /handles` answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct HandlesBody {
    handles: Vec<HandleBody>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HandleBody {
    kind: String,
    #[serde(rename = "type")]
    type_name: String,
    summary: String,
    /// JSON Schema 2020-12 of `settings`.
    settings_schema: Value,
    /// JSON Schema 2020-12 of `outputs`.
    outputs_schema: Value,
    steps: Vec<StepBody>,
    /// Whether `GET /logs` works for the pair.
    logs: bool,
    plugin: String,
    version: String,
    /// `sha256:…` of the plugin's file.
    digest: String,
    health: &'static str,
}

impl From<Result<PlanView, Failed>> for PlanAnswer {
    fn from(outcome: Result<PlanView, Failed>) -> Self {
        match outcome {
            Ok(plan) => Self::Planned(PlannedBody {
                plan_hash: plan.plan_hash,
                changes: plan.changes.into_iter().map(planned).collect(),
                steps: plan.steps.into_iter().map(step).collect(),
            }),
            Err(failed) => Self::Failed(failed.into()),
        }
    }
}

impl From<Result<Vec<Applied>, Failed>> for ApplyAnswer {
    fn from(outcome: Result<Vec<Applied>, Failed>) -> Self {
        match outcome {
            Ok(applied) => {
                Self::Succeeded(SucceededBody { resources: applied.into_iter().map(self::applied).collect() })
            }
            Err(failed) => Self::Failed(failed.into()),
        }
    }
}

impl From<Result<Vec<ObservedView>, Failed>> for InspectAnswer {
    fn from(outcome: Result<Vec<ObservedView>, Failed>) -> Self {
        match outcome {
            Ok(observed) => Self::Inspected(InspectedBody {
                resources: observed.into_iter().map(self::observed).collect(),
            }),
            Err(failed) => Self::Failed(failed.into()),
        }
    }
}

impl From<Failed> for FailedBody {
    fn from(failed: Failed) -> Self {
        let f = failed.failure;
        Self {
            code: f.code,
            reason: f.reason,
            resource: f.resource,
            path: f.path,
            retryable: f.retryable,
            details: f.details,
            resources: failed.applied.into_iter().map(applied).collect(),
            fault_id: failed.fault_id,
        }
    }
}

impl From<Vec<HandleView>> for HandlesBody {
    fn from(handles: Vec<HandleView>) -> Self {
        let one = |h: HandleView| HandleBody {
            kind: h.pair.kind.to_string(),
            type_name: h.pair.type_name.to_string(),
            summary: h.summary,
            settings_schema: h.settings_schema,
            outputs_schema: h.outputs_schema,
            steps: h.steps.into_iter().map(step).collect(),
            logs: h.logs,
            plugin: h.plugin,
            version: h.version,
            digest: h.digest,
            health: h.health,
        };
        Self { handles: handles.into_iter().map(one).collect() }
    }
}

fn planned(p: PlannedView) -> PlannedChange {
    PlannedChange {
        resource: p.resource,
        action: p.action,
        fields: p.fields.into_iter().map(field).collect(),
        warnings: p.warnings,
    }
}

fn field(f: PlannedField) -> FieldBody {
    // A second lock on what the dispatcher promises: nothing of a sensitive field leaves.
    let shown = |v: Option<Value>| v.filter(|_| !f.sensitive);
    FieldBody {
        path: f.change.path,
        before: shown(f.change.before),
        after: shown(f.change.after),
        after_unknown: f.after_unknown,
        sensitive: f.sensitive,
        requires_replace: f.requires_replace,
    }
}

fn step(s: Step) -> StepBody {
    StepBody { name: s.name, title: s.title }
}

fn applied(a: Applied) -> AppliedBody {
    AppliedBody { resource: a.resource, outputs: a.outputs, secret_outputs: a.secret_outputs }
}

fn observed(o: ObservedView) -> ObservedBody {
    ObservedBody {
        resource: o.resource,
        presence: match o.presence {
            Presence::Present => PresenceName::Present,
            Presence::Absent => PresenceName::Absent,
            Presence::Unknown => PresenceName::Unknown,
        },
        settings: o.settings,
        outputs: o.outputs,
        drift: o.drift.into_iter().map(drift).collect(),
        warnings: o.warnings,
    }
}

fn drift(d: Difference) -> DriftBody {
    let class = match d.class {
        DifferenceClass::Drift => ClassName::Drift,
        DifferenceClass::Normalized => ClassName::Normalized,
        DifferenceClass::Missing => ClassName::Missing,
        DifferenceClass::ForeignOwner => ClassName::ForeignOwner,
    };
    DriftBody { path: d.at, expected: d.expected, actual: d.actual, class }
}

/// An answer whose body goes on for as long as there is something to tell.
pub(crate) fn stream(media_type: HeaderValue, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // A proxy that gathers an answer before it sends it on would hold back what is newest.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

/// A JSON answer. Nothing between here and the caller may keep it: it may carry secret outputs.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, headers, bytes).into_response(),
        Err(_) => {
            let broken =
                r#"{"error":{"code":"internal","message":"the answer could not be written as JSON"}}"#;
            (StatusCode::INTERNAL_SERVER_ERROR, headers, broken).into_response()
        }
    }
}
