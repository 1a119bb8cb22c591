//! Around every route: request id, trace, limit of concurrent requests, log, metrics, and what a panic becomes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use sutler_model::RequestId;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;
use uuid::Uuid;

use crate::in_flight::Ticket;
use crate::refusal::Refusal;
use crate::router::INSTANCE;
use crate::share::Counted;
use crate::state::Api;
use crate::trace::Trace;

/// Every route's template: what logs and metrics say, so that no path of a client becomes a label.
pub(crate) const ROUTES: [&str; 17] = [
    "/audit",
    "/plan",
    "/apply",
    "/inspect",
    "/operations",
    "/operations/{id}",
    "/operations/{id}/events",
    "/handles",
    "/logs",
    "/healthz",
    "/readyz",
    "/readyz/{kind}/{type}",
    "/openapi.json",
    "/plugins",
    "/plugins/{name}/faults",
    "/plugins/reload",
    "/metrics",
];

pub(crate) async fn edge(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let (method, route) = (method_name(request.method()), route_name(&api, &request));
    let request_id = request_id(request.headers());
    let trace = Trace::of(request.headers());
    let span = tracing::info_span!(
        "request",
        trace_id = format_args!("{:032x}", trace.trace_id),
        span_id = format_args!("{:016x}", trace.span_id),
        parent_span_id = trace.parent_id.map(|p| tracing::field::display(format!("{p:016x}"))),
        request_id = &*request_id,
    );
    let http1 = request.version() <= Version::HTTP_11;
    let mut response = match admit(&api, route) {
        Err(refusal) => {
            let ticket = api.inner.in_flight.enter(method, route, request_id.clone(), None);
            let response = refusal.into_response();
            Record::start(method, route, ticket, &span).finish(&response);
            response
        }
        Ok(permit) => {
            let ticket = api.inner.in_flight.enter(method, route, request_id.clone(), permit);
            request.extensions_mut().insert(ticket.clone());
            let record = Record::start(method, route, ticket, &span);
            let answered = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
            let response = answered.unwrap_or_else(|_| {
                // The panic's own text may hold data; the panic hook has written it to the operator already.
                span.in_scope(|| tracing::error!(event = "panic", method, route));
                Refusal::internal(&request_id).into_response()
            });
            record.finish(&response);
            response
        }
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        headers.insert("x-request-id", value);
    }
    if let Ok(value) = HeaderValue::try_from(trace.to_string()) {
        headers.insert("traceparent", value);
    }
    if http1 && api.inner.stopping.is_cancelled() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The caller's `X-Request-Id` where it is one, otherwise a new one.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let mut values = headers.get_all("x-request-id").iter();
    let given = values.next().filter(|_| values.next().is_none()).and_then(|v| v.to_str().ok());
    match given.filter(|g| RequestId::parse(g).is_ok()) {
        Some(given) => given.into(),
        None => format!("req_{}", Uuid::new_v4().simple()).into(),
    }
}

/// # Errors
/// 503 before any work, where the limit is reached.
fn admit(api: &Api, route: &str) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
    let Some(counted) = Counted::of(route) else { return Ok(None) };
    let (limit, max) = match counted {
        Counted::Requests => (&api.inner.requests, api.inner.config.max_concurrent_requests),
        Counted::Streams => (&api.inner.streams, api.inner.config.max_log_streams),
        Counted::Events => (&api.inner.event_streams, api.inner.config.max_event_streams),
    };
    limit.clone().try_acquire_owned().map(Some).map_err(|_| {
        let what = counted.as_str();
        Refusal::overloaded(format!("this host is at its limit of {max} {what} at once"))
    })
}

/// Writes one event and two metrics for a request, also where its client goes away before the answer.
struct Record {
    method: &'static str,
    route: &'static str,
    started: Instant,
    ticket: Arc<Ticket>,
    span: tracing::Span,
    written: bool,
}

impl Record {
    fn start(method: &'static str, route: &'static str, ticket: Arc<Ticket>, span: &tracing::Span) -> Self {
        Self { method, route, started: Instant::now(), ticket, span: span.clone(), written: false }
    }

    fn finish(mut self, response: &Response) {
        self.write(response.status().as_u16());
    }

    fn write(&mut self, status: u16) {
        self.written = true;
        let elapsed = self.started.elapsed();
        let (method, route) = (self.method, self.route);
        let labels = [("method", method), ("route", route), ("status", status_name(status))];
        metrics::counter!("sutler_http_requests_total", &labels).increment(1);
        metrics::histogram!("sutler_http_request_duration_seconds", &labels).record(elapsed.as_secs_f64());
        let duration_ms = elapsed.as_secs_f64() * 1000.0;
        let (request_id, caller) = (&**self.ticket.request_id(), self.ticket.caller().map(|c| &**c));
        self.span.in_scope(|| {
            tracing::info!(event = "request", method, route, status, duration_ms, request_id, caller);
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.written {
            // nginx's word for a client that closed the connection.
            self.write(499);
        }
    }
}

pub(crate) fn describe_metrics() {
    metrics::describe_counter!(
        "sutler_http_requests_total",
        "Requests by method, route and status; 499: the client went away."
    );
    metrics::describe_histogram!(
        "sutler_http_request_duration_seconds",
        metrics::Unit::Seconds,
        "Time until the answer's headers."
    );
    metrics::describe_gauge!("sutler_http_requests_in_flight", "Requests and streams that run now.");
}

fn route_name(api: &Api, request: &Request) -> &'static str {
    let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
    let matched = matched.strip_prefix(api.inner.config.base_path.as_str()).unwrap_or(matched);
    let template = |path: &str| ROUTES.into_iter().find(|r| *r == path);
    let of_instance = |base: &str| matched.strip_prefix(base).and_then(template);
    // Whose routes they are is no part of the name: a label tells nothing of instances.
    template(matched)
        .or_else(|| of_instance(INSTANCE))
        .or_else(|| api.inner.config.instances.values().find_map(|base| of_instance(base)))
        .unwrap_or("unmatched")
}

fn method_name(method: &Method) -> &'static str {
    const NAMES: [&str; 7] = ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"];
    NAMES.into_iter().find(|n| *n == method.as_str()).unwrap_or("other")
}

fn status_name(status: u16) -> &'static str {
    match status {
        200 => "200",
        202 => "202",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        406 => "406",
        408 => "408",
        409 => "409",
        413 => "413",
        415 => "415",
        499 => "499",
        500 => "500",
        503 => "503",
        _ => "other",
    }
}
