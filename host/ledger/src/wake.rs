//! Waking whoever waits for due jobs.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;

use crate::{Job, rules};

/// Every waiter is woken by a write, and one that comes just too late to wait is too.
#[derive(Debug, Default)]
pub(crate) struct Wake(Notify);

impl Wake {
    /// A job was written: whether it is due now or later, a waiter may have to think again.
    pub(crate) fn written(&self, job: &Job) {
        if rules::in_queue(job.standing.status) && job.lease.is_none() {
            self.fire();
        }
    }
    pub(crate) fn fire(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }
    pub(crate) fn wait(&self, at_most: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = tokio::time::timeout(at_most, self.0.notified()).await;
        })
    }
}
