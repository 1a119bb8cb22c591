//! Where a ledger's time comes from.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Millis;

/// A source of time. Ledgers in the process take theirs from it; PostgreSQL has its own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Millis + Send + Sync>);

impl Clock {
    /// Begins at the wall clock, or at `newest` where that is later, and goes on by the monotonic clock: whatever
    /// happens to the wall clock afterwards does nothing.
    pub fn steady(newest: Millis) -> Self {
        let base = wall().max(newest);
        let start = Instant::now();
        Self(Arc::new(move || base.plus(start.elapsed())))
    }
    pub fn from_fn(f: impl Fn() -> Millis + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }
    pub fn now(&self) -> Millis {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now().0)
    }
}

fn wall() -> Millis {
    Millis(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub fn new(start: Millis) -> Self {
        Self(Arc::new(AtomicI64::new(start.0)))
    }
    pub fn set(&self, to: Millis) {
        self.0.store(to.0, Ordering::SeqCst);
    }
    pub fn advance(&self, by: Duration) {
        self.set(self.now().plus(by));
    }
    pub fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
    /// The same clock, for a ledger.
    pub fn clock(&self) -> Clock {
        let this = self.clone();
        Clock::from_fn(move || this.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_clock_begins_at_the_later_of_wall_and_newest() {
        assert!(Clock::steady(Millis(0)).now() >= Millis(1_600_000_000_000));
        let future = wall().plus(Duration::from_secs(1_000_000));
        let now = Clock::steady(future).now();
        assert!(now >= future && now < future.plus(Duration::from_secs(60)), "{now:?}");
    }
}
