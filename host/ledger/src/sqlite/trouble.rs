//! A disk that fails on demand, for tests: the database itself gives the errors.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;

#[derive(Debug, Default)]
pub(super) struct Trouble {
    full: AtomicBool,
    read_only: AtomicBool,
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
