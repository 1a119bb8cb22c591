//! A hundred thousand operations that wait in one host's ledger, on SQLite and on PostgreSQL: its memory, how late
//! those are woken that become due meanwhile, and what a claim costs beside them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use futures::stream::{self, TryStreamExt as _};
use sutler_ledger::{
    Claim, Event, Happened, Job, JobId, Keys, Ledger, Limits, Postgres, PostgresOptions, Record, Sqlite,
    SqliteOptions, Status,
};
use sutler_model::Identifier;
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::postgres::{Server, client};
use sutler_testkit::{SutlerProcess, guest};

use crate::process::Process;
use crate::{Row, median};

/// How many wait while the costs of claims are compared.
const FEW: usize = 1_000;
const MANY: usize = 100_000;
/// Claims of one job each that are measured.
const CLAIMS: usize = 300;
/// So many become due one after the other.
const WOKEN: u32 = 1_000;
const APART: Duration = Duration::from_millis(10);
/// Until the first of them is due: longer than a host takes to look at its ledger again.
const AHEAD: Duration = Duration::from_secs(3);
const FAR: Duration = Duration::from_secs(12 * 3600);

pub(crate) async fn run() -> Result<Vec<Row>> {
    let place = Place::new()?;
    let template = place.template().await?;
    let mut rows = on_sqlite(&place, &template).await?;
    rows.extend(on_postgres(&place, &template).await?);
    Ok(rows)
}

async fn on_sqlite(place: &Place, template: &Template) -> Result<Vec<Row>> {
    let (many, few) = (place.open("parked.db", true)?, place.open("few.db", true)?);
    many.import(template.plugin.clone()).await?;
    template.park(&many, 0..MANY, |_| FAR).await?;
    template.park(&few, 0..FEW, |_| FAR).await?;
    let claims = claims((&few, &many), template).await?;
    drop(many);
    let ledger = format!("path = {:?}", place.file("parked.db"));
    let host = SutlerProcess::start(&place.config(&ledger), &[]).await;
    let beside = place.open("parked.db", false)?;
    measured(claims, &host, &beside, template).await.map(|m| {
        m.rows([
            "SQLite: a claim beside 100,000 parked operations ÷ beside 1,000",
            "SQLite: memory of a host with 100,000 parked operations",
            "SQLite: wake lag beside 100,000 parked operations, p99",
        ])
    })
}

async fn on_postgres(place: &Place, template: &Template) -> Result<Vec<Row>> {
    let server = Server::start(|_| Vec::new());
    let open = async |url: &str, copies: usize| {
        let ledger = Postgres::open(url, place.keys.clone(), PostgresOptions::default()).await?;
        ledger.import(template.plugin.clone()).await?;
        template.park(&ledger, 0..1, |_| FAR).await?;
        copy(url, copies).await?;
        anyhow::Ok(ledger)
    };
    let url = server.database().await;
    let (many, few) = (open(&url, MANY).await?, open(&server.database().await, FEW).await?);
    let claims = claims((&few, &many), template).await?;
    let host = SutlerProcess::start(&place.config(&format!("url = {url:?}")), &[]).await;
    measured(claims, &host, &many, template).await.map(|m| {
        m.rows([
            "PostgreSQL: a claim beside 100,000 parked operations ÷ beside 1,000",
            "PostgreSQL: memory of a host with 100,000 parked operations",
            "PostgreSQL: wake lag beside 100,000 parked operations, p99",
        ])
    })
}

/// Copies of the one job. Their texts are sealed for it and cannot be opened; nobody does before they are due.
async fn copy(url: &str, count: usize) -> Result<()> {
    let client = client(url).await;
    let sql = "SELECT string_agg(attname::text, ', ') FROM pg_attribute WHERE attrelid = 'provisioning_jobs'::regclass \
               AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('n', 'id', 'application', 'request_id')";
    let columns: String = client.query_one(sql, &[]).await?.try_get(0)?;
    let copy = format!(
        "INSERT INTO provisioning_jobs (id, application, request_id, {columns}) \
         SELECT 'op_' || lpad(to_hex(i), 32, '0'), 'copy-' || i, 'copy-' || i, {columns} \
         FROM provisioning_jobs j, generate_series(1, {count}) c (i) WHERE j.n = 1"
    );
    client.batch_execute(&copy).await?;
    Ok(client.batch_execute("VACUUM ANALYZE").await?)
}

