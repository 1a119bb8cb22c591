//! Questions.

use std::time::Duration;

use bytes::Bytes;
use sutler_model::Digest;

use super::broken::{Broken, unreadable};
use super::connections::{Connections, Param};
use super::row::{self, COLUMNS, Closed, columns, get, select};
use crate::{Depth, Event, Filter, JobId, Millis, Status, rules};

pub(super) async fn now(connections: &Connections) -> Result<Millis, Broken> {
    let rows = connections.read("SELECT greatest(ledger_now(), $1::bigint)", &[&connections.floor()]).await?;
    let r = rows.first().ok_or_else(|| unreadable("the time", "the answer is empty"))?;
    Ok(connections.seen(get(r, 0)?))
}

pub(super) async fn asked(
    connections: &Connections,
    caller: &str,
    route: &str,
    request_id: &str,
) -> Result<Option<Closed>, Broken> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM job_requests r JOIN provisioning_jobs j ON j.n = r.job \
         WHERE r.caller = $1 AND r.route = $2 AND r.request_id = $3"
    );
    let rows = connections.read(sql, &[&caller, &route, &request_id]).await?;
    rows.first().map(row::closed).transpose()
}

pub(super) async fn jobs(connections: &Connections, filter: &Filter) -> Result<Vec<Closed>, Broken> {
    let texts: [(&str, Option<String>); 8] = [
        ("j.caller = $", filter.caller.clone()),
        ("j.status = $", filter.status.map(|s| s.as_str().to_owned())),
        ("j.pair = $", filter.pair.as_ref().map(ToString::to_string)),
        ("j.instance = $", filter.instance.clone()),
        ("j.tenant = $", filter.tenant.clone()),
        ("j.application = $", filter.application.clone()),
        ("j.environment = $", filter.environment.clone()),
        ("right(j.id, 32) < $", filter.before.as_ref().map(|id| digits(id).to_owned())),
    ];
    let limit = i64::from(filter.limit);
    let mut values: Vec<Param<'_>> = vec![&limit];
    let mut sql = select!("WHERE true").to_owned();
    for (condition, value) in &texts {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" AND {condition}{}", values.len()));
        }
    }
    sql.push_str(" ORDER BY right(j.id, 32) DESC LIMIT $1");
    connections.read(&sql, &values).await?.iter().map(row::closed).collect()
}

fn digits(id: &JobId) -> &str {
    id.as_str().rsplit('_').next().unwrap_or_default()
}

pub(super) async fn events(
    connections: &Connections,
    id: &JobId,
    after: u64,
    limit: u32,
) -> Result<Vec<Event>, Broken> {
    let sql = "SELECT e.seq, e.at, e.what FROM job_events e WHERE e.job = (SELECT n FROM provisioning_jobs \
               WHERE right(id, 32) = right($1, 32) AND id = $1) AND e.seq > $2 ORDER BY e.seq LIMIT $3";
    let rows = connections.read(sql, &[&id.as_str(), &rules::int(after), &i64::from(limit)]).await?;
    rows.iter().map(|r| row::event(r, 0)).collect()
}

pub(super) async fn plugin(connections: &Connections, digest: Digest) -> Result<Option<Bytes>, Broken> {
    let rows =
        connections.read("SELECT bytes FROM plugins WHERE digest = $1", &[&digest.to_string()]).await?;
    rows.first().map(|r| get::<&[u8]>(r, 0).map(Bytes::copy_from_slice)).transpose()
}

pub(super) async fn next_due(connections: &Connections) -> Result<Option<Millis>, Broken> {
    let sql = "WITH t AS MATERIALIZED (SELECT greatest(ledger_now(), $1::bigint) AS now) SELECT least( \
               (SELECT min(wake) FROM provisioning_jobs WHERE queue = 0 AND wake > (SELECT now FROM t)), \
               (SELECT min(wake) FROM provisioning_jobs WHERE queue = 1 AND wake > (SELECT now FROM t)))";
    let rows = connections.read(sql, &[&connections.floor()]).await?;
    Ok(rows.first().map(|r| get::<Option<i64>>(r, 0)).transpose()?.flatten().map(Millis))
}

/// By the indexes alone, where the server has swept them: the rows are not read.
pub(super) async fn depth(connections: &Connections) -> Result<Depth, Broken> {
    let sql = "WITH t AS MATERIALIZED (SELECT greatest(ledger_now(), $1::bigint) AS now), \
        q AS (SELECT status, wake, 0 AS queue FROM provisioning_jobs WHERE queue = 0 \
          UNION ALL SELECT status, wake, 1 FROM provisioning_jobs WHERE queue = 1 \
          UNION ALL SELECT status, wake, 2 FROM provisioning_jobs WHERE queue = 2 \
          UNION ALL SELECT status, NULL, 3 FROM provisioning_jobs WHERE queue = 3) \
        SELECT q.status, count(*), count(*) FILTER (WHERE q.wake <= t.now), \
          coalesce(t.now - min(q.wake) FILTER (WHERE q.wake <= t.now), 0) FROM q, t GROUP BY q.status, t.now";
    let mut depth = Depth::default();
    for r in connections.read(sql, &[&connections.floor()]).await? {
        let status: Status = get::<&str>(&r, 0)?.parse()?;
        depth.jobs.insert(status.as_str(), get::<i64>(&r, 1)?.unsigned_abs());
        depth.due += get::<i64>(&r, 2)?.unsigned_abs();
        depth.oldest_due = depth.oldest_due.max(Duration::from_millis(get::<i64>(&r, 3)?.unsigned_abs()));
    }
    Ok(depth)
}

/// Some rows after a number, with where each waits: for whoever reads them all.
pub(super) const ALL: &str = concat!(
    "SELECT ",
    columns!(),
    ", j.queue, j.wake FROM provisioning_jobs j WHERE j.n > $1 ORDER BY j.n LIMIT $2"
);
pub(super) const QUEUE: usize = COLUMNS;
