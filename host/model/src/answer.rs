//! What a plugin answers.

use std::time::Duration;

use serde_json::Value;

use crate::{Action, Failure, Identifier};

/// What apply would do to one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub resource: Identifier,
    pub action: Action,
    pub before: Option<Value>,
    pub after: Option<Value>,
    /// JSON Pointers into `after` that are known only once applied.
    pub unknown: Vec<String>,
    /// JSON Pointers of the settings that force a replacement.
    pub replace_because: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    pub changes: Vec<Planned>,
    /// Names of the steps that the request would take, in order.
    pub steps: Vec<String>,
}

/// A resource that apply finished.
#[derive(Clone, PartialEq)]
pub struct Applied {
    pub resource: Identifier,
    pub outputs: Value,
    pub secret_outputs: Value,
}

impl std::fmt::Debug for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applied")
            .field("resource", &self.resource)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

/// What one call of apply achieved.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    Done(Vec<Applied>),
    Next(NextStep),
    /// The plugin's state to keep before the same step goes on.
    Save(String),
    Wait(Pause),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    pub step: String,
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub state: String,
    pub after: Duration,
    pub message: String,
}

/// Why the work stopped, with what was reached before.
#[derive(Debug, Clone, PartialEq)]
pub struct Stopped {
    pub failure: Failure,
    pub applied: Vec<Applied>,
    pub state: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Present,
    Absent,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceClass {
    Drift,
    /// The same meaning in another spelling.
    Normalized,
    Missing,
    ForeignOwner,
}

impl DifferenceClass {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drift => "drift",
            Self::Normalized => "normalized",
            Self::Missing => "missing",
            Self::ForeignOwner => "foreign-owner",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// JSON Pointer.
    pub at: String,
    pub class: DifferenceClass,
    pub expected: Option<Value>,
    pub actual: Option<Value>,
}

/// How one resource looks now.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub resource: Identifier,
    pub presence: Presence,
    pub settings: Option<Value>,
    pub outputs: Option<Value>,
    pub differences: Vec<Difference>,
    pub warnings: Vec<String>,
}
