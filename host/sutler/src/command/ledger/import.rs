//! `sutler ledger import`

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use sutler_ledger::lines::Line;
use sutler_ledger::{Audit, AuditFilter, Filter, Keys, Ledger, Record};

use super::Counts;
use crate::command::progress::Meter;
use crate::command::{ConfigFile, say};
use crate::config::Config;
use crate::ledger::Purpose;

pub(super) const HELP: &str = "\
The hosts of this ledger must be stopped; an import into one that is served is refused. The file is read through before anything is written: a file that is cut, \
changed, of another key or with a job that the ledger has already changes nothing.

  sutler ledger import jobs.jsonl                            under the key file that the export was made with
  sutler ledger import jobs.jsonl --key-file old/ledger.key  under another: all is sealed again with this ledger's key

Jobs keep their ids, times and events, repeats are recognised, unfinished jobs go on when the host starts.";

/// Records that are written at the same time: they share the disk's syncs.
const BATCH: usize = 128;

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// What `sutler ledger export` wrote; - is stdin
    file: PathBuf,
    /// The key file of the ledger that was exported, where it is not this ledger's own
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) config: ConfigFile,
}

impl Import {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let at = if self.file == Path::new("-") { "stdin".into() } else { self.file.display().to_string() };
        let mut file = self.opened()?;
        let from = self.key_file.as_deref().map(Keys::open).transpose().context("--key-file")?;
        let ledger = config.ledger.open(Purpose::Import).await?.ledger;
        let own = Keys::open(&config.ledger.key_file()).context("[ledger]")?;
        let from = from.as_ref().unwrap_or(&own);
        let mut lines = Lines::new(&file, &at, from);
        lines.head(self.key_file.as_deref())?;
        let empty = ledger.jobs(Filter { limit: 1, ..Filter::default() }).await?.is_empty();
        let alike = own.hashes_name() == from.hashes_name();
        ensure!(
            alike || empty,
            "{at}: the ledger {} has jobs and recognises repeats by another hash than the exported one, so that \
             repeats of one of the two would be refused; import into a new ledger",
            config.ledger.place()
        );
        look_through(&mut lines, &*ledger, empty).await?;
        if !alike {
            own.hash_like(from)?;
        }
        file.rewind()?;
        let mut lines = Lines::new(&file, &at, from);
        lines.head(self.key_file.as_deref())?;
        let (counts, unreadable) = write(&mut lines, &*ledger).await?;
        say(format!("imported {} into {}", counts.text(), config.ledger.place()));
        if unreadable > 0 {
            say(format!("The export says that {unreadable} records of its ledger could not be read."));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What can be read twice.
    fn opened(&self) -> anyhow::Result<File> {
        if self.file != Path::new("-") {
            let file = File::open(&self.file);
            return file.with_context(|| format!("{} cannot be read", self.file.display()));
        }
        let mut file = tempfile::tempfile()?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file).context("stdin")?;
        file.rewind()?;
        Ok(file)
    }
}

/// The lines of an export, with their numbers.
struct Lines<'a> {
    file: BufReader<&'a File>,
    at: &'a str,
    keys: &'a Keys,
    n: u64,
    text: String,
}

impl<'a> Lines<'a> {
    fn new(file: &'a File, at: &'a str, keys: &'a Keys) -> Self {
        Self { file: BufReader::new(file), at, keys, n: 0, text: String::new() }
    }

