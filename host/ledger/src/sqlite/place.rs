//! Where a ledger's file is, by whichever name it is called, and how it can be got at there.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};

use super::broken::told;
use crate::LedgerError;

/// Through so many links one name may lead, as the kernel has it.
const LINKS: usize = 40;

/// The file that a path means, without links: all names of one file have one lock. One that is not there yet is the
/// one that would be made; where its folder is not there either, the path stays as it is.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        if let Ok(found) = at.canonicalize() {
            return found;
        }
        let (Ok(folder), Some(name)) = (folder(&at).canonicalize(), at.file_name()) else { break };
        match std::fs::read_link(&at) {
            Ok(target) => at = folder.join(target),
            Err(_) => return folder.join(name),
        }
    }
    path.to_owned()
}

pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn can_be_written(folder: &Path) -> bool {
    access(folder, Access::WRITE_OK).is_ok()
}

/// A ledger's file.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// Nothing changes it while it is read: it is whole in the one file, in a folder that cannot be written, where
    /// SQLite could not make the files that readers and writers share.
    still: bool,
}

impl Place {
    /// `looking`: nothing is going to be written.
    pub(super) fn of(path: &Path, looking: bool) -> Self {
        let path = resolved(path);
        let still = looking && !can_be_written(folder(&path)) && !has_log(&path);
        Self { path, still }
    }

    pub(super) const fn is_still(&self) -> bool {
        self.still
    }

    /// A connection that only reads, as it is opened.
    pub(super) fn connect(&self) -> Result<Connection, LedgerError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = match url::Url::from_file_path(&self.path) {
            Ok(mut url) if self.still => {
                url.set_query(Some("immutable=1"));
                Connection::open_with_flags(url.as_str(), flags | OpenFlags::SQLITE_OPEN_URI)
            }
            _ => Connection::open_with_flags(&self.path, flags),
        };
        conn.map_err(|e| self.told(&e))
    }

    /// Why it cannot be opened; SQLite says no more of a folder that cannot be written than that.
    pub(super) fn told(&self, e: &rusqlite::Error) -> LedgerError {
        let denied = matches!(e.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly));
        if !denied || can_be_written(folder(&self.path)) {
            return told(e);
        }
        let (at, folder) = (self.path.display(), folder(&self.path).display());
        let todo = if has_log(&self.path) {
            format!(
                ", and its last writes are still in {at}-wal; copy both with the key file into a folder that can be \
                 written, and name the copy with [ledger] path"
            )
        } else {
            "; let this user write there. What only looks (sutler ledger check and export, sutler job list and show) \
             needs no such right"
                .to_owned()
        };
        LedgerError::Open(format!("the ledger {at} cannot be opened: its folder {folder} is read-only{todo}"))
    }
}

/// Whether writes may stand beside the file that are not in it yet.
fn has_log(path: &Path) -> bool {
    match std::fs::metadata(beside(path, "-wal")) {
        Err(_) => false,
        // An empty one without the index that a host has beside it is what a copy of a stopped ledger has.
        Ok(log) => log.len() > 0 || beside(path, "-shm").exists(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_names_of_a_file_lead_to_it() {
        let base = tempfile::tempdir().unwrap();
        let at = base.path().canonicalize().unwrap();
        for folder in ["a", "b"] {
            std::fs::create_dir(at.join(folder)).unwrap();
        }
        symlink("../a/real.db", at.join("b/link.db")).unwrap();
        symlink("link.db", at.join("b/again.db")).unwrap();
        symlink(at.join("a"), at.join("c")).unwrap();
        symlink("loop.db", at.join("loop.db")).unwrap();
        // Also before it is there.
        for _ in 0..2 {
            for name in ["a/real.db", "b/link.db", "b/again.db", "c/real.db", "b/../a/real.db"] {
                assert_eq!(resolved(&at.join(name)), at.join("a/real.db"), "{name}");
            }
            std::fs::write(at.join("a/real.db"), "x").unwrap();
        }
        for name in ["loop.db", "none/ledger.db"] {
            assert_eq!(resolved(&at.join(name)), at.join(name), "{name}");
        }
    }

    #[test]
    fn a_still_file_is_read_without_files_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        // A name that a URL would cut.
        let path = folder.path().canonicalize().unwrap().join("100%25 a?b#c.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n); INSERT INTO t VALUES (7)")
            .unwrap();
        conn.close().unwrap();
        let place = Place { path: path.clone(), still: true };
        let conn = place.connect().unwrap();
        assert_eq!(conn.query_row("SELECT n FROM t", [], |r| r.get::<_, i64>(0)).unwrap(), 7);
        assert!(!has_log(&path) && !beside(&path, "-shm").exists());
        // A shared one has them while it is read.
        let shared = Place { still: false, ..place }.connect().unwrap();
        shared.query_row("SELECT n FROM t", [], |_| Ok(())).unwrap();
        assert!(has_log(&path));
    }
}
