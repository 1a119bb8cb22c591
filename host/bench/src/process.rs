//! What the kernel tells of processes, in /proc.

use anyhow::{Context as _, Result};

/// Ticks a second of the times.
const TICKS: f64 = 100.0;

/// What the kernel tells of a process.
pub(crate) struct Process(pub(crate) u32);

impl Process {
    /// Its memory now, in MB; from now on the peak counts.
    pub(crate) fn restart_peak(&self) -> Result<f64> {
        std::fs::write(format!("/proc/{}/clear_refs", self.0), "5")?;
        self.memory()
    }

    /// Its memory now, in MB.
    pub(crate) fn memory(&self) -> Result<f64> {
        self.status("VmRSS:")
    }

    /// The most memory it held since then, or since its start, in MB.
    pub(crate) fn peak(&self) -> Result<f64> {
        self.status("VmHWM:")
    }

    fn status(&self, field: &str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0))?;
        let line = text.lines().find_map(|l| l.strip_prefix(field)).context("no such field")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes / 1024.0)
    }

    /// Seconds of CPU so far.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let [user, system, ..] = times(&format!("/proc/{}/stat", self.0))?;
        Ok(user + system)
    }
}

/// Seconds of CPU of all children that have ended.
pub(crate) fn children_cpu() -> Result<f64> {
    let [_, _, user, system] = times("/proc/self/stat")?;
    Ok(user + system)
}

/// User, system, and both of the children, in seconds.
fn times(file: &str) -> Result<[f64; 4]> {
    let text = std::fs::read_to_string(file)?;
    let (_, fields) = text.rsplit_once(')').context("no name in it")?;
    let ticks =
        fields.split_whitespace().skip(11).take(4).map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?;
    let seconds: Vec<f64> = ticks.into_iter().map(|t| t / TICKS).collect();
    seconds.try_into().ok().context("too few fields")
}
