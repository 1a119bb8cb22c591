//! One upstream for all who follow the same container.
//!
//! The hub's own reader goes over cuts, restarts and rotations and tells a ring, from which each follower takes at its
//! own pace. A follower that comes later, or has fallen behind, reads its past by itself and goes on in the ring right
//! after its last line.

mod ring;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::output::Item;
use crate::reader::{Key, Reader};

use ring::Ring;
pub(crate) use ring::{Last, Place, Taken};

/// How often an upstream that is held up looks whether someone's time is over.
const LOOK: Duration = Duration::from_millis(100);

/// The hubs that run, by container.
#[derive(Debug, Default)]
pub(crate) struct Hubs(Mutex<HashMap<Key, Running>>);

#[derive(Debug)]
struct Running {
    hub: Arc<Hub>,
    /// Its reader; dropped, it ends, and its request with it.
    _reader: JoinSet<()>,
}

/// What the first follower of a container wants of its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Everything: the upstream tells it.
    Whole,
    /// So many lines, at least one: the upstream tells them.
    Tail(u64),
    /// What it reads by itself: the upstream begins with the last line.
    Now,
}

#[derive(Debug)]
pub(crate) struct Hub {
    ring: Mutex<Ring>,
    /// Something came, or the end.
    news: Notify,
    /// Somebody took something, or left.
    taken: Notify,
}

impl Hub {
    fn new(run: u32, begin: Begin) -> Self {
        let ring = Ring::new(run, begin == Begin::Whole);
        Self { ring: Mutex::new(ring), news: Notify::new(), taken: Notify::new() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all in, as soon as followers leave room.
    pub(crate) async fn tell(&self, items: Vec<Item>) {
        let mut items = items.into_iter();
        let mut held = None;
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            taken.as_mut().enable();
            {
                let mut ring = self.ring();
                let before = ring.bytes();
                while let Some(item) = held.take().or_else(|| items.next()) {
                    held = ring.push(item, Instant::now()).err();
                    if held.is_some() {
                        break;
                    }
                }
                queued(ring.bytes() as f64 - before as f64);
            }
            self.news.notify_waiters();
            if held.is_none() {
                return;
            }
            let _ = tokio::time::timeout(LOOK, taken).await;
        }
    }

    fn finish(&self) {
        self.ring().finish();
        self.news.notify_waiters();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        queued(-(self.ring().bytes() as f64));
    }
}

/// Ends the hub for its followers, however its reader ends.
struct Finish(Arc<Hub>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.finish();
        metrics::gauge!("sutler_log_upstreams").decrement(1.0);
    }
}

impl Hubs {
    /// Follows a container: by its hub, or where none runs by a new one, whose reader is made by `reader`.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &Key,
        run: u32,
        begin: Begin,
        reader: impl FnOnce(Arc<Hub>) -> Reader,
    ) -> Follower {
        let now = Instant::now();
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = running.get(key).map(|r| r.hub.clone()).filter(|hub| !hub.ring().is_ended());
        let first = known.is_none();
        let hub = known.unwrap_or_else(|| {
            let hub = Arc::new(Hub::new(run, begin));
            let (reader, finish) = (reader(hub.clone()), Finish(hub.clone()));
            metrics::gauge!("sutler_log_upstreams").increment(1.0);
            let mut task = JoinSet::new();
            task.spawn(async move {
                let _finish = finish;
                reader.run().await;
            });
            running.insert(key.clone(), Running { hub: hub.clone(), _reader: task });
            hub
        });
        let mut ring = hub.ring();
        let id = ring.join(now);
        let placed = first && begin != Begin::Now;
        if placed {
            ring.attach(id, 0, now);
        }
        drop(ring);
        metrics::gauge!("sutler_log_followers").increment(1.0);
        Follower { hubs: self.clone(), key: key.clone(), hub, id, placed }
    }
}

/// One who follows. The hub ends with the last one.
#[derive(Debug)]
pub(crate) struct Follower {
    hubs: Arc<Hubs>,
    key: Key,
    hub: Arc<Hub>,
    id: u64,
    placed: bool,
}

impl Follower {
    /// Whether it is the first, and what it wants of the past comes by the upstream. Said once.
    pub(crate) fn take_placed(&mut self) -> bool {
        std::mem::take(&mut self.placed)
    }

    /// From the beginning of the container's present run, if the hub has all of it; answers the restarts before it.
    pub(crate) fn attach_at_beginning(&self) -> Option<u32> {
        let mut ring = self.hub.ring();
        let (at, run) = ring.beginning()?;
        ring.attach(self.id, at, Instant::now());
        Some(run)
    }

    /// Holds nobody back until it has a place again.
    pub(crate) fn detach(&self) {
        self.hub.ring().detach(self.id);
        self.hub.taken.notify_waiters();
    }

    /// Where the hub is now, before the past is read, and whether all that will be written comes after it.
    pub(crate) fn now(&self) -> (u64, bool) {
        let ring = self.hub.ring();
        (ring.end(), ring.is_sure())
    }

    /// Goes on after its last line.
    pub(crate) fn after(&self, last: &Last) -> Place {
        let mut ring = self.hub.ring();
        let place = ring.after(last);
        if let Place::At(at, _) | Place::Before(at, _) = place {
            ring.attach(self.id, at, Instant::now());
        }
        place
    }

    /// Goes on there; answers the restarts before it.
    pub(crate) fn at(&self, at: u64) -> u32 {
        let mut ring = self.hub.ring();
        ring.attach(self.id, at, Instant::now());
        ring.run_at(at)
    }

    /// What comes next; waits for it.
    pub(crate) async fn next(&self) -> Taken {
        loop {
            let news = self.hub.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let taken = self.hub.ring().take(self.id, Instant::now());
            match taken {
                Taken::Nothing => {
                    // It may have been what the upstream waits for.
                    self.hub.taken.notify_waiters();
                    news.await;
                }
                Taken::Items(_) => {
                    self.hub.taken.notify_waiters();
                    return taken;
                }
                Taken::Behind | Taken::Ended => return taken,
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        metrics::gauge!("sutler_log_followers").decrement(1.0);
        let mut running = self.hubs.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ring = self.hub.ring();
        ring.leave(self.id);
        let left = ring.is_left();
        drop(ring);
        self.hub.taken.notify_waiters();
        // Under the lock that joining takes: nobody comes between.
        if left && running.get(&self.key).is_some_and(|r| Arc::ptr_eq(&r.hub, &self.hub)) {
            running.remove(&self.key);
        }
    }
}

fn queued(more: f64) {
    metrics::gauge!("sutler_log_queued_bytes", "of" => "upstreams").increment(more);
}
