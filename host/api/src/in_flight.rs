//! Which requests run, so that a stopping host can wait for them and name those it cannot.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::share::Place;

/// A request that had not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub method: &'static str,
    pub route: &'static str,
    pub request_id: Arc<str>,
    pub caller: Option<Arc<str>>,
    pub since: Duration,
}

#[derive(Debug)]
struct Info {
    method: &'static str,
    route: &'static str,
    request_id: Arc<str>,
    started: Instant,
    caller: OnceLock<Arc<str>>,
    reported: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    next: AtomicU64,
    running: Mutex<HashMap<u64, Arc<Info>>>,
    idle: Notify,
}

/// A request's place among those that run. It is given back when the last part of its work (the handler, an apply
/// whose client went away, a stream) has dropped it.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    info: Arc<Info>,
    registry: Arc<InFlight>,
    _permit: Option<OwnedSemaphorePermit>,
    /// Of the route's instance, or of the caller where the route has none.
    share: OnceLock<Place>,
    /// Of the instance that the body names.
    share_by_body: OnceLock<Place>,
}

impl InFlight {
    pub(crate) fn enter(
        self: &Arc<Self>,
        method: &'static str,
        route: &'static str,
        request_id: Arc<str>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Arc<Ticket> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let info = Arc::new(Info {
            method,
            route,
            request_id,
            started: Instant::now(),
            caller: OnceLock::new(),
            reported: AtomicBool::new(false),
        });
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, info.clone());
        Arc::new(Ticket {
            id,
            info,
            registry: self.clone(),
            _permit: permit,
            share: OnceLock::new(),
            share_by_body: OnceLock::new(),
        })
    }

    /// The requests that run, the longest first.
    pub(crate) fn list(&self) -> Vec<Running> {
        self.select(|_| true)
    }

    /// Like `list`, each request once: two listeners that stop together share one account.
    pub(crate) fn report(&self) -> Vec<Running> {
        self.select(|i| !i.reported.swap(true, Ordering::Relaxed))
    }

    fn select(&self, which: impl Fn(&Info) -> bool) -> Vec<Running> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |i: &Arc<Info>| Running {
            method: i.method,
            route: i.route,
            request_id: i.request_id.clone(),
            caller: i.caller.get().cloned(),
            since: i.started.elapsed(),
        };
        let mut list: Vec<Running> = running.values().filter(|i| which(i)).map(shown).collect();
        list.sort_by_key(|r| std::cmp::Reverse(r.since));
        list
    }

    pub(crate) fn len(&self) -> usize {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns once no request runs.
    pub(crate) async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.len() == 0 {
                return;
            }
            notified.await;
        }
    }
}

impl Ticket {
    pub(crate) fn request_id(&self) -> &Arc<str> {
        &self.info.request_id
    }
    pub(crate) fn route(&self) -> &'static str {
        self.info.route
    }
    /// Keeps a place within a share until the request is over: at most two.
    pub(crate) fn keep(&self, place: Place) {
        if let Err(place) = self.share.set(place) {
            let _ = self.share_by_body.set(place);
        }
    }
    pub(crate) fn caller(&self) -> Option<&Arc<str>> {
        self.info.caller.get()
    }
    pub(crate) fn set_caller(&self, name: Arc<str>) {
        // A request has one caller: the first word stands.
        let _ = self.info.caller.set(name);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut running = self.registry.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.id);
        if running.is_empty() {
            self.registry.idle.notify_waiters();
        }
    }
}
