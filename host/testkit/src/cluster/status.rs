//! Refusals, in the form that Kubernetes gives them (meta/v1 Status).

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::kinds::KindInfo;

/// An answer that is not a success.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn no_route() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn not_found(kind: &KindInfo, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.resource()))
            .with(details(kind, name))
    }

    pub(crate) fn already_exists(kind: &KindInfo, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.resource()))
            .with(details(kind, name))
    }

    /// The object is not the one that the caller saw.
    pub(crate) fn stale(kind: &KindInfo, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes \
             to the latest version and try again",
            kind.resource()
        );
        Self::new(409, "Conflict", message).with(details(kind, name))
    }

    pub(crate) fn precondition(kind: &KindInfo, name: &str, what: &str, asked: &str, found: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: Precondition failed: {what} in precondition: {asked}, \
             {what} in object meta: {found}",
            kind.resource()
        );
        Self::new(409, "Conflict", message).with(details(kind, name))
    }

    /// Server-side apply met fields of other managers: (what the manager is, field).
    pub(crate) fn managers(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": field})
            })
            .collect();
        let list: Vec<String> = conflicts.iter().map(|(m, f)| format!("conflict with {m}: {f}")).collect();
        let plural = if list.len() == 1 { "" } else { "s" };
        let message = format!("Apply failed with {} conflict{plural}: {}", list.len(), list.join("; "));
        Self::new(409, "Conflict", message).with(json!({"causes": causes}))
    }

    /// (reason, field, message) for each cause.
    pub(crate) fn invalid(kind: &KindInfo, name: &str, causes: &[(&str, &str, String)]) -> Self {
        let text: Vec<String> =
            causes.iter().map(|(_, field, message)| format!("{field}: {message}")).collect();
        let qualified =
            if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut all = json!({"name": name, "group": kind.group, "kind": kind.kind});
        all["causes"] = causes
            .iter()
            .map(|(reason, field, message)| json!({"reason": reason, "field": field, "message": message}))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {}", text.join(", "))).with(all)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn method() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn forbidden(what: &str) -> Self {
        let message = format!("{what} is forbidden: User \"emulator\" cannot do this");
        Self::new(403, "Forbidden", message)
    }

    pub(crate) fn gone() -> Self {
        Self::new(410, "Expired", "The resourceVersion for the provided watch is too old.")
    }

    pub(crate) fn no_dry_run() -> Self {
        Self::bad_request("admission webhook \"audit.example\" does not support dry run")
    }

    /// The Status of any code, as a test asked for it.
    pub(crate) fn of_code(code: u16) -> Self {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden by the test"),
            409 => ("Conflict", "a conflict asked for by the test"),
            410 => ("Expired", "the provided continue parameter is too old"),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            500 => ("InternalError", "an error on the server asked for by the test"),
            503 => ("ServiceUnavailable", "apiserver is shutting down"),
            504 => ("Timeout", "the server was unable to return a response in the time allotted"),
            _ => ("Unknown", "an answer asked for by the test"),
        };
        Self::new(code, reason, message)
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        if matches!(self.code, 429 | 503) {
            body["details"]["retryAfterSeconds"] = json!(1);
        }
        body
    }
}

fn details(kind: &KindInfo, name: &str) -> Value {
    json!({"name": name, "group": kind.group, "kind": kind.plural})
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (code, Json(self.body())).into_response();
        if matches!(self.code, 429 | 503) {
            response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
        }
        response
    }
}
