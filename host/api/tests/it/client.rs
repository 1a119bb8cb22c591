//! Requests to a router, and what comes back.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request as HttpRequest, Response};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::ServiceExt as _;

pub(crate) fn post(path: &str, body: impl Into<Body>) -> HttpRequest<Body> {
    HttpRequest::post(path)
        .header("host", "sutler")
        .header("authorization", "Bearer caller")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

pub(crate) fn get(path: &str) -> HttpRequest<Body> {
    HttpRequest::get(path)
        .header("host", "sutler")
        .header("authorization", "Bearer caller")
        .body(Body::empty())
        .unwrap()
}

/// A body that is fine, with this request id.
pub(crate) fn body(request_id: &str) -> serde_json::Value {
    json!({
        "requestId": request_id, "kind": "deployment", "type": "ksml",
        "application": {"id": "orders", "environment": "prod", "tenant": "acme"},
        "changes": [{"resource": "main", "action": "create", "settings": {"size": "S"}, "previousSettings": null, "previousOutputs": null}]
    })
}

pub(crate) async fn send(router: &Router, request: HttpRequest<Body>) -> Response<Body> {
    tokio::time::timeout(Duration::from_secs(20), router.clone().oneshot(request)).await.unwrap().unwrap()
}

pub(crate) async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Status, the headers that matter, and the body.
pub(crate) async fn shown(response: Response<Body>) -> String {
    let mut out = response.status().as_u16().to_string();
    for name in ["allow", "retry-after", "www-authenticate", "connection", "accept"] {
        if let Some(v) = response.headers().get(name) {
            out.push_str(&format!(" {name}: {}", v.to_str().unwrap()));
        }
    }
    assert!(response.headers().contains_key("x-request-id"), "every answer has X-Request-Id");
    assert!(response.headers().contains_key("traceparent"), "every answer has traceparent");
    format!("{out}\n{}", text(response).await)
}
