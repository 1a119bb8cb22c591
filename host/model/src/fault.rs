//! A fault is not an answer: the plugin trapped, ran over a limit, or broke its contract.

use std::fmt;

/// What went wrong inside or around a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// unreachable, out-of-bounds, a panic.
    Trap,
    /// Guest CPU used up.
    Cpu,
    /// Memory beyond the limit was asked for.
    Memory,
    /// The wall time of the call ran out in guest code.
    Wall,
    /// The wall time ran out while a capability was being waited for.
    DependencyTimeout,
    /// The answer, or what passed through host calls, was too large.
    Output,
    /// The answer is not what the contract allows.
    Contract,
    /// The host could not run the call: no sandbox free, cancelled.
    Host,
}

impl FaultKind {
    /// The host's failure code for it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::DependencyTimeout => "dependency-timeout",
            Self::Contract => "plugin-broke-contract",
            _ => "plugin-fault",
        }
    }
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::Cpu => "cpu-limit",
            Self::Memory => "memory-limit",
            Self::Wall => "time-limit",
            Self::DependencyTimeout => "dependency-timeout",
            Self::Output => "output-limit",
            Self::Contract => "contract",
            Self::Host => "host",
        }
    }
}

/// One fault, as the operator finds it in the log and under `/plugins/{name}/faults`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// `flt_` and 12 hex digits; the caller sees it too.
    pub id: String,
    pub kind: FaultKind,
    pub plugin: String,
    /// The plugin's export that was running: `plan`, `apply`, …
    pub export: String,
    /// What happened, in one sentence, without the plugin's data.
    pub message: String,
    /// The guest's frames by function name, innermost first.
    pub frames: Vec<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {} of plugin {}: {} ({})",
            self.kind.as_str(),
            self.export,
            self.plugin,
            self.message,
            self.id
        )
    }
}
impl std::error::Error for Fault {}
