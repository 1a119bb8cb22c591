//! Releases as Helm keeps them: records, the operations on them, readiness, drift.

mod advance;
mod client_side;
mod compare;
mod drift;
mod hooks;
mod lookup;
mod migrate;
mod operation;
mod prepare;
mod preview;
mod readiness;
mod record;
mod rollback;
mod storage;
mod tail;
mod target;
mod testing;
mod unfinished;
mod uninstall;
mod upgrade;
mod write;

pub use readiness::Health;
pub use record::Status;
pub use unfinished::{Unfinished, unfinished};

pub(crate) use drift::drift;
pub(crate) use operation::Asked;
pub(crate) use prepare::{Rendering, prepare, render};
pub(crate) use preview::preview;
pub(crate) use readiness::readiness;
pub(crate) use record::Record;
pub(crate) use rollback::rollback;
pub(crate) use storage::{Storage, chart_of};
pub(crate) use target::Target;
pub(crate) use testing::test;
pub(crate) use uninstall::uninstall;
pub(crate) use upgrade::{Resumed, begin, resume};
pub(crate) use write::Seen;
