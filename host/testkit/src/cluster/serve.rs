//! The HTTP side: from a path to what it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::emulator::{Cluster, Fault, SeenRequest};
use super::kinds::KindInfo;
use super::proxy::cut;
use super::status::Refusal;
use super::store::Key;
use super::write::{self, Ask};
use super::{discovery, logs, watch};
use crate::net::HangUp;

/// The largest body that an API server takes.
const BODY_LIMIT: usize = 3 << 20;

pub(crate) async fn handle(State(cluster): State<Arc<Cluster>>, request: Request) -> Response {
    let mut response = answer(&cluster, request).await.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().insert("x-sutler-emulator", HeaderValue::from_static("true"));
    response
}

async fn answer(cluster: &Arc<Cluster>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let body = axum::body::to_bytes(body, BODY_LIMIT).await.map_err(|_| {
        Refusal::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    })?;
    let seen = SeenRequest {
        method: parts.method.to_string(),
        path: path.clone(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        user_agent: text(&parts, &header::USER_AGENT),
        authorization: text(&parts, &header::AUTHORIZATION),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let fault = cluster.arrived(seen.clone()).unwrap_or(Fault::None);
    match fault {
        Fault::None | Fault::HoldAnswer | Fault::DropAnswer | Fault::Cut(_) => {}
        Fault::Delay(time) => tokio::time::sleep(time).await,
        Fault::Status(code) => return Err(Refusal::of_code(code)),
        Fault::Forbidden => return Err(Refusal::forbidden(&path)),
        Fault::NoDryRun => return Err(Refusal::no_dry_run()),
        Fault::Drop => {
            let mut response = StatusCode::BAD_GATEWAY.into_response();
            response.extensions_mut().insert(HangUp);
            return Ok(response);
        }
        Fault::Hold => {
            cluster.holds_up();
            return std::future::pending().await;
        }
        Fault::Late(time) => {
            cluster.holds_up();
            let cluster = cluster.clone();
            let served = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                served(&cluster, &parts, body, seen)
            });
            return served.await.unwrap_or_else(|_| Err(Refusal::of_code(500)));
        }
    }
    let response = served(cluster, &parts, body, seen);
    if let Fault::Cut(bytes) = fault {
        return response.map(|r| cut(r, bytes));
    }
    if fault == Fault::DropAnswer {
        let mut response = StatusCode::BAD_GATEWAY.into_response();
        response.extensions_mut().insert(HangUp);
        return Ok(response);
    }
    if fault == Fault::HoldAnswer {
        cluster.holds_up();
        return std::future::pending().await;
    }
    response
}

/// What is asked for happens, and is told nobody but the record.
fn served(cluster: &Cluster, parts: &Parts, body: Bytes, seen: SeenRequest) -> Result<Response, Refusal> {
    let response = routed(cluster, parts, body);
    let status = match &response {
        Ok(r) => r.status().as_u16(),
        Err(refusal) => refusal.code,
    };
    cluster.answered(seen, status);
    response
}

fn routed(cluster: &Cluster, parts: &Parts, body: Bytes) -> Result<Response, Refusal> {
    let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect::<BTreeMap<_, _>>();
    let segments: Vec<String> = parts.uri.path().split('/').filter(|s| !s.is_empty()).map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        other => return about(cluster, &parts.method, other),
    };
    if (group, rest) == ("authorization.k8s.io", &["selfsubjectaccessreviews"]) {
        return review(cluster, &parts.method, &body);
    }
    let (namespace, plural, name, sub) = match rest {
        ["namespaces", name] => ("", "namespaces", Some(*name), None),
        ["namespaces", name, sub @ ("status" | "finalize")] => ("", "namespaces", Some(*name), Some(*sub)),
        ["namespaces", namespace, plural] => (*namespace, *plural, None, None),
        ["namespaces", namespace, plural, name] => (*namespace, *plural, Some(*name), None),
        ["namespaces", namespace, plural, name, sub] => (*namespace, *plural, Some(*name), Some(*sub)),
        [plural] => ("", *plural, None, None),
        [plural, name] => ("", *plural, Some(*name), None),
        [plural, name, sub] => ("", *plural, Some(*name), Some(*sub)),
        _ => return Err(Refusal::no_route()),
    };
    let kind = cluster.store.with(|s| s.by_plural(group, version, plural)).ok_or_else(Refusal::no_route)?;
    if name.is_some() && kind.namespaced && namespace.is_empty() {
        return Err(Refusal::no_route());
    }
    let ask = Ask {
        method: parts.method.clone(),
        kind,
        namespace: namespace.into(),
        name: name.map(str::to_owned),
        sub: sub.map(str::to_owned),
        query,
        content_type: text(parts, &header::CONTENT_TYPE),
        user_agent: text(parts, &header::USER_AGENT),
        body,
    };
    resource(cluster, &ask)
}

