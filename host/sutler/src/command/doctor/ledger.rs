//! Whether the ledger can be read and written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sutler_ledger::{Keys, Ledger, Sqlite};

use super::Report;
use crate::ledger::{LedgerConfig, Purpose};

const AREA: &str = "ledger";
/// Nothing is so old: forgetting what is older writes to the ledger and changes nothing.
const NEVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Answers the ledger, where it could be opened.
pub(super) async fn look(config: &LedgerConfig, report: &mut Report) -> Option<Arc<dyn Ledger>> {
    let schema = if config.url.is_none() { file(config, report)? } else { String::new() };
    let at = config.place();
    let ledger = match config.open(Purpose::Change).await {
        Ok(opened) => opened.ledger,
        Err(e) => {
            report.wrong(
                AREA,
                format!("{at}: {e:#}"),
                "sutler ledger check says more of a ledger that is damaged",
            );
            return None;
        }
    };
    match ledger.purge(NEVER).await {
        Ok(_) => report.ok(AREA, format!("{at}: it opens with its keys{schema}, and can be written")),
        Err(e) => report.wrong(
            AREA,
            format!("{at}: it cannot be written: {e}"),
            "check that the disk has room and is not read-only, and that the host's user owns the file",
        ),
    }
    Some(ledger)
}

/// What can be told of a file before it is opened: its schema, in words; `None` where it is not to be opened.
fn file(config: &LedgerConfig, report: &mut Report) -> Option<String> {
    let (file, key) = (config.file(), config.key_file());
    let at = file.display();
    if !file.exists() {
        absent(&file, report);
        return None;
    }
    let (found, known) = match Sqlite::schema(&file) {
        Ok(versions) => versions,
        Err(e) => {
            report.wrong(AREA, format!("{at}: {e}"), "restore a backup, or see sutler ledger check");
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
