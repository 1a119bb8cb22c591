//! A disk that fails on demand, for tests: the database itself gives the errors.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

#[derive(Debug, Default)]
pub(super) struct Trouble {
    full: AtomicBool,
    read_only: AtomicBool,
}

/// What the file says now that `SUTLER_LEDGER_TROUBLE` names: `full`, `read-only`, or nothing. For tests of the built
/// binary.
#[cfg(feature = "failpoints")]
pub(super) fn said(conn: &Connection) -> Result<(), rusqlite::Error> {
    use std::sync::LazyLock;

    static FILE: LazyLock<Option<std::ffi::OsString>> =
        LazyLock::new(|| std::env::var_os("SUTLER_LEDGER_TROUBLE"));
    let Some(file) = FILE.as_ref() else { return Ok(()) };
    let said = std::fs::read_to_string(file).unwrap_or_default();
    let trouble = Trouble::default();
    trouble.set(said.trim() == "full", said.trim() == "read-only");
    trouble.apply(conn)
}

impl Trouble {
    pub(super) fn set(&self, full: bool, read_only: bool) {
        self.full.store(full, Ordering::SeqCst);
        self.read_only.store(read_only, Ordering::SeqCst);
    }
    /// To the connection that writes, and to each that is opened in its place.
    pub(super) fn apply(&self, conn: &Connection) -> Result<(), rusqlite::Error> {
        // A limit below what there is means that no page can be added.
        let most: i64 = if self.full.load(Ordering::SeqCst) { 1 } else { 0xffff_fffe };
        conn.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
        conn.pragma_update(None, "query_only", self.read_only.load(Ordering::SeqCst))
    }
}
