//! The row of a job and its words.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sutler_model::{Application, Digest, Identifier, Pair, PluginName};

/// Milliseconds since 1970 by the ledger's clock, which every host of one ledger shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Millis(pub i64);

impl Millis {
    #[must_use]
    pub fn plus(self, d: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
    /// From `earlier` to here; zero where it is later.
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// `op_` (an apply's operation) or `job_`, and 32 hex digits of a UUID of version 7, so that ids sort by age.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Arc<str>);

impl JobId {
    pub fn operation() -> Self {
        Self(format!("op_{}", uuid::Uuid::now_v7().simple()).into())
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no job's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the id of an operation or a job")]
pub struct InvalidJobId(pub String);

impl FromStr for JobId {
    type Err = InvalidJobId;
    fn from_str(s: &str) -> Result<Self, InvalidJobId> {
        let digits = s.strip_prefix("op_").or_else(|| s.strip_prefix("job_"));
        let hex =
            |d: &&str| d.len() == 32 && d.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match digits.filter(hex) {
            Some(_) => Ok(Self(s.into())),
            None => Err(InvalidJobId(s.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Enums that are stored as kebab-case texts.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|v| v.as_str() == s).ok_or_else(|| UnknownWord {
                    what: stringify!($name),
                    found: s.chars().take(40).collect(),
                })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

/// A word that this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no {what} that this version knows")]
pub struct UnknownWord {
    pub what: &'static str,
    pub found: String,
}

words!(
    /// What a job is for (seed C: two kinds, one table).
    JobKind { Provisioning = "provisioning", Remediation = "remediation" }
);
words!(
    /// How a job treats its subject (checklist C9).
    JobMode { Create = "create", Adopt = "adopt", PlanOnly = "plan-only" }
);
words!(
    /// Where a job stands (contract section 3).
    Status {
        Draft = "draft", Queued = "queued", Running = "running", Completed = "completed", Failed = "failed",
        Cancelled = "cancelled",
    }
);
words!(
    /// Whether a job does its work or takes it back.
    Phase { Forward = "forward", Cleanup = "cleanup" }
);

impl Status {
    /// No worker will touch it unless somebody asks for more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Who works on a job now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The host: a name that is new with every start of a process.
    pub holder: Arc<str>,
    pub until: Millis,
}

/// What the state machine decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub status: Status,
    pub phase: Phase,
    /// Empty before the first step.
    pub step: String,
    /// Of the current step, 1 for the first; stored before the step runs.
    pub attempt: u32,
    pub cancel_requested: bool,
}

/// A job as the ledger holds it. `request`, `state` and `answer` are sealed on the disk.
#[derive(Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub kind: JobKind,
    pub mode: JobMode,
    /// What is acted on: `application` for an apply.
    pub subject_type: String,
    pub subject_id: String,
    pub pair: Pair,
    pub application: Application,
    pub resources: Vec<Identifier>,
    pub plugin: PluginName,
    /// The generation that the job stays on.
    pub digest: Digest,
    /// The name of the token that asked.
    pub caller: String,
    pub request_id: String,
    pub standing: Standing,
    /// When the job may be claimed next: a queued job at once, a parked one after its pause.
    pub due: Millis,
    pub lease: Option<Lease>,
    /// The fencing token: grows with every claim.
    pub token: u64,
    /// Grows with every write.
    pub revision: u64,
    /// When the job fails whatever it does.
    pub deadline: Millis,
    pub created: Millis,
    pub updated: Millis,
    /// What was asked and planned, as JSON of the jobs' own.
    pub request: Arc<str>,
    /// The checkpoint, as JSON of the jobs' own.
    pub state: Arc<str>,
    /// The final answer, as JSON of the jobs' own.
    pub answer: Option<Arc<str>>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("pair", &self.pair)
            .field("standing", &self.standing)
            .field("due", &self.due)
            .field("lease", &self.lease)
            .field("token", &self.token)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
