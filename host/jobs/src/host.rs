//! What the parts of one host's jobs share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_ledger::Ledger;
use sutler_model::Pair;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Policy;
use crate::lease::Leases;
use crate::worker::Worker;

/// Put around every future that the jobs spawn: simulations pause and drop them.
pub type Wrap = Arc<dyn Fn(BoxFuture<'static, ()>) -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) struct Host {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) worker: Arc<dyn Worker>,
    pub(crate) policy: Policy,
    /// New with every start.
    pub(crate) holder: Arc<str>,
    pub(crate) leases: Leases,
    /// A job of this host was parked or ended.
    pub(crate) changed: Notify,
    /// A job may have become due through this host.
    pub(crate) nudge: Notify,
    /// No further call is begun.
    pub(crate) stopping: CancellationToken,
    /// Calls that still run are stopped.
    pub(crate) dropping: CancellationToken,
    /// Nothing is held any more.
    pub(crate) done: CancellationToken,
    pub(crate) runs: TaskTracker,
    pub(crate) services: TaskTracker,
    pub(crate) wrap: Wrap,
}

impl Host {
    pub(crate) fn new(
        ledger: Arc<dyn Ledger>,
        worker: Arc<dyn Worker>,
        policy: Policy,
        holder: &str,
        wrap: Wrap,
    ) -> Self {
        Self {
            ledger,
            worker,
            policy,
            holder: holder.into(),
            leases: Leases::default(),
            changed: Notify::new(),
            nudge: Notify::new(),
            stopping: CancellationToken::new(),
            dropping: CancellationToken::new(),
            done: CancellationToken::new(),
            runs: TaskTracker::new(),
            services: TaskTracker::new(),
            wrap,
        }
    }

    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runs.spawn((self.wrap)(Box::pin(work)));
    }

    pub(crate) fn serve(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.services.spawn((self.wrap)(Box::pin(work)));
    }

    /// The leases of the pairs that do not have the usual one.
    pub(crate) fn lengths(&self) -> BTreeMap<Pair, Duration> {
        self.policy.leases(&self.worker.longest())
    }

    pub(crate) fn length(&self, pair: &Pair) -> Duration {
        self.lengths().get(pair).copied().unwrap_or(self.policy.lease)
    }
}