/// What a ledger of each kind comes to.
struct Measured {
    /// A claim's time beside many ÷ beside few.
    claims: f64,
    /// GB
    memory: f64,
    /// Seconds.
    lag: f64,
}

async fn measured(
    (few, many): (f64, f64),
    host: &SutlerProcess,
    ledger: &dyn Ledger,
    template: &Template,
) -> Result<Measured> {
    println!("parked: a claim takes {few:.0} µs beside {FEW} parked operations, {many:.0} µs beside {MANY}");
    let lag = woken(ledger, template).await?;
    Ok(Measured { claims: many / few, memory: resident(host.id().context("the host has ended")?)?, lag })
}

impl Measured {
    fn rows(&self, [claims, memory, lag]: [&'static str; 3]) -> Vec<Row> {
        let row = |what, value, unit, wanted, met| Row { what, value, unit, wanted, met };
        vec![
            row(claims, self.claims, "", "<= 1.5", self.claims <= 1.5),
            row(memory, self.memory, "GB", "< 1", self.memory < 1.0),
            row(lag, self.lag, "s", "< 1", self.lag < 1.0),
        ]
    }
}

/// Files and configurations.
struct Place {
    folder: tempfile::TempDir,
    keys: Keys,
}

impl Place {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins)?;
        std::fs::copy(guest("hostile"), plugins.join("hostile.wasm"))?;
        let key = folder.path().join("ledger.key");
        let keys = Keys::open_or_make(&key, &folder.path().join("parked.db"))?;
        Ok(Self { folder, keys })
    }
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn config(&self, ledger: &str) -> String {
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[catalog]\n\
             dir = {:?}\n[ledger]\nkey-file = {:?}\n{ledger}\n",
            self.file("plugins"),
            self.file("ledger.key"),
        )
    }
    fn open(&self, name: &str, serving: bool) -> Result<Sqlite> {
        let options = SqliteOptions { serving, ..SqliteOptions::default() };
        Ok(Sqlite::open(&self.file(name), self.keys.clone(), options)?)
    }

    /// An operation as a host made it, with its plugin.
    async fn template(&self) -> Result<Template> {
        let mut host =
            SutlerProcess::start(&self.config(&format!("path = {:?}", self.file("template.db"))), &[]).await;
        let body = SampleRequest::new("tool/hostile").create(serde_json::json!({"do": "ok"})).body();
        let answer = Caller::new(&host.url).apply(&body).await;
        ensure!(answer.text.contains("\"outcome\":\"succeeded\""), "{}", answer.text);
        host.stop().await;
        let ledger = self.open("template.db", false)?;
        let records: Vec<Record> = ledger.export().try_collect().await?;
        let plugin = records.iter().find(|r| matches!(r, Record::Plugin { .. })).cloned();
        let job = records.into_iter().find_map(|r| match r {
            Record::Job { job, events, route, body } => Some((*job, events, route, body)),
            _ => None,
        });
        let (job, events, route, body) = job.context("the operation is not in the ledger")?;
        Ok(Template { plugin: plugin.context("its plugin is not there")?, job, events, route, body })
    }
}

struct Template {
    plugin: Record,
    job: Job,
    events: Vec<Event>,
    route: String,
    body: [u8; 32],
}

impl Template {
    /// The same operation once more: parked after its first attempt, and done at the next.
    fn record(&self, n: usize, now: sutler_ledger::Millis, after: Duration) -> Result<Record> {
        let mut job = self.job.clone();
        job.id = JobId::operation();
        job.application.id = Identifier::parse(&format!("parked-{n}"))?;
        job.subject_id = job.application.id.to_string();
        job.request_id = format!("parked-{n}");
        (job.standing.status, job.standing.attempt, job.answer) = (Status::Running, 0, None);
        (job.created, job.updated, job.due) = (now, now, now.plus(after));
        job.deadline = now.plus(FAR * 2);
        let mut events: Vec<Event> = self.events.iter().take(3).cloned().collect();
        for e in &mut events {
            e.at = now;
        }
        let what = Happened::Waiting { due: job.due };
        events.push(Event { seq: 4, at: now, what });
        Ok(Record::Job { job: Box::new(job), events, route: self.route.clone(), body: self.body })
    }

