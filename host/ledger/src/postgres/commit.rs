//! Guarded writes and renewals, each one statement: no lock is held while an answer travels, so that a host that stops
//! in between holds up nobody.

use std::sync::Arc;

use super::begin::{TRIES, refuse_if_held};
use super::broken::{Broken, Effect, unreadable};
use super::connections::Connections;
use super::put::{Told, told};
use super::row::{self, Closed, columns};
use super::takes;
use crate::audit::columns as audited;
use crate::seal::Keys;
use crate::{Held, JobId, LeaseChange, LedgerError, Write, rules};

/// What `rules::written` says, in the server's words. A renewal may come between a writer's look and its write, so
/// that a lease that is kept is taken from the row.
const COMMIT: &str = concat!(
    "WITH old AS MATERIALIZED (SELECT n, greatest(ledger_now(), $4::bigint, updated) AS now, \
       status IN ('completed', 'failed', 'cancelled') AS ended FROM provisioning_jobs \
       WHERE right(id, 32) = right($1::text, 32) AND id = $1::text), \
     new AS (UPDATE provisioning_jobs j SET status = $5::text, phase = $6::text, step = $7::text, \
       attempt = $8::bigint, cancel_requested = $9::boolean, due = old.now + $10::bigint, \
       lease_holder = CASE WHEN $11::boolean THEN NULL ELSE j.lease_holder END, \
       lease_until = CASE WHEN $11::boolean OR j.lease_holder IS NULL THEN NULL \
         ELSE coalesce(old.now + $12::bigint, j.lease_until) END, \
       queue = CASE WHEN NOT $13::boolean THEN 3 WHEN $11::boolean OR j.lease_holder IS NULL THEN 0 ELSE 1 END, \
       wake = CASE WHEN NOT $13::boolean THEN 0 WHEN $11::boolean OR j.lease_holder IS NULL \
         THEN old.now + $10::bigint ELSE coalesce(old.now + $12::bigint, j.lease_until) END, \
       revision = j.revision + 1, updated = old.now, last_event = j.last_event + cardinality($21::text[]), \
       state = coalesce($15::bytea, j.state), \
       answer = CASE WHEN $16::boolean THEN $17::bytea ELSE j.answer END, \
       plugin = coalesce($18::text, j.plugin), digest = coalesce($19::text, j.digest), \
       deadline = coalesce(old.now + $20::bigint, j.deadline) FROM old \
       WHERE j.n = old.n AND j.revision = $2::bigint AND ($3::bigint IS NULL OR j.token = $3::bigint) \
       AND ($12::bigint IS NULL OR j.lease_holder IS NOT NULL) \
       AND ($14::boolean OR NOT old.ended OR NOT EXISTS (SELECT FROM job_resources r \
         WHERE r.scope = j.scope AND r.resource = ANY (j.resources) AND r.job <> j.n) \
         AND NOT EXISTS (SELECT FROM resource_takes t WHERE t.scope = j.scope \
           AND t.resource = ANY (j.resources) AND t.job > j.n)) \
       RETURNING ",
    columns!(),
    ", j.scope, j.queue), \
     takes AS (INSERT INTO job_resources (scope, resource, job) SELECT DISTINCT new.scope, x.name, new.n \
       FROM new, old, unnest(new.resources) x (name) WHERE old.ended AND NOT $14::boolean ORDER BY x.name), \
     frees AS (DELETE FROM job_resources r USING new WHERE $14::boolean AND r.scope = new.scope \
       AND r.resource = ANY (new.resources) AND r.job = new.n), \
     tells AS (INSERT INTO job_events (job, seq, at, what) \
       SELECT new.n, new.last_event - cardinality($21::text[]) + e.nth, old.now, ",
    told!("old.now"),
    " FROM new, old, unnest($21::text[], $23::bigint[]) WITH ORDINALITY e (what, due, nth)), \
     audits AS (INSERT INTO audit (",
    audited!(),
    ") SELECT old.now, $24::text, $25::text, 'operation', new.id, new.instance, new.tenant, new.environment, \
         new.application, new.id, NULL FROM new, old WHERE $24::text IS NOT NULL) SELECT ",
    columns!(),
    ", CASE WHEN $22::boolean AND j.queue = 0 THEN pg_notify('sutler_jobs', '')::text END FROM new j"
);

/// What a write brings, sealed.
struct Brought {
    state: Option<Vec<u8>>,
    /// The inner `None` takes the answer away.
    answer: Option<Option<Vec<u8>>>,
    events: Told,
}

