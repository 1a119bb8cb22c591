//! Clocks of a sandbox: a fixed instant while it must only think, the real one while it acts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sutler_model::Mode;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// 2026-01-01T00:00:00Z: what every clock shows during describe and plan.
pub(crate) const FIXED: Duration = Duration::from_secs(1_767_225_600);

#[derive(Clone)]
pub(crate) struct Clock {
    /// `None`: the fixed instant.
    started: Option<Instant>,
    /// A fixed monotonic clock still moves by a microsecond a reading, so that a guest's own waits end.
    reads: Arc<AtomicU64>,
}

impl Clock {
    pub(crate) fn of(mode: Mode) -> Self {
        let fixed = matches!(mode, Mode::Describe | Mode::Plan);
        Self { started: (!fixed).then(Instant::now), reads: Arc::default() }
    }

    pub(crate) fn wall(&self) -> Duration {
        match self.started {
            None => FIXED,
            Some(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    pub(crate) fn monotonic_nanoseconds(&self) -> u64 {
        match self.started {
            None => self.reads.fetch_add(1, Ordering::Relaxed).saturating_mul(1_000),
            Some(t) => u64::try_from(t.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }
    fn now(&self) -> Duration {
        self.wall()
    }
}

impl HostMonotonicClock for Clock {
    fn resolution(&self) -> u64 {
        1_000
    }
    fn now(&self) -> u64 {
        self.monotonic_nanoseconds()
    }
}
