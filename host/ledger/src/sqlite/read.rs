//! Questions.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, ToSql, params};
use sutler_model::Digest;

use super::begin;
use super::broken::{Broken, unreadable};
use super::row::{self, Closed, select_closed};
use crate::{Depth, Event, Filter, JobId, Millis, Status, rules};

pub(super) fn asked(
    conn: &Connection,
    caller: &str,
    route: &str,
    request_id: &str,
) -> Result<Option<Closed>, Broken> {
    match begin::requested(conn, caller, route, request_id)? {
        Some(n) => row::closed_by_n(conn, n),
        None => Ok(None),
    }
}

pub(super) fn jobs(conn: &Connection, filter: &Filter) -> Result<Vec<Closed>, Broken> {
    let texts: [(&str, Option<String>); 8] = [
        ("j.caller = ?", filter.caller.clone()),
        ("j.status = ?", filter.status.map(|s| s.as_str().to_owned())),
        ("j.pair = ?", filter.pair.as_ref().map(ToString::to_string)),
        ("j.instance = ?", filter.instance.clone()),
        ("j.tenant = ?", filter.tenant.clone()),
        ("j.application = ?", filter.application.clone()),
        ("j.environment = ?", filter.environment.clone()),
        ("substr(j.id, -32) < ?", filter.before.as_ref().map(|id| row::digits(id).to_owned())),
    ];
    let mut sql = select_closed!("WHERE 1 = 1").to_owned();
    let mut values: Vec<&dyn ToSql> = Vec::new();
    for (condition, value) in &texts {
        if let Some(value) = value {
            sql.push_str(" AND ");
            sql.push_str(condition);
            values.push(value);
        }
    }
    sql.push_str(" ORDER BY substr(j.id, -32) DESC LIMIT ?");
    values.push(&filter.limit);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(values.as_slice())?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        out.push(row::closed(r)?);
    }
    Ok(out)
}

pub(super) fn events(conn: &Connection, id: &JobId, after: u64, limit: u32) -> Result<Vec<Event>, Broken> {
    let sql = "SELECT n FROM provisioning_jobs WHERE substr(id, -32) = ?2 AND id = ?1";
    let n: Option<i64> =
        conn.prepare_cached(sql)?.query_row([id.as_str(), row::digits(id)], |r| r.get(0)).optional()?;
    n.map_or(Ok(Vec::new()), |n| events_of(conn, n, after, limit))
}

pub(super) fn events_of(conn: &Connection, n: i64, after: u64, limit: u32) -> Result<Vec<Event>, Broken> {
    let sql = "SELECT seq, at, what FROM job_events WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![n, rules::int(after), limit])?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        let (seq, at, what): (i64, i64, String) = (r.get(0)?, r.get(1)?, r.get(2)?);
        let what = serde_json::from_str(&what).map_err(|e| unreadable("an event", e))?;
        out.push(Event { seq: seq.unsigned_abs(), at: Millis(at), what });
    }
    Ok(out)
}

pub(super) fn plugin(conn: &Connection, digest: Digest) -> Result<Option<Bytes>, Broken> {
    let sql = "SELECT bytes FROM plugins WHERE digest = ?1";
    let found: Option<Vec<u8>> =
        conn.prepare_cached(sql)?.query_row([digest.to_string()], |r| r.get(0)).optional()?;
    Ok(found.map(Bytes::from))
}

pub(super) fn next_due(conn: &Connection, now: Millis) -> Result<Option<Millis>, Broken> {
    let min = |sql| conn.prepare_cached(sql)?.query_row([now.0], |r| r.get::<_, Option<i64>>(0));
    let parked = min("SELECT min(wake) FROM provisioning_jobs WHERE queue = 0 AND wake > ?1")?;
    let leased = min("SELECT min(wake) FROM provisioning_jobs WHERE queue = 1 AND wake > ?1")?;
    Ok([parked, leased].into_iter().flatten().min().map(Millis))
}

/// By the indexes alone: the rows are not read.
pub(super) fn depth(conn: &Connection, now: Millis) -> Result<Depth, Broken> {
    let mut depth = Depth::default();
    for sql in [
        "SELECT status, count(*) FROM provisioning_jobs WHERE queue = 0 GROUP BY status",
        "SELECT status, count(*) FROM provisioning_jobs WHERE queue = 1 GROUP BY status",
        "SELECT status, count(*) FROM provisioning_jobs WHERE queue = 2 GROUP BY status",
        "SELECT status, count(*) FROM provisioning_jobs WHERE queue = 3 GROUP BY status",
    ] {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(r) = rows.next()? {
            let status: Status = r.get::<_, String>(0)?.parse()?;
            *depth.jobs.entry(status.as_str()).or_default() += r.get::<_, i64>(1)?.unsigned_abs();
        }
    }
    for sql in [
        "SELECT count(*), min(wake) FROM provisioning_jobs WHERE queue = 0 AND wake <= ?1",
        "SELECT count(*), min(wake) FROM provisioning_jobs WHERE queue = 1 AND wake <= ?1",
        "SELECT count(*), min(wake) FROM provisioning_jobs WHERE queue = 2 AND wake <= ?1",
    ] {
        let two = |r: &rusqlite::Row<'_>| Ok((r.get::<_, i64>(0)?, r.get::<_, Option<i64>>(1)?));
        let (count, oldest) = conn.prepare_cached(sql)?.query_row([now.0], two)?;
        depth.due += count.unsigned_abs();
        let waited = oldest.map_or(Duration::ZERO, |at| now.since(Millis(at)));
        depth.oldest_due = depth.oldest_due.max(waited);
    }
    Ok(depth)
}
