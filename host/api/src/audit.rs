//! `GET /audit`: which changes were asked for, by whom.

use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::DateTime;
use serde::{Deserialize, Serialize};
use sutler_access::Scope;
use sutler_dispatch::{Audit, AuditFilter, InvalidAuditPlace, InvalidJobId, Millis, Names};
use sutler_model::Identifier;
use utoipa::{IntoParams, ToSchema};

use crate::answer::json;
use crate::extract::{CallerOf, OperatorCalls};
use crate::openapi::CallErrors;
use crate::operations::{PAGE, cause, time};
use crate::refusal::Refusal;
use crate::state::Api;

/// Changes that were asked for, the newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditBody {
    entries: Vec<AuditEntry>,
    /// For `before`, where there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// One change. It has names only: no settings, outputs or secrets.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AuditEntry {
    /// For `before`; no other entry has the same. With several hosts, one may come to stand before entries that were
    /// read already: who reads on and on asks for some seconds again.
    place: String,
    /// RFC 3339
    at: String,
    /// The caller's or operator's name.
    actor: String,
    /// `create`, `update`, `replace` or `delete` of a resource, `retry` or `cancel` of an operation, `reload` of a host.
    action: String,
    /// `KIND/TYPE` of a resource, `operation` or `host`.
    resource_type: String,
    resource_id: String,
    instance: Option<String>,
    tenant: Option<String>,
    environment: Option<String>,
    application: Option<String>,
    operation_id: Option<String>,
    /// The caller's name for its call.
    request_id: Option<String>,
}

/// Which changes are listed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    actor: Option<String>,
    action: Option<String>,
    /// `KIND/TYPE`, `operation` or `host`.
    resource_type: Option<String>,
    resource_id: Option<String>,
    /// Under an instance's base path it is that one.
    #[param(value_type = Option<String>)]
    instance: Option<Identifier>,
    tenant: Option<String>,
    environment: Option<String>,
    application: Option<String>,
    operation_id: Option<String>,
    /// RFC 3339, not before.
    from: Option<String>,
    /// RFC 3339, before.
    to: Option<String>,
    /// Only changes older than this place: the `next` of the page before.
    before: Option<String>,
    /// At most 200; 50 when left out.
    limit: Option<u32>,
}

/// What was asked for in the caller's tenants and instances, by anybody.
#[utoipa::path(get, path = "/audit", tag = "provisioner", params(AuditQuery),
    responses((status = 200, description = "One page", body = AuditBody), CallErrors))]
pub(crate) async fn audit(State(api): State<Api>, caller: CallerOf, uri: Uri) -> Result<Response, Refusal> {
    caller.caller().may_audit()?;
    let mut query = parse(&uri)?;
    caller.instance_of_route(&mut query.instance).map_err(Refusal::in_query)?;
    if let Some(instance) = &query.instance {
        caller.caller().allows_instance(Some(instance)).map_err(|e| Refusal::from(e).in_query())?;
    }
    let instances = names(&caller.caller().instances);
    let Some(tenants) = caller.caller().tenants_in(query.instance.as_ref()) else {
        return Ok(json(StatusCode::OK, &AuditBody { entries: Vec::new(), next: None }));
    };
    let tenants = names(&tenants);
    page(&api, AuditFilter { instances, tenants, of_applications: true, ..query.filter()? }).await
}

/// What was asked for by callers, and what operators did.
#[utoipa::path(get, path = "/audit", tag = "admin", params(AuditQuery),
    responses((status = 200, description = "One page", body = AuditBody), CallErrors))]
pub(crate) async fn audit_all(
    State(api): State<Api>,
    OperatorCalls(operator): OperatorCalls,
    uri: Uri,
) -> Result<Response, Refusal> {
    operator.may_audit()?;
    page(&api, parse(&uri)?.filter()?).await
}

fn parse(uri: &Uri) -> Result<AuditQuery, Refusal> {
    let Query(query) = Query::try_from_uri(uri)
        .map_err(|e| Refusal::bad_body(format!("the query is not valid: {}", cause(&e))))?;
    Ok(query)
}

fn names(scope: &Scope) -> Names {
    match scope {
        Scope::All => Names::All,
        Scope::Only(names) => Names::Only(names.iter().map(ToString::to_string).collect()),
    }
}

impl AuditQuery {
    fn filter(self) -> Result<AuditFilter, Refusal> {
        let wrong = |e: InvalidJobId| Refusal::invalid("?operationId", e.to_string());
        let operation = self.operation_id.map(|id| id.parse()).transpose().map_err(wrong)?;
        let no_place = |e: InvalidAuditPlace| Refusal::invalid("?before", e.to_string());
        let filter = AuditFilter {
            actor: self.actor,
            action: self.action,
            resource_type: self.resource_type,
            resource_id: self.resource_id,
            instance: self.instance.map(|i| i.to_string()),
            tenant: self.tenant,
            environment: self.environment,
            application: self.application,
            operation,
            from: self.from.map(|t| moment("?from", &t)).transpose()?,
            to: self.to.map(|t| moment("?to", &t)).transpose()?,
            before: self.before.map(|b| b.parse()).transpose().map_err(no_place)?,
            limit: self.limit.unwrap_or(PAGE.1).clamp(1, PAGE.0),
            ..AuditFilter::default()
        };
        filter.check().map_err(|(field, why)| Refusal::invalid(format!("?{field}"), why))?;
        Ok(filter)
    }
}

fn moment(at: &'static str, text: &str) -> Result<Millis, Refusal> {
    let wrong = |e| {
        let shown: String = text.chars().take(40).collect();
        Refusal::invalid(
            at,
            format!("{shown:?} is no time ({e}); write one as 2026-01-31T12:00:00Z (RFC 3339)"),
        )
    };
    DateTime::parse_from_rfc3339(text).map(|t| Millis(t.timestamp_millis())).map_err(wrong)
}

async fn page(api: &Api, filter: AuditFilter) -> Result<Response, Refusal> {
    let limit = filter.limit as usize;
    let found = api.inner.provisioner.audit(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|row| row.place().to_string());
    let entries = found.into_iter().map(AuditEntry::from).collect();
    Ok(json(StatusCode::OK, &AuditBody { entries, next }))
}

impl From<Audit> for AuditEntry {
    fn from(row: Audit) -> Self {
        let a = row.application.as_ref();
        let text = |i: &Identifier| i.to_string();
        Self {
            place: row.place().to_string(),
            at: time(row.at.0),
            actor: row.actor,
            action: row.action,
            resource_type: row.resource_type,
            resource_id: row.resource_id,
            instance: a.and_then(|a| a.instance.as_ref()).map(text),
            tenant: a.and_then(|a| a.tenant.as_ref()).map(text),
            environment: a.map(|a| text(&a.environment)),
            application: a.map(|a| text(&a.id)),
            operation_id: row.operation.map(|id| id.to_string()),
            request_id: row.request_id,
        }
    }
}
