//! The crate's error: the words of `sutler:helm/types`.

use sutler_kubernetes::Error as KubeError;
use sutler_model::NotGranted;

use crate::engine::EngineError;
use crate::oci::RegistryError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    #[error("this call may only read; releases are changed in apply and cancel")]
    ReadOnlyCall,
    /// Pull: unknown chart, refused credentials, not an OCI registry, not a chart.
    #[error("{0}")]
    Registry(String),
    /// The values break the chart's schema or a template failed, with its place.
    #[error("{0}")]
    Render(String),
    #[error("there is no such release")]
    NotFound,
    #[error("the object exists already")]
    AlreadyExists,
    /// Another operation holds the release.
    #[error("{0}")]
    Pending(String),
    /// A release or an object belongs to somebody else or to nobody.
    #[error("{0}")]
    NotOwned(String),
    #[error("{0}")]
    TooLarge(String),
    /// Worth a retry.
    #[error("{0}")]
    Unavailable(String),
    /// The call's own time is over.
    #[error("the call's time ended while Helm's work was going on")]
    TimedOut,
    #[error("{message}")]
    Other {
        /// Kebab-case and stable: `hook-failed`, `not-ready`, `taken-back`, `no-such-revision`,
        /// `invalid-release-name`, `conflict`, `forbidden`, `invalid`, `broken-record`, and those of the Kubernetes
        /// capability.
        code: &'static str,
        message: String,
    },
}

impl Error {
    pub(crate) fn other(code: &'static str, message: impl Into<String>) -> Self {
        Self::Other { code, message: message.into() }
    }

    /// Whether the same call may come further without anybody changing anything: nothing has failed for good.
    pub(crate) const fn passes(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::TimedOut | Self::Pending(_))
    }

    /// What the API server said about something, in Helm's words.
    pub(crate) fn kube(what: &str, e: KubeError) -> Self {
        match e {
            KubeError::NotGranted(e) => Self::NotGranted(e),
            KubeError::ReadOnlyCall => Self::ReadOnlyCall,
            KubeError::NotFound => Self::other("not-found", format!("{what}: not found")),
            KubeError::AlreadyExists => Self::AlreadyExists,
            KubeError::Conflict(fields) if fields.is_empty() => {
                Self::other("conflict", format!("{what}: the object changed meanwhile; try again"))
            }
            e @ KubeError::Conflict(_) => Self::other(
                "conflict",
                format!("{what}: {e}; leave the fields out of the chart's values, or set force-conflicts"),
            ),
            e @ KubeError::Forbidden(_) => Self::other("forbidden", format!("{what}: {e}")),
            KubeError::Immutable { message, .. } => Self::other(
                "invalid",
                format!("{what}: {message}; it cannot become this without being deleted first"),
            ),
            KubeError::Invalid(m) => Self::other("invalid", format!("{what}: {m}")),
            KubeError::Unavailable(m) => Self::Unavailable(format!("{what}: {m}")),
            KubeError::TimedOut => Self::TimedOut,
            KubeError::Other { code, message } => Self::other(code, format!("{what}: {message}")),
        }
    }
}

impl From<RegistryError> for Error {
    fn from(e: RegistryError) -> Self {
        match e {
            RegistryError::TimeUsedUp(_) => Self::TimedOut,
            e @ RegistryError::TooLarge { .. } => Self::TooLarge(e.to_string()),
            e if e.retryable() => Self::Unavailable(e.to_string()),
            e => Self::Registry(e.to_string()),
        }
    }
}

impl From<EngineError> for Error {
    fn from(e: EngineError) -> Self {
        match e {
            EngineError::Unavailable(m) => Self::Unavailable(m),
            e => Self::Render(e.to_string()),
        }
    }
}
