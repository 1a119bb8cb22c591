//! What one call has used, and why it was stopped.

use std::time::{Duration, Instant};

use wasmtime::ResourceLimiter;

use crate::engine::TICK;
use crate::limits::Limits;

/// Why the host stopped a sandbox. Carried through wasmtime as the trap's error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("it used more than {0} ms of CPU")]
    Cpu(u32),
    #[error("it asked for more than {0} MiB of memory")]
    Memory(u32),
    #[error("more than {0} MiB passed through its capability calls")]
    HostBytes(u32),
    #[error("the time of the call ran out while waiting for {0}")]
    Dependency(&'static str),
    #[error("its host lost the job to another one")]
    Lease,
    #[error("it exited by itself with code {0}")]
    Exit(i32),
}

/// Counts of one call against the plugin's limits.
pub(crate) struct Budget {
    memory: usize,
    memory_limit: usize,
    memory_mib: u32,
    cpu_ticks: u32,
    cpu_limit: u32,
    cpu_milliseconds: u32,
    /// Ticks that passed inside long host calls and are not the guest's.
    free_ticks: u32,
    bytes_left: usize,
    host_call_mib: u32,
    /// The host call that is being waited for.
    pub(crate) waiting_for: Option<&'static str>,
    entered: Instant,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        let tick = TICK.as_millis() as u32;
        Self {
            memory: 0,
            memory_limit: limits.memory_bytes(),
            memory_mib: limits.memory_mib,
            cpu_ticks: 0,
            cpu_limit: limits.cpu_milliseconds.div_ceil(tick).max(1),
            cpu_milliseconds: limits.cpu_milliseconds,
            free_ticks: 0,
            bytes_left: limits.host_call_bytes(),
            host_call_mib: limits.host_call_mib,
            waiting_for: None,
            entered: Instant::now(),
        }
    }

    /// One epoch tick was noticed in guest code.
    pub(crate) fn tick(&mut self) -> Result<(), Stop> {
        if self.free_ticks > 0 {
            self.free_ticks -= 1;
            return Ok(());
        }
        self.cpu_ticks += 1;
        if self.cpu_ticks > self.cpu_limit { Err(Stop::Cpu(self.cpu_milliseconds)) } else { Ok(()) }
    }

    pub(crate) fn spend(&mut self, bytes: usize) -> Result<(), Stop> {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(Stop::HostBytes(self.host_call_mib)),
        }
    }

    pub(crate) fn enter(&mut self, name: &'static str) {
        self.waiting_for = Some(name);
        self.entered = Instant::now();
    }

    /// A host call that lasted beyond a tick makes the next tick noticed free: the guest was not running.
    pub(crate) fn leave(&mut self) {
        self.waiting_for = None;
        if self.entered.elapsed() >= Duration::from_millis(1).min(TICK) {
            self.free_ticks = 1;
        }
    }
}

impl ResourceLimiter for Budget {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory.saturating_add(desired.saturating_sub(current));
        if total > self.memory_limit {
            return Err(wasmtime::Error::new(Stop::Memory(self.memory_mib)));
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_in_total() {
        let mut b = Budget::new(&Limits { memory_mib: 1, ..Limits::default() });
        assert!(b.memory_growing(0, 512 << 10, None).unwrap());
        assert!(b.memory_growing(0, 512 << 10, None).unwrap());
        let e = b.memory_growing(512 << 10, (512 << 10) + 1, None).unwrap_err();
        assert_eq!(e.downcast_ref::<Stop>(), Some(&Stop::Memory(1)));
    }

    #[test]
    fn bytes_and_ticks_run_out() {
        let mut b = Budget::new(&Limits { host_call_mib: 1, cpu_milliseconds: 10, ..Limits::default() });
        assert_eq!(b.spend(1 << 20), Ok(()));
        assert_eq!(b.spend(1), Err(Stop::HostBytes(1)));
        assert_eq!([b.tick(), b.tick(), b.tick()], [Ok(()), Ok(()), Err(Stop::Cpu(10))]);
    }
}
