//! The words of sutler: pairs, applications, changes, proposals, progress, failures, faults, owners and grants.
//! It never does I/O and knows neither HTTP nor WebAssembly.

mod answer;
mod call;
mod descriptor;
mod diff;
mod failure;
mod fault;
mod fence;
mod grant;
mod ids;
mod pattern;
mod quota;
mod request;
mod secret;

pub use answer::{
    Applied, Difference, DifferenceClass, NextStep, Observed, Pause, Planned, Presence, Progress, Proposal,
    Stopped,
};
pub use call::{Call, Mode, Owner};
pub use descriptor::{Descriptor, PairDescriptor, Step};
pub use diff::{FieldChange, by_member, canonical, canonical_into, field_changes, member, pointer_part};
pub use failure::{Failure, HOST_CODES, host_code};
pub use fault::{Fault, FaultKind};
pub use fence::Fence;
pub use grant::{Effective, Layer, NotGranted};
pub use ids::{Digest, Identifier, InvalidName, Kind, Pair, PluginName, RequestId, hex};
pub use pattern::{Pattern, PatternError};
pub use quota::{Measure, OverQuota, Quota, QuotaOf, Quotas, Use};
pub use request::{Action, Application, Change, Checkpoint, Inquiry, Known, Request};
pub use secret::Secret;
