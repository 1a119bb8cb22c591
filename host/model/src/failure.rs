//! A failure is an answer: the work did not succeed, and this is why.

use serde_json::Value;

/// Codes that only the host may use; a plugin that answers one broke its contract.
pub const HOST_CODES: [&str; 11] = [
    "pair-not-handled",
    "invalid-settings",
    "plugin-fault",
    "plugin-broke-contract",
    "dependency-timeout",
    "plan-stale",
    "replace-required",
    "apply-differs",
    "deadline-exceeded",
    "cancelled",
    "attempts-used-up",
];

/// Whether the code belongs to the host.
pub fn host_code(code: &str) -> bool {
    HOST_CODES.contains(&code)
}

#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Kebab-case and stable: callers branch on it.
    pub code: String,
    /// One sentence for a person: what failed, on what, what to do.
    pub reason: String,
    pub resource: Option<String>,
    /// JSON Pointer into the resource's settings.
    pub path: Option<String>,
    pub retryable: bool,
    pub details: Option<Value>,
}

impl Failure {
    pub fn new(code: &str, reason: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            reason: reason.into(),
            resource: None,
            path: None,
            retryable: false,
            details: None,
        }
    }
    #[must_use]
    pub fn on(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }
    #[must_use]
    pub const fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}
