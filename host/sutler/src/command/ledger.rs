//! `sutler ledger`: looking after the file that jobs are kept in.

mod export;
mod import;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use futures::StreamExt as _;
use sutler_ledger::{Keys, Ledger, LedgerError, Postgres, Record, Sqlite};

use super::progress::Meter;
use super::{ConfigFile, say};
use crate::config::Config;
use crate::ledger::Purpose;
use crate::telemetry;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum LedgerCommand {
    /// Bring the ledger's schema to this version of sutler, or make the ledger
    #[command(
        after_help = "`sutler serve` does the same when it starts. Every other command refuses an older ledger. \
Run it by hand to see that an upgrade works before hosts are started. Stop the host and make a backup first: an older sutler does not open a newer ledger."
    )]
    Migrate(ConfigFile),
    /// Read everything and say what is wrong; exits with 1 where something is
    #[command(
        after_help = "It reads beside a serving host and changes nothing. A damaged file is opened too: what \
is still readable is counted, and `sutler ledger export` saves it. A copy in a read-only folder can be checked too."
    )]
    Check(ConfigFile),
    /// Write every job, event, repeat and plugin into a file of JSON lines
    #[command(after_help = export::HELP)]
    Export(export::Export),
    /// Read such a file into a ledger
    #[command(after_help = import::HELP)]
    Import(import::Import),
    /// Add a key to the key file, make it the active one and seal everything with it
    #[command(after_help = "\
It works beside a serving host, and may be interrupted and run again with --finish:
  sutler ledger rotate-key               a new key; everything is sealed again with it
  (restart the host)                     a running host may still seal with the older key
  sutler ledger rotate-key --finish      seals again what it sealed meanwhile, and says which keys may go

Older keys stay in the file until you remove them: backups and exports of before need them.")]
    RotateKey(Rotate),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Rotate {
    /// No new key: seal again what is still under an older one
    #[arg(long)]
    finish: bool,
    #[command(flatten)]
    config: ConfigFile,
}

impl LedgerCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let file = match &self {
            Self::Migrate(c) | Self::Check(c) => c,
            Self::Export(e) => &e.config,
            Self::Import(i) => &i.config,
            Self::RotateKey(r) => &r.config,
        };
        let config = file.load()?;
        telemetry::logs(&config.log, true)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        match self {
            Self::Migrate(_) => runtime.block_on(migrate(&config)),
            Self::Check(_) => runtime.block_on(check(&config)),
            Self::Export(e) => runtime.block_on(e.run(&config)),
            Self::Import(i) => runtime.block_on(i.run(&config)),
            Self::RotateKey(r) => runtime.block_on(rotate(&config, r.finish)),
        }
    }
}

async fn migrate(config: &Config) -> anyhow::Result<ExitCode> {
    config.ledger.check()?;
    if let Some(url) = &config.ledger.url {
        Postgres::migrate(url.expose(), config.ledger.ca_file.as_deref()).await?;
        say(format!("{}: the schema is what this version of sutler wants", config.ledger.place()));
        return Ok(ExitCode::SUCCESS);
    }
    let file = config.ledger.file();
    let (found, known) = Sqlite::schema(&file)?;
    let at = file.display();
    if found == known {
        say(format!("{at}: schema {known}, as this version of sutler wants it; nothing to do"));
        return Ok(ExitCode::SUCCESS);
    }
    // Nobody serves it meanwhile.
    config.ledger.open(Purpose::Migrate).await?;
    say(match found {
        0 => format!("{at}: a new ledger with schema {known}; its keys are in {}", key_file(config)),
        _ => format!("{at}: schema {found} before, {known} now"),
    });
    Ok(ExitCode::SUCCESS)
}

