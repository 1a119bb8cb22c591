//! The API server's Status objects as errors.

use serde_json::Value;

use crate::{Error, FieldConflict, FixedField};

const MESSAGE: usize = 300;
/// Server-side apply of what the kind does not allow is an internal error to the API server.
const UNTYPED: [&str; 2] = ["failed to create typed patch object (", "failed to convert new object ("];

/// The error that an answer of the API server stands for. `body` is a Status object, or anything else that came.
pub fn error_of(http_status: u16, body: &[u8]) -> Error {
    let status: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let text = |key: &str| status.get(key).and_then(Value::as_str).unwrap_or_default();
    let (reason, message) = (text("reason"), text("message"));
    let secret = is_secret(&status);
    match http_status {
        404 => not_found(&status, message),
        409 if reason == "AlreadyExists" => Error::AlreadyExists,
        409 => Error::Conflict(conflicts(&status)),
        401 => Error::Forbidden("the host's credentials for this cluster are not accepted".into()),
        403 => Error::Forbidden(short(message)),
        400 | 413 | 415 | 422 => invalid(&status, message, secret),
        410 => {
            Error::other("expired", "the continue token or resource version is too old; list from the start")
        }
        405 => Error::other(
            "not-supported",
            format!("the API server does not support this on that kind: {}", short(message)),
        ),
        500 if UNTYPED.iter().any(|u| message.starts_with(u)) => invalid(&status, untyped(message), secret),
        408 | 429 | 500.. => {
            Error::Unavailable(format!("the API server answered {http_status} ({})", word(reason)))
        }
        _ => Error::other(
            "unexpected-answer",
            format!("the API server answered {http_status} ({})", word(reason)),
        ),
    }
}

/// `failed to create typed patch object (ns/name; apps/v1, Kind=Deployment): .spec.x: field not declared in schema`.
fn untyped(message: &str) -> &str {
    let field = message.split_once(')').map_or(message, |(_, field)| field);
    field.trim_start_matches(" to proper version").trim_start_matches(": ")
}

/// What an API server says of a path that it does not serve, where it says it in a Status.
const NO_PATH: &str = "the server could not find the requested resource";

/// A 404 for a path that the API server does not serve names no object.
fn not_found(status: &Value, message: &str) -> Error {
    let named = status.pointer("/details/name").is_some();
    if !named && (status.get("kind").is_none() || message == NO_PATH) {
        return Error::other("not-served", "the API server does not serve this path");
    }
    Error::NotFound
}

fn causes(status: &Value) -> impl Iterator<Item = (&str, &str, &str)> {
    status.pointer("/details/causes").and_then(Value::as_array).into_iter().flatten().map(|c| {
        let text = |key: &str| c.get(key).and_then(Value::as_str).unwrap_or_default();
        (text("reason"), text("field"), text("message"))
    })
}

fn conflicts(status: &Value) -> Vec<FieldConflict> {
    let fields: Vec<FieldConflict> = causes(status)
        .filter(|(reason, ..)| *reason == "FieldManagerConflict")
        .map(|(_, field, message)| FieldConflict { field: short(field), manager: manager_of(message) })
        .collect();
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    if fields.is_empty() && message.to_ascii_lowercase().contains("uid") {
        return vec![other_object()];
    }
    fields
}

/// The object under that name is not the one that was meant.
pub(crate) fn other_object() -> FieldConflict {
    FieldConflict { field: "metadata.uid".into(), manager: String::new() }
}

/// `conflict with "helm" using apps/v1` and `conflict with "kubectl" with subresource "status" using v1`.
fn manager_of(message: &str) -> String {
    message.split('"').nth(1).map(short).unwrap_or_default()
}

/// What the API server says of an admission webhook that has effects of its own.
const NO_DRY_RUN: &str = "does not support dry run";
/// What it says of fields that cannot change.
const FIXED: [&str; 4] =
    ["is immutable", "may not change once set", "cannot change roleRef", "may not change fields other than"];

