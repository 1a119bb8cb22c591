//! Jobs, their events, leases and repeats, kept so that nothing accepted is lost. SQLite by default, PostgreSQL
//! for several hosts, one in memory for tests. It never decides what happens to a job: that is sutler-jobs' part.

mod audit;
mod check;
mod clock;
mod error;
mod event;
mod failpoint;
mod job;
mod late;
mod ledger;
pub mod lines;
mod memory;
mod postgres;
mod rules;
mod seal;
mod sqlite;
mod takes;
mod wake;

#[cfg(feature = "testing")]
pub mod contract;

pub use audit::{Audit, AuditFilter, AuditPlace, Deed, InvalidAuditPlace, Names};
pub use clock::{Clock, ManualClock};
pub use error::LedgerError;
pub use event::{Event, Happened};
pub use failpoint::{FAILPOINTS, POSTGRES_FAILPOINTS, failpoint};
pub use job::{
    InvalidJobId, Job, JobId, JobKind, JobMode, Lease, Millis, Phase, Standing, Status, UnknownWord,
};
pub use late::Late;
pub use ledger::{
    Answer, Begun, Claim, Depth, Filter, Held, LeaseChange, Ledger, Limits, NewJob, Problem, Record, Write,
};
pub use memory::{Hook, Memory, Moment};
pub use postgres::{Hold, Postgres, PostgresOptions};
pub use seal::Keys;
pub use sqlite::{Sqlite, SqliteOptions};
pub use takes::{Taken, Takes};
