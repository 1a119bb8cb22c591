//! `GET /operations`, `/operations/{id}` and its events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use sutler_dispatch::{Asker, CallError, EventView, OperationFilter, OperationView};
use sutler_model::{Identifier, Kind, Pair};
use utoipa::{IntoParams, ToSchema};

use crate::answer::{self, ApplyAnswer, json};
use crate::extract::{CallerOf, PathOf, TicketOf};
use crate::in_flight::Ticket;
use crate::openapi::CallErrors;
use crate::refusal::Refusal;
use crate::state::Api;

/// Entries of one page, at most and by default.
pub(crate) const PAGE: (u32, u32) = (200, 50);
/// How often a stream looks for new events.
const LOOK: Duration = Duration::from_secs(1);
/// How often a quiet stream shows that it lives.
const KEEP_ALIVE: u32 = 15;
/// Events of one look.
const BATCH: u32 = 500;

/// What `POST /apply` answers where the work goes on.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AcceptedBody {
    pub(crate) operation_id: String,
}

/// An operation: `running` with its progress, or `done` with what `POST /apply` would have answered.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub(crate) enum OperationAnswer {
    Running(RunningBody),
    Done(DoneBody),
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunningBody {
    operation_id: String,
    progress: ProgressBody,
    /// Worth asking again after so long.
    retry_after_seconds: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DoneBody {
    operation_id: String,
    #[serde(flatten)]
    answer: ApplyAnswer,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ProgressBody {
    /// Empty for pairs without steps.
    step: String,
    title: String,
    /// Of the pair's steps, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    total: usize,
    /// What is being waited for.
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// 1 for the first try of the step.
    attempt: u32,
    /// Whether the work is being taken back.
    cancelling: bool,
}

/// The caller's operations, the newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationsBody {
    operations: Vec<OperationLine>,
    /// For `before`, where there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OperationLine {
    operation_id: String,
    /// `queued`, `running`, `completed`, `failed` or `cancelled`.
    status: &'static str,
    kind: String,
    #[serde(rename = "type")]
    type_name: String,
    instance: Option<String>,
    tenant: Option<String>,
    application: String,
    environment: String,
    resources: Vec<String>,
    request_id: String,
    progress: ProgressBody,
    /// The failure's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// RFC 3339
    created_at: String,
    updated_at: String,
}

/// Which operations are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// `queued`, `running`, `completed`, `failed` or `cancelled`.
    #[param(inline)]
    status: Option<StatusName>,
    /// Of the pair; together with `type`.
    #[param(value_type = Option<String>)]
    kind: Option<Kind>,
    /// Of the pair; together with `kind`.
    #[serde(rename = "type")]
    type_name: Option<String>,
    /// Under an instance's base path it is that one.
    #[param(value_type = Option<String>)]
    instance: Option<Identifier>,
    #[param(value_type = Option<String>)]
    tenant: Option<Identifier>,
    #[param(value_type = Option<String>)]
    application: Option<Identifier>,
    #[param(value_type = Option<String>)]
    environment: Option<Identifier>,
    /// Only operations older than this one: the `next` of the page before.
    before: Option<String>,
    /// At most 200; 50 when left out.
    limit: Option<u32>,
}

#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum StatusName {
    Queued,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl StatusName {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The caller's own operations, the newest first.
#[utoipa::path(get, path = "/operations", tag = "provisioner", params(ListQuery),
    responses((status = 200, description = "One page", body = OperationsBody), CallErrors))]
pub(crate) async fn list(State(api): State<Api>, caller: CallerOf, uri: Uri) -> Result<Response, Refusal> {
    let Query(mut q) = Query::<ListQuery>::try_from_uri(&uri)
        .map_err(|e| Refusal::bad_body(format!("the query is not valid: {}", cause(&e))))?;
    let limit = q.limit.unwrap_or(PAGE.1).clamp(1, PAGE.0);
    let pair = match (q.kind, q.type_name) {
        (Some(kind), Some(name)) => Some(Pair::new(kind, name.parse().map_err(invalid)?)),
        (None, None) => None,
        _ => return Err(Refusal::bad_body("a pair is kind and type; give both or none")),
    };
    caller.instance_of_route(&mut q.instance).map_err(Refusal::in_query)?;
    let filter = OperationFilter {
        status: q.status.map(|s| s.as_str().into()),
        pair,
        instance: q.instance.as_ref().map(ToString::to_string),
        tenant: q.tenant.as_ref().map(ToString::to_string),
        application: q.application.as_ref().map(ToString::to_string),
        environment: q.environment.as_ref().map(ToString::to_string),
        before: q.before,
        limit,
    };
    let found = api.inner.provisioner.operations(caller.asker(), filter).await?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|o| o.id.clone());
    let operations = found.into_iter().map(OperationLine::from).collect();
    Ok(json(StatusCode::OK, &OperationsBody { operations, next }))
}

pub(crate) fn cause(e: &dyn std::error::Error) -> String {
    e.source().map_or_else(|| e.to_string(), cause)
}

fn invalid(e: sutler_model::InvalidName) -> Refusal {
    Refusal::bad_body(e.to_string())
}

/// How the work goes that was accepted.
#[utoipa::path(get, path = "/operations/{id}", tag = "provisioner",
    params(("id" = String, Path, description = "What POST /apply answered")),
    responses((status = 200, description = "Its progress or its final answer", body = OperationAnswer), CallErrors))]