/// `updates to statefulset spec for fields other than 'replicas', 'ordinals' and 'template' are forbidden`.
fn fixed(field: &str, message: &str) -> Option<FixedField> {
    let updates = message.contains("updates to ") && message.contains("forbidden");
    if !updates && !FIXED.iter().any(|f| message.contains(f)) {
        return None;
    }
    let (_, rest) = message.split_once("other than").unwrap_or_default();
    let except = rest.split('\'').skip(1).step_by(2).map(str::to_owned).collect();
    Some(FixedField { field: field.to_owned(), except })
}

fn invalid(status: &Value, message: &str, secret: bool) -> Error {
    if message.contains(NO_DRY_RUN) && causes(status).next().is_none() {
        return Error::other("no-dry-run", short(message));
    }
    let (mut fields, mut immutable) = (Vec::new(), Vec::new());
    for (reason, field, message) in causes(status) {
        if field == "metadata.uid" {
            return Error::Conflict(vec![other_object()]);
        }
        immutable.extend(fixed(field, message));
        // A field error quotes the value; of a Secret only the place may be told.
        fields.push(if secret {
            format!("{field}: {reason}")
        } else {
            format!("{field}: {}", short(message))
        });
    }
    if !fields.is_empty() {
        let message = format!("the API server refuses the object: {}", fields.join("; "));
        if immutable.is_empty() {
            return Error::Invalid(message);
        }
        return Error::Immutable { message, fields: immutable };
    }
    if secret {
        return Error::Invalid("the API server cannot accept this Secret".into());
    }
    // Decoding errors quote the body after these words.
    let head = message.split("error found in #").next().unwrap_or_default();
    Error::Invalid(format!("the API server refuses the request: {}", short(head)))
}

fn is_secret(status: &Value) -> bool {
    let kind = status.pointer("/details/kind").and_then(Value::as_str).unwrap_or_default();
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    kind.eq_ignore_ascii_case("secret") || kind.eq_ignore_ascii_case("secrets") || message.contains("Secret")
}

