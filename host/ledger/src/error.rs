use std::path::PathBuf;

use crate::JobId;

/// Why a ledger did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LedgerError {
    /// The row has moved on, or another worker has the lease: the writer's work counts for nothing.
    #[error("job {0} has moved on; this write came too late and was not done")]
    Stale(JobId),
    /// Another unfinished job has one of the resources.
    #[error("job {0} is working on one of these resources")]
    Busy(JobId),
    /// The job that was to be taken up again has ended, and this later one has changed one of its resources since.
    #[error("job {0} has changed one of these resources since")]
    Superseded(JobId),
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// Not now; nothing was written. Disk full, disk read-only, connection lost, time-out.
    #[error("the ledger cannot be reached or written: {0}")]
    Unavailable(String),
    /// Whether the change was written is not known: the connection broke while it was being committed.
    #[error("whether the change was written is not known: {0}")]
    Unknown(String),
    /// What is stored cannot be read: damaged, or written by a newer version.
    #[error("{0}")]
    Unreadable(String),
    /// What is stored was sealed with a key that is not there.
    #[error(
        "the ledger was sealed with the key {key:?}, which is not in {}; put that key back into the file",
        file.display()
    )]
    MissingKey { key: String, file: PathBuf },
    /// It cannot be opened as configured; says what to do.
    #[error("{0}")]
    Open(String),
}