    /// `None` at the end of the file.
    fn next(&mut self) -> anyhow::Result<Option<Line>> {
        self.text.clear();
        self.n += 1;
        let length = self.file.read_line(&mut self.text).with_context(|| self.place())?;
        if length == 0 {
            return Ok(None);
        }
        Line::read(self.text.trim_end(), self.keys).map(Some).with_context(|| self.place())
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.at, self.n)
    }

    /// The first line, and whether the keys are those of the ledger that it comes from.
    fn head(&mut self, given: Option<&Path>) -> anyhow::Result<()> {
        let Some(Line::Head { hashes }) = self.next()? else {
            bail!("{} is no export of a ledger: `sutler ledger export` writes its version first", self.at);
        };
        if hashes == self.keys.hashes_name() {
            return Ok(());
        }
        match given {
            Some(file) => {
                bail!("{}: it was not exported under {}; name the key file of then", self.at, file.display())
            }
            None => bail!(
                "{}: it was exported under other keys than this ledger's; name their file with --key-file FILE",
                self.at
            ),
        }
    }

    /// The next record; `None` at the end of the whole export, with what the last line says.
    fn record(&mut self, before: u64) -> anyhow::Result<Result<Record, u64>> {
        match self.next()? {
            Some(Line::Record(record)) => Ok(Ok(record)),
            Some(Line::End { records, unreadable }) => {
                ensure!(
                    records == before,
                    "{} says that it had {records} records, and has {before}",
                    self.at
                );
                self.text.clear();
                let more = self.file.read_line(&mut self.text).with_context(|| self.place())?;
                ensure!(
                    more == 0,
                    "{}: there is more after the last line, {}; export again",
                    self.at,
                    self.n
                );
                Ok(Err(unreadable))
            }
            Some(Line::Head { .. }) => {
                bail!("{}: another export begins here; import one by one", self.place())
            }
            None => bail!("{} was cut after line {}; export again", self.at, self.n.saturating_sub(1)),
        }
    }
}

/// Everything that would stop the import is found before anything is written. `empty`: the ledger has no jobs yet.
async fn look_through(lines: &mut Lines<'_>, ledger: &dyn Ledger, empty: bool) -> anyhow::Result<()> {
    let meter = Meter::new("records looked at");
    let (mut n, mut seen) = (0, HashSet::new());
    let audited = !ledger.audited(AuditFilter { limit: 1, ..AuditFilter::default() }).await?.is_empty();
    while let Ok(record) = lines.record(n)? {
        n += 1;
        meter.at(n);
        if let Record::Audit(row) = &record {
            ensure!(
                !audited || !is_audited(ledger, row).await?,
                "{}: this entry of the audit is in the ledger already; nothing was imported. Import into a new ledger",
                lines.place()
            );
        }
        let Record::Job { job, route, .. } = record else { continue };
        ensure!(seen.insert(job.id.clone()), "{}: job {} comes twice", lines.place(), job.id);
        if empty {
            continue;
        }
        let known = ledger.job(job.id.clone()).await?;
        let asked = ledger.asked(&job.caller, &route, &job.request_id).await?;
        if let Some(known) = known.or(asked.map(|(job, _)| job)) {
            bail!(
                "{}: job {} (request {:?} of {}) is in the ledger already, as {}; nothing was imported. Import into a \
                 new ledger",
                lines.place(),
                job.id,
                job.request_id,
                job.caller,
                known.id
            );
        }
    }
    Ok(())
}

/// Entries have no name of their own: whether one of the same words is there.
async fn is_audited(ledger: &dyn Ledger, row: &Audit) -> anyhow::Result<bool> {
    let filter = AuditFilter {
        from: Some(row.at),
        to: Some(row.at.plus(Duration::from_millis(1))),
        resource_id: Some(row.resource_id.clone()),
        operation: row.operation.clone(),
        limit: 1000,
        ..AuditFilter::default()
    };
    let rows = ledger.audited(filter).await?;
    Ok(rows.into_iter().any(|known| Audit { n: row.n, ..known } == *row))
}

/// Answers what was written and how many records the export could not read.
async fn write(lines: &mut Lines<'_>, ledger: &dyn Ledger) -> anyhow::Result<(Counts, u64)> {
    let meter = Meter::new("records imported");
    let (mut counts, mut batch) = (Counts::default(), Vec::new());
    loop {
        let next = lines.record(counts.all())?;
        // A further request id needs its job: what is of another kind waits for those before it.
        let other = |r: &Record| {
            batch.first().is_some_and(|b| std::mem::discriminant(b) != std::mem::discriminant(r))
        };
        if batch.len() == BATCH || next.as_ref().map_or(true, other) {
            for done in futures::future::join_all(batch.drain(..).map(|r| ledger.import(r))).await {
                let before = format!("{}: the import stopped before this line", lines.place());
                done.with_context(|| format!("{before}; remove the new ledger and import again"))?;
            }
            meter.at(counts.all());
        }
        match next {
            Ok(record) => {
                counts.add(&record);
                batch.push(record);
            }
            Err(unreadable) => return Ok((counts, unreadable)),
        }
    }
}