fn word(reason: &str) -> &str {
    if reason.is_empty() || !reason.bytes().all(|b| b.is_ascii_alphanumeric()) {
        "no reason given"
    } else {
        reason
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(code: u16, status: Value) -> Error {
        error_of(code, status.to_string().as_bytes())
    }

    #[test]
    fn recorded_answers() {
        let status = |code: u16, reason: &str, message: &str, details: Value| {
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                   "message": message, "reason": reason, "details": details, "code": code})
        };
        for (code, body, want) in [
            (404, status(404, "NotFound", "configmaps \"x\" not found", json!({"name": "x", "kind": "configmaps"})), Error::NotFound),
            (409, status(409, "AlreadyExists", "configmaps \"x\" already exists", json!({"name": "x", "kind": "configmaps"})), Error::AlreadyExists),
            (
                409,
                status(409, "Conflict", "Apply failed with 2 conflicts", json!({"causes": [
                    {"reason": "FieldManagerConflict", "message": "conflict with \"helm\" using apps/v1", "field": ".spec.replicas"},
                    {"reason": "FieldManagerConflict", "message": "conflict with \"kube-controller\" with subresource \"status\" using v1", "field": ".status.x"},
                ]})),
                Error::Conflict(vec![
                    FieldConflict { field: ".spec.replicas".into(), manager: "helm".into() },
                    FieldConflict { field: ".status.x".into(), manager: "kube-controller".into() },
                ]),
            ),
            (
                409,
                status(409, "Conflict", "Operation cannot be fulfilled on configmaps \"x\": Precondition failed: UID in precondition: a, UID in object meta: b", json!({"name": "x", "kind": "configmaps"})),
                Error::Conflict(vec![FieldConflict { field: "metadata.uid".into(), manager: String::new() }]),
            ),
            (409, status(409, "Conflict", "the object has been modified", json!({"name": "x"})), Error::Conflict(vec![])),
            (403, status(403, "Forbidden", "pods is forbidden: User \"u\" cannot list", json!({"kind": "pods"})), Error::Forbidden("pods is forbidden: User \"u\" cannot list".into())),
            (
                422,
                status(422, "Invalid", "Deployment is invalid", json!({"kind": "Deployment", "causes": [
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"}]})),
                Error::Invalid("the API server refuses the object: spec.selector: Required value".into()),
            ),
            (
                422,
                status(422, "Invalid", "Secret is invalid", json!({"kind": "Secret", "causes": [
                    {"reason": "FieldValueInvalid", "message": "Invalid value: \"hunter2\"", "field": "data[pw]"}]})),
                Error::Invalid("the API server refuses the object: data[pw]: FieldValueInvalid".into()),
            ),
            (
                400,
                status(400, "BadRequest", "ConfigMap in version \"v1\" cannot be handled: json: error found in #10 byte of ...|hunter2|...", json!({})),
                Error::Invalid("the API server refuses the request: ConfigMap in version \"v1\" cannot be handled: json: ".into()),
            ),
            (
                422,
                status(422, "Invalid", "StatefulSet is invalid", json!({"kind": "StatefulSet", "causes": [
                    {"reason": "FieldValueForbidden", "field": "spec",
                     "message": "Forbidden: updates to statefulset spec for fields other than 'replicas', 'template' are forbidden"}]})),
                Error::Immutable {
                    message: "the API server refuses the object: spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'template' are forbidden".into(),
                    fields: vec![FixedField { field: "spec".into(), except: vec!["replicas".into(), "template".into()] }],
                },
            ),
            (
                422,
                status(422, "Invalid", "Secret is invalid", json!({"kind": "Secret", "causes": [
                    {"reason": "FieldValueInvalid", "message": "Invalid value: \"hunter2\": field is immutable", "field": "type"}]})),
                Error::Immutable {
                    message: "the API server refuses the object: type: FieldValueInvalid".into(),
                    fields: vec![FixedField { field: "type".into(), except: vec![] }],
                },
            ),
            (
                400,
                status(400, "BadRequest", "admission webhook \"audit.example\" does not support dry run", json!({})),
                Error::other("no-dry-run", "admission webhook \"audit.example\" does not support dry run"),
            ),
            (404, status(404, "NotFound", "the server could not find the requested resource", json!({})), Error::other("not-served", "the API server does not serve this path")),
            (
                422,
                status(422, "Invalid", "x", json!({"kind": "ConfigMap", "causes": [
                    {"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]})),
                Error::Conflict(vec![FieldConflict { field: "metadata.uid".into(), manager: String::new() }]),
            ),
            (
                500,
                status(500, "", "failed to create typed patch object (a/x; /v1, Kind=ConfigMap): .dataa: field not declared in schema", json!({})),
                Error::Invalid("the API server refuses the request: .dataa: field not declared in schema".into()),
            ),
            (
                500,
                status(500, "", "failed to create typed patch object (a/x; /v1, Kind=Secret): .data.k: expected string, got &value.valueUnstructured{Value:1234}", json!({})),
                Error::Invalid("the API server cannot accept this Secret".into()),
            ),
            (
                500,
                status(500, "", "failed to convert new object (a/x; /v1, Kind=Pod) to proper version: quantities must match", json!({})),
                Error::Invalid("the API server refuses the request: quantities must match".into()),
            ),
            (500, status(500, "InternalError", "etcd is gone", json!({})), Error::Unavailable("the API server answered 500 (InternalError)".into())),
            (429, status(429, "TooManyRequests", "slow down", json!({})), Error::Unavailable("the API server answered 429 (TooManyRequests)".into())),
            (503, json!("upstream connect error"), Error::Unavailable("the API server answered 503 (no reason given)".into())),
        ] {
            assert_eq!(of(code, body.clone()), want, "{body}");
        }
        for (message, lacks) in [
            ("configmaps \"m\" is forbidden: User \"u\" cannot patch resource \"configmaps\"", true),
            ("pods \"x\" is forbidden: exceeded quota: q", false),
        ] {
            assert_eq!(of(403, status(403, "Forbidden", message, json!({}))).lacks_right(), lacks);
        }
        assert!(matches!(error_of(404, b"404 page not found"), Error::Other { code: "not-served", .. }));
    }
}
