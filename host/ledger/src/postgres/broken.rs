//! Why a statement did not succeed, and what that means for the ledger.

use tokio_postgres::error::{Error, SqlState};

use crate::{LedgerError, UnknownWord};

/// What is not an answer yet, or one that says no.
#[derive(Debug)]
pub(super) enum Broken {
    Refused(LedgerError),
    /// Another host was first with the same key, or the server gave way to it: nothing was written, look again.
    Raced(String),
    /// The connection broke.
    Lost(LedgerError),
}

impl From<LedgerError> for Broken {
    fn from(e: LedgerError) -> Self {
        Self::Refused(e)
    }
}
impl From<UnknownWord> for Broken {
    fn from(e: UnknownWord) -> Self {
        Self::Refused(LedgerError::Unreadable(format!("{e}; a newer version of sutler wrote it")))
    }
}

/// What is lost with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing: it only reads, or what it wrote is not committed yet.
    None,
    /// It commits by itself: whether it did is not known.
    Commits,
}

impl Effect {
    pub(super) fn lost(self, why: String) -> LedgerError {
        match self {
            Self::None => LedgerError::Unavailable(why),
            Self::Commits => LedgerError::Unknown(why),
        }
    }
}

impl Broken {
    pub(super) fn of(e: &Error, effect: Effect) -> Self {
        let text = words(e);
        let Some(db) = e.as_db_error() else {
            return Self::Lost(effect.lost(text));
        };
        let code = db.code();
        // The server ended the session. A commit that waited for a replica may be done all the same.
        if matches!(db.severity(), "FATAL" | "PANIC") {
            return Self::Lost(effect.lost(text));
        }
        let raced = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        if raced.contains(code) {
            return Self::Raced(text);
        }
        if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED {
            return Self::Refused(LedgerError::Unreadable(format!(
                "{text}; restore a backup of the database"
            )));
        }
        // Data that the server does not take today it does not take tomorrow: a zero byte in a text.
        if code.code().starts_with("22") {
            return Self::Refused(LedgerError::Unreadable(text));
        }
        let unavailable = LedgerError::Unavailable(text);
        // A standby, as after a failover: another connection may reach the server that can be written.
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            Self::Lost(unavailable)
        } else {
            unavailable.into()
        }
    }

    pub(super) fn told(self) -> LedgerError {
        match self {
            Self::Refused(e) | Self::Lost(e) => e,
            Self::Raced(why) => {
                LedgerError::Unavailable(format!("too many hosts want the same at once: {why}"))
            }
        }
    }
}

/// An error with what is under it: alone it says "db error" or "error communicating with the server".
pub(super) fn words(e: &Error) -> String {
    if let Some(db) = e.as_db_error() {
        return format!("PostgreSQL says: {} ({})", db.message(), db.code().code());
    }
    let mut out = e.to_string();
    let mut under = std::error::Error::source(e);
    while let Some(e) = under {
        out = format!("{out}: {e}");
        under = e.source();
    }
    if out.contains("invalid peer certificate: UnknownIssuer") {
        out.push_str("; name the authority of its certificate with [ledger] ca-file");
    }
    out
}

/// What a job's stored text breaks.
pub(super) fn unreadable(what: &str, e: impl std::fmt::Display) -> Broken {
    Broken::Refused(LedgerError::Unreadable(format!(
        "{what} in the ledger cannot be read: {e}; run `sutler ledger check`"
    )))
}
