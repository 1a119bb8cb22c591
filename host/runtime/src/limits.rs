//! What one plugin may use.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

/// Limits of one plugin: `[plugins.NAME.limits]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Limits {
    /// Memory of one sandbox in total, in MiB.
    pub memory_mib: u32,
    /// Guest CPU of one call, in milliseconds; waiting for a capability does not count.
    pub cpu_milliseconds: u32,
    /// Wall time of one call, in seconds, waiting included.
    pub wall_seconds: u32,
    /// Bytes that may pass through capabilities in one call, both ways, in MiB.
    pub host_call_mib: u32,
    /// Size of one answer, in KiB.
    pub output_kib: u32,
    /// Calls of this plugin that may run at once.
    pub concurrent_calls: u32,
    /// Bytes that one call may write to the log, in KiB; what is beyond is dropped, with one line that says so.
    pub log_kib: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_mib: 64,
            cpu_milliseconds: 2_000,
            wall_seconds: 60,
            host_call_mib: 64,
            output_kib: 4_096,
            concurrent_calls: 32,
            log_kib: 64,
        }
    }
}

impl Limits {
    /// `max_memory_mib`: what `[runtime]` allows.
    ///
    /// # Errors
    /// The key, and what it may be.
    pub fn check(&self, max_memory_mib: u32) -> Result<(), String> {
        let least_one = [
            ("memory-mib", self.memory_mib),
            ("cpu-milliseconds", self.cpu_milliseconds),
            ("wall-seconds", self.wall_seconds),
            ("output-kib", self.output_kib),
            ("concurrent-calls", self.concurrent_calls),
        ];
        if let Some((key, _)) = least_one.iter().find(|(_, v)| *v == 0) {
            return Err(format!("{key} is 0; nothing could run: use at least 1"));
        }
        if self.memory_mib > max_memory_mib {
            return Err(format!(
                "memory-mib is {}; [runtime] max-memory-mib allows {max_memory_mib}",
                self.memory_mib
            ));
        }
        Ok(())
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        (self.memory_mib as usize) << 20
    }
    pub(crate) const fn wall(&self) -> Duration {
        Duration::from_secs(self.wall_seconds as u64)
    }
    pub(crate) const fn host_call_bytes(&self) -> usize {
        (self.host_call_mib as usize) << 20
    }
    pub(crate) const fn output_bytes(&self) -> usize {
        (self.output_kib as usize) << 10
    }
    pub(crate) const fn log_bytes(&self) -> usize {
        (self.log_kib as usize) << 10
    }
}