pub(super) async fn commit(connections: &Connections, keys: &Keys, write: &Write) -> Result<Closed, Broken> {
    let seal = |column, text: &Arc<str>| keys.seal(column, &write.id, text);
    let brought = Brought {
        state: write.state.as_ref().map(|s| seal("state", s)).transpose()?,
        answer: match &write.answer {
            Some(Some(a)) => Some(Some(seal("answer", a)?)),
            Some(None) => Some(None),
            None => None,
        },
        events: Told::new(&write.events)?,
    };
    let mut why = "the row changes all the time".to_owned();
    for _ in 0..TRIES {
        match attempt(connections, write, &brought).await {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {}
            Err(Broken::Raced(lost)) => why = lost,
            Err(e) => return Err(e),
        }
        refused(connections, write).await?;
    }
    Err(Broken::Raced(why))
}

/// `None` where a guard did not hold; nothing was written then.
async fn attempt(
    connections: &Connections,
    write: &Write,
    brought: &Brought,
) -> Result<Option<Closed>, Broken> {
    let standing = &write.standing;
    let (revision, token) = (rules::int(write.revision), write.token.map(rules::int));
    let is_final = standing.status.is_final();
    let in_queue = rules::in_queue(standing.status);
    let (drops, extends) = match write.lease {
        LeaseChange::Keep => (is_final, None),
        LeaseChange::Extend(by) => (is_final, Some(row::distance(by))),
        LeaseChange::Release => (true, None),
    };
    let (plugin, digest) = match &write.generation {
        Some((plugin, digest)) => (Some(plugin.as_str()), Some(digest.to_string())),
        None => (None, None),
    };
    let deed = write.deed.as_ref();
    let answer = brought.answer.as_ref().and_then(Option::as_deref);
    let rows = connections
        .write(
            COMMIT,
            &[
                &write.id.as_str(),
                &revision,
                &token,
                &connections.floor(),
                &standing.status.as_str(),
                &standing.phase.as_str(),
                &standing.step,
                &i64::from(standing.attempt),
                &standing.cancel_requested,
                &row::distance(write.due_after),
                &drops,
                &extends,
                &in_queue,
                &is_final,
                &brought.state,
                &brought.answer.is_some(),
                &answer,
                &plugin,
                &digest,
                &write.deadline_after.map(row::distance),
                &brought.events.whats,
                &(write.due_after <= super::listen::SOON),
                &brought.events.dues,
                &deed.map(|d| &*d.actor),
                &deed.map(|d| d.action),
            ],
        )
        .await?;
    let done = rows.first().map(row::closed).transpose()?;
    if let Some(done) = &done {
        connections.seen(done.job.updated.0);
    }
    Ok(done)
}

/// Why a write was not done. `Ok` where nothing stands in its way any more.
async fn refused(connections: &Connections, write: &Write) -> Result<(), Broken> {
    let row = row::by_id(connections, &write.id).await?;
    let row = row.ok_or_else(|| LedgerError::NotFound(write.id.clone()))?;
    let job = rules::written(&row.job, write, row.job.updated)?;
    if row.job.standing.status.is_final() && !job.standing.status.is_final() {
        refuse_if_held(connections, &job).await?;
        takes::refuse_if_later(connections, row.n, &job).await?;
    }
    Ok(())
}

/// All of a host's leases at once. A job that was about to be taken over is its holder's again.
pub(super) async fn renew(
    connections: &Connections,
    holder: &str,
    held: &[Held],
) -> Result<Vec<JobId>, Broken> {
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "WITH t AS MATERIALIZED (SELECT greatest(ledger_now(), $1::bigint) AS now), \
               mine AS MATERIALIZED (SELECT j.n, h.token, h.lease FROM \
                 unnest($3::text[], $4::bigint[], $5::bigint[]) h (id, token, lease) \
                 JOIN provisioning_jobs j ON right(j.id, 32) = right(h.id, 32) AND j.id = h.id \
                 ORDER BY j.n FOR UPDATE OF j) \
               UPDATE provisioning_jobs j SET lease_until = t.now + mine.lease, queue = 1, wake = t.now + mine.lease \
               FROM t, mine WHERE j.n = mine.n AND j.token = mine.token AND j.lease_holder = $2 RETURNING j.id";
    let ids: Vec<&str> = held.iter().map(|h| h.id.as_str()).collect();
    let tokens: Vec<i64> = held.iter().map(|h| rules::int(h.token)).collect();
    let leases: Vec<i64> = held.iter().map(|h| row::distance(h.lease)).collect();
    // A renewal that may or may not be done is harmless to do again: it is told as not done.
    let mut connection = connections.get().await?;
    let rows =
        connection.query(sql, &[&connections.floor(), &holder, &ids, &tokens, &leases], Effect::None).await?;
    let kept = rows.iter().map(|r| row::get::<&str>(r, 0)).collect::<Result<Vec<_>, _>>();
    let kept = kept.map_err(|e| unreadable("a job's id", e.told()))?;
    Ok(held.iter().filter(|h| !kept.contains(&h.id.as_str())).map(|h| h.id.clone()).collect())
}
