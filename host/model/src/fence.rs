//! How long a worker may still change the world.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Instants are compared as nanoseconds from here on.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

const LOST: u64 = 0;

/// The lease under which a call runs, as its capabilities see it. All clones are the same fence. Once lost it
/// stays lost: another host may be at work. Without a lease it is endless.
#[derive(Clone)]
pub struct Fence(Option<Arc<AtomicU64>>);

impl Fence {
    /// For calls that need no lease: plan, inspect, describe.
    pub const fn endless() -> Self {
        Self(None)
    }

    /// Holds until then.
    pub fn until(until: Instant) -> Self {
        Self(Some(Arc::new(AtomicU64::new(nanos(until)))))
    }

    /// How long it still holds; zero once it is lost. A request that changes something takes no longer than this.
    pub fn left(&self) -> Duration {
        self.left_at(Instant::now())
    }

    /// The same, for those whose time is not the machine's.
    pub fn left_at(&self, now: Instant) -> Duration {
        let Some(until) = &self.0 else { return Duration::MAX };
        match until.load(Ordering::Acquire) {
            LOST => Duration::ZERO,
            until => Duration::from_nanos(until.saturating_sub(nanos(now))),
        }
    }

    /// From now on nothing may be changed.
    pub fn lose(&self) {
        if let Some(until) = &self.0 {
            until.store(LOST, Ordering::Release);
        }
    }

    /// Holds until then at least, unless it is lost.
    pub fn extend(&self, to: Instant) {
        let Some(until) = &self.0 else { return };
        let to = nanos(to);
        let _unchanged = until
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |was| (was != LOST && was < to).then_some(to));
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fence").field(&self.left()).finish()
    }
}

/// Never 0: that means lost.
fn nanos(at: Instant) -> u64 {
    let n = at.saturating_duration_since(*BASE).as_nanos();
    u64::try_from(n).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left() {
        let now = Instant::now() + Duration::from_secs(100);
        let fence = Fence::until(now + Duration::from_secs(10));
        let other = fence.clone();
        assert_eq!(fence.left_at(now), Duration::from_secs(10));
        assert_eq!(fence.left_at(now + Duration::from_secs(11)), Duration::ZERO);
        other.extend(now + Duration::from_secs(20));
        assert_eq!(fence.left_at(now), Duration::from_secs(20));
        other.extend(now + Duration::from_secs(5));
        assert_eq!(fence.left_at(now), Duration::from_secs(20), "it never shrinks");
        other.lose();
        assert_eq!(fence.left_at(now), Duration::ZERO);
        other.extend(now + Duration::from_secs(30));
        assert_eq!(fence.left_at(now), Duration::ZERO, "lost stays lost");
        assert_eq!(Fence::endless().left(), Duration::MAX);
    }
}
