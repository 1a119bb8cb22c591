//! The peer of a plan: a bare axum handler that parses the same request, checks the same schema, does the plugin's
//! work natively, and renders the same answer. No sandbox, no access check, no metrics.

use std::sync::Arc;

use self::pure::{Pure, Settings};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::post;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sutler_model::{canonical, field_changes, hex};
use sutler_sdk::{Pipeline as _, Subject};

/// The source of the plugin that the other side runs.
#[path = "../../testkit/guests/pure/src/lib.rs"]
#[allow(unreachable_pub, reason = "there it is a crate of its own")]
mod pure;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Request {
    #[serde(rename = "requestId")]
    _request_id: String,
    kind: String,
    #[serde(rename = "type")]
    type_name: String,
    application: Application,
    changes: Vec<Change>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Application {
    id: String,
    environment: String,
    tenant: Option<String>,
    instance: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    resource: String,
    action: String,
    settings: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    outcome: &'static str,
    plan_hash: String,
    changes: Vec<Planned>,
    steps: Vec<String>,
}

#[derive(Serialize)]
struct Planned {
    resource: String,
    action: String,
    fields: Vec<Field>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Field {
    path: String,
    before: Option<Value>,
    after: Option<Value>,
    after_unknown: bool,
    sensitive: bool,
    requires_replace: bool,
}

pub(crate) struct Native {
    schema: jsonschema::Validator,
}

impl Native {
    pub(crate) const fn new(schema: jsonschema::Validator) -> Self {
        Self { schema }
    }
    pub(crate) fn parse(body: &[u8]) -> serde_json::Result<Request> {
        serde_json::from_slice(body)
    }
    /// Check and work; `None` where the settings break the schema.
    pub(crate) fn plan(&self, r: &Request) -> Option<Answer> {
        r.changes.iter().all(|c| self.schema.is_valid(&c.settings)).then(|| work(r)).flatten()
    }
    pub(crate) fn router(self) -> Router {
        Router::new().route("/plan", post(plan)).with_state(Arc::new(self))
    }
}

async fn plan(State(native): State<Arc<Native>>, body: Bytes) -> impl IntoResponse {
    let answer = match Native::parse(&body).ok().and_then(|r| native.plan(&r)) {
        Some(answer) => serde_json::to_vec(&answer),
        None => serde_json::to_vec(&json!({"outcome": "failed"})),
    };
    ([(header::CONTENT_TYPE, "application/json")], answer.unwrap_or_default())
}

/// The plugin's own code, compiled for this machine, and what the host makes of its proposal.
fn work(r: &Request) -> Option<Answer> {
    let mut hashed = Vec::new();
    let mut changes = Vec::new();
    for c in &r.changes {
        let planned = Pure::plan(&subject(r, c)?).ok()?;
        let (before, after) = (planned.before.as_ref(), planned.after.as_ref());
        hashed.push(json!([c.resource, c.action, before, after, planned.unknown, planned.replace_because]));
        let fields = field_changes(before, after)
            .into_iter()
            .map(|f| Field {
                path: f.path,
                before: f.before,
                after: f.after,
                after_unknown: false,
                sensitive: false,
                requires_replace: false,
            })
            .collect();
        let (resource, action) = (c.resource.clone(), c.action.clone());
        changes.push(Planned { resource, action, fields, warnings: planned.warnings });
    }
    let text = canonical(&json!([format!("{}/{}", r.kind, r.type_name), r.application, hashed, [], []]));
    let mut m = Hmac::<sha2::Sha256>::new_from_slice(&[7; 32]).ok()?;
    m.update(text.as_bytes());
    let plan_hash = hex(&m.finalize().into_bytes());
    Some(Answer { outcome: "planned", plan_hash, changes, steps: vec![] })
}

fn subject(r: &Request, c: &Change) -> Option<Subject<Settings>> {
    let a = &r.application;
    Some(Subject {
        application: sutler_sdk::Application {
            id: a.id.clone(),
            environment: a.environment.clone(),
            tenant: a.tenant.clone(),
            instance: a.instance.clone(),
        },
        pair: Pure::PAIR,
        resource: c.resource.clone(),
        action: sutler_sdk::Action::Update,
        wanted: Some(Settings::deserialize(&c.settings).ok()?),
        believed: None,
        wanted_json: Some(c.settings.clone()),
        believed_json: None,
        believed_outputs: None,
        marked: false,
    })
}
