//! Keeping and forgetting: plugins, old jobs, imported records, texts under old keys.

use std::time::Duration;

use sutler_model::Digest;

use super::audit;
use super::begin::{self, TRIES};
use super::broken::{Broken, Effect, unreadable};
use super::connections::Connections;
use super::put::{Given, given, values};
use super::row::{self, get};
use super::takes;
use crate::seal::Keys;
use crate::{Event, Job, JobId, LedgerError, Record, rules};

/// At most so many jobs are forgotten at once.
const PURGED: i64 = 300;
/// A plugin that was kept so shortly ago is not written again; forgetting adds it.
const FRESH: Duration = Duration::from_secs(3600);

/// Bytes of an operation's texts, as a probe takes them.
const PROBE: u32 = 256 << 10;

pub(super) async fn keep_plugin(
    connections: &Connections,
    digest: Digest,
    bytes: &[u8],
) -> Result<(), Broken> {
    let digest = digest.to_string();
    let floor = connections.floor();
    let fresh =
        "SELECT 1 FROM plugins WHERE digest = $1 AND kept > greatest(ledger_now(), $2::bigint) - $3::bigint";
    if !connections.read(fresh, &[&digest, &floor, &row::distance(FRESH)]).await?.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO plugins (digest, kept, bytes) VALUES ($1, greatest(ledger_now(), $2::bigint), $3) \
               ON CONFLICT (digest) DO UPDATE SET kept = greatest(plugins.kept, excluded.kept)";
    connections.write(sql, &[&digest, &floor, &bytes]).await?;
    Ok(())
}

pub(super) async fn purge(connections: &Connections, final_for: Duration) -> Result<u64, Broken> {
    let sql = format!(
        "{}{}{}",
        "WITH old AS MATERIALIZED (SELECT n, caller, route, request_id FROM provisioning_jobs \
          WHERE queue = 3 AND status IN ('completed', 'failed', 'cancelled') \
          AND updated <= greatest(ledger_now(), $1::bigint) - $2::bigint LIMIT $3 FOR UPDATE SKIP LOCKED), ",
        takes::SETTLE,
        "own AS (DELETE FROM job_requests r USING old WHERE r.caller = old.caller AND r.route = old.route \
          AND r.request_id = old.request_id AND r.job = old.n), \
        further AS (DELETE FROM job_requests r USING old WHERE r.job = old.n AND r.further), \
        events AS (DELETE FROM job_events e USING old WHERE e.job = old.n), \
        gone AS (DELETE FROM provisioning_jobs j USING old WHERE j.n = old.n RETURNING 1) \
        SELECT count(*) FROM gone",
    );
    let floor = connections.floor();
    let rows = connections.write(&sql, &[&floor, &row::distance(final_for), &PURGED]).await?;
    let count = rows.first().map(|r| get::<i64>(r, 0)).transpose()?.unwrap_or_default();
    let sql = "DELETE FROM plugins p WHERE p.kept <= greatest(ledger_now(), $1::bigint) - $2::bigint \
               AND NOT EXISTS (SELECT FROM provisioning_jobs j WHERE j.digest = p.digest)";
    let unused_for = row::distance(final_for.saturating_add(FRESH));
    connections.write(sql, &[&floor, &unused_for]).await?;
    Ok(count.unsigned_abs())
}

/// A row that takes new pages comes and goes in one transaction, whose commit goes to the disk.
pub(super) async fn probe(connections: &Connections) -> Result<(), Broken> {
    let sql = format!(
        "INSERT INTO plugins (digest, kept, bytes) VALUES ('probe', 0, decode(repeat('2a', {PROBE}), 'hex')); \
         DELETE FROM plugins WHERE digest = 'probe'"
    );
    connections.get().await?.say(&sql, Effect::Commits).await
}

const PUT: &str = concat!(
    "WITH made AS (INSERT INTO provisioning_jobs (",
    given!(),
    ", due, lease_until, wake, revision, deadline, created, updated, last_event) SELECT ",
    values!(),
    ", $31::bigint, $32::bigint, $33::bigint, $34::bigint, $35::bigint, $36::bigint, $37::bigint, \
       coalesce((SELECT max(e.seq) FROM unnest($38::bigint[]) e (seq)), 0) RETURNING n), \
     asks AS (INSERT INTO job_requests (caller, route, request_id, job, further) \
       SELECT $14::text, $15::text, $16::text, made.n, false FROM made), \
     takes AS (INSERT INTO job_resources (scope, resource, job) \
       SELECT DISTINCT $25::text, x.name, made.n FROM made, unnest($11::text[]) x (name) \
       WHERE NOT $41::boolean ORDER BY x.name), \
     tells AS (INSERT INTO job_events (job, seq, at, what) SELECT made.n, e.seq, e.at, e.what \
       FROM made, unnest($38::bigint[], $39::bigint[], $40::text[]) e (seq, at, what)) \
     SELECT pg_notify('sutler_jobs', '')::text FROM made"
);

