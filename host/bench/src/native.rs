//! The peer of a plan: a bare axum handler that parses the same request, checks the same schema, does the plugin's
//! work natively, and renders the same answer. No access check, no metrics, and no sandbox, or a bare one.

use std::sync::Arc;

use self::pure::{Pure, Settings};
use crate::floor::Floor;
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
    pub(crate) request_id: String,
    kind: String,
    #[serde(rename = "type")]
    pub(crate) type_name: String,
    pub(crate) application: Application,
    pub(crate) changes: Vec<Change>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Application {
    pub(crate) id: String,
    pub(crate) environment: String,
    pub(crate) tenant: Option<String>,
    pub(crate) instance: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) resource: String,
    action: String,
    pub(crate) settings: Value,
}

/// What a plugin says of one change, wherever it ran.
pub(crate) struct Outcome {
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) unknown: Vec<String>,
    pub(crate) replace_because: Vec<String>,
    pub(crate) warnings: Vec<String>,
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

/// Where the plugin's code runs.
pub(crate) enum Place {
    /// Compiled for this machine, in the handler.
    Here,
    /// As the component, in a fresh bare sandbox.
    Sandbox(Floor),
}

pub(crate) struct Native {
    schema: jsonschema::Validator,
    place: Place,
}

impl Native {
    pub(crate) const fn new(schema: jsonschema::Validator, place: Place) -> Self {
        Self { schema, place }
    }
    pub(crate) fn parse(body: &[u8]) -> serde_json::Result<Request> {
        serde_json::from_slice(body)
    }
    /// Check and work; `None` where the settings break the schema, or the plugin fails.
    pub(crate) async fn plan(&self, r: &Request) -> Option<Answer> {
        if !r.changes.iter().all(|c| self.schema.is_valid(&c.settings)) {
            return None;
        }
        let outcomes = match &self.place {
            Place::Here => r.changes.iter().map(|c| here(r, c)).collect::<Option<_>>()?,
            Place::Sandbox(floor) => floor.plan(r).await.ok()?,
        };
        answer(r, outcomes)
    }
    pub(crate) fn router(self) -> Router {
        Router::new().route("/plan", post(plan)).with_state(Arc::new(self))
    }
}

async fn plan(State(native): State<Arc<Native>>, body: Bytes) -> impl IntoResponse {
    let answer = match Native::parse(&body) {
        Ok(r) => native.plan(&r).await,
        Err(_) => None,
    };
    let answer = match answer {
        Some(answer) => serde_json::to_vec(&answer),
        None => serde_json::to_vec(&json!({"outcome": "failed"})),
    };
    ([(header::CONTENT_TYPE, "application/json")], answer.unwrap_or_default())
}

/// The plugin's own code, compiled for this machine.
fn here(r: &Request, c: &Change) -> Option<Outcome> {
    let p = Pure::plan(&subject(r, c)?).ok()?;
    Some(Outcome {
        before: p.before,
        after: p.after,
        unknown: p.unknown,
        replace_because: p.replace_because,
        warnings: p.warnings,
    })
}

/// What the host makes of a proposal.
fn answer(r: &Request, outcomes: Vec<Outcome>) -> Option<Answer> {
    let mut hashed = Vec::new();
    let mut changes = Vec::new();
    for (c, planned) in r.changes.iter().zip(outcomes) {
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
