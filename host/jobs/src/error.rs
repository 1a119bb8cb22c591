use std::time::Duration;

use sutler_ledger::{JobId, LedgerError, Status};
use sutler_model::OverQuota;

use crate::config::ConfigError;
use crate::machine::Illegal;

/// Why an operation was not begun, found or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OperationError {
    /// 409: the request id stands for another body.
    #[error("this requestId was used for another body, in operation {0}; use a new one")]
    ReusedId(JobId),
    /// 409: another body touches one of the resources.
    #[error("operation {id} is working on one of these resources; try again in {} s", retry_after.as_secs())]
    Busy { id: JobId, retry_after: Duration },
    /// 409: what it made is not what is there now.
    #[error(
        "operation {by} has changed what operation {id} was about since; look with inspect, and send what is wanted \
         now as a new request"
    )]
    Superseded { id: JobId, by: JobId },
    /// 403: it would take more than a quota leaves.
    #[error(transparent)]
    OverQuota(OverQuota),
    /// 404: also another caller's.
    #[error("there is no operation {0}")]
    NotFound(JobId),
    /// 409
    #[error("operation {id} is {status}: {why}")]
    Conflict { id: JobId, status: Status, why: &'static str },
    /// 409: others changed it at the same time, again and again.
    #[error("operation {0} is being changed by others; try again")]
    Contended(JobId),
    /// 503
    #[error("this host is stopping; try another one")]
    Stopping,
    /// 503 where it is `Unavailable` or `Unknown`; the same request may be sent again.
    #[error(transparent)]
    Ledger(LedgerError),
    /// What is stored is not what this version or a later one writes.
    #[error("operation {id} cannot be read: {why}")]
    Unreadable { id: JobId, why: String },
    /// The jobs' own mistake.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    #[error(transparent)]
    Config(#[from] ConfigError),
}
