//! Releases as Helm keeps them: records, upgrade, uninstall, readiness, drift.

mod compare;
mod drift;
mod migrate;
mod prepare;
mod readiness;
mod record;
mod storage;
mod target;
mod uninstall;
mod upgrade;

pub use readiness::Health;
pub use record::Status;

pub(crate) use drift::{drift, preview};
pub(crate) use prepare::{Rendering, prepare, render};
pub(crate) use readiness::readiness;
pub(crate) use record::Record;
pub(crate) use storage::{Storage, chart_of};
pub(crate) use target::Target;
pub(crate) use uninstall::uninstall;
pub(crate) use upgrade::upgrade;
