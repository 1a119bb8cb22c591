//! Why a piece of work on the database did not succeed, and what that means for the ledger.

use rusqlite::ErrorCode;

use crate::{LedgerError, UnknownWord};

/// `Refused` is an answer: the database is well and others' work goes on.
#[derive(Debug)]
pub(super) enum Broken {
    Refused(LedgerError),
    Sqlite(rusqlite::Error),
}

impl From<LedgerError> for Broken {
    fn from(e: LedgerError) -> Self {
        Self::Refused(e)
    }
}
impl From<rusqlite::Error> for Broken {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}
impl From<UnknownWord> for Broken {
    fn from(e: UnknownWord) -> Self {
        Self::Refused(LedgerError::Unreadable(format!("{e}; a newer version of sutler wrote it")))
    }
}

impl Broken {
    pub(super) fn told(self) -> LedgerError {
        match self {
            Self::Refused(e) => e,
            Self::Sqlite(e) => told(&e),
        }
    }
}

/// What a job's stored text breaks.
pub(super) fn unreadable(what: &str, e: impl std::fmt::Display) -> Broken {
    Broken::Refused(LedgerError::Unreadable(format!(
        "{what} in the ledger cannot be read: {e}; run `sutler ledger check`"
    )))
}

pub(super) const DAMAGED: &str = "stop the host and restore a backup, or copy what is still readable into a new \
     ledger with `sutler ledger export` and `sutler ledger import`";

fn code(e: &rusqlite::Error) -> Option<ErrorCode> {
    e.sqlite_error_code()
}

/// Whether the disk had no room: others' smaller writes may still pass.
pub(super) fn is_full(e: &rusqlite::Error) -> bool {
    code(e) == Some(ErrorCode::DiskFull)
}

/// Whether a failed commit may come back after a crash: the disk was asked to write it and did not say.
pub(super) fn is_uncertain(e: &rusqlite::Error) -> bool {
    code(e) == Some(ErrorCode::SystemIoFailure)
}

/// Whether the connection is better opened anew.
pub(super) fn needs_reopening(e: &rusqlite::Error) -> bool {
    use ErrorCode as C;
    matches!(
        code(e),
        Some(C::SystemIoFailure | C::CannotOpen | C::NotADatabase | C::DatabaseCorrupt | C::ReadOnly)
    )
}

pub(super) fn told(e: &rusqlite::Error) -> LedgerError {
    use ErrorCode as C;
    match code(e) {
        Some(C::DatabaseCorrupt | C::NotADatabase) => {
            LedgerError::Unreadable(format!("the ledger's file is damaged ({e}); {DAMAGED}"))
        }
        Some(C::DiskFull) => LedgerError::Unavailable(format!("the disk is full ({e}); make room")),
        Some(C::ReadOnly) => LedgerError::Unavailable(format!("the disk or file is read-only ({e})")),
        Some(C::DatabaseBusy | C::DatabaseLocked) => {
            LedgerError::Unavailable(format!("another process writes the ledger for too long ({e})"))
        }
        _ => LedgerError::Unavailable(e.to_string()),
    }
}
