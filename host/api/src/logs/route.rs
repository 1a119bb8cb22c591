//! The route: from a query to a stream that ends when its client goes away or the host stops.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures::FutureExt as _;
use futures::stream::{BoxStream, Fuse, StreamExt as _};
use sutler_dispatch::Failed;
use sutler_logs::LogLine;
use sutler_model::RequestId;
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

use super::query::LogsQuery;
use super::render::{Form, Renderer};
use crate::answer;
use crate::extract::{CallerOf, TicketOf};
use crate::in_flight::Ticket;
use crate::openapi::CallErrors;
use crate::refusal::{ErrorBody, Refusal};
use crate::request::KindName;
use crate::state::Api;

/// How often an event stream shows that it lives, so that no balancer cuts it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Lines that are ready are sent together, about so many bytes.
const TOGETHER: usize = 32 << 10;

/// Stream the logs of an application.
///
/// Text lines begin with `[pod/container] ` unless both `pod` and `container` are given. What was lost is told: a
/// line `--- gap: … ---`, an item `{"gap":{…}}`, or an event `gap`; a stream that this host cuts ends with `end`.
/// Event ids are `pod/container/time/count` and stay the same after a reconnect with `Last-Event-ID`, which reads
/// the last 10 seconds again: drop ids that you have.
#[utoipa::path(get, path = "/logs", tag = "provisioner",
    params(
        ("kind" = KindName, Query, description = "Of the pair"),
        ("type" = String, Query, description = "Of the pair"),
        ("application" = String, Query, description = "Its id"),
        ("environment" = String, Query, description = "Of the application"),
        ("tenant" = Option<String>, Query, description = "Of the application"),
        ("instance" = Option<String>, Query, description = "Of the application"),
        ("resource" = Option<String>, Query, description = "The resource, `main` when left out; may be repeated"),
        ("follow" = Option<bool>, Query, description = "Go on with lines as they come"),
        ("previous" = Option<bool>, Query, description = "The containers before their last restart"),
        ("container" = Option<String>, Query, description = "Only this container"),
        ("pod" = Option<String>, Query, description = "Only this pod"),
        ("sinceSeconds" = Option<u64>, Query, description = "Only lines this young; not together with sinceTime"),
        ("sinceTime" = Option<String>, Query, description = "Only lines since then (RFC 3339); not together with sinceSeconds"),
        ("tailLines" = Option<u64>, Query, description = "At most this many of the last lines, per container"),
        ("limitBytes" = Option<u64>, Query, description = "End after this many bytes, per container; the last line may be cut"),
        ("timestamps" = Option<bool>, Query, description = "Begin text lines with their time"),
        ("Last-Event-ID" = Option<String>, Header, description = "Where an event stream goes on"),
    ),
    responses(
        (status = 200, description = "The lines", content(
            (String = "text/plain"), (String = "application/x-ndjson"), (String = "text/event-stream"))),
        (status = 422, description = "The plugin cannot say where the logs are, and asking again changes nothing; \
            `path` points into the resource's settings", body = ErrorBody),
        CallErrors))]
pub(crate) async fn logs(
    State(api): State<Api>,
    caller: CallerOf,
    TicketOf(ticket): TicketOf,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let form = Form::of(&headers)?;
    let last = headers.get("last-event-id").filter(|_| form == Form::Events).and_then(|v| v.to_str().ok());
    let mut query = LogsQuery::parse(&query.unwrap_or_default(), last, api.inner.config.unknown_fields)?;
    caller.admit(&mut query.application).map_err(Refusal::in_query)?;
    let id = RequestId::parse(ticket.request_id()).map_err(|_| Refusal::internal(ticket.request_id()))?;
    let renderer = Renderer::new(form, !query.one_source(), query.timestamps);
    let lines = api.inner.provisioner.logs(query.inquiry(id), query.options).await?.map_err(refused)?;
    let keep_alive = (form == Form::Events).then_some(KEEP_ALIVE);
    let streaming = Streaming::new(lines, renderer, keep_alive, api.inner.stopping.clone(), ticket);
    let body = Body::from_stream(futures::stream::unfold(streaming, Streaming::next));
    Ok(answer::stream(form.media_type(), body))
}

