//! Why logs could not be read: the words of `sutler:logs/read`.

use sutler_model::NotGranted;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    /// No such pod or container, or it is another owner's.
    #[error("there is no such pod or container")]
    NotFound,
    /// Worth a retry.
    #[error("{0}")]
    Unavailable(String),
    /// The call's own deadline ended; the runtime makes a fault of it.
    #[error("the call's time ended while the cluster was being waited for")]
    TimedOut,
    #[error("{message}")]
    Other {
        /// Kebab-case and stable: `forbidden`, `invalid`, `too-many-containers`, and those of the cluster's errors.
        code: &'static str,
        message: String,
    },
}

impl From<sutler_kubernetes::Error> for Error {
    fn from(error: sutler_kubernetes::Error) -> Self {
        use sutler_kubernetes::Error as K;
        let code = match &error {
            K::Forbidden(_) => "forbidden",
            K::Invalid(_) | K::Immutable { .. } => "invalid",
            K::Conflict(_) => "conflict",
            K::AlreadyExists => "already-exists",
            K::ReadOnlyCall => "read-only-call",
            K::NotGranted(_) | K::NotFound | K::Unavailable(_) | K::TimedOut | K::Other { .. } => "",
        };
        match error {
            K::NotGranted(n) => Self::NotGranted(n),
            K::NotFound => Self::NotFound,
            K::Unavailable(message) => Self::Unavailable(message),
            K::TimedOut => Self::TimedOut,
            K::Other { code, message } => Self::Other { code, message },
            other => Self::Other { code, message: other.to_string() },
        }
    }
}

impl From<sutler_containers::Error> for Error {
    fn from(error: sutler_containers::Error) -> Self {
        use sutler_containers::Error as C;
        match error {
            C::NotGranted(n) => Self::NotGranted(n),
            C::NotFound => Self::NotFound,
            C::Unavailable(message) => Self::Unavailable(message),
            C::TimedOut => Self::TimedOut,
            C::Other { code, message } => Self::Other { code, message },
            C::Conflict(message) => Self::Other { code: "conflict", message },
            C::ReadOnlyCall => Self::Other { code: "read-only-call", message: error.to_string() },
        }
    }
}
