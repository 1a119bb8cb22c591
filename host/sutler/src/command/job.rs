//! `sutler job`: jobs in the ledger, beside the hosts that work on them.

mod generation;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use sutler_jobs::{Operation, OperationError, Operations, Who};
use sutler_ledger::{Filter, JobId, Ledger, Status};
use sutler_model::Pair;

use self::generation::Generation;
use super::{ConfigFile, say};
use crate::config::Config;
use crate::ledger::Purpose;
use crate::telemetry;

/// How often a watched job is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Who it is that changes a job, for the audit; no token is called so.
const COMMAND_LINE: &str = "command line";
/// Events of one look.
const EVENTS: u32 = 500;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum JobCommand {
    /// The newest jobs: id, status, pair, application, step, attempt, age
    #[command(after_help = "For example:
  sutler job list --status failed                what has to be looked after
  sutler job list --pair deployment/ksml --tenant acme --json
  sutler job list --before op_0198…              the page after the one that ended with it")]
    List(List),
    /// One job with its progress and everything that happened to it
    #[command(
        after_help = "Settings, outputs and secrets are never shown: they are sealed in the ledger and go to \
the job's caller only. Times are UTC, of the ledger's clock."
    )]
    Show(Show),
    /// Let a failed job go on where it stopped
    #[command(
        after_help = "It goes on with the plugin that serves its pair now: the one in [catalog] dir, which is \
loaded to see whether it is well and kept in the ledger. With --same-digest it goes on with the one that it had. A \
serving host takes it up within [operations] poll-milliseconds; without one it waits."
    )]
    Retry(Retry),
    /// Have a job's work taken back
    #[command(
        after_help = "A step that runs is stopped and what it made is removed by the plugin, step by step; the \
job is then cancelled. A completed or failed job is taken back too. Follow it with: sutler job watch ID"
    )]
    Cancel(One),
    /// Print what happens to a job until it ends; exits with 0 (completed), 1 (failed) or 2 (cancelled)
    Watch(One),
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// draft, queued, running, completed, failed or cancelled
    #[arg(long, value_name = "STATUS")]
    status: Option<Status>,
    /// For example deployment/ksml
    #[arg(long, value_name = "KIND/TYPE")]
    pair: Option<Pair>,
    #[arg(long)]
    instance: Option<String>,
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long)]
    application: Option<String>,
    #[arg(long)]
    environment: Option<String>,
    /// Only jobs older than this one
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// A JSON array instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// The job: op_ and 32 hex digits
    id: JobId,
    /// A JSON object instead of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    /// The job: op_ and 32 hex digits
    id: JobId,
    /// Stay on the plugin that the job began with
    #[arg(long)]
    same_digest: bool,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The job: op_ and 32 hex digits
    id: JobId,
    #[command(flatten)]
    config: ConfigFile,
}

impl JobCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let file = match &self {
            Self::List(l) => &l.config,
            Self::Show(s) => &s.config,
            Self::Retry(r) => &r.config,
            Self::Cancel(o) | Self::Watch(o) => &o.config,
        };
        let config = file.load()?;
        telemetry::logs(&config.log, true)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            match self {
                Self::List(l) => l.run(&config).await,
                Self::Show(s) => s.run(&config).await,
                Self::Retry(r) => r.run(&config).await,
                Self::Cancel(o) => cancel(&config, &o.id).await,
                Self::Watch(o) => watch(&config, &o.id).await,
            }
        });
        done.map_err(|e| match e.downcast_ref::<OperationError>() {
            Some(OperationError::NotFound(id)) => anyhow::anyhow!(
                "there is no job {id} in {}; `sutler job list` shows those that there are",
                config.ledger.place()
            ),
            _ => e,
        })
    }
}

type Front = (Operations, std::sync::Arc<dyn Ledger>);

/// The operations as a host has them, without anything that runs.
async fn front(config: &Config, purpose: Purpose, generation: Generation) -> anyhow::Result<Front> {
    let ledger = config.ledger.open(purpose).await?.ledger;
    let worker = std::sync::Arc::new(generation);
    Ok((Operations::new(ledger.clone(), worker, &config.operations, "command line")?, ledger))
}

/// The whole file is not looked through before a look at a few rows.
async fn looking(config: &Config) -> anyhow::Result<Front> {
    front(config, Purpose::Look, Generation::default()).await
}

async fn changing(config: &Config, generation: Generation) -> anyhow::Result<Front> {
    front(config, Purpose::Change, generation).await
}

