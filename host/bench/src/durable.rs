//! Durable applies on SQLite, against raw rusqlite that writes the same rows with the same commits.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use sutler_jobs::{Answered, Asked, Ended, New, Operations, OperationsConfig, Ran, Worker};
use sutler_ledger::{Job, Keys, Ledger, Phase, Sqlite, SqliteOptions};
use sutler_model::{
    Action, Application, Applied, Change, Checkpoint, Digest, Fence, Identifier, Pair, PluginName, Progress,
    Request, RequestId,
};

use crate::{Row, median};

/// Callers that apply at the same time; as many share a commit on the raw side.
pub(crate) const CALLERS: u64 = 64;
pub(crate) const ROUNDS: usize = 5;
pub(crate) const TIME: Duration = Duration::from_secs(2);

/// Work that is done at once: what remains is the ledger.
pub(crate) struct AtOnce;

impl Worker for AtOnce {
    fn run<'a>(
        &'a self,
        _: &'a Job,
        _: Checkpoint,
        asked: &'a Asked,
        _: Phase,
        _: Fence,
    ) -> BoxFuture<'a, Ran> {
        let applied = asked.request.changes.iter().map(|c| Applied {
            resource: c.resource.clone(),
            outputs: json!({"url": "http://orders.example", "revision": 1}),
            secret_outputs: json!({}),
        });
        let done = Ran::Progress(Progress::Done(applied.collect()));
        Box::pin(async move { done })
    }
    fn runnable(&self) -> Option<Vec<Digest>> {
        None
    }
    fn longest(&self) -> BTreeMap<Pair, Duration> {
        BTreeMap::new()
    }
    fn version(&self, _: &Digest) -> String {
        "0.1.0".into()
    }
    fn current(&self, _: &Pair) -> Option<(PluginName, Digest)> {
        None
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn new(caller: u64) -> Result<New> {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = |s: &str| Identifier::parse(s).map_err(anyhow::Error::from);
    let settings: Value =
        json!({"size": 3, "zones": ["a", "b"], "owner": "team-a", "definition": "x".repeat(400)});
    let request = Request {
        id: RequestId::parse(&format!("bench-{n}"))?,
        pair: "deployment/bench".parse()?,
        application: Application {
            id: id(&format!("orders-{caller}"))?,
            environment: id("prod")?,
            tenant: Some(id("acme")?),
            instance: None,
        },
        changes: vec![Change {
            resource: id("main")?,
            action: Action::Update,
            settings: Some(settings),
            previous_settings: None,
            previous_outputs: None,
        }],
    };
    Ok(New {
        caller: "bench".into(),
        body: *Digest::of(&n.to_le_bytes()).as_bytes(),
        asked: Asked { request, planned: vec![], pins: json!([]) },
        plugin: PluginName::parse("bench")?,
        digest: Digest::of(b"bench"),
        takes: sutler_ledger::Takes::default(),
    })
}

/// Applies a second through the operations.
pub(crate) async fn ours(operations: &Operations) -> Result<f64> {
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let operations = operations.clone();
            tokio::spawn(async move {
                let mut done = 0_u64;
                while began.elapsed() < TIME {
                    match operations.begin(new(caller)?).await? {
                        Answered::Done(_, Ended::Succeeded(_)) => done += 1,
                        other => anyhow::bail!("an apply came to {other:?}"),
                    }
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for c in callers {
        done += c.await??;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

/// The columns of the audit but its number.
pub(crate) const AUDIT: &str = "at, actor, action, resource_type, resource_id, instance, tenant, environment, application, \
     operation, request_id";

/// A ledger's file with the rows of one apply in it, to be written again and again without anything around.
struct Raw {
    conn: Connection,
    /// The columns of a job's row besides its number and id.
    columns: String,
    template: i64,
}

impl Raw {
    fn open(file: &Path) -> Result<Self> {
        let conn = Connection::open(file)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.set_prepared_statement_cache_capacity(64);
        let template: i64 = conn.query_row("SELECT max(n) FROM provisioning_jobs", [], |r| r.get(0))?;
        let names: Vec<String> = conn
            .prepare("SELECT name FROM pragma_table_info('provisioning_jobs')")?
            .query_map([], |r| r.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let columns = names.into_iter().filter(|n| !["n", "id"].contains(&n.as_str()));
        Ok(Self { columns: columns.collect::<Vec<_>>().join(", "), conn, template })
    }

    /// Two commits for as many applies as there are callers.
    fn group(&mut self) -> Result<()> {
        let (columns, t) = (&self.columns, self.template);
        let copy = |table: &str, columns: &str| {
            format!("INSERT INTO {table} (job, {columns}) SELECT ?1, {columns} FROM {table} WHERE job = ?2")
        };
        let row = format!(
            "INSERT INTO provisioning_jobs (id, {columns}) SELECT ?1, {columns} FROM provisioning_jobs WHERE n = ?2"
        );
        let audit = format!("INSERT INTO audit ({AUDIT}) SELECT {AUDIT} FROM audit WHERE n = 1");
        let mut made = Vec::new();
        let tx = self.conn.transaction()?;
        for _ in 0..CALLERS {
            let id = format!("op_{:032x}", NEXT.fetch_add(1, Ordering::Relaxed));
            tx.prepare_cached(&row)?.execute(params![id, t])?;
            let n = tx.last_insert_rowid();
            for table in ["sealed_requests", "sealed_states"] {
                tx.prepare_cached(&copy(table, "sealed"))?.execute(params![n, t])?;
            }
            // All of its events but the last, which the second commit writes.
            let events = copy("job_events", "seq, at, what") + " AND seq < 4";
            tx.prepare_cached(&events)?.execute(params![n, t])?;
            tx.prepare_cached("INSERT INTO job_requests VALUES ('bench', 'apply', ?1, ?2, 0)")?
                .execute(params![id, n])?;
            tx.prepare_cached(&audit)?.execute([])?;
            tx.prepare_cached("INSERT INTO job_resources VALUES (?1, 'main', ?2)")?
                .execute(params![id, n])?;
            made.push((n, id));
        }
        tx.commit()?;
        let tx = self.conn.transaction()?;
        for (n, id) in &made {
            tx.prepare_cached(
                "UPDATE provisioning_jobs SET status = 'completed', revision = revision + 1, lease_holder = NULL, \
                 lease_until = NULL, updated = updated + 1, last_event = 4, queue = 3 WHERE n = ?1",
            )?
            .execute([n])?;
            tx.prepare_cached(&copy("sealed_answers", "sealed"))?.execute(params![n, t])?;
            let last = copy("job_events", "seq, at, what") + " AND seq = 4";
            tx.prepare_cached(&last)?.execute(params![n, t])?;
            tx.prepare_cached("DELETE FROM job_resources WHERE scope = ?1")?.execute([id])?;
        }
        tx.commit()?;
        Ok(())
    }

    fn rate(&mut self) -> Result<f64> {
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < TIME {
            self.group()?;
            done += CALLERS;
        }
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }
}

/// One apply that came about as all do, for the other side to copy.
pub(crate) async fn template(ledger: Arc<dyn Ledger>) -> Result<()> {
    let once = Operations::new(ledger, Arc::new(AtOnce), &OperationsConfig::default(), "template")?;
    once.start();
    once.begin(new(0)?).await?;
    once.stop(Duration::from_secs(1)).await;
    Ok(())
}

pub(crate) async fn run() -> Result<Row> {
    let folder = tempfile::tempdir()?;
    let (file, other) = (folder.path().join("ledger.db"), folder.path().join("raw.db"));
    let keys = Keys::open_or_make(&folder.path().join("ledger.key"), &file)?;
    let open = |file: &Path| Sqlite::open(file, keys.clone(), SqliteOptions::default());
    template(Arc::new(open(&other)?)).await?;
    let mut raw = Raw::open(&other).context("the raw side's file")?;
    let events: i64 = raw.conn.query_row("SELECT count(*) FROM job_events", [], |r| r.get(0))?;
    ensure!(events == 4, "an apply makes {events} events; the raw side writes 4");
    let ledger: Arc<dyn Ledger> = Arc::new(open(&file)?);
    let operations = Operations::new(ledger, Arc::new(AtOnce), &OperationsConfig::default(), "bench")?;
    operations.start();
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let a = ours(&operations).await?;
        let (back, b) = tokio::task::spawn_blocking(move || {
            let b = raw.rate();
            (raw, b)
        })
        .await?;
        raw = back;
        let b = b?;
        println!(
            "durable, round {round}: sutler {a:.0} applies/s, raw rusqlite {b:.0}/s, ratio {:.3}",
            a / b
        );
        if round > 0 {
            ratios.push(a / b);
        }
    }
    operations.stop(Duration::from_secs(5)).await;
    let ratio = median(&mut ratios);
    Ok(Row {
        what: "durable applies on SQLite ÷ raw rusqlite, same rows and commits",
        value: ratio,
        unit: "",
        wanted: ">= 0.6",
        met: ratio >= 0.6,
    })
}
