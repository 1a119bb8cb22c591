//! The leases that this host holds: how long each is good for, and the one heartbeat that renews them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sutler_ledger::{Held, Job, JobId, Ledger, Limits};
use sutler_model::{Fence, Identifier, Pair, PluginName};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A lease is given up so much before its end, as a part of its length: the ledger's clock and ours do not run
/// exactly alike.
const MARGIN: u32 = 20;
/// How soon a renewal that failed is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// What limits hold for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) plugin: PluginName,
    pub(crate) pair: Pair,
    /// Of an instance of the control plane.
    pub(crate) tenant: (Option<Identifier>, Option<Identifier>),
}

impl Lane {
    pub(crate) fn of(job: &Job) -> Self {
        let a = &job.application;
        Self {
            plugin: job.plugin.clone(),
            pair: job.pair.clone(),
            tenant: (a.instance.clone(), a.tenant.clone()),
        }
    }
    pub(crate) fn of_new(new: &crate::New) -> Self {
        let request = &new.asked.request;
        let a = &request.application;
        Self {
            plugin: new.plugin.clone(),
            pair: request.pair.clone(),
            tenant: (a.instance.clone(), a.tenant.clone()),
        }
    }
}

/// One lease that is held.
pub(crate) struct Holding {
    pub(crate) id: JobId,
    pub(crate) token: u64,
    pub(crate) length: Duration,
    pub(crate) fence: Fence,
    /// Somebody asked to take the job back.
    pub(crate) cancel: CancellationToken,
    /// For the local limits.
    pub(crate) lane: Lane,
    pub(crate) since: Instant,
    /// `None` once it is lost.
    until: watch::Sender<Option<Instant>>,
    /// The call has ended, and the write that gives the lease back is under way: that another host has it next is
    /// as it should be.
    giving_back: AtomicBool,
}

impl Holding {
    /// `from` is the moment before the request was sent that got or extended the lease: the ledger counts from a
    /// later one.
    fn good_until(&self, from: Instant) -> Instant {
        from + (self.length - self.length / MARGIN)
    }

    pub(crate) fn extend(&self, from: Instant) {
        let until = self.good_until(from);
        self.fence.extend(until.into_std());
        self.until.send_if_modified(|was| match was {
            Some(w) if *w < until => {
                *w = until;
                true
            }
            _ => false,
        });
    }

    pub(crate) fn lose(&self, why: &'static str) {
        self.fence.lose();
        let first = self.until.send_if_modified(|was| was.take().is_some());
        if first {
            metrics::counter!("sutler_leases_lost_total").increment(1);
            tracing::warn!(event = "lease-lost", job = %self.id, token = self.token, why, "the job is left to others");
        }
    }

    /// Before the write that may give it back, and again where it did not.
    pub(crate) fn give_back(&self, under_way: bool) {
        self.giving_back.store(under_way, Ordering::Release);
    }

    pub(crate) fn is_good(&self) -> bool {
        (*self.until.borrow()).is_some_and(|u| Instant::now() < u)
    }

    /// Waits until the lease is lost or has run out.
    pub(crate) async fn lost(&self) {
        let mut changes = self.until.subscribe();
        loop {
            let Some(until) = *changes.borrow_and_update() else { return };
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(until) => {
                    if !self.is_good() {
                        return self.lose("it ran out before it could be renewed");
                    }
                }
            }
        }
    }
}

/// All leases of this host.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<BTreeMap<JobId, Arc<Holding>>>,
    /// A lease was taken.
    taken: Notify,
}

impl Leases {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobId, Arc<Holding>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self, job: &Job, length: Duration, from: Instant) -> Arc<Holding> {
        let until = from + (length - length / MARGIN);
        let holding = Arc::new(Holding {
            id: job.id.clone(),
            token: job.token,
            length,
            fence: Fence::until(until.into_std()),
            cancel: CancellationToken::new(),
            lane: Lane::of(job),
            since: Instant::now(),
            until: watch::Sender::new(Some(until)),
            giving_back: AtomicBool::new(false),
        });
        if let Some(before) = self.lock().insert(job.id.clone(), holding.clone()) {
            before.lose("this host took the job again");
        }
        self.taken.notify_one();
        holding
    }

    /// The lease is given back or of no more use.
    pub(crate) fn drop(&self, holding: &Arc<Holding>) {
        holding.fence.lose();
        holding.until.send_if_modified(|was| was.take().is_some());
        let mut held = self.lock();
        if held.get(&holding.id).is_some_and(|h| Arc::ptr_eq(h, holding)) {
            held.remove(&holding.id);
        }
    }

    pub(crate) fn get(&self, id: &JobId) -> Option<Arc<Holding>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Holding>> {
        self.lock().values().cloned().collect()
    }

    /// Whether one more job of the lane keeps to the limits, as far as this host knows.
    pub(crate) fn room(&self, lane: &Lane, limits: &Limits) -> bool {
        let of = |limit: Option<u32>, same: &dyn Fn(&Lane) -> bool| {
            limit.is_none_or(|most| {
                let running = self.lock().values().filter(|h| same(&h.lane)).count();
                u32::try_from(running).unwrap_or(u32::MAX) < most
            })
        };
        of(limits.plugins.get(&lane.plugin).copied(), &|l| l.plugin == lane.plugin)
            && of(limits.pairs.get(&lane.pair).copied(), &|l| l.pair == lane.pair)
            && of(limits.each_tenant, &|l| l.tenant == lane.tenant)
    }

    /// Renews all leases again and again; never returns.
    pub(crate) async fn heartbeat(&self, ledger: &dyn Ledger, holder: &Arc<str>) {
        let mut last = Instant::now();
        let mut answered = true;
        loop {
            let Some(third) = self.all().iter().map(|h| h.length / 3).min() else {
                self.taken.notified().await;
                last = Instant::now();
                continue;
            };
            let pause = if answered { third } else { AGAIN.min(third) };
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(last + pause) => {}
                // A shorter lease may have come.
                () = self.taken.notified() => continue,
            }
            answered = self.renew(ledger, holder).await;
            last = Instant::now();
        }
    }

    /// Whether the ledger answered.
    async fn renew(&self, ledger: &dyn Ledger, holder: &Arc<str>) -> bool {
        let mut holdings = self.all();
        holdings.retain(|h| {
            let good = h.is_good();
            if !good {
                h.lose("it ran out before it could be renewed");
            }
            good
        });
        if holdings.is_empty() {
            return true;
        }
        let held =
            holdings.iter().map(|h| Held { id: h.id.clone(), token: h.token, lease: h.length }).collect();
        let from = Instant::now();
        match ledger.renew(holder.clone(), held).await {
            Ok(lost) => {
                for h in holdings {
                    match lost.contains(&h.id) {
                        false => h.extend(from),
                        // Whether it was given back before is for the write to tell.
                        true if h.giving_back.load(Ordering::Acquire) => {}
                        true => h.lose("another host has it"),
                    }
                }
                true
            }
            Err(e) => {
                tracing::warn!(event = "renewal-failed", error = %e, "leases could not be renewed; trying again");
                false
            }
        }
    }
}
