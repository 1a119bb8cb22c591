//! Whether the ledger can be read and written.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::sync::Arc;

use sutler_ledger::{Keys, Ledger, LedgerError, Sqlite};

use super::Report;
use crate::ledger::{LedgerConfig, Purpose};

const AREA: &str = "ledger";
/// So much room has to be left beside the ledger's file, in bytes.
const ROOM: usize = 1 << 20;

/// Answers the ledger, where it could be opened.
pub(super) async fn look(config: &LedgerConfig, report: &mut Report) -> Option<Arc<dyn Ledger>> {
    let schema = if config.url.is_none() { file(config, report)? } else { String::new() };
    let at = config.place();
    let ledger = match config.open(Purpose::Change).await {
        Ok(opened) => opened.ledger,
        Err(e) => {
            let damaged = matches!(e.downcast_ref(), Some(LedgerError::Unreadable(_)));
            let todo = match damaged {
                true => "sutler ledger check says more of a ledger that is damaged",
                false => "mend what it says; the ledger itself may be well",
            };
            report.wrong(AREA, format!("{at}: {e:#}"), todo);
            return None;
        }
    };
    match ledger.probe().await {
        Ok(()) => report.ok(AREA, format!("{at}: it opens with its keys{schema}, and can be written")),
        Err(e) => unwritten(&at, &e.to_string(), report),
    }
    Some(ledger)
}

fn unwritten(at: &str, why: &str, report: &mut Report) {
    report.wrong(
        AREA,
        format!("{at}: it cannot be written: {why}"),
        "check that the disk has room and is not read-only, and that the host's user owns the file",
    );
}

/// A full disk is told before SQLite has words of its own for it, and where the log beside the ledger's file has room
/// of before. Of everything else it says more.
fn full(file: &Path) -> Option<std::io::Error> {
    let write = || {
        let mut scratch = tempfile::tempfile_in(file.parent().unwrap_or(Path::new(".")))?;
        scratch.write_all(&vec![0x2a; ROOM])?;
        scratch.sync_all()
    };
    let e = write().err()?;
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded).then_some(e)
}

/// What can be told of a file before it is opened: its schema, in words; `None` where it is not to be opened.
fn file(config: &LedgerConfig, report: &mut Report) -> Option<String> {
    let (file, key) = (config.file(), config.key_file());
    let at = file.display();
    if !file.exists() {
        absent(&file, report);
        return None;
    }
    if let Some(e) = full(&file) {
        unwritten(&at.to_string(), &e.to_string(), report);
        return None;
    }
    let (found, known) = match Sqlite::schema(&file) {
        Ok(versions) => versions,
        Err(e) => {
            report.wrong(
                AREA,
                format!("{at}: {e}"),
                "sutler ledger check says more of a ledger that is damaged",
            );
            return None;
        }
    };
    if found < known {
        let todo =
            "stop the host, make a backup, then: sutler ledger migrate (or start this version of the host)";
        report.warn(
            AREA,
            format!("{at}: its schema is {found}, and this version of sutler works with {known}"),
            todo,
        );
        return None;
    }
    if found > known {
        let todo = "run the version of sutler that made it, or restore a backup of before";
        report.wrong(AREA, format!("{at}: its schema is {found}, newer than this version's {known}"), todo);
        return None;
    }
    if let Err(e) = Keys::open(&key) {
        report.wrong(AREA, e.to_string(), "without its keys nothing sealed in the ledger can be read");
        return None;
    }
    Some(format!(" and schema {found}"))
}

/// There is no ledger yet: whether one can be made.
fn absent(file: &Path, report: &mut Report) {
    let at = file.display();
    let folder = file.ancestors().skip(1).find(|f| f.is_dir()).unwrap_or(Path::new("."));
    match tempfile::tempfile_in(folder) {
        Ok(_) => report.ok(AREA, format!("there is none at {at} yet; sutler serve makes it")),
        Err(e) => report.wrong(
            AREA,
            format!(
                "there is none at {at}, and none can be made: {} cannot be written: {e}",
                folder.display()
            ),
            "let the host's user write there, or set [ledger] path",
        ),
    }
}
