//! Why a call to the daemon did not succeed: the words of `sutler:containers/types`.

use sutler_model::NotGranted;

/// Never carries a secret or a whole body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    NotGranted(#[from] NotGranted),
    #[error("this call may only read; writes belong into apply and cancel")]
    ReadOnlyCall,
    /// None of that name, or another owner's.
    #[error("there is no such container")]
    NotFound,
    /// Somebody else has the name, or uses the thing.
    #[error("{0}")]
    Conflict(String),
    /// Unreachable, overloaded: worth a retry.
    #[error("{0}")]
    Unavailable(String),
    /// The call's own deadline or its lease ended; the runtime makes a fault of it.
    #[error("the call's time ended while the Docker daemon was being waited for")]
    TimedOut,
    #[error("{message}")]
    Other {
        /// Kebab-case and stable: `pulling`, `image`, `invalid`, `daemon`, `not-supported`.
        code: &'static str,
        message: String,
    },
}

impl Error {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Other { code: "invalid", message: message.into() }
    }

    /// What the daemon or the way to it said, while `doing` something.
    pub(crate) fn of(doing: &str, error: bollard::errors::Error) -> Self {
        use bollard::errors::Error as B;
        match error {
            B::DockerResponseServerError { status_code: 404, .. } => Self::NotFound,
            B::DockerResponseServerError { status_code: 409, message } => {
                Self::Conflict(format!("Docker refuses to {doing}: {}", shorten(&message)))
            }
            B::DockerResponseServerError { status_code: 502..=504, message } => {
                Self::Unavailable(format!("Docker could not {doing}: {}", shorten(&message)))
            }
            B::DockerResponseServerError { message, .. } | B::DockerStreamError { error: message } => {
                Self::Other {
                    code: "daemon",
                    message: format!("Docker could not {doing}: {}", shorten(&message)),
                }
            }
            B::SocketNotFoundError(_) => Self::Unavailable(format!(
                "could not {doing}: the Docker daemon's socket is not there; start the daemon, or set socket in [containers]"
            )),
            other => Self::Unavailable(format!("could not {doing}: {}", chain(&other))),
        }
    }
}

/// An error with what is behind it: hyper hides the reason.
fn chain(error: &dyn std::error::Error) -> String {
    let mut out = error.to_string();
    let mut next = error.source();
    while let Some(e) = next {
        out = format!("{out}: {e}");
        next = e.source();
    }
    shorten(&out)
}

fn shorten(text: &str) -> String {
    text.chars().take(500).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
