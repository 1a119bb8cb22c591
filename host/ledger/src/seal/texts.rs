//! The texts of a job's row, sealed: as every ledger on a database keeps them.

use super::Keys;
use crate::{Job, LedgerError};

#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub(crate) request: Vec<u8>,
    pub(crate) state: Vec<u8>,
    pub(crate) answer: Option<Vec<u8>>,
}

impl Sealed {
    pub(crate) fn of(job: &Job, keys: &Keys) -> Result<Self, LedgerError> {
        let seal = |column, text| keys.seal(column, &job.id, text);
        Ok(Self {
            request: seal("request", &job.request)?,
            state: seal("state", &job.state)?,
            answer: job.answer.as_ref().map(|a| seal("answer", a)).transpose()?,
        })
    }

    /// `job` with its texts.
    pub(crate) fn open(self, mut job: Job, keys: &Keys) -> Result<Job, LedgerError> {
        job.request = keys.open_text("request", &job.id, &self.request)?;
        job.state = keys.open_text("state", &job.id, &self.state)?;
        self.answered(job, keys)
    }

    /// Without the request, and without the state of one that has ended.
    pub(crate) fn brief(self, mut job: Job, keys: &Keys) -> Result<Job, LedgerError> {
        if !job.standing.status.is_final() {
            job.state = keys.open_text("state", &job.id, &self.state)?;
        }
        self.answered(job, keys)
    }

    fn answered(self, mut job: Job, keys: &Keys) -> Result<Job, LedgerError> {
        job.answer = self.answer.map(|a| keys.open_text("answer", &job.id, &a)).transpose()?;
        Ok(job)
    }
}