impl List {
    async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let (operations, ledger) = looking(config).await?;
        let filter = Filter {
            caller: None,
            status: self.status,
            pair: self.pair,
            instance: self.instance,
            tenant: self.tenant,
            application: self.application,
            environment: self.environment,
            before: self.before,
            limit: self.limit,
        };
        let jobs = operations.list(Who::Operator(COMMAND_LINE), filter).await?;
        if self.json {
            let all: Vec<_> = jobs.iter().map(show::json).collect();
            say(serde_json::to_string_pretty(&all)?);
            return Ok(ExitCode::SUCCESS);
        }
        for line in show::table(&jobs, ledger.now().await?) {
            say(line);
        }
        if let Some(last) = jobs.last().filter(|_| jobs.len() == self.limit as usize) {
            eprintln!("there may be more: --before {}", last.job.id);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Show {
    async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let (operations, ledger) = looking(config).await?;
        let job = operations.operation(Who::Operator(COMMAND_LINE), &self.id).await?;
        let mut events = Vec::new();
        loop {
            let after = events.last().map_or(0, |e: &sutler_ledger::Event| e.seq);
            let more = operations.events(Who::Operator(COMMAND_LINE), &self.id, after, EVENTS).await?;
            if more.is_empty() {
                break;
            }
            events.extend(more);
        }
        if self.json {
            let mut json = show::json(&job);
            if let Some(fields) = json.as_object_mut() {
                fields.insert("events".into(), serde_json::to_value(&events)?);
            }
            say(serde_json::to_string_pretty(&json)?);
            return Ok(ExitCode::SUCCESS);
        }
        for line in show::lines(&job, ledger.now().await?) {
            say(line);
        }
        say("  events");
        for e in &events {
            say(format!("    {}", show::event(e)));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Retry {
    async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let mut generation = Generation::default();
        if !self.same_digest {
            let (operations, ledger) = looking(config).await?;
            let job = operations.operation(Who::Operator(COMMAND_LINE), &self.id).await?.job;
            // A job that is not to be retried is refused without loading anything.
            if job.standing.status == Status::Failed {
                let entry = generation::current(config, &job.pair).await?;
                ledger.keep_plugin(entry.plugin.digest, entry.wasm.clone()).await?;
                generation = Generation::of(&job.pair, &entry);
            }
        }
        let (operations, _ledger) = changing(config, generation).await?;
        let job = operations.retry(Who::Operator(COMMAND_LINE), &self.id, self.same_digest).await?.job;
        let which = if self.same_digest { "which it had" } else { "which serves its pair now" };
        say(format!("{} goes on with {} {}, {which}", job.id, job.plugin, job.digest));
        say(format!("follow it with: sutler job watch {}", job.id));
        Ok(ExitCode::SUCCESS)
    }
}

async fn cancel(config: &Config, id: &JobId) -> anyhow::Result<ExitCode> {
    let (operations, _ledger) = changing(config, Generation::default()).await?;
    let Operation { job, .. } = operations.cancel(Who::Operator(COMMAND_LINE), id).await?;
    if job.standing.status == Status::Cancelled {
        say(format!("{id} is cancelled"));
    } else {
        say(format!("{id} is being taken back; follow it with: sutler job watch {id}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn watch(config: &Config, id: &JobId) -> anyhow::Result<ExitCode> {
    let (operations, _ledger) = looking(config).await?;
    let (mut after, mut message) = (0, String::new());
    loop {
        // The row first: what is final then has all its events.
        let now = operations.operation(Who::Operator(COMMAND_LINE), id).await?;
        let events = operations.events(Who::Operator(COMMAND_LINE), id, after, EVENTS).await?;
        for e in &events {
            say(show::event(e));
            after = e.seq;
        }
        if events.len() == EVENTS as usize {
            continue;
        }
        if now.message != message && !now.message.is_empty() {
            say(format!("{:6}{}", "", show::plain(&now.message)));
        }
        match now.job.standing.status {
            Status::Completed => return Ok(ExitCode::SUCCESS),
            Status::Failed => {
                show::ended(&now).iter().for_each(say);
                return Ok(ExitCode::FAILURE);
            }
            Status::Cancelled => return Ok(ExitCode::from(2)),
            Status::Draft | Status::Queued | Status::Running => {}
        }
        message = now.message;
        tokio::time::sleep(LOOK).await;
    }
}
