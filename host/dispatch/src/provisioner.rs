//! What the HTTP side sees of the rest of the host.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;
use sutler_ledger::{Audit, AuditFilter};
use sutler_logs::{LogLine, StreamOptions};
use sutler_model::{
    Action, Application, Applied, Difference, Failure, Fault, FieldChange, Identifier, Inquiry, OverQuota,
    Pair, Presence, Request, Step,
};

/// A planned change as the caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedView {
    pub resource: Identifier,
    pub action: Action,
    pub fields: Vec<PlannedField>,
    pub warnings: Vec<String>,
}

/// One field of a planned change. A `sensitive` field has neither before nor after.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedField {
    pub change: FieldChange,
    pub after_unknown: bool,
    pub sensitive: bool,
    pub requires_replace: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlanView {
    /// HMAC-SHA-256 in hex over what the plan says, keyed by the host.
    pub plan_hash: String,
    pub changes: Vec<PlannedView>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ObservedView {
    pub resource: Identifier,
    pub presence: Presence,
    pub settings: Option<Value>,
    pub outputs: Option<Value>,
    /// The host's comparison and the plugin's own differences, one a path.
    pub drift: Vec<Difference>,
    pub warnings: Vec<String>,
}

/// The work failed (HTTP 200), with what was reached before.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    pub failure: Failure,
    pub applied: Vec<Applied>,
    /// Set where a fault is behind it; the caller may name it to the operator.
    pub fault_id: Option<String>,
}

/// What an apply came to within its call.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Done(Vec<Applied>),
    /// The work goes on; `GET /operations/{id}` tells.
    Accepted {
        id: String,
        retry_after: Duration,
    },
}

/// An operation as its caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationView {
    pub id: String,
    /// `queued`, `running`, `completed`, `failed`, `cancelled`.
    pub status: &'static str,
    /// Whether it is being taken back.
    pub cancelling: bool,
    pub pair: Pair,
    pub application: Application,
    pub resources: Vec<Identifier>,
    /// The caller's name for the call that made it.
    pub request_id: String,
    pub progress: ProgressView,
    pub retry_after: Duration,
    /// Once it is final.
    pub answer: Option<Result<Vec<Applied>, Failed>>,
    /// Milliseconds since 1970.
    pub created: i64,
    pub updated: i64,
}

/// Where an operation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressView {
    /// Empty before the first step, and for pairs without steps.
    pub step: String,
    pub title: String,
    /// Of the pair's steps, counted from 0; `None` where the step is none of them.
    pub index: Option<usize>,
    pub total: usize,
    /// What the plugin says that it waits for.
    pub message: String,
    /// 1 for the first try of the step.
    pub attempt: u32,
}

/// One entry of an operation's history: the event's name and its fields.
#[derive(Debug, Clone, PartialEq)]
pub struct EventView {
    /// From 1, without gaps.
    pub seq: u64,
    pub name: &'static str,
    pub data: Value,
}

/// Who asks for operations: a caller sees its own, and under the routes of an instance only that instance's.
#[derive(Debug, Clone)]
pub struct Asker {
    /// The name of the token.
    pub caller: Arc<str>,
    /// Of the route.
    pub instance: Option<Identifier>,
}

/// Which operations a list shows; those of the caller, the newest first.
#[derive(Debug, Clone, Default)]
pub struct OperationFilter {
    pub status: Option<String>,
    pub pair: Option<Pair>,
    pub instance: Option<String>,
    pub tenant: Option<String>,
    pub application: Option<String>,
    pub environment: Option<String>,
    /// Older than this one.
    pub before: Option<String>,
    pub limit: u32,
}