fn text(parts: &Parts, name: &header::HeaderName) -> String {
    parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

fn decoded(segment: &str) -> String {
    // A path segment is a form value without the meaning of `+`.
    url::form_urlencoded::parse(format!("s={}", segment.replace('+', "%2B")).as_bytes())
        .next()
        .map(|(_, v)| v.into_owned())
        .unwrap_or_default()
}

/// What is no object: health, version, discovery.
fn about(cluster: &Cluster, method: &Method, segments: &[&str]) -> Result<Response, Refusal> {
    if method != Method::GET {
        return Err(Refusal::method());
    }
    let body = cluster.store.with(|state| match segments {
        ["healthz" | "readyz" | "livez", ..] => Ok(Value::Null),
        ["version"] => Ok(discovery::version()),
        ["api"] => Ok(discovery::core_versions()),
        ["apis"] => Ok(discovery::groups(state)),
        ["apis", group] => discovery::one_group(state, group),
        ["api", version] => discovery::resources(state, "", version),
        ["apis", group, version] => discovery::resources(state, group, version),
        _ => Err(Refusal::no_route()),
    })?;
    Ok(if body.is_null() { "ok".into_response() } else { Json(body).into_response() })
}

fn review(cluster: &Cluster, method: &Method, body: &[u8]) -> Result<Response, Refusal> {
    if method != Method::POST {
        return Err(Refusal::method());
    }
    let mut review: Value = serde_json::from_slice(body).map_err(|e| Refusal::bad_request(e.to_string()))?;
    if !review.is_object() {
        return Err(Refusal::bad_request("the object provided is unrecognized: it is not a JSON object"));
    }
    let asked = &review["spec"]["resourceAttributes"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let (resource, sub) = (text("resource"), text("subresource"));
    let resource = if sub.is_empty() { resource } else { format!("{resource}/{sub}") };
    let allowed = !cluster.denies(&text("verb"), &resource);
    review["apiVersion"] = "authorization.k8s.io/v1".into();
    review["kind"] = "SelfSubjectAccessReview".into();
    review["status"] = json!({"allowed": allowed});
    Ok((StatusCode::CREATED, Json(review)).into_response())
}

fn resource(cluster: &Cluster, ask: &Ask) -> Result<Response, Refusal> {
    if cluster.denies(verb(ask), &resource_name(ask)) {
        return Err(Refusal::forbidden(&format!("{} {:?}", ask.kind.resource(), ask.name)));
    }
    let sub = ask.sub.as_deref();
    match (&ask.method, ask.name.as_deref(), sub) {
        (&Method::GET, Some(name), Some("log")) if ask.kind.is("", "Pod") => log(cluster, ask, name),
        (_, _, Some(sub)) if !(sub == "status" && ask.kind.has_status()) => Err(Refusal::no_route()),
        (&Method::GET, _, _) if ask.flag("watch") => watch::watch(&cluster.store, ask),
        (&Method::GET, None, _) => {
            cluster.store.with(|s| watch::list(s, ask)).map(|l| Json(l).into_response())
        }
        (&Method::GET, Some(name), _) => get(cluster, ask, name).map(|o| Json(o).into_response()),
        (&Method::POST, None, _) if !ask.kind.namespaced || !ask.namespace.is_empty() => {
            written(cluster.store.with(|s| write::create(s, ask)))
        }
        (&Method::PUT, Some(name), _) => written(cluster.store.with(|s| write::replace(s, ask, name))),
        (&Method::PATCH, Some(name), _) => written(cluster.store.with(|s| write::patch(s, ask, name))),
        (&Method::DELETE, Some(name), None) => {
            cluster.store.with(|s| write::delete(s, ask, name)).map(|o| Json(o).into_response())
        }
        (&Method::DELETE, None, _) => delete_all(cluster, ask).map(|o| Json(o).into_response()),
        _ => Err(Refusal::method()),
    }
}

/// The verb that RBAC knows the request by.
fn verb(ask: &Ask) -> &'static str {
    match (&ask.method, &ask.name) {
        (&Method::GET, _) if ask.flag("watch") => "watch",
        (&Method::GET, Some(_)) => "get",
        (&Method::GET, None) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, Some(_)) => "delete",
        _ => "deletecollection",
    }
}

fn resource_name(ask: &Ask) -> String {
    match &ask.sub {
        Some(sub) => format!("{}/{sub}", ask.kind.plural),
        None => ask.kind.plural.clone(),
    }
}

fn written(result: write::Written) -> Result<Response, Refusal> {
    let (object, created) = result?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(object)).into_response())
}

fn get(cluster: &Cluster, ask: &Ask, name: &str) -> Result<Value, Refusal> {
    let key = Key::new(&ask.kind, &ask.namespace, name);
    cluster
        .store
        .with(|s| s.objects.get(&key).map(super::store::Entry::rendered))
        .ok_or_else(|| Refusal::not_found(&ask.kind, name))
}

fn log(cluster: &Cluster, ask: &Ask, name: &str) -> Result<Response, Refusal> {
    let pod = get(cluster, ask, name)?;
    logs::read(&cluster.store, &cluster.logs, ask, &Key::new(&ask.kind, &ask.namespace, name), &pod)
}

fn delete_all(cluster: &Cluster, ask: &Ask) -> Result<Value, Refusal> {
    let kind: Arc<KindInfo> = ask.kind.clone();
    let selector = watch::selector(ask)?;
    cluster.store.with(|state| {
        let selected: Vec<String> = state
            .of_kind(&kind, &ask.namespace)
            .filter(|(_, e)| selector.matches(&e.object))
            .map(|(k, _)| k.name.clone())
            .collect();
        selected.iter().try_for_each(|name| write::delete(state, ask, name).map(drop))
    })?;
    Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
}
