//! The call broke: a status, a code, words, and where in the body.

use std::borrow::Cow;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sutler_access::{Denied, NoAudit, Refused};
use sutler_dispatch::CallError;
use sutler_model::OverQuota;
use utoipa::ToSchema;

use crate::answer::json;
use crate::operations;

/// The body of every answer to a call that broke.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Debug, Serialize, ToSchema)]
struct ErrorDetail {
    /// Kebab-case and stable: branch on it.
    #[schema(example = "invalid-request")]
    code: Cow<'static, str>,
    /// For a person: what is wrong and what to do.
    message: String,
    /// JSON Pointer into the request's body, where there is one; `?name` for a query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "/changes/0/action")]
    path: Option<String>,
    /// The operation that is in the way.
    #[serde(rename = "operationId", skip_serializing_if = "Option::is_none")]
    operation_id: Option<String>,
    /// The quota that is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<QuotaBody>,
}

/// A quota that leaves less than was asked for.
#[derive(Debug, Serialize, ToSchema)]
struct QuotaBody {
    /// Whose it is: `instance` or `tenant`.
    of: &'static str,
    /// `applications`, `milli-cpus` or `memory-mib`.
    measure: &'static str,
    used: u64,
    /// More than is used by now.
    asked: u64,
    limit: u64,
}

impl From<OverQuota> for QuotaBody {
    fn from(o: OverQuota) -> Self {
        let (of, measure) = (o.of.as_str(), o.measure.as_str());
        Self { of, measure, used: o.used, asked: o.asked, limit: o.limit }
    }
}

#[derive(Debug)]
pub(crate) struct Refusal(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    body: ErrorDetail,
    header: Option<(HeaderName, HeaderValue)>,
    close: bool,
}

impl Refusal {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        let (code, message) = (code.into(), message.into());
        let body = ErrorDetail { code, message, path: None, operation_id: None, quota: None };
        Self(Box::new(Parts { status, body, header: None, close: false }))
    }

    /// 400 at a place of the body.
    pub(crate) fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-request", message).at(path)
    }

    /// 400 of the body as a whole.
    pub(crate) fn bad_body(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-request", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", message)
    }

    pub(crate) fn unavailable(
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
        after: u32,
    ) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
            .with(header::RETRY_AFTER, HeaderValue::from(after))
    }

    /// 503 of a limit that is reached, worth another try at once.
    pub(crate) fn overloaded(limit: impl std::fmt::Display) -> Self {
        Self::unavailable("overloaded", format!("{limit}; try again in 1 s"), 1)
    }

    pub(crate) fn internal(request_id: &str) -> Self {
        let message = format!(
            "this host broke while it answered; its operator finds the reason in the log under request {request_id}"
        );
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn at(mut self, path: impl Into<String>) -> Self {
        self.0.body.path = Some(path.into());
        self
    }

    pub(crate) fn about(mut self, operation: impl Into<String>) -> Self {
        self.0.body.operation_id = Some(operation.into());
        self
    }

    /// The same of a field that stood in the query and not in a body.
    pub(crate) fn in_query(mut self) -> Self {
        let path = self.0.body.path.take();
        self.0.body.path = path.and_then(|p| p.rsplit('/').next().map(|name| format!("?{name}")));
        self
    }

    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// The rest of the body is not worth reading.
    pub(crate) fn closing(mut self) -> Self {
        self.0.close = true;
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Parts { status, body, header, close } = *self.0;
        let mut response = json(status, &ErrorBody { error: body });
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        if close {
            response.headers_mut().insert(axum::http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        if denied.wants_token() {
            return Self::new(StatusCode::UNAUTHORIZED, "unauthorized", denied.to_string())
                .with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"sutler\""));
        }
        Self::new(StatusCode::FORBIDDEN, "forbidden", denied.to_string())
    }
}

impl From<NoAudit> for Refusal {
    fn from(refused: NoAudit) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", refused.to_string())
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let refusal = match &refused {
            Refused::Forbidden(f) => Self::new(StatusCode::FORBIDDEN, "forbidden", f.to_string()),
            Refused::UnknownInstance(_) => Self::not_found(refused.to_string()),
        };
        refusal.at(refused.path())
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        match error {
            CallError::Conflict { code, operation, retry_after, .. } => {
                let refusal = Self::new(StatusCode::CONFLICT, code, message).about(operation);
                match retry_after {
                    Some(d) => refusal.with(header::RETRY_AFTER, operations::seconds(d).into()),
                    None => refusal,
                }
            }
            CallError::Overloaded { retry_after_seconds, .. } => {
                Self::unavailable("overloaded", message, retry_after_seconds.max(1))
            }
            CallError::Stopping => Self::unavailable("stopping", message, 1),
            CallError::Unavailable(_) => Self::unavailable("unavailable", message, 5),
            CallError::OverQuota(over) => {
                let mut refusal = Self::new(StatusCode::FORBIDDEN, "quota-exceeded", message);
                refusal.0.body.quota = Some(over.into());
                refusal
            }
            CallError::NotFound(_) => Self::not_found(message),
            CallError::Forbidden(_) => Self::new(StatusCode::FORBIDDEN, "forbidden", message),
        }
    }
}