/// A stream has no outcome to put a failure in, so it becomes a status.
fn refused(failed: Failed) -> Refusal {
    let f = failed.failure;
    match f.code.as_str() {
        "pair-not-handled" => Refusal::new(StatusCode::NOT_FOUND, f.code, f.reason),
        "not-granted" => Refusal::new(StatusCode::FORBIDDEN, f.code, f.reason),
        _ if f.retryable => Refusal::unavailable(f.code, f.reason, 5),
        _ => {
            let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, f.code, f.reason);
            match f.path {
                Some(path) => refusal.at(path),
                None => refusal,
            }
        }
    }
}

struct Streaming {
    lines: Fuse<BoxStream<'static, LogLine>>,
    renderer: Renderer,
    keep_alive: Option<Interval>,
    stopping: CancellationToken,
    ended: bool,
    written: Written,
}

/// Writes an event when the stream is over, however that came.
struct Written {
    ticket: Arc<Ticket>,
    started: Instant,
    items: u64,
    bytes: u64,
}

impl Drop for Written {
    fn drop(&mut self) {
        let (request_id, caller) = (&**self.ticket.request_id(), self.ticket.caller().map(|c| &**c));
        let duration_ms = self.started.elapsed().as_secs_f64() * 1000.0;
        tracing::info!(
            event = "logs-end",
            request_id,
            caller,
            items = self.items,
            bytes = self.bytes,
            duration_ms
        );
    }
}

impl Streaming {
    fn new(
        lines: BoxStream<'static, LogLine>,
        renderer: Renderer,
        keep_alive: Option<Duration>,
        stopping: CancellationToken,
        ticket: Arc<Ticket>,
    ) -> Self {
        let keep_alive = keep_alive.map(|d| tokio::time::interval_at(tokio::time::Instant::now() + d, d));
        let written = Written { ticket, started: Instant::now(), items: 0, bytes: 0 };
        Self { lines: lines.fuse(), renderer, keep_alive, stopping, ended: false, written }
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.ended {
            return None;
        }
        let bytes = tokio::select! {
            biased;
            () = self.stopping.cancelled() => {
                self.ended = true;
                self.renderer.end("this host is stopping; ask again with sinceTime")
            }
            item = self.lines.next() => self.together(item?),
            () = tick(&mut self.keep_alive) => b": keep-alive\n\n".to_vec(),
        };
        self.written.bytes += bytes.len() as u64;
        Some((Ok(bytes.into()), self))
    }

    /// A line, and those after it that are ready.
    fn together(&mut self, first: LogLine) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let mut next = Some(first);
        while let Some(item) = next.take() {
            self.renderer.write(&item, &mut out);
            self.written.items += 1;
            if out.len() < TOGETHER {
                next = self.lines.next().now_or_never().flatten();
            }
        }
        out
    }
}

async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::InFlight;

    #[tokio::test]
    async fn a_quiet_event_stream_shows_that_it_lives() {
        let ticket = Arc::new(InFlight::default()).enter("GET", "/logs", "r-1".into(), None);
        let quiet = futures::stream::pending().boxed();
        let renderer = Renderer::new(Form::Events, true, false);
        let pause = Duration::from_millis(20);
        let mut streaming = Streaming::new(quiet, renderer, Some(pause), CancellationToken::new(), ticket);
        let began = Instant::now();
        for _ in 0..2 {
            let (bytes, rest) = streaming.next().await.unwrap();
            assert_eq!(bytes.unwrap(), ": keep-alive\n\n");
            streaming = rest;
        }
        assert!(began.elapsed() >= pause * 2);
    }
}