/// Another ledger's record, as it is.
pub(super) async fn import(connections: &Connections, keys: &Keys, record: &Record) -> Result<(), Broken> {
    match record {
        Record::Plugin { digest, bytes } => keep_plugin(connections, *digest, bytes).await,
        Record::Audit(row) => audit::append(connections, row, Some(row.at)).await,
        Record::Taken(taken) => takes::import(connections, taken).await,
        Record::Request { caller, route, request_id, job } => {
            import_request(connections, caller, route, request_id, job).await
        }
        Record::Job { job, events, route, body } => {
            let given = Given::new(job, route, body, keys)?;
            let mut why = String::new();
            for _ in 0..TRIES {
                refuse_known(connections, job, route).await?;
                match put(connections, job, &given, events).await {
                    Err(Broken::Raced(lost)) => why = lost,
                    got => return got,
                }
            }
            Err(Broken::Raced(why))
        }
    }
}

/// Says why a job cannot be imported, where something of it is here already.
async fn refuse_known(connections: &Connections, job: &Job, route: &str) -> Result<(), Broken> {
    if row::by_id(connections, &job.id).await?.is_some() {
        return Err(rules::already(&job.id).into());
    }
    let (caller, id) = (&job.caller, &job.request_id);
    if let Some(n) = requested(connections, caller, route, id).await? {
        let other =
            row::by_n(connections, n).await?.map_or_else(|| "another".into(), |c| c.job.id.to_string());
        let why =
            format!("job {other} of the ledger was asked for by {caller} under the request id {id:?} too");
        return Err(LedgerError::Unreadable(format!("{why}; import into an empty one")).into());
    }
    if job.standing.status.is_final() { Ok(()) } else { begin::refuse_if_held(connections, job).await }
}

async fn put(
    connections: &Connections,
    job: &Job,
    given: &Given<'_>,
    events: &[Event],
) -> Result<(), Broken> {
    let numbers: Vec<i64> = events.iter().map(|e| rules::int(e.seq)).collect();
    let times: Vec<i64> = events.iter().map(|e| e.at.0).collect();
    let text = |e: &Event| serde_json::to_string(&e.what).map_err(|e| unreadable("an event", e));
    let whats = events.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let until = job.lease.as_ref().map(|l| l.until.0);
    let (wake, revision, is_final) =
        (rules::queue(job).1, rules::int(job.revision), job.standing.status.is_final());
    let params = given.params(&[
        &job.due.0,
        &until,
        &wake,
        &revision,
        &job.deadline.0,
        &job.created.0,
        &job.updated.0,
        &numbers,
        &times,
        &whats,
        &is_final,
    ]);
    connections.write(PUT, &params).await?;
    Ok(())
}

async fn requested(
    connections: &Connections,
    caller: &str,
    route: &str,
    request_id: &str,
) -> Result<Option<i64>, Broken> {
    let sql = "SELECT job FROM job_requests WHERE caller = $1 AND route = $2 AND request_id = $3";
    let rows = connections.read(sql, &[&caller, &route, &request_id]).await?;
    rows.first().map(|r| get(r, 0)).transpose()
}

async fn import_request(
    connections: &Connections,
    caller: &str,
    route: &str,
    request_id: &str,
    job: &JobId,
) -> Result<(), Broken> {
    let found = row::by_id(connections, job).await?.ok_or_else(|| LedgerError::NotFound(job.clone()))?;
    if begin::remember(connections, caller, route, request_id, found.n).await?
        || requested(connections, caller, route, request_id).await? == Some(found.n)
    {
        return Ok(());
    }
    let why =
        format!("another job of the ledger was asked for by {caller} under the request id {request_id:?}");
    Err(LedgerError::Unreadable(format!("{why}; import into an empty one")).into())
}

/// Where sealed texts are. The name is authenticated with the text.
pub(super) const SEALED: [&str; 3] = ["request", "state", "answer"];

/// Seals a column's texts again that another key has sealed.
pub(super) async fn reseal(connections: &Connections, keys: &Keys, column: &str) -> Result<u64, Broken> {
    let page = format!(
        "SELECT n, id, {column} FROM provisioning_jobs WHERE n > $1 AND {column} IS NOT NULL ORDER BY n LIMIT 100"
    );
    // One that has changed meanwhile stays: it has a newer seal.
    let put = format!(
        "UPDATE provisioning_jobs j SET {column} = x.new FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) \
         x (n, old, new) WHERE j.n = x.n AND j.{column} = x.old RETURNING 1"
    );
    let (mut after, mut count) = (0_i64, 0);
    loop {
        let rows = connections.read(&page, &[&after]).await?;
        let Some(last) = rows.last() else { return Ok(count) };
        after = get(last, 0)?;
        let (mut numbers, mut old, mut new) = (Vec::<i64>::new(), Vec::<&[u8]>::new(), Vec::new());
        for r in &rows {
            let sealed: &[u8] = get(r, 2)?;
            if keys.is_active(sealed) {
                continue;
            }
            let id: JobId = get::<&str>(r, 1)?.parse().map_err(|e| unreadable("a job's id", e))?;
            new.push(keys.seal(column, &id, &keys.open_text(column, &id, sealed)?)?);
            numbers.push(get(r, 0)?);
            old.push(sealed);
        }
        if !numbers.is_empty() {
            count += connections.write(&put, &[&numbers, &old, &new]).await?.len() as u64;
        }
    }
}
