//! Keeping and forgetting: plugins, old jobs, imported records, texts under old keys.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use sutler_model::Digest;

use super::begin;
use super::broken::{Broken, unreadable};
use super::desk::Desk;
use super::row::{self, Stored};
use super::takes;
use crate::seal::Sealed;
use crate::{Event, JobId, LedgerError, Millis, rules};

/// At most so many jobs are forgotten at once.
const PURGED: i64 = 300;
/// A plugin that was kept so shortly ago is not written again; forgetting adds it.
const FRESH: Duration = Duration::from_secs(3600);

/// Bytes of an operation's texts, as a probe takes them.
const PROBE: u32 = 256 << 10;

/// Whether the plugin is there and was kept just now.
pub(super) fn is_fresh(conn: &Connection, digest: Digest, now: Millis) -> Result<bool, Broken> {
    let sql = "SELECT kept FROM plugins WHERE digest = ?1";
    let kept: Option<i64> =
        conn.prepare_cached(sql)?.query_row([digest.to_string()], |r| r.get(0)).optional()?;
    Ok(kept.is_some_and(|kept| now.since(Millis(kept)) < FRESH))
}

pub(super) fn keep_plugin(
    conn: &Connection,
    desk: &Desk,
    digest: Digest,
    bytes: &[u8],
) -> Result<(), Broken> {
    let sql = "INSERT INTO plugins (digest, kept, bytes) VALUES (?1, ?2, ?3) \
               ON CONFLICT (digest) DO UPDATE SET kept = excluded.kept";
    conn.prepare_cached(sql)?.execute(params![digest.to_string(), desk.now().0, bytes])?;
    Ok(())
}

pub(super) fn purge(conn: &Connection, desk: &Desk, final_for: Duration) -> Result<u64, Broken> {
    let before = |age: Duration| desk.now().0.saturating_sub(Millis(0).plus(age).0);
    let mut statement = conn.prepare_cached(
        "SELECT n FROM provisioning_jobs WHERE queue = 3 AND status IN ('completed', 'failed', 'cancelled') \
         AND updated <= ?1 LIMIT ?2",
    )?;
    let old = statement.query_map([before(final_for), PURGED], |r| r.get(0))?;
    let old = old.collect::<Result<Vec<i64>, _>>()?;
    for n in &old {
        takes::settle(conn, *n)?;
        for sql in [
            "DELETE FROM job_requests WHERE job = ?1 AND (caller, route, request_id) = \
             (SELECT caller, route, request_id FROM provisioning_jobs WHERE n = ?1)",
            "DELETE FROM job_requests WHERE job = ?1 AND further = 1",
            "DELETE FROM provisioning_jobs WHERE n = ?1",
        ] {
            conn.prepare_cached(sql)?.execute([n])?;
        }
    }
    let sql = "DELETE FROM plugins WHERE kept <= ?1 \
               AND NOT EXISTS (SELECT 1 FROM provisioning_jobs j WHERE j.digest = plugins.digest)";
    conn.prepare_cached(sql)?.execute([before(final_for.saturating_add(FRESH))])?;
    Ok(old.len() as u64)
}

/// New pages are asked for and given back; then a page goes to the disk, with what it had.
pub(super) fn probe(conn: &Connection) -> Result<(), Broken> {
    conn.execute_batch(&format!(
        "SAVEPOINT probe; INSERT INTO plugins (digest, kept, bytes) VALUES ('probe', 0, zeroblob({PROBE})); \
         ROLLBACK TO probe; RELEASE probe"
    ))?;
    let unused: i64 = conn.pragma_query_value(None, "user_version", |r| r.get(0))?;
    Ok(conn.pragma_update(None, "user_version", unused)?)
}

/// A job as another ledger had it.
pub(super) fn import(
    conn: &Connection,
    desk: &mut Desk,
    new: &Stored,
    texts: &Sealed,
    events: &[Event],
) -> Result<(), Broken> {
    let job = &new.job;
    if row::closed_by_id(conn, &job.id)?.is_some() {
        return Err(rules::already(&job.id).into());
    }
    if let Some(n) = begin::requested(conn, &job.caller, &new.route, &job.request_id)? {
        let other = row::id_of(conn, n)?.ok_or_else(|| unreadable("a request", "its job is missing"))?;
        let (caller, id) = (&job.caller, &job.request_id);
        let why =
            format!("job {other} of the ledger was asked for by {caller} under the request id {id:?} too");
        return Err(LedgerError::Unreadable(format!("{why}; import into an empty one")).into());
    }
    if !job.standing.status.is_final()
        && let Some(other) = begin::holder(conn, job, None)?
    {
        return Err(begin::busy(conn, other)?);
    }
    begin::put(conn, new, texts, events)?;
    desk.wake = true;
    Ok(())
}

pub(super) fn import_request(
    conn: &Connection,
    caller: &str,
    route: &str,
    request_id: &str,
    job: &JobId,
) -> Result<(), Broken> {
    let found = row::closed_by_id(conn, job)?.ok_or_else(|| LedgerError::NotFound(job.clone()))?;
    if begin::requested(conn, caller, route, request_id)? != Some(found.stored.n) {
        begin::remember(conn, caller, route, request_id, found.stored.n, true)?;
    }
    Ok(())
}

/// Where sealed texts are: the column's name when it is sealed, and its table.
pub(super) const SEALED: [(&str, &str); 3] =
    [("request", "sealed_requests"), ("state", "sealed_states"), ("answer", "sealed_answers")];

/// A sealed text with its place.
pub(super) struct Blob {
    pub(super) n: i64,
    pub(super) id: JobId,
    pub(super) sealed: Vec<u8>,
}

/// The next sealed texts of a table.
pub(super) fn sealed(conn: &Connection, table: &str, after: i64, limit: u32) -> Result<Vec<Blob>, Broken> {
    let sql = format!(
        "SELECT j.n, j.id, t.sealed FROM {table} t JOIN provisioning_jobs j ON j.n = t.job \
         WHERE t.job > ?1 ORDER BY t.job LIMIT ?2"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![after, limit])?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        let id: String = r.get(1)?;
        let id = id.parse().map_err(|e| unreadable("a job's id", e))?;
        out.push(Blob { n: r.get(0)?, id, sealed: r.get(2)? });
    }
    Ok(out)
}

/// Puts texts that were sealed again in place of what they were before; one that has changed meanwhile stays.
pub(super) fn reseal(conn: &Connection, table: &str, texts: &[(Blob, Vec<u8>)]) -> Result<u64, Broken> {
    let sql = format!("UPDATE {table} SET sealed = ?3 WHERE job = ?1 AND sealed = ?2");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut count = 0;
    for (old, new) in texts {
        count += statement.execute(params![old.n, old.sealed, new])? as u64;
    }
    Ok(count)
}
