//! Jobs: the state machine, the front that an apply goes through, and the reconciler that brings every job to its
//! end. It never runs a plugin or stores a row itself: the worker and the ledger behind their traits do.

mod audit;
mod backoff;
mod begin;
mod check;
mod config;
mod decide;
mod error;
mod host;
mod lease;
pub mod machine;
mod operations;
mod reconciler;
mod run;
mod stored;
mod wait;
mod worker;
mod write;

pub use check::check;
pub use config::{ConfigError, LimitsConfig, OperationsConfig};
pub use error::OperationError;
pub use host::Wrap;
pub use operations::{Answered, New, Operation, Operations, Who};
pub use stored::{Asked, Ended, StoredError};
pub use worker::{Ran, Worker};

/// Where crash tests kill the process besides the ledger's own points: between the parts of a job's way.
pub const FAILPOINTS: &[&str] = &[
    "jobs-before-begin",
    "jobs-after-begin",
    "jobs-after-claim",
    "jobs-before-call",
    "jobs-after-call",
    "jobs-before-write",
    "jobs-after-write",
];
