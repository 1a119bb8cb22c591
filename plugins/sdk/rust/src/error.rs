use serde_json::{Value, json};

use crate::wit::sutler::{containers, helm, http, kubernetes, logs, provisioner::types as wire};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the work failed, in the form that the caller reads. Every capability's error turns into one with `?`.
///
/// The SDK's own codes: `not-granted`, `read-only-call`, `not-found`, `already-exists`, `conflict` (retryable where
/// nobody else holds a field), `forbidden`, `invalid`, `unavailable` (retryable), `timed-out` (retryable), `registry`,
/// `render`, `pending` (retryable), `not-owned`, `too-large`, `invalid-config`, `unreadable-settings`,
/// `unreadable-answer`, `unreadable-state`, `unknown-pair`, `unknown-step`, `cannot-cancel`.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    /// Kebab-case and stable: callers branch on it. The host's own codes (`invalid-settings`, …) are refused.
    pub code: String,
    /// One sentence for a person: what failed, on what, what to do.
    pub reason: String,
    pub resource: Option<String>,
    /// JSON Pointer into the settings.
    pub at: Option<String>,
    pub retryable: bool,
    pub details: Option<Box<Value>>,
}

impl Error {
    pub fn new(code: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            reason: reason.into(),
            resource: None,
            at: None,
            retryable: false,
            details: None,
        }
    }
    /// Where in the settings the cause lies, as a JSON Pointer.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.at = Some(pointer.into());
        self
    }
    #[must_use]
    pub fn on(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }
    /// The same call may succeed later.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }
    /// What was being done, before the reason: `get ConfigMap shop/orders: …`.
    #[must_use]
    pub fn while_doing(mut self, what: impl std::fmt::Display) -> Self {
        self.reason = format!("{what}: {}", self.reason);
        self
    }
    pub fn is(&self, code: &str) -> bool {
        self.code == code
    }

    pub(crate) fn into_wire(self, resource: Option<&str>) -> wire::Failure {
        wire::Failure {
            code: self.code,
            reason: self.reason,
            resource: self.resource.or_else(|| resource.map(str::to_owned)),
            at: self.at,
            retryable: self.retryable,
            details: self.details.map(|d| d.to_string()),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.reason, self.code)
    }
}
impl std::error::Error for Error {}

fn read_only() -> Error {
    Error::new("read-only-call", "it writes, and a plan or an inspect may not; move it to apply")
}
fn unavailable(reason: String) -> Error {
    Error::new("unavailable", reason).retryable()
}

fn held(conflict: &kubernetes::types::FieldConflict) -> String {
    match conflict.manager.as_str() {
        "" => format!("{} is another one by now", conflict.field),
        manager => format!("{} is managed by {manager}", conflict.field),
    }
}

impl From<kubernetes::types::Error> for Error {
    fn from(e: kubernetes::types::Error) -> Self {
        use kubernetes::types::Error as E;
        match e {
            E::NotGranted(m) => Self::new("not-granted", m),
            E::ReadOnlyCall => read_only(),
            E::NotFound => Self::new("not-found", "it does not exist"),
            E::AlreadyExists => Self::new("already-exists", "it exists already"),
            // Nobody holds a field: somebody wrote at the same time.
            E::Conflict(fields) if fields.is_empty() => {
                Self::new("conflict", "the object changed meanwhile; try again").retryable()
            }
            E::Conflict(fields) => {
                let said: Vec<_> = fields.iter().map(held).collect();
                let list: Vec<_> =
                    fields.iter().map(|c| json!({"field": c.field, "manager": c.manager})).collect();
                Self::new("conflict", said.join("; ")).details(json!({ "conflicts": list }))
            }
            E::Forbidden(m) => Self::new("forbidden", m),
            E::Invalid(m) => Self::new("invalid", m),
            E::Unavailable(m) => unavailable(m),
            E::Other(d) => Self::new(d.code, d.message),
        }
    }
}

impl From<helm::types::Error> for Error {
    fn from(e: helm::types::Error) -> Self {
        use helm::types::Error as E;
        match e {
            E::NotGranted(m) => Self::new("not-granted", m),
            E::ReadOnlyCall => read_only(),
            E::Registry(m) => Self::new("registry", m),
            E::Render(m) => Self::new("render", m),
            E::NotFound => Self::new("not-found", "there is no such release"),
            E::AlreadyExists => Self::new("already-exists", "the release exists already"),
            E::Pending(m) => Self::new("pending", m).retryable(),
            E::NotOwned(m) => Self::new("not-owned", m),
            E::TooLarge(m) => Self::new("too-large", m),
            E::Unavailable(m) => unavailable(m),
            E::Other(d) => Self::new(d.code, d.message),
        }
    }
}

impl From<logs::read::Error> for Error {
    fn from(e: logs::read::Error) -> Self {
        use logs::read::Error as E;
        match e {
            E::NotGranted(m) => Self::new("not-granted", m),
            E::NotFound => Self::new("not-found", "there is no such pod or container"),
            E::Unavailable(m) => unavailable(m),
            E::Other(d) => Self::new(d.code, d.message),
        }
    }
}

impl From<http::outbound::Error> for Error {
    fn from(e: http::outbound::Error) -> Self {
        use http::outbound::Error as E;
        match e {
            E::NotGranted(m) => Self::new("not-granted", m),
            E::ReadOnlyCall => read_only(),
            E::TimedOut => Self::new("timed-out", "no answer in time").retryable(),
            E::TooLarge(n) => Self::new("too-large", format!("the answer has more than {n} bytes")),
            E::Unavailable(m) => unavailable(m),
            E::Other(d) => Self::new(d.code, d.message),
        }
    }
}

impl From<containers::types::Error> for Error {
    fn from(e: containers::types::Error) -> Self {
        use containers::types::Error as E;
        match e {
            E::NotGranted(m) => Self::new("not-granted", m),
            E::ReadOnlyCall => read_only(),
            E::NotFound => Self::new("not-found", "there is no such container"),
            E::Conflict(m) => Self::new("conflict", m),
            E::Unavailable(m) => unavailable(m),
            E::Other(d) => Self::new(d.code, d.message),
        }
    }
}

/// JSON that is not what the plugin expected of somebody's answer.
impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Self {
        Self::new("unreadable-answer", e.to_string())
    }
}
