//! Why a call to a cluster did not succeed: the words of `sutler:kubernetes/types`.

use sutler_model::NotGranted;

/// A field that another manager holds (server-side apply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldConflict {
    /// As the API server writes it: `.spec.replicas`.
    pub field: String,
    /// Empty where the API server does not name one.
    pub manager: String,
}

/// A field that cannot change while its object lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedField {
    /// As the API server writes it: `spec.selector`, `spec.clusterIPs[0]`.
    pub field: String,
    /// Fields right below it that may change all the same.
    pub except: Vec<String>,
}

/// Never carries a secret or a whole body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    #[error("this call may only read; writes belong into apply and cancel")]
    ReadOnlyCall,
    #[error("the cluster has no such object")]
    NotFound,
    #[error("the object exists already")]
    AlreadyExists,
    /// A field is held by somebody else, or the object is no longer the one that was meant (`metadata.uid`).
    #[error("{}", conflict_text(.0))]
    Conflict(Vec<FieldConflict>),
    /// The API server's own refusal: the host's account lacks a role there.
    #[error("the API server refuses: {0}")]
    Forbidden(String),
    #[error("{0}")]
    Invalid(String),
    /// It would change what cannot change: only another object in its place could be like this.
    #[error("{message}")]
    Immutable { message: String, fields: Vec<FixedField> },
    /// Throttled, unreachable, timed out: worth a retry.
    #[error("{0}")]
    Unavailable(String),
    /// The call's own deadline ended while the cluster was being waited for; the runtime makes a fault of it.
    #[error("the call's time ended while the cluster was being waited for")]
    TimedOut,
    #[error("{message}")]
    Other {
        /// Kebab-case and stable: `unknown-kind`, `unknown-cluster`, `kubeconfig`, `credentials`, `answer-too-large`,
        /// `unexpected-answer`, `not-served` (no such path), `no-dry-run` (an admission webhook), `not-supported`, `expired`.
        code: &'static str,
        message: String,
    },
}

impl Error {
    pub(crate) fn other(code: &'static str, message: impl Into<String>) -> Self {
        Self::Other { code, message: message.into() }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::TimedOut)
    }

    /// Whether RBAC refused, and not what admits objects (quotas, pod security).
    pub fn lacks_right(&self) -> bool {
        matches!(self, Self::Forbidden(message) if message.contains("is forbidden: User "))
    }
}

fn conflict_text(conflicts: &[FieldConflict]) -> String {
    if conflicts.is_empty() {
        return "the object changed meanwhile; read it again".into();
    }
    let fields: Vec<String> = conflicts
        .iter()
        .map(|c| {
            if c.manager.is_empty() {
                c.field.clone()
            } else {
                format!("{} (held by {})", c.field, c.manager)
            }
        })
        .collect();
    format!("conflict on {}", fields.join(", "))
}
