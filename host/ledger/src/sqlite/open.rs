//! Opening a ledger's file: made whole or not at all, looked through before anything is written, and served by one
//! host only.

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::broken::{DAMAGED, told};
use super::migrations;
use super::place::{Place, beside, folder};
use crate::rules::Behind;
use crate::{Clock, LedgerError, Millis};

/// "sutl": tells a ledger from another program's database.
const APPLICATION_ID: i64 = 0x7375_746c;
/// How long another process's write is waited for where nothing else is said.
const BUSY: Duration = Duration::from_secs(5);
const STATEMENTS: usize = 96;
/// Less than SQLite's smallest page.
const SHORTEST: u64 = 512;

/// How a ledger's file is opened. The default is for commands beside a serving host.
#[derive(Debug, Clone, Default)]
pub struct SqliteOptions {
    /// This is the serving host: no other may serve the same file at the same time.
    pub serving: bool,
    /// Leaves the schema as it is, and refuses one that is older than this binary. A file that is not there is made.
    pub unmigrated: bool,
    /// Only to look: opens a damaged file too, to export what is readable, and one in a folder that is read-only.
    pub damaged: bool,
    /// `None`: the wall clock at opening, and the monotonic clock from then on.
    pub clock: Option<Clock>,
    /// How long another process's write is waited for; `None` for five seconds.
    pub busy: Option<Duration>,
}

impl SqliteOptions {
    pub(super) fn busy(&self) -> Duration {
        self.busy.unwrap_or(BUSY)
    }
}

fn failed(path: &Path, what: &str, e: impl std::fmt::Display) -> LedgerError {
    LedgerError::Open(format!("the ledger {} {what}: {e}", path.display()))
}

/// What keeps other hosts off, as long as the host serves; it goes with the process.
#[derive(Debug)]
pub(super) struct Lock {
    _beside: File,
    /// Names that are hard links have this one in common. Closing it would end the locks that SQLite itself has on the
    /// file in this process: it is closed after every connection.
    _itself: File,
}

/// Makes the file where there is none.
pub(super) fn lock(path: &Path) -> Result<Lock, LedgerError> {
    let at = beside(path, ".lock");
    let file = File::options().create(true).write(true).truncate(false).open(&at);
    let _beside = locked(path, &at, file)?;
    if !path.exists() {
        make(path)?;
    }
    let _itself = locked(path, path, File::open(path))?;
    Ok(Lock { _beside, _itself })
}

/// By flock, which does not meet the locks of SQLite (fcntl).
fn locked(path: &Path, at: &Path, file: std::io::Result<File>) -> Result<File, LedgerError> {
    let file = file.map_err(|e| failed(path, "cannot be locked", e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LedgerError::Open(format!(
            "another host serves the ledger {} already ({} is locked); stop it, or give this one a ledger of its own. \
             Several hosts share a PostgreSQL ledger: [ledger] url = \"postgres://…\"",
            path.display(),
            at.display()
        ))),
        Err(TryLockError::Error(e)) => Err(failed(path, "cannot be locked", e)),
    }
}

/// Makes the file where there is none and looks through the one that is there. Answers the writing connection.
pub(super) fn first(place: &Place, options: &SqliteOptions) -> Result<Connection, LedgerError> {
    let path = &*place.path;
    if !path.exists() {
        make(path)?;
    }
    let length = std::fs::metadata(path).map_err(|e| failed(path, "cannot be read", e))?.len();
    // SQLite takes so short a file for a new database; a ledger never is one by itself.
    if length < SHORTEST {
        return Err(LedgerError::Unreadable(format!(
            "the ledger {} has only {length} bytes: it was cut; restore a backup, or remove the file to begin with \
             nothing",
            path.display()
        )));
    }
    match whole(place, options) {
        // Nothing is written into it; what is left of it may still be read.
        Err(LedgerError::Unreadable(_)) if options.damaged => salvager(place),
        got => got,
    }
}

fn whole(place: &Place, options: &SqliteOptions) -> Result<Connection, LedgerError> {
    let path = &*place.path;
    let mut conn = if place.is_still() { reader(place)? } else { writer(place, options.busy())? };
    let id: i64 = conn.pragma_query_value(None, "application_id", |r| r.get(0)).map_err(|e| told(&e))?;
    if id != APPLICATION_ID {
        let path = path.display();
        return Err(LedgerError::Open(format!(
            "{path} is a SQLite database but not a ledger of sutler; name another file"
        )));
    }
    let behind = if options.unmigrated { Behind::Refuse } else { Behind::Migrate };
    migrations::bring(&mut conn, &path.display().to_string(), behind)?;
    if !options.damaged {
        sound(&conn, path)?;
    }
    Ok(conn)
}

