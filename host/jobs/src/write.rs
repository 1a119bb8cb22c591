//! Writes of a job that this host holds: none is lost to a short outage, none is done twice, and none is done by
//! a host whose lease another one has.

use std::time::Duration;

use sutler_ledger::{Job, Ledger, LedgerError, Write, failpoint};

use crate::lease::Holding;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What came of a write.
pub(crate) enum Written {
    Done(Box<Job>),
    /// Not done: a caller changed the row meanwhile. The lease is still ours.
    Moved(Box<Job>),
    /// Not done: the job is no longer ours.
    Gone,
}

/// Pauses that double.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) const fn new() -> Self {
        Self(FIRST_PAUSE)
    }
    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.0.mul_f64(0.5 + fastrand::f64())).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// Writes until it is known what came of it. The caller drops this when the lease is lost.
pub(crate) async fn write(ledger: &dyn Ledger, holding: &Holding, write: &Write) -> Written {
    let mut pauses = Pauses::new();
    loop {
        failpoint("jobs-before-write");
        let committed = ledger.commit(write.clone()).await;
        failpoint("jobs-after-write");
        match committed {
            Ok(job) => return Written::Done(Box::new(job)),
            Err(LedgerError::Stale(_) | LedgerError::Unknown(_)) => {
                let Some(row) = read(ledger, holding).await else { return Written::Gone };
                if row.revision == write.revision {
                    // It was not written. It may still be on its way; then the next one comes too late, and is
                    // recognised here.
                    pauses.pause().await;
                } else if is_this(&row, write) {
                    return Written::Done(row);
                } else {
                    return Written::Moved(row);
                }
            }
            Err(LedgerError::NotFound(_) | LedgerError::Busy(_) | LedgerError::Superseded(_)) => {
                return Written::Gone;
            }
            Err(e) => {
                tracing::warn!(event = "ledger-write-failed", job = %write.id, error = %e, "trying again while the lease holds");
                pauses.pause().await;
            }
        }
    }
}

/// The row, as long as its lease is ours; a write that ended or released it leaves it to be recognised.
pub(crate) async fn read(ledger: &dyn Ledger, holding: &Holding) -> Option<Box<Job>> {
    let mut pauses = Pauses::new();
    loop {
        match ledger.job(holding.id.clone()).await {
            Ok(row) => return row.filter(|r| r.token == holding.token).map(Box::new),
            Err(e) => {
                tracing::warn!(event = "ledger-read-failed", job = %holding.id, error = %e, "trying again while the lease holds");
                pauses.pause().await;
            }
        }
    }
}

/// Whether the row is what the write makes of it. Only a caller's cancel or retry changes a row under the same
/// token, and neither leaves this standing.
fn is_this(row: &Job, write: &Write) -> bool {
    row.revision == write.revision + 1
        && row.standing == write.standing
        && write.state.as_ref().is_none_or(|s| *s == row.state)
        && write.answer.as_ref().is_none_or(|a| *a == row.answer)
}
