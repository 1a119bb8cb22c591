//! The operators' routes: plugins, their faults, reload, metrics. They are on the admin listener only.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use sutler_dispatch::PluginView;
use sutler_model::Fault;
use utoipa::ToSchema;

use crate::answer::json;
use crate::body::is_json;
use crate::extract::{OperatorCalls, PathOf};
use crate::openapi::CallErrors;
use crate::refusal::Refusal;
use crate::state::Api;

/// What each file of the plugin folder came to.
#[derive(Serialize, ToSchema)]
pub(crate) struct PluginsBody {
    plugins: Vec<PluginBody>,
}

#[derive(Serialize, ToSchema)]
struct PluginBody {
    name: String,
    /// `loaded`, `refused`, `broken`.
    state: &'static str,
    /// Why it is not loaded, or why its newest file is not the one that serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    pairs: Vec<PairBody>,
    faults: u64,
}

#[derive(Serialize, ToSchema)]
struct PairBody {
    kind: String,
    #[serde(rename = "type")]
    type_name: String,
}

/// The newest faults of one plugin, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct FaultsBody {
    faults: Vec<FaultBody>,
}

#[derive(Serialize, ToSchema)]
struct FaultBody {
    /// What the caller saw as `faultId`.
    id: String,
    kind: &'static str,
    plugin: String,
    export: String,
    message: String,
    frames: Vec<String>,
}

/// The plugins, with what is wrong with those that do not serve.
#[utoipa::path(get, path = "/plugins", tag = "admin",
    responses((status = 200, description = "The plugins", body = PluginsBody), CallErrors))]
pub(crate) async fn plugins(State(api): State<Api>, _: OperatorCalls) -> Response {
    json(StatusCode::OK, &body(api.inner.provisioner.plugins()))
}

/// What went wrong inside a plugin.
#[utoipa::path(get, path = "/plugins/{name}/faults", tag = "admin", params(("name" = String, Path, description = "The plugin")),
    responses((status = 200, description = "The newest faults, newest first", body = FaultsBody), CallErrors))]
pub(crate) async fn faults(
    State(api): State<Api>,
    _: OperatorCalls,
    PathOf(name): PathOf<String>,
) -> Result<Response, Refusal> {
    let faults = api.inner.provisioner.faults(&name);
    let faults =
        faults.ok_or_else(|| Refusal::not_found("there is no such plugin; GET /plugins lists them"))?;
    let one = |f: Fault| FaultBody {
        id: f.id,
        kind: f.kind.as_str(),
        plugin: f.plugin,
        export: f.export,
        message: f.message,
        frames: f.frames,
    };
    Ok(json(StatusCode::OK, &FaultsBody { faults: faults.into_iter().map(one).collect() }))
}

/// Read the plugin folder again.
#[utoipa::path(post, path = "/plugins/reload", tag = "admin",
    responses((status = 200, description = "What each file came to", body = PluginsBody), CallErrors))]
pub(crate) async fn reload(
    State(api): State<Api>,
    OperatorCalls(operator): OperatorCalls,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    // It takes no body. A form of a browser page would come with a media type that is not JSON.
    if headers.get(header::CONTENT_TYPE).is_some_and(|v| !v.to_str().is_ok_and(is_json)) {
        let message = "send no body, or Content-Type: application/json";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", message));
    }
    let provisioner = api.inner.provisioner.clone();
    // A task of its own: half a reload would be worse than one nobody waits for.
    let joined = tokio::spawn(async move { provisioner.reload(operator.name).await }).await;
    let plugins = joined.map_err(|_| Refusal::internal("of this reload"))??;
    Ok(json(StatusCode::OK, &body(plugins)))
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "admin",
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain"), CallErrors))]
pub(crate) async fn metrics(State(api): State<Api>, _: OperatorCalls) -> Result<Response, Refusal> {
    let handle =
        api.inner.metrics.as_ref().ok_or_else(|| Refusal::not_found("this host keeps no metrics"))?;
    #[allow(clippy::cast_precision_loss, reason = "a count of requests is far below 2^52")]
    metrics::gauge!("sutler_http_requests_in_flight").set(api.inner.in_flight.len() as f64);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render())
        .into_response())
}

fn body(plugins: Vec<PluginView>) -> PluginsBody {
    let pair =
        |p: sutler_model::Pair| PairBody { kind: p.kind.to_string(), type_name: p.type_name.to_string() };
    let one = |p: PluginView| PluginBody {
        name: p.name,
        state: p.state,
        reason: p.reason,
        version: p.version,
        digest: p.digest,
        pairs: p.pairs.into_iter().map(pair).collect(),
        faults: p.faults,
    };
    PluginsBody { plugins: plugins.into_iter().map(one).collect() }
}