/// The whole file is read; a page that is wrong is found before anything is built on it.
pub(super) fn sound(conn: &Connection, path: &Path) -> Result<(), LedgerError> {
    let found: String = conn.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(|e| told(&e))?;
    if found == "ok" {
        return Ok(());
    }
    Err(LedgerError::Unreadable(format!("the ledger {} is damaged ({found}); {DAMAGED}", path.display())))
}

/// Another name first, so that a crash leaves no half-made ledger under the right one.
fn make(path: &Path) -> Result<(), LedgerError> {
    let temporary = beside(path, &format!(".{}.new", std::process::id()));
    let clean = || {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let _ = std::fs::remove_file(beside(&temporary, suffix));
        }
    };
    clean();
    let made = fill(&temporary).and_then(|()| {
        let kept = File::open(&temporary).and_then(|f| f.sync_all());
        let linked = kept.and_then(|()| std::fs::hard_link(&temporary, path));
        match linked {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(path, "cannot be made", e)),
            _ => Ok(()),
        }
    });
    clean();
    made?;
    File::open(folder(path)).and_then(|f| f.sync_all()).map_err(|e| failed(path, "cannot be made", e))
}

fn fill(path: &Path) -> Result<(), LedgerError> {
    // Only the host's user reads it; SQLite gives the files beside it the same mode.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    file.map_err(|e| failed(path, "cannot be made", e))?;
    let mut conn = writer(&Place::of(path, false), BUSY)?;
    conn.pragma_update(None, "application_id", APPLICATION_ID).map_err(|e| told(&e))?;
    migrations::bring(&mut conn, &path.display().to_string(), Behind::Migrate)?;
    conn.close().map_err(|(_, e)| failed(path, "cannot be closed", e))
}

/// The connection that writes.
pub(super) fn writer(place: &Place, busy: Duration) -> Result<Connection, LedgerError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&place.path, flags);
    let conn = conn.map_err(|e| failed(&place.path, "cannot be opened", e))?;
    let set = || {
        conn.busy_timeout(busy)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "foreign_keys", true)?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.pragma_update(None, "cache_size", -32768)?;
        conn.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)
    };
    set().map_err(|e| place.told(&e))?;
    statements(&conn).map_err(|e| told(&e))?;
    Ok(conn)
}

/// A connection that only reads.
pub(super) fn reader(place: &Place) -> Result<Connection, LedgerError> {
    let conn = place.connect()?;
    conn.busy_timeout(BUSY).and_then(|()| statements(&conn)).map_err(|e| told(&e))?;
    Ok(conn)
}

/// A reader that takes a file for what is left of it: one that was cut is refused as a whole otherwise.
pub(super) fn salvager(place: &Place) -> Result<Connection, LedgerError> {
    let conn = reader(place)?;
    tolerate(&conn)?;
    Ok(conn)
}

/// SQLite's way in, for recovery tools too: whoever may mend the schema may see a file with fewer pages than it says.
fn tolerate(conn: &Connection) -> Result<(), LedgerError> {
    conn.pragma_update(None, "writable_schema", true).map_err(|e| told(&e))
}

/// Statements are planned once and kept: without QPSG SQLite plans many anew for each value, at a third of the
/// writer's time.
fn statements(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// The leases of hosts that served this file before end now: they are dead, or they would hold its lock. What they may
/// still have on its way is waited for as after every lease.
pub(super) fn end_leases(conn: &Connection, now: Millis) -> Result<(), LedgerError> {
    let sql = "UPDATE provisioning_jobs SET lease_until = ?1, wake = ?1 WHERE queue = 1 AND wake > ?1";
    let ended = conn.execute(sql, [now.0]).map_err(|e| told(&e))?;
    if ended > 0 {
        tracing::info!(
            event = "leases-ended",
            count = ended,
            "the host before this one did not give them back"
        );
    }
    Ok(())
}

/// The newest time that is stored.
pub(super) fn newest(conn: &Connection) -> Result<Millis, LedgerError> {
    let sql = "SELECT coalesce(max(updated), 0) FROM provisioning_jobs";
    conn.query_row(sql, [], |r| r.get(0)).map(Millis).map_err(|e| told(&e))
}