async fn check(config: &Config) -> anyhow::Result<ExitCode> {
    let at = config.ledger.place();
    let ledger = config.ledger.open(Purpose::Look).await?.ledger;
    let problems = sutler_jobs::check(&*ledger).await?;
    if problems.is_empty() {
        let jobs = ledger.depth().await?.jobs;
        let by_status: Vec<String> = jobs.iter().map(|(status, n)| format!("{n} {status}")).collect();
        let list = if by_status.is_empty() { "no jobs".to_owned() } else { by_status.join(", ") };
        say(format!("{at}: fine. Every job, event and sealed text was read: {list}."));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(keys) = problems.iter().map(|p| p.missing_key.as_deref()).collect::<Option<BTreeSet<&str>>>()
    {
        let (n, keys) = (problems.len(), keys.into_iter().collect::<Vec<_>>().join(", "));
        let file = key_file(config);
        say(format!(
            "{at}: {n} jobs are sealed with keys that are not in {file}; put these back into the file: {keys}"
        ));
        return Ok(ExitCode::FAILURE);
    }
    for p in &problems {
        say(format!("{}: {}", p.at, p.message));
    }
    let (found, unreadable) = count(&*ledger).await;
    say(format!(
        "\n{at}: {} problems. Readable: {}. Not readable: {} records{}",
        problems.len(),
        found.text(),
        unreadable.len(),
        if unreadable.is_empty() { "." } else { ", and what stands behind them." }
    ));
    say("What to do: stop the host and restore a backup of the ledger with its key file. Without a backup, save what is
readable into a new ledger:
  sutler ledger export saved.jsonl
  (move the damaged file away; keep the key file)
  sutler ledger import saved.jsonl");
    Ok(ExitCode::FAILURE)
}

/// What a ledger or an export holds.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    jobs: u64,
    plugins: u64,
    requests: u64,
    taken: u64,
    audit: u64,
}

impl Counts {
    const fn add(&mut self, record: &Record) {
        match record {
            Record::Job { .. } => self.jobs += 1,
            Record::Plugin { .. } => self.plugins += 1,
            Record::Request { .. } => self.requests += 1,
            Record::Taken(_) => self.taken += 1,
            Record::Audit(_) => self.audit += 1,
        }
    }
    const fn all(self) -> u64 {
        self.jobs + self.plugins + self.requests + self.taken + self.audit
    }
    fn text(self) -> String {
        let Self { jobs, plugins, requests, taken, audit } = self;
        format!(
            "{jobs} jobs with their events, {plugins} plugins, {requests} further request ids, what {taken} resources take, {audit} \
             entries of the audit"
        )
    }
}

/// What can be read, and why the rest cannot.
async fn count(ledger: &dyn Ledger) -> (Counts, Vec<LedgerError>) {
    let (mut found, mut unreadable) = (Counts::default(), Vec::new());
    let meter = Meter::new("records read");
    let mut records = ledger.export();
    while let Some(record) = records.next().await {
        match record {
            Ok(r) => found.add(&r),
            Err(e) => unreadable.push(e),
        }
        meter.at(found.all());
    }
    (found, unreadable)
}

fn key_file(config: &Config) -> String {
    config.ledger.key_file().display().to_string()
}

async fn rotate(config: &Config, finish: bool) -> anyhow::Result<ExitCode> {
    let path: PathBuf = config.ledger.key_file();
    let at = path.display();
    let new = config.ledger.url.is_some() || !config.ledger.file().exists();
    if new && !finish && !path.exists() {
        let id = Keys::rotate(&path)?;
        say(format!(
            "{at}: made with the key {id}. Every host of the ledger needs this file; keep a copy of it."
        ));
        return Ok(ExitCode::SUCCESS);
    }
    // A ledger that does not open with the keys of now would not be readable with one more.
    let ledger = config.ledger.open(Purpose::Change).await?.ledger;
    if !finish {
        let id = Keys::rotate(&path)?;
        say(format!("{at}: the new key {id} is the active one"));
    }
    let meter = Meter::new("texts sealed again");
    let count = ledger.reseal_telling(&|n| meter.at(n)).await;
    drop(meter);
    let again =
        "the older keys stay needed; repair what it names, then run: sutler ledger rotate-key --finish";
    let count = count.map_err(|e| anyhow::anyhow!("sealing again stopped: {e}\n{again}"))?;
    say(format!("{count} texts were sealed again"));
    let older = Keys::open(&path)?.older();
    if older.is_empty() {
        say("There is no older key.");
    } else if finish {
        say(format!(
            "Nothing in the ledger needs the older keys any more: {}. They may be removed from {at} if every host that \
             serves this ledger was started after the active key came. Backups and exports of before still need \
             them: keep a copy of the file as long as you keep those.",
            older.join(", ")
        ));
    } else {
        say(
            "The older keys stay in the file for now: a host that runs may still seal with them. Restart it, then run\n  \
             sutler ledger rotate-key --finish\nwhich says when they may be removed. Make a copy of the key file: the \
             ledger cannot be read without it.",
        );
    }
    Ok(ExitCode::SUCCESS)
}
