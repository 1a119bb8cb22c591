//! What the host knows of the jobs that operations on releases were steps of.

use futures::future::BoxFuture;

use crate::error::Error;

/// The host's jobs, as far as a release has to know of them: the host answers from its ledger.
pub trait Jobs: Send + Sync {
    /// Whether a job has not ended yet: it waits, works, or will be tried again. One that is not known has ended: jobs
    /// are kept longer than any of them takes.
    ///
    /// # Errors
    /// `Unavailable` where it cannot be told now.
    fn runs<'a>(&'a self, job: &'a str) -> BoxFuture<'a, Result<bool, Error>>;
}

/// Where no jobs are kept.
#[derive(Debug)]
pub struct NoJobs;

impl Jobs for NoJobs {
    fn runs<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async { Ok(false) })
    }
}
