//! Making a job: repeat, overlap, or a new row. One statement looks and writes; of two hosts that do so at the same
//! instant the keys of requests and resources let one win, and the other looks again.

use sutler_model::{Action, OverQuota};

use super::broken::{Broken, unreadable};
use super::connections::Connections;
use super::put::{Given, Told, given, told, values};
use super::row::{self, Closed};
use super::takes::{self, Asked};
use crate::audit::columns as audited;
use crate::rules::Found;
use crate::seal::Keys;
use crate::{Job, JobId, LedgerError, Millis, NewJob, rules};

/// So often a race is lost in a row before the caller is sent away.
pub(super) const TRIES: u32 = 20;

const BEGIN: &str = concat!(
    "WITH t AS MATERIALIZED (SELECT greatest(ledger_now(), $31::bigint) AS now), \
     asked AS MATERIALIZED (SELECT r.job FROM job_requests r \
       WHERE r.caller = $14::text AND r.route = $15::text AND r.request_id = $16::text), \
     held AS MATERIALIZED (SELECT r.job FROM unnest($11::text[]) WITH ORDINALITY x (name, nth) \
       JOIN job_resources r ON r.scope = $25::text AND r.resource = x.name ORDER BY x.nth LIMIT 1), \
     refused AS MATERIALIZED (SELECT o.nth, o.used, o.asked, o.most FROM over_quota($25::text, \
       coalesce($7::text, ''), coalesce($8::text, ''), $9::text, $10::text, $39::text[], $40::bigint[], \
       $41::bigint[], $42::bigint[], true) o \
       WHERE $43::boolean AND NOT EXISTS (SELECT FROM asked) AND NOT EXISTS (SELECT FROM held)), \
     made AS (INSERT INTO provisioning_jobs (",
    given!(),
    ", due, lease_until, wake, revision, deadline, created, updated, last_event) SELECT ",
    values!(),
    ", t.now + $32::bigint, t.now + $34::bigint, \
       CASE $27::smallint WHEN 0 THEN t.now + $32::bigint WHEN 1 THEN t.now + $34::bigint ELSE 0 END, \
       1, t.now + $33::bigint, t.now, t.now, cardinality($35::text[]) \
       FROM t WHERE NOT EXISTS (SELECT FROM asked) AND NOT EXISTS (SELECT FROM held) \
       AND NOT EXISTS (SELECT FROM refused) RETURNING n), \
     asks AS (INSERT INTO job_requests (caller, route, request_id, job, further) \
       SELECT $14::text, $15::text, $16::text, made.n, false FROM made), \
     takes AS (INSERT INTO job_resources (scope, resource, job) \
       SELECT DISTINCT $25::text, x.name, made.n FROM made, unnest($11::text[]) x (name) \
       WHERE NOT $36::boolean ORDER BY x.name), \
     counts AS (INSERT INTO resource_takes (scope, resource, instance, tenant, environment, application, pair, job, \
         before_milli_cpus, before_memory_mib, after_milli_cpus, after_memory_mib) \
       SELECT $25::text, x.name, coalesce($7::text, ''), coalesce($8::text, ''), $9::text, $10::text, $6::text, \
         made.n, c.milli_cpus, c.memory_mib, x.cpu, x.memory \
       FROM made CROSS JOIN unnest($39::text[], $40::bigint[], $41::bigint[]) x (name, cpu, memory) \
       LEFT JOIN resources_counted c ON c.scope = $25::text AND c.resource = x.name \
       WHERE x.cpu IS NOT NULL OR c.milli_cpus IS NOT NULL ORDER BY x.name \
       ON CONFLICT (scope, resource) DO UPDATE SET job = excluded.job, \
         before_milli_cpus = excluded.before_milli_cpus, before_memory_mib = excluded.before_memory_mib, \
         after_milli_cpus = excluded.after_milli_cpus, after_memory_mib = excluded.after_memory_mib), \
     tells AS (INSERT INTO job_events (job, seq, at, what) SELECT made.n, e.seq, t.now, ",
    told!("t.now"),
    " FROM made, t, unnest($35::text[], $38::bigint[]) WITH ORDINALITY e (what, due, seq)), \
     audits AS (INSERT INTO audit (",
    audited!(),
    ") SELECT t.now, $14::text, x.action, $6::text, x.name, $7::text, $8::text, $9::text, $10::text, $1::text, \
         $16::text FROM made, t, unnest($11::text[], $44::text[]) WITH ORDINALITY x (name, action, nth) \
       WHERE x.name IS NOT NULL AND x.action IS NOT NULL ORDER BY x.nth) \
     SELECT t.now, (SELECT job FROM asked), (SELECT job FROM held), (SELECT n FROM made), \
       CASE WHEN $37::boolean AND EXISTS (SELECT FROM made) THEN pg_notify('sutler_jobs', '')::text END, \
       r.nth, r.used, r.asked, r.most FROM t LEFT JOIN refused r ON true"
);

/// What the statement found.
struct Seen {
    now: i64,
    asked: Option<i64>,
    held: Option<i64>,
    made: bool,
    refused: Option<OverQuota>,
}

