//! The peer of a plan: a bare axum handler that parses the same request, checks the same schema, does the plugin's
//! work natively, and renders the same answer. No sandbox, no access check, no metrics.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::post;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sutler_model::{canonical, field_changes};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
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
struct Answer {
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
    pub(crate) fn router(self) -> Router {
        Router::new().route("/plan", post(plan)).with_state(Arc::new(self))
    }
}

async fn plan(State(native): State<Arc<Native>>, body: Bytes) -> impl IntoResponse {
    let answer = match serde_json::from_slice::<Request>(&body) {
        Ok(r) if r.changes.iter().all(|c| native.schema.is_valid(&c.settings)) => {
            serde_json::to_vec(&work(&r))
        }
        _ => serde_json::to_vec(&json!({"outcome": "failed"})),
    };
    ([(header::CONTENT_TYPE, "application/json")], answer.unwrap_or_default())
}

fn work(r: &Request) -> Answer {
    let mut hashed = Vec::new();
    let changes = r
        .changes
        .iter()
        .map(|c| {
            let size = c.settings.get("size").and_then(Value::as_u64).unwrap_or(1).saturating_sub(1);
            let before = json!({"size": size, "zones": ["a"], "owner": null});
            hashed.push(json!([c.resource, c.action, before, c.settings, [], []]));
            let fields = field_changes(Some(&before), Some(&c.settings))
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
            Planned { resource: c.resource.clone(), action: c.action.clone(), fields, warnings: vec![] }
        })
        .collect();
    let text = canonical(&json!([format!("{}/{}", r.kind, r.type_name), r.application, hashed, [], []]));
    let hash = match Hmac::<sha2::Sha256>::new_from_slice(&[7; 32]) {
        Ok(mut m) => {
            m.update(text.as_bytes());
            m.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect()
        }
        Err(_) => String::new(),
    };
    Answer { outcome: "planned", plan_hash: hash, changes, steps: vec![] }
}
