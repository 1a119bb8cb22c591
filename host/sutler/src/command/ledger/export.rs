//! `sutler ledger export`

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use futures::StreamExt as _;
use sutler_ledger::lines::Line;
use sutler_ledger::{Keys, Ledger};

use super::Counts;
use crate::command::ConfigFile;
use crate::command::progress::Meter;
use crate::config::Config;
use crate::ledger::Purpose;

pub(super) const HELP: &str = "\
Requests, states and answers are sealed in the file as they are in the ledger: without the ledger's key file nobody \
reads them. Carry the key file ([ledger] key-file) to the other ledger by another way than the export. Names of \
applications, callers and plugins are not sealed.

The file is one moment of the ledger, also beside a serving host. To move a ledger, stop its host first: two hosts \
that work on the same jobs would do everything twice.

Of a damaged ledger it saves what is readable, names what is not, and exits with 1. Where not one job can be read, as \
under another key file, no file is made.";

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The file to make, mode 0600; - is stdout
    file: PathBuf,
    #[command(flatten)]
    pub(super) config: ConfigFile,
}

impl Export {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let ledger = config.ledger.open(Purpose::Look).await?.ledger;
        let keys = Keys::open(&config.ledger.key_file()).context("[ledger]")?;
        let at = self.file.display();
        let (counts, unreadable) = if self.file == Path::new("-") {
            let mut out = BufWriter::new(std::io::stdout().lock());
            let done = write(&*ledger, &keys, &mut out).await?;
            out.flush().context("stdout")?;
            done
        } else {
            anyhow::ensure!(!self.file.exists(), "{at} is there already; name a new file");
            let folder = self.file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // Under its name only when it is whole; readable by its owner alone.
            let file = tempfile::NamedTempFile::new_in(folder);
            let file = file.with_context(|| format!("{at} cannot be made"))?;
            let mut out = BufWriter::new(file);
            let done = write(&*ledger, &keys, &mut out).await?;
            let file = out.into_inner().with_context(|| format!("{at} cannot be written"))?;
            file.as_file().sync_all().with_context(|| format!("{at} cannot be written"))?;
            file.persist_noclobber(&self.file).with_context(|| format!("{at} cannot be made"))?;
            done
        };
        eprintln!(
            "exported {}; to read it, {} is needed too",
            counts.text(),
            config.ledger.key_file().display()
        );
        if unreadable > 0 {
            eprintln!(
                "{unreadable} records could not be read; what they were is lost unless a backup has them"
            );
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Everything; answers what it was and how many records were not readable.
async fn write(ledger: &dyn Ledger, keys: &Keys, out: &mut dyn Write) -> anyhow::Result<(Counts, u64)> {
    let mut put = |text: String| writeln!(out, "{text}").context("the export cannot be written");
    put(Line::Head { hashes: keys.hashes_name() }.write(keys)?)?;
    let (mut counts, mut unreadable) = (Counts::default(), 0);
    let meter = Meter::new("records exported");
    let mut records = ledger.export();
    while let Some(record) = records.next().await {
        let line = record.and_then(|record| {
            let mut with = counts;
            with.add(&record);
            Line::Record(record).write(keys).map(|line| (line, with))
        });
        match line {
            Ok((line, with)) => {
                put(line)?;
                counts = with;
            }
            Err(e) => {
                unreadable += 1;
                eprintln!("not exported: {e}");
            }
        }
        meter.at(counts.all());
    }
    anyhow::ensure!(
        counts.jobs > 0 || unreadable == 0,
        "none of the ledger's jobs can be read, for the reasons above; nothing was exported"
    );
    put(Line::End { records: counts.all(), unreadable }.write(keys)?)?;
    Ok((counts, unreadable))
}