pub(super) async fn begin(
    connections: &Connections,
    keys: &Keys,
    new: &NewJob,
) -> Result<Found<Closed>, Broken> {
    // Whatever depends on the time is counted by the server.
    let shape = rules::born(new, Millis(0));
    let given = Given::new(&shape, new.route, &new.body, keys)?;
    let events = Told::new(&new.events)?;
    let asked = Asked::new(&new.takes);
    let mut why = String::new();
    for _ in 0..TRIES {
        let seen = match attempt(connections, new, &shape, &given, (&events, &asked)).await {
            Ok(seen) => seen,
            Err(Broken::Raced(lost)) => {
                why = lost;
                continue;
            }
            Err(e) => return Err(e),
        };
        if seen.made {
            return Ok(Found::Created(rules::born(new, connections.seen(seen.now))));
        }
        if let Some(over) = seen.refused {
            return Ok(Found::OverQuota(over));
        }
        if let Some(found) = overlap(connections, new, &shape, &seen).await? {
            return Ok(found);
        }
    }
    Err(Broken::Raced(why))
}

async fn attempt(
    connections: &Connections,
    new: &NewJob,
    shape: &Job,
    given: &Given<'_>,
    (events, asked): (&Told, &Asked<'_>),
) -> Result<Seen, Broken> {
    let floor = connections.floor();
    let (due, deadline) = (row::distance(new.due_after), row::distance(new.deadline_after));
    let lease = new.lease.as_ref().map(|(_, d)| row::distance(*d));
    let is_final = shape.standing.status.is_final();
    let actions: Vec<_> =
        new.actions.iter().map(|a| Some(a.as_str()).filter(|_| *a != Action::NoOp)).collect();
    let soon = given.waits() && new.due_after <= super::listen::SOON;
    let params = given.params(&[
        &floor,
        &due,
        &deadline,
        &lease,
        &events.whats,
        &is_final,
        &soon,
        &events.dues,
        &asked.resources,
        &asked.milli_cpus,
        &asked.memory_mib,
        &asked.limits,
        &asked.limited,
        &actions,
    ]);
    let rows = connections.write(BEGIN, &params).await?;
    let r = rows.first().ok_or_else(|| unreadable("an answer", "it is empty"))?;
    Ok(Seen {
        now: row::get(r, 0)?,
        asked: row::get(r, 1)?,
        held: row::get(r, 2)?,
        made: row::get::<Option<i64>>(r, 3)?.is_some(),
        refused: takes::found(r, 5)?,
    })
}

/// What an older job means for the new one; `None` where it has gone meanwhile.
async fn overlap(
    connections: &Connections,
    new: &NewJob,
    job: &Job,
    seen: &Seen,
) -> Result<Option<Found<Closed>>, Broken> {
    let Some(n) = seen.asked.or(seen.held) else { return Ok(None) };
    let Some(found) = row::by_n(connections, n).await? else { return Ok(None) };
    let equal = found.body == new.body;
    if seen.asked.is_some() {
        let found = if equal { Found::Repeated(found) } else { Found::Reused(found.job.id) };
        return Ok(Some(found));
    }
    if !equal || !rules::joins(&found.job, job) {
        return Ok(Some(Found::Busy(found.job.id)));
    }
    if !remember(connections, &job.caller, new.route, &job.request_id, n).await? {
        return Ok(None);
    }
    Ok(Some(Found::Joined(found)))
}

/// A further request id of a job. `false` where the job has gone, or the request id was taken meanwhile.
pub(super) async fn remember(
    connections: &Connections,
    caller: &str,
    route: &str,
    request_id: &str,
    n: i64,
) -> Result<bool, Broken> {
    let sql = "WITH job AS MATERIALIZED (SELECT n FROM provisioning_jobs WHERE n = $4 FOR KEY SHARE) \
               INSERT INTO job_requests (caller, route, request_id, job, further) \
               SELECT $1::text, $2::text, $3::text, job.n, true FROM job ON CONFLICT DO NOTHING RETURNING 1";
    let rows = connections.write(sql, &[&caller, &route, &request_id, &n]).await?;
    Ok(!rows.is_empty())
}

/// The first other job that has one of the job's resources.
pub(super) async fn holder(connections: &Connections, job: &Job) -> Result<Option<JobId>, Broken> {
    let sql = "SELECT j.id FROM unnest($1::text[]) WITH ORDINALITY x (name, nth) \
               JOIN job_resources r ON r.scope = $2 AND r.resource = x.name \
               JOIN provisioning_jobs j ON j.n = r.job WHERE j.id <> $3 ORDER BY x.nth LIMIT 1";
    let scope = rules::scope(&job.application, &job.pair);
    let resources: Vec<&str> = job.resources.iter().map(|r| r.as_str()).collect();
    let rows = connections.read(sql, &[&resources, &scope, &job.id.as_str()]).await?;
    let Some(r) = rows.first() else { return Ok(None) };
    let id: &str = row::get(r, 0)?;
    id.parse().map(Some).map_err(|e| unreadable("a job's id", e))
}

/// `LedgerError::Busy`, where another job has a resource.
pub(super) async fn refuse_if_held(connections: &Connections, job: &Job) -> Result<(), Broken> {
    match holder(connections, job).await? {
        Some(other) => Err(LedgerError::Busy(other).into()),
        None => Ok(()),
    }
}
