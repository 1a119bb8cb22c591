//! What happened to a job, in order. Events hold no settings, outputs, state or reasons: those are sealed.

use serde::{Deserialize, Serialize};

use crate::{Millis, Phase};

/// One entry of a job's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// 1 for the first of a job, without gaps.
    pub seq: u64,
    pub at: Millis,
    #[serde(flatten)]
    pub what: Happened,
}

/// The events of the state machine (contract section 3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Happened {
    /// A draft was made.
    Drafted,
    /// It waits for a worker.
    Submitted,
    /// A worker took it; `token` is larger than every one before.
    Claimed {
        token: u64,
        holder: String,
    },
    /// An attempt at a step begins. Written before the plugin runs.
    StepStarted {
        step: String,
        attempt: u32,
    },
    /// The current step is done and this one is next.
    StepFinished {
        next: String,
    },
    /// The plugin's state was kept; the step goes on at once.
    Saved,
    /// Parked until `due`; nobody holds it.
    Waiting {
        due: Millis,
    },
    /// The attempt failed and another follows at `due`.
    StepFailed {
        code: String,
        due: Millis,
    },
    /// The worker gave it back unharmed: its host is stopping, or has no room.
    Released {
        due: Millis,
    },
    Completed,
    Failed {
        code: String,
    },
    Retried {
        phase: Phase,
    },
    CancelRequested,
    /// The work is taken back from here on.
    CleanupStarted,
    Cancelled,
}

impl Happened {
    /// The name that it is stored and shown by.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Drafted => "drafted",
            Self::Submitted => "submitted",
            Self::Claimed { .. } => "claimed",
            Self::StepStarted { .. } => "step-started",
            Self::StepFinished { .. } => "step-finished",
            Self::Saved => "saved",
            Self::Waiting { .. } => "waiting",
            Self::StepFailed { .. } => "step-failed",
            Self::Released { .. } => "released",
            Self::Completed => "completed",
            Self::Failed { .. } => "failed",
            Self::Retried { .. } => "retried",
            Self::CancelRequested => "cancel-requested",
            Self::CleanupStarted => "cleanup-started",
            Self::Cancelled => "cancelled",
        }
    }
}
