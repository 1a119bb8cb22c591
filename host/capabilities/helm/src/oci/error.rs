//! What goes wrong with registries and charts. Clones, since one pull may serve several callers.

use super::reference::BadChartUrl;

/// Never holds a password, a token or a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Url(#[from] BadChartUrl),
    #[error("registry {registry} cannot be reached: {why}")]
    Unreachable { registry: String, why: String },
    #[error("registry {registry} did not answer within {seconds} s")]
    Slow { registry: String, seconds: u64 },
    /// The call's own time is over.
    #[error("the call's time ran out while registry {0} was asked")]
    TimeUsedUp(String),
    #[error("registry {registry} refused {login} ({status}); {advice}")]
    Refused { registry: String, login: String, status: u16, advice: String },
    #[error("chart {chart} has no version {version}; see `tags` for those that exist")]
    NoVersion { chart: String, version: String },
    #[error("chart {chart} has no version that fits {range}; the registry lists {count} tags")]
    NoMatch { chart: String, range: String, count: usize },
    #[error("chart {0} does not exist in its registry")]
    NoChart(String),
    #[error("{0}")]
    Range(String),
    #[error("{what} of {chart} has digest {actual}, not {expected}: it was changed or damaged on its way")]
    Digest { chart: String, what: &'static str, expected: String, actual: String },
    #[error("{chart} is not a Helm chart: {why}")]
    NotAChart { chart: String, why: String },
    #[error("{what} of {chart} is larger than {limit} bytes")]
    TooLarge { chart: String, what: &'static str, limit: u64 },
    #[error("registry {registry} answered {status} for {what}")]
    Status { registry: String, status: u16, what: String },
    #[error("registry {registry} sent an answer that cannot be used: {why}")]
    Answer { registry: String, why: String },
    #[error("registry {registry} redirects to {to}: {why}")]
    Redirect { registry: String, to: String, why: String },
}

impl RegistryError {
    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Slow { .. } => true,
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            _ => false,
        }
    }
}