    /// Answers their ids and when they are due.
    async fn park(
        &self,
        ledger: &dyn Ledger,
        which: std::ops::Range<usize>,
        after: impl Fn(usize) -> Duration,
    ) -> Result<Vec<(JobId, sutler_ledger::Millis)>> {
        let now = ledger.now().await?;
        let each = which.map(|n| {
            let record = self.record(n, now, after(n));
            async move {
                let record = record?;
                let Record::Job { job, .. } = &record else { bail!("a job was made") };
                let told = (job.id.clone(), job.due);
                ledger.import(record).await?;
                Ok(told)
            }
        });
        stream::iter(each).buffered(256).try_collect().await
    }
}

/// The middle ones of many claims that take the one job that is due, on two ledgers in turn, in microseconds.
async fn claims((few, many): (&dyn Ledger, &dyn Ledger), template: &Template) -> Result<(f64, f64)> {
    let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
    for n in 0..CLAIMS {
        let n = 2 * MANY + n;
        of_few.push(claim(few, template, n).await?);
        of_many.push(claim(many, template, n).await?);
    }
    Ok((median(&mut of_few), median(&mut of_many)))
}

/// In microseconds.
async fn claim(ledger: &dyn Ledger, template: &Template, n: usize) -> Result<f64> {
    let claim = Claim {
        holder: Arc::from("bench"),
        places: 4,
        lease_of: Default::default(),
        lease: FAR,
        takeover_after: Duration::from_secs(15),
        digests: None,
        limits: Limits::default(),
    };
    let due = template.park(ledger, n..n + 1, |_| Duration::ZERO).await?;
    let began = Instant::now();
    let got = ledger.claim(claim).await?;
    let took = began.elapsed().as_secs_f64() * 1e6;
    ensure!(got.iter().map(|j| &j.id).eq(due.iter().map(|(id, _)| id)), "another job was claimed");
    Ok(took)
}

/// Rows become due one after the other beside the host that looks for them; the 99th hundredth of what they waited,
/// in seconds.
async fn woken(ledger: &dyn Ledger, template: &Template) -> Result<f64> {
    let first = 10 * MANY;
    let due = |n: usize| AHEAD + APART * u32::try_from(n - first).unwrap_or(0);
    let all = template.park(ledger, first..first + WOKEN as usize, due).await?;
    let last = all.last().map(|(_, due)| due.since(template.job.created)).unwrap_or_default();
    let mut lags = Vec::new();
    let began = Instant::now();
    for (id, due) in all {
        let claimed = loop {
            let events = ledger.events(id.clone(), 4, 1).await?;
            match events.first() {
                Some(Event { at, what: Happened::Claimed { .. }, .. }) => break *at,
                Some(other) => bail!("{id}: {other:?} follows its pause"),
                None => {}
            }
            ensure!(began.elapsed() < last + Duration::from_secs(120), "{id} is never claimed");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        lags.push(claimed.since(due).as_secs_f64());
    }
    let middle = median(&mut lags);
    let at = |part: f64| lags.get((lags.len() as f64 * part) as usize).copied().unwrap_or(f64::MAX);
    println!(
        "parked: {WOKEN} operations became due {APART:?} apart: woken after {middle:.3} s (p50), {:.3} s (p99), at most \
         {:.3} s",
        at(0.99),
        lags.last().copied().unwrap_or_default()
    );
    Ok(at(0.99))
}

/// In GB, at its most.
fn resident(process: u32) -> Result<f64> {
    let process = Process(process);
    let gigabytes = |megabytes: f64| megabytes * 1024.0 * 1024.0 / 1e9;
    let (now, most) = (gigabytes(process.memory()?), gigabytes(process.peak()?));
    println!("parked: the host has {now:.3} GB in memory, and had {most:.3} GB at its most");
    Ok(most)
}