/// The call itself broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// 409: `request-id-reused`, `operation-running` or `superseded`, with the operation that is in the way.
    #[error("{message}")]
    Conflict { code: &'static str, operation: String, message: String, retry_after: Option<Duration> },
    /// 403: it would take more than a quota leaves.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// 503: the plugin's or the host's limit of concurrent calls is reached.
    #[error("{what} is at its limit of {limit} calls at once; try again in {retry_after_seconds} s")]
    Overloaded { what: String, limit: usize, retry_after_seconds: u32 },
    /// 503: the host is stopping.
    #[error("this host is stopping; try another one")]
    Stopping,
    /// 404: logs of something that no plugin can locate.
    #[error("{0}")]
    NotFound(String),
    /// 403
    #[error("{0}")]
    Forbidden(String),
    /// 503 with Retry-After.
    #[error("{0}")]
    Unavailable(String),
}

/// The answer of a working call, or why the work failed.
pub type Outcome<T> = Result<Result<T, Failed>, CallError>;

/// One pair that this host serves, for `GET /handles`.
#[derive(Debug, Clone, PartialEq)]
pub struct HandleView {
    pub pair: Pair,
    pub summary: String,
    pub settings_schema: Value,
    pub outputs_schema: Value,
    pub steps: Vec<Step>,
    pub logs: bool,
    pub plugin: String,
    pub version: String,
    /// `sha256:…` of the plugin's file.
    pub digest: String,
    pub health: &'static str,
}

/// One file of the plugin folder, for `GET /plugins`.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginView {
    pub name: String,
    /// `loaded`, `refused`, `broken`.
    pub state: &'static str,
    /// Why it is not loaded, or why its newest file is not the one that serves.
    pub reason: Option<String>,
    pub version: Option<String>,
    pub digest: Option<String>,
    pub pairs: Vec<Pair>,
    pub faults: u64,
}

/// The host behind the API. One implementation serves; tests of the API bring their own.
pub trait Provisioner: Send + Sync + 'static {
    fn plan(&self, request: Request) -> BoxFuture<'_, Outcome<PlanView>>;
    /// `caller`: the name of the token; with the request id, what a repeat is recognised by. `plan_hash`: what the
    /// caller saw planned; the work fails `plan-stale` where it no longer holds.
    fn apply(
        &self,
        caller: Arc<str>,
        request: Request,
        plan_hash: Option<String>,
    ) -> BoxFuture<'_, Outcome<Work>>;
    fn operation(&self, asker: Asker, id: String) -> BoxFuture<'_, Result<OperationView, CallError>>;
    fn operations(
        &self,
        asker: Asker,
        filter: OperationFilter,
    ) -> BoxFuture<'_, Result<Vec<OperationView>, CallError>>;
    /// Its events after `after`, at most `limit`, and whether it is final.
    fn operation_events(
        &self,
        asker: Asker,
        id: String,
        after: u64,
        limit: u32,
    ) -> BoxFuture<'_, Result<(Vec<EventView>, bool), CallError>>;
    fn inspect(&self, inquiry: Inquiry) -> BoxFuture<'_, Outcome<Vec<ObservedView>>>;
    fn logs(
        &self,
        inquiry: Inquiry,
        options: StreamOptions,
    ) -> BoxFuture<'_, Outcome<BoxStream<'static, LogLine>>>;
    fn handles(&self) -> Vec<HandleView>;
    fn plugins(&self) -> Vec<PluginView>;
    /// The newest faults of a plugin, newest first; `None` for an unknown one.
    fn faults(&self, plugin: &str) -> Option<Vec<Fault>>;
    /// Which changes were asked for, by whom; the newest first.
    fn audit(&self, filter: AuditFilter) -> BoxFuture<'_, Result<Vec<Audit>, CallError>>;
    /// Reads the plugin folder again, for an operator, and answers what each file came to.
    fn reload(&self, operator: Arc<str>) -> BoxFuture<'_, Result<Vec<PluginView>, CallError>>;
    /// What is not ready yet, in words; empty when all is.
    fn not_ready(&self) -> Vec<String>;
    /// Marks a pair that the control plane gave to somebody else (409 `pair-taken`): answered `pair-not-handled`.
    fn lose_pair(&self, pair: &Pair);
}
