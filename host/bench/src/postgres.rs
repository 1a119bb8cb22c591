//! Durable applies on PostgreSQL, against pgbench with as many statements and commits an apply that write the same
//! rows. pgbench has the easier part: the server copies the texts, which sutler seals and sends.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sutler_jobs::{Operations, OperationsConfig};
use sutler_ledger::{Keys, Ledger, Postgres, PostgresOptions};
use sutler_testkit::postgres::{Server, client};

use crate::durable::{AUDIT, AtOnce, ROUNDS, TIME, ours, template};
use crate::{Row, median};

/// As many connections as a host has.
const CONNECTIONS: usize = 10;
/// So many ids belong to one round.
const IDS: u64 = 10_000_000;

pub(crate) async fn run() -> Result<Row> {
    let server = Server::start(|_| Vec::new());
    let folder = tempfile::tempdir()?;
    let keys = Keys::open_or_make(&folder.path().join("ledger.key"), &folder.path().join("ledger.db"))?;
    let (url, other) = (server.database().await, server.database().await);
    let options = PostgresOptions { connections: Some(CONNECTIONS), ..PostgresOptions::default() };
    template(Arc::new(Postgres::open(&other, keys.clone(), options.clone()).await?)).await?;
    let script = folder.path().join("apply.sql");
    std::fs::write(&script, apply(&other).await?)?;
    let ledger: Arc<dyn Ledger> = Arc::new(Postgres::open(&url, keys, options).await?);
    let operations = Operations::new(ledger, Arc::new(AtOnce), &OperationsConfig::default(), "bench")?;
    operations.start();
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let a = ours(&operations).await?;
        let (script, other) = (script.clone(), other.clone());
        let b = tokio::task::spawn_blocking(move || pgbench(&script, &other, round as u64 * IDS)).await??;
        println!("postgres, round {round}: sutler {a:.0} applies/s, pgbench {b:.0}/s, ratio {:.3}", a / b);
        if round > 0 {
            ratios.push(a / b);
        }
    }
    operations.stop(Duration::from_secs(5)).await;
    let ratio = median(&mut ratios);
    Ok(Row {
        what: "durable applies on PostgreSQL ÷ pgbench, same rows and commits",
        value: ratio,
        unit: "",
        wanted: ">= 0.4",
        met: ratio >= 0.4,
    })
}

/// The two statements of an apply: one makes the row and what goes with it, the other ends it.
async fn apply(url: &str) -> Result<String> {
    let client = client(url).await;
    let events: i64 = client.query_one("SELECT count(*) FROM job_events", &[]).await?.try_get(0)?;
    ensure!(events == 4, "an apply makes {events} events; pgbench writes 4");
    let t: i64 = client.query_one("SELECT max(n) FROM provisioning_jobs", &[]).await?.try_get(0)?;
    let sql = "SELECT attname::text FROM pg_attribute WHERE attrelid = 'provisioning_jobs'::regclass \
               AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('n', 'id') ORDER BY attnum";
    let rows = client.query(sql, &[]).await?;
    let columns = rows.iter().map(|r| r.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    let names = columns.join(", ");
    // The template has ended; what is begun is claimed.
    let begun: Vec<&str> = columns
        .iter()
        .map(|c| match c.as_str() {
            "status" => "'running'",
            "lease_holder" => "'pgbench'",
            "lease_until" | "wake" => "updated + 30000",
            "queue" => "1",
            "last_event" => "3",
            "answer" => "NULL",
            "attempt" | "token" => "1",
            other => other,
        })
        .collect();
    let (begun, digits) = (begun.join(", "), "lpad(:i::text, 24, '0') || lpad(:client_id::text, 8, '0')");
    Ok(format!(
        "\\set i :i + 1
WITH made AS (INSERT INTO provisioning_jobs (id, {names}) SELECT 'op_' || {digits}, {begun} \
FROM provisioning_jobs WHERE n = {t} RETURNING n, id), \
asks AS (INSERT INTO job_requests SELECT 'bench', 'apply', made.id, made.n, false FROM made), \
takes AS (INSERT INTO job_resources SELECT made.id, 'main', made.n FROM made), \
audits AS (INSERT INTO audit ({AUDIT}) SELECT {AUDIT} FROM audit WHERE n = 1) \
INSERT INTO job_events SELECT made.n, e.seq, e.at, e.what FROM made, job_events e WHERE e.job = {t} AND e.seq < 4;
WITH done AS (UPDATE provisioning_jobs j SET status = 'completed', revision = j.revision + 1, lease_holder = NULL, \
lease_until = NULL, updated = j.updated + 1, last_event = 4, queue = 3, wake = 0, answer = t.answer \
FROM (SELECT answer FROM provisioning_jobs WHERE n = {t}) t WHERE right(j.id, 32) = {digits} RETURNING j.n, j.id), \
frees AS (DELETE FROM job_resources r USING done WHERE r.scope = done.id AND r.resource = 'main') \
INSERT INTO job_events SELECT done.n, e.seq, e.at, e.what FROM done, job_events e WHERE e.job = {t} AND e.seq = 4;
"
    ))
}

/// Applies a second.
fn pgbench(script: &Path, url: &str, first: u64) -> Result<f64> {
    let seconds = TIME.as_secs().to_string();
    let mut command = Command::new(Server::program("pgbench"));
    command
        .args(["-n", "-M", "prepared", "-j", "2", "-c", &CONNECTIONS.to_string(), "-T", &seconds])
        .args(["-D", &format!("i={first}"), "-f"])
        .arg(script)
        .arg(url)
        // As sutler has it.
        .env("PGOPTIONS", "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off");
    let out = command.output().context("pgbench cannot be started")?;
    let said = String::from_utf8_lossy(&out.stdout);
    ensure!(out.status.success(), "pgbench: {said}{}", String::from_utf8_lossy(&out.stderr));
    let rate = said.lines().find_map(|l| l.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.with_context(|| format!("pgbench names no rate: {said}"))
}
