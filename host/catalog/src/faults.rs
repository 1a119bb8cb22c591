//! The newest faults of each plugin, for the operator.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use sutler_model::Fault;

/// Faults kept for one plugin; the count goes on.
const KEPT: usize = 50;

/// Written only when a plugin faults, so a lock does no harm.
#[derive(Debug, Default)]
pub struct FaultLog {
    by_plugin: Mutex<HashMap<String, (u64, VecDeque<Fault>)>>,
}

impl FaultLog {
    pub fn record(&self, fault: &Fault) {
        tracing::error!(
            event = "plugin-fault", fault_id = %fault.id, plugin = %fault.plugin, export = %fault.export,
            kind = fault.kind.as_str(), frames = ?fault.frames, "{}", fault.message
        );
        let mut all = self.by_plugin.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, kept) = all.entry(fault.plugin.clone()).or_default();
        *count += 1;
        kept.push_front(fault.clone());
        kept.truncate(KEPT);
    }

    /// Newest first.
    pub fn of(&self, plugin: &str) -> Vec<Fault> {
        let all = self.by_plugin.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(plugin).map(|(_, kept)| kept.iter().cloned().collect()).unwrap_or_default()
    }

    pub fn count(&self, plugin: &str) -> u64 {
        let all = self.by_plugin.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(plugin).map_or(0, |(count, _)| *count)
    }
}