pub(crate) async fn one(
    State(api): State<Api>,
    caller: CallerOf,
    PathOf(params): PathOf<Params>,
) -> Result<Response, Refusal> {
    let o = api.inner.provisioner.operation(caller.asker(), params.id).await?;
    let answer = OperationAnswer::from(o);
    let mut response = json(StatusCode::OK, &answer);
    if let OperationAnswer::Running(r) = &answer {
        response.headers_mut().insert(header::RETRY_AFTER, r.retry_after_seconds.into());
    }
    Ok(response)
}

/// The route's parameters; `instance` is looked at by the caller's check.
#[derive(Deserialize)]
pub(crate) struct Params {
    id: String,
}

/// What happened to an operation, as server-sent events that end with the operation.
///
/// Event ids count from 1; with `Last-Event-ID` the stream goes on after that one.
#[utoipa::path(get, path = "/operations/{id}/events", tag = "provisioner",
    params(("id" = String, Path, description = "What POST /apply answered"),
        ("after" = Option<u64>, Query, description = "Only events after this id, where no Last-Event-ID is sent"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was received")),
    responses((status = 200, description = "The events", content((String = "text/event-stream"))), CallErrors))]
pub(crate) async fn events(
    State(api): State<Api>,
    caller: CallerOf,
    TicketOf(ticket): TicketOf,
    PathOf(params): PathOf<Params>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()).map(str::to_owned);
    let query = query.unwrap_or_default();
    let asked = last.or_else(|| query.strip_prefix("after=").map(str::to_owned));
    let after = match asked {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            Refusal::bad_body("the last event's id is not a number; send one that was received")
        })?,
    };
    let mut stream = Events {
        api,
        asker: caller.asker(),
        id: params.id,
        after,
        quiet: 0,
        first: None,
        over: false,
        _ticket: ticket,
    };
    // What is not there is a 404, not a stream.
    stream.first = Some(stream.look().await?);
    let body = Body::from_stream(futures::stream::unfold(stream, Events::next));
    Ok(answer::stream(HeaderValue::from_static("text/event-stream"), body))
}

type Look = (Vec<EventView>, bool);

struct Events {
    api: Api,
    asker: Asker,
    id: String,
    after: u64,
    /// Looks without an event since something was sent.
    quiet: u32,
    first: Option<Look>,
    over: bool,
    _ticket: Arc<Ticket>,
}

impl Events {
    async fn look(&self) -> Result<Look, CallError> {
        let (asker, id) = (self.asker.clone(), self.id.clone());
        self.api.inner.provisioner.operation_events(asker, id, self.after, BATCH).await
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let stopping = self.api.inner.stopping.clone();
        while !self.over {
            let look = match self.first.take() {
                Some(look) => Ok(look),
                None => self.look().await,
            };
            // A ledger that is away for a while ends no stream.
            let (events, ended) = look.unwrap_or_default();
            let more = events.len() == BATCH as usize;
            self.over = ended && !more;
            if !events.is_empty() {
                self.quiet = 0;
                self.after = events.last().map_or(self.after, |e| e.seq);
                return Some((Ok(written(&events).into()), self));
            }
            if self.over {
                return None;
            }
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep(LOOK) => self.quiet += 1,
            }
            if self.quiet >= KEEP_ALIVE {
                self.quiet = 0;
                return Some((Ok(Bytes::from_static(b": keep-alive\n\n")), self));
            }
        }
        None
    }
}

fn written(events: &[EventView]) -> String {
    use std::fmt::Write as _;
    events.iter().fold(String::new(), |mut out, e| {
        // Writing into memory cannot fail.
        let _ = write!(out, "id: {}\nevent: {}\ndata: {}\n\n", e.seq, e.name, e.data);
        out
    })
}

impl From<OperationView> for OperationAnswer {
    fn from(o: OperationView) -> Self {
        match o.answer {
            Some(answer) => Self::Done(DoneBody { operation_id: o.id, answer: answer.into() }),
            None => Self::Running(RunningBody {
                retry_after_seconds: seconds(o.retry_after),
                operation_id: o.id,
                progress: progress(o.progress, o.cancelling),
            }),
        }
    }
}

impl From<OperationView> for OperationLine {
    fn from(o: OperationView) -> Self {
        let code = match o.answer {
            Some(Err(failed)) => Some(failed.failure.code),
            _ => None,
        };
        Self {
            operation_id: o.id,
            status: o.status,
            kind: o.pair.kind.to_string(),
            type_name: o.pair.type_name.to_string(),
            instance: o.application.instance.as_ref().map(ToString::to_string),
            tenant: o.application.tenant.as_ref().map(ToString::to_string),
            application: o.application.id.to_string(),
            environment: o.application.environment.to_string(),
            resources: o.resources.iter().map(ToString::to_string).collect(),
            request_id: o.request_id,
            progress: progress(o.progress, o.cancelling),
            code,
            created_at: time(o.created),
            updated_at: time(o.updated),
        }
    }
}

fn progress(p: sutler_dispatch::ProgressView, cancelling: bool) -> ProgressBody {
    ProgressBody {
        step: p.step,
        title: p.title,
        index: p.index,
        total: p.total,
        message: p.message,
        attempt: p.attempt,
        cancelling,
    }
}

/// Whole seconds, at least one.
pub(crate) fn seconds(d: Duration) -> u64 {
    d.as_millis().div_ceil(1000).max(1).try_into().unwrap_or(u64::MAX)
}

pub(crate) fn time(millis: i64) -> String {
    let time = chrono::DateTime::from_timestamp_millis(millis).unwrap_or_default();
    time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
