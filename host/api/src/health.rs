//! What the host serves, and whether it can.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use sutler_dispatch::HandleView;
use sutler_model::Pair;
use utoipa::ToSchema;

use crate::answer::{HandlesBody, json};
use crate::extract::{CallerOf, PathOf};
use crate::openapi::CallErrors;
use crate::refusal::{ErrorBody, Refusal};
use crate::state::Api;

/// Whether the host, or one pair, can work.
#[derive(Serialize, ToSchema)]
pub(crate) struct HealthBody {
    /// `ok` or `not-ready`.
    status: &'static str,
    /// What is not ready, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
    /// With `?verbose`: every pair.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<PairHealth>,
}

#[derive(Serialize, ToSchema)]
struct PairHealth {
    kind: String,
    #[serde(rename = "type")]
    type_name: String,
    health: &'static str,
}

/// The pairs that this host serves.
#[utoipa::path(get, path = "/handles", tag = "provisioner",
    responses((status = 200, description = "The pairs, with schemas, plugin, version, digest and health", body = HandlesBody), CallErrors))]
pub(crate) async fn handles(State(api): State<Api>, _: CallerOf) -> Response {
    let mut handles = api.inner.provisioner.handles();
    handles.sort_by(|a, b| a.pair.cmp(&b.pair));
    json(StatusCode::OK, &HandlesBody::from(handles))
}

/// Whether the process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "It does", body = HealthBody)))]
pub(crate) async fn healthz() -> Response {
    json(StatusCode::OK, &HealthBody { status: "ok", reasons: Vec::new(), pairs: Vec::new() })
}

/// Whether the host can take work.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    params(("verbose" = Option<String>, Query, description = "Show every pair")),
    responses((status = 200, description = "It can", body = HealthBody), (status = 503, description = "It cannot yet, or no longer", body = HealthBody)))]
pub(crate) async fn readyz(State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    let mut reasons = api.inner.provisioner.not_ready();
    if api.inner.stopping.is_cancelled() {
        reasons.push("this host is stopping".into());
    }
    let verbose =
        query.is_some_and(|q| url::form_urlencoded::parse(q.as_bytes()).any(|(k, _)| k == "verbose"));
    let mut pairs: Vec<PairHealth> =
        if verbose { api.inner.provisioner.handles().iter().map(pair_health).collect() } else { Vec::new() };
    pairs.sort_by(|a, b| (&a.kind, &a.type_name).cmp(&(&b.kind, &b.type_name)));
    answer(reasons, pairs)
}

/// Whether one pair can take work.
#[utoipa::path(get, path = "/readyz/{kind}/{type}", tag = "health", security(()),
    params(("kind" = String, Path, description = "deployment, for example"), ("type" = String, Path, description = "ksml, for example")),
    responses((status = 200, description = "It can", body = HealthBody), (status = 404, description = "This host does not serve the pair", body = ErrorBody),
        (status = 503, description = "It cannot", body = HealthBody)))]
pub(crate) async fn readyz_pair(
    State(api): State<Api>,
    PathOf((kind, type_name)): PathOf<(String, String)>,
) -> Result<Response, Refusal> {
    let pair: Pair = format!("{kind}/{type_name}").parse().map_err(|e| Refusal::not_found(format!("{e}")))?;
    let handles = api.inner.provisioner.handles();
    let handle = handles.iter().find(|h| h.pair == pair);
    let handle = handle.ok_or_else(|| Refusal::not_found(format!("this host does not serve {pair}")))?;
    let mut reasons = Vec::new();
    if !SERVES.contains(&handle.health) {
        reasons.push(format!("plugin {} of {pair} is {}", handle.plugin, handle.health));
    }
    if api.inner.stopping.is_cancelled() {
        reasons.push("this host is stopping".into());
    }
    Ok(answer(reasons, vec![pair_health(handle)]))
}

/// Words of `health` with which a pair takes work; `outdated`: its newest file is refused, the former one serves.
const SERVES: [&str; 2] = ["healthy", "outdated"];

fn pair_health(h: &HandleView) -> PairHealth {
    PairHealth { kind: h.pair.kind.to_string(), type_name: h.pair.type_name.to_string(), health: h.health }
}

fn answer(reasons: Vec<String>, pairs: Vec<PairHealth>) -> Response {
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &HealthBody { status: if ready { "ok" } else { "not-ready" }, reasons, pairs })
}
