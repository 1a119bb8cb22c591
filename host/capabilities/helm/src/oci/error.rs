//! What goes wrong with registries and charts. Clones, since one pull may serve several callers.

use super::reference::{BadChartUrl, ChartUrl};

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
    #[error("registry {registry}: its credentials cannot be used: {why}")]
    Credentials { registry: String, why: String },
    #[error("registry {registry}: the credential helper docker-credential-{helper}: {why}")]
    Helper { registry: String, helper: String, why: String },
    #[error(
        "registry {registry} answered with a web page for {what}: it is no OCI registry, and only those work; push the chart with `helm push CHART.tgz oci://REGISTRY/PATH`, or name the host and port of this server's OCI (Docker) connector"
    )]
    NotOci { registry: String, what: String },
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
    #[error(
        "{what} of {chart} is not the {told} bytes that its manifest tells: it was changed or damaged on its way"
    )]
    Size { chart: String, what: &'static str, told: u64 },
    #[error("{chart} is not signed as [registries] `{key}` demands: {why}")]
    NotSigned { chart: String, key: &'static str, why: String },
    #[error("{what} of {chart} is larger than {limit} bytes")]
    TooLarge { chart: String, what: &'static str, limit: u64 },
    #[error("registry {registry} answered {status} for {what}")]
    Status { registry: String, status: u16, what: String },
    #[error("registry {registry} sent an answer that cannot be used: {why}")]
    Answer { registry: String, why: String },
    #[error("registry {registry} redirects to {to}: {why}")]
    Redirect { registry: String, to: String, why: String },
    /// What a registry did wrong, with the chart that was asked for.
    #[error("chart {chart}: {error}")]
    Of { chart: String, error: Box<RegistryError> },
}

impl RegistryError {
    /// Names the chart where the error itself does not.
    pub(super) fn of(self, url: &ChartUrl) -> Self {
        match self {
            error @ (Self::Unreachable { .. }
            | Self::Slow { .. }
            | Self::Refused { .. }
            | Self::Credentials { .. }
            | Self::Helper { .. }
            | Self::NotOci { .. }
            | Self::Range(_)
            | Self::Status { .. }
            | Self::Answer { .. }
            | Self::Redirect { .. }) => Self::Of { chart: url.to_string(), error: Box::new(error) },
            error => error,
        }
    }

    /// Whether the same request may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Slow { .. } | Self::Helper { .. } => true,
            Self::Status { status, .. } => *status >= 500 || *status == 429,
            Self::Of { error, .. } => error.retryable(),
            _ => false,
        }
    }
}
