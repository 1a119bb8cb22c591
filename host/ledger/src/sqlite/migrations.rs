//! The schema, and which versions of it this binary can work with.

use rusqlite::{Connection, OptionalExtension as _};

use crate::LedgerError;
use crate::rules::{self, Behind};

mod embedded {
    refinery::embed_migrations!("migrations/sqlite");
}

/// Brings the schema to this binary's version, or says how to.
pub(super) fn bring(conn: &mut Connection, at: &str, behind: Behind) -> Result<(), LedgerError> {
    let (runner, known) = (embedded::migrations::runner(), known());
    let found = version(conn).map_err(|e| super::broken::told(&e))?;
    if found > known {
        return Err(LedgerError::Open(format!(
            "the ledger {at} was written by a newer version of sutler (schema {found}, this one knows {known}); \
             install that version again, or restore the backup from before the upgrade"
        )));
    }
    let failed = |e| LedgerError::Open(format!("the ledger {at} cannot be brought to schema {known}: {e}"));
    if found < known {
        if behind == Behind::Refuse {
            return Err(rules::older(at, found, known));
        }
        runner.run(conn).map_err(failed)?;
    }
    Ok(())
}

/// This binary's version.
pub(super) fn known() -> i64 {
    let runner = embedded::migrations::runner();
    let versions = runner.get_migrations().iter().map(|m| i64::from(m.version()));
    versions.max().unwrap_or_default()
}

/// 0 for a new database.
pub(super) fn version(conn: &Connection) -> Result<i64, rusqlite::Error> {
    let there = "SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    if conn.query_row(there, [], |_| Ok(())).optional()?.is_none() {
        return Ok(0);
    }
    conn.query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |r| r.get(0))
}
