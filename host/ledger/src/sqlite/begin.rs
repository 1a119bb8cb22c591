//! Making a job: repeat, overlap, or a new row.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::audit;
use super::broken::{Broken, unreadable};
use super::desk::Desk;
use super::row::{self, Closed, Stored};
use super::takes;
use crate::rules::Found;
use crate::seal::Sealed;
use crate::{Audit, Event, Job, LedgerError, NewJob, rules};

pub(super) fn begin(
    conn: &Connection,
    desk: &mut Desk,
    new: &NewJob,
    texts: &Sealed,
) -> Result<Found<Closed>, Broken> {
    let now = desk.now();
    let job = rules::born(new, now);
    if let Some(n) = requested(conn, &job.caller, new.route, &job.request_id)? {
        let found = there(conn, n)?;
        return Ok(if found.stored.body == new.body {
            Found::Repeated(found)
        } else {
            Found::Reused(found.stored.job.id)
        });
    }
    if let Some(n) = holder(conn, &job, None)? {
        let found = there(conn, n)?;
        if found.stored.body != new.body || !rules::joins(&found.stored.job, &job) {
            return Ok(Found::Busy(found.stored.job.id));
        }
        remember(conn, &job.caller, new.route, &job.request_id, n, true)?;
        return Ok(Found::Joined(found));
    }
    if let Some(over) = takes::over_quota(conn, &job.application, &job.pair, &new.takes)? {
        return Ok(Found::OverQuota(over));
    }
    let events = rules::events(0, &new.events, now);
    let stored =
        Stored { n: 0, job, route: new.route.into(), body: new.body, last_event: events.len() as u64 };
    let n = put(conn, &stored, texts, &events)?;
    takes::take(conn, n, &stored.job, &new.takes)?;
    audit::append(conn, &Audit::of_new(new, &stored.job))?;
    desk.wake |= rules::in_queue(stored.job.standing.status) && stored.job.lease.is_none();
    Ok(Found::Created(stored.job))
}

/// A row and everything around it; answers its number.
pub(super) fn put(conn: &Connection, new: &Stored, texts: &Sealed, events: &[Event]) -> Result<i64, Broken> {
    let n = row::insert(conn, new)?;
    let put = |sql, sealed: &[u8]| conn.prepare_cached(sql)?.execute(params![n, sealed]);
    put("INSERT INTO sealed_requests (job, sealed) VALUES (?1, ?2)", &texts.request)?;
    put("INSERT INTO sealed_states (job, sealed) VALUES (?1, ?2)", &texts.state)?;
    if let Some(answer) = &texts.answer {
        put("INSERT INTO sealed_answers (job, sealed) VALUES (?1, ?2)", answer)?;
    }
    append(conn, n, events)?;
    let j = &new.job;
    remember(conn, &j.caller, &new.route, &j.request_id, n, false)?;
    if !j.standing.status.is_final() {
        take(conn, n, j)?;
    }
    Ok(n)
}

pub(super) fn append(conn: &Connection, n: i64, events: &[Event]) -> Result<(), Broken> {
    let mut statement =
        conn.prepare_cached("INSERT INTO job_events (job, seq, at, what) VALUES (?1, ?2, ?3, ?4)")?;
    for e in events {
        let what = serde_json::to_string(&e.what).map_err(|e| unreadable("an event", e))?;
        statement.execute(params![n, rules::int(e.seq), e.at.0, what])?;
    }
    Ok(())
}

/// Which job a caller asked for under a request id.
pub(super) fn requested(
    conn: &Connection,
    caller: &str,
    route: &str,
    request_id: &str,
) -> Result<Option<i64>, Broken> {
    let sql = "SELECT job FROM job_requests WHERE caller = ?1 AND route = ?2 AND request_id = ?3";
    Ok(conn.prepare_cached(sql)?.query_row([caller, route, request_id], |r| r.get(0)).optional()?)
}

pub(super) fn remember(
    conn: &Connection,
    caller: &str,
    route: &str,
    request_id: &str,
    n: i64,
    further: bool,
) -> Result<(), Broken> {
    let sql =
        "INSERT INTO job_requests (caller, route, request_id, job, further) VALUES (?1, ?2, ?3, ?4, ?5)";
    conn.prepare_cached(sql)?.execute(params![caller, route, request_id, n, further])?;
    Ok(())
}

/// The first other job that has one of the job's resources.
pub(super) fn holder(conn: &Connection, job: &Job, but: Option<i64>) -> Result<Option<i64>, Broken> {
    let scope = rules::scope(&job.application, &job.pair);
    let sql = "SELECT job FROM job_resources WHERE scope = ?1 AND resource = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    for r in &job.resources {
        let found: Option<i64> =
            statement.query_row([scope.as_str(), r.as_str()], |r| r.get(0)).optional()?;
        if found.is_some() && found != but {
            return Ok(found);
        }
    }
    Ok(None)
}

/// `LedgerError::Busy` with the id of the job that has the resource.
pub(super) fn busy(conn: &Connection, n: i64) -> Result<Broken, Broken> {
    let id = row::id_of(conn, n)?.ok_or_else(|| unreadable("a resource", "its job is missing"))?;
    Ok(LedgerError::Busy(id).into())
}

pub(super) fn take(conn: &Connection, n: i64, job: &Job) -> Result<(), Broken> {
    let scope = rules::scope(&job.application, &job.pair);
    let sql = "INSERT INTO job_resources (scope, resource, job) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let mut statement = conn.prepare_cached(sql)?;
    for r in &job.resources {
        statement.execute(params![scope, r.as_str(), n])?;
    }
    Ok(())
}

pub(super) fn free(conn: &Connection, n: i64, job: &Job) -> Result<(), Broken> {
    let scope = rules::scope(&job.application, &job.pair);
    let sql = "DELETE FROM job_resources WHERE scope = ?1 AND resource = ?2 AND job = ?3";
    let mut statement = conn.prepare_cached(sql)?;
    for r in &job.resources {
        statement.execute(params![scope, r.as_str(), n])?;
    }
    Ok(())
}

fn there(conn: &Connection, n: i64) -> Result<Closed, Broken> {
    row::closed_by_n(conn, n)?.ok_or_else(|| unreadable("a request or resource", "its job is missing"))
}
