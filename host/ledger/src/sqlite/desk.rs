//! What the writer has on its desk besides the database: the time, whose turn it is, and whether to wake anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::{Clock, Millis};

/// The ledger's time: it never goes back, and begins at the newest one stored.
#[derive(Debug)]
pub(super) struct Time {
    clock: Clock,
    latest: AtomicI64,
}

impl Time {
    pub(super) const fn new(clock: Clock, newest: Millis) -> Self {
        Self { clock, latest: AtomicI64::new(newest.0) }
    }
    pub(super) fn now(&self) -> Millis {
        let now = self.clock.now().0;
        Millis(self.latest.fetch_max(now, Ordering::SeqCst).max(now))
    }
}

#[derive(Debug)]
pub(super) struct Desk {
    time: Arc<Time>,
    /// The tenant that was served last.
    pub(super) last: Option<String>,
    /// More jobs are due than were moved to the ready ones at once; with the delay of a takeover.
    pub(super) behind: Option<Duration>,
    /// A write of this batch leaves a job that workers wait for.
    pub(super) wake: bool,
}

impl Desk {
    pub(super) const fn new(time: Arc<Time>) -> Self {
        Self { time, last: None, behind: None, wake: false }
    }
    pub(super) fn now(&self) -> Millis {
        self.time.now()
    }
}
