//! Everything, in one snapshot, one record after the other.

use std::collections::HashSet;

use futures::stream::{self, BoxStream, StreamExt as _};
use rusqlite::Connection;
use rusqlite::types::FromSql;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::broken::{Broken, unreadable};
use super::place::Place;
use super::{audit, open, read, readers, row, takes};
use crate::seal::Keys;
use crate::{LedgerError, Record, rules};

type Sent = Result<Record, LedgerError>;

pub(super) fn export(place: Place, keys: Keys) -> BoxStream<'static, Sent> {
    let start = async move {
        let (to, from) = channel(16);
        // It ends with the receiver: a send into nothing stops it.
        let reading = tokio::task::spawn_blocking(move || {
            let all = |conn: &Connection| {
                // `None`: nobody wants the rest.
                let _ = everything(conn, &keys, &to);
                Ok(())
            };
            if let Err(e) =
                open::salvager(&place).and_then(|conn| readers::snapshot(&conn, all).map_err(Broken::told))
            {
                let _ = to.blocking_send(Err(e));
            }
        });
        stream::unfold((from, reading), |(mut from, reading): (Receiver<Sent>, _)| async move {
            from.recv().await.map(|record| (record, (from, reading)))
        })
    };
    stream::once(start).flatten().boxed()
}

/// What cannot be read is told in its place; everything else follows. `None`: nobody listens any more.
fn everything(conn: &Connection, keys: &Keys, to: &Sender<Sent>) -> Option<()> {
    let send = |sent: Result<Record, Broken>| to.blocking_send(sent.map_err(Broken::told)).ok();
    let (digests, broken) = listed::<String>(conn, "SELECT digest FROM plugins ORDER BY digest");
    for digest in digests {
        send(plugin(conn, &digest))?;
    }
    broken.map_or(Some(()), |e| send(Err(e)))?;
    let (mut numbers, broken) = listed(conn, "SELECT n FROM provisioning_jobs ORDER BY substr(id, -32)");
    if let Some(e) = broken {
        send(Err(e))?;
        // The index is damaged, or the table is: each may know rows that the other does not.
        let (others, broken) = listed(conn, "SELECT n FROM provisioning_jobs NOT INDEXED ORDER BY n");
        broken.map_or(Some(()), |e| send(Err(e)))?;
        let known: HashSet<i64> = numbers.iter().copied().collect();
        numbers.extend(others.into_iter().filter(|n| !known.contains(n)));
    }
    for n in numbers {
        send(job(conn, keys, n))?;
    }
    further(conn, &send).unwrap_or_else(|e| send(Err(e.into())))?;
    let mut after = (String::new(), String::new());
    loop {
        let page = match takes::page(conn, &after) {
            Ok(page) => page,
            Err(e) => return send(Err(e)),
        };
        let Some(last) = page.last() else { break };
        after = (rules::scope(&last.application, &last.pair), last.resource.to_string());
        for taken in page {
            send(Ok(Record::Taken(taken)))?;
        }
    }
    let mut after = 0;
    loop {
        let page = match audit::page(conn, after) {
            Ok(page) => page,
            Err(e) => return send(Err(e)),
        };
        after = page.last()?.n;
        for row in page {
            send(Ok(Record::Audit(row)))?;
        }
    }
}

/// A column as far as it can be read, and why not further.
fn listed<T: FromSql>(conn: &Connection, sql: &str) -> (Vec<T>, Option<Broken>) {
    let mut out = Vec::new();
    let mut read = || -> Result<(), rusqlite::Error> {
        let mut statement = conn.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(r) = rows.next()? {
            out.push(r.get(0)?);
        }
        Ok(())
    };
    let broken = read().err().map(Broken::from);
    (out, broken)
}

fn plugin(conn: &Connection, digest: &str) -> Result<Record, Broken> {
    let digest = digest.parse().map_err(|e| unreadable("a plugin's digest", e))?;
    let bytes = read::plugin(conn, digest)?.ok_or_else(|| unreadable("a plugin", "it is missing"))?;
    Ok(Record::Plugin { digest, bytes })
}

fn further(
    conn: &Connection,
    send: &dyn Fn(Result<Record, Broken>) -> Option<()>,
) -> Result<Option<()>, rusqlite::Error> {
    let mut statement = conn.prepare(
        "SELECT x.caller, x.route, x.request_id, j.id FROM job_requests x JOIN provisioning_jobs j ON j.n = x.job \
         WHERE x.further = 1",
    )?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let (caller, route, request_id, id): (_, _, _, String) = (r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?);
        let request = |job| Record::Request { caller, route, request_id, job };
        if send(id.parse().map(request).map_err(|e| unreadable("a job's id", e))).is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

fn job(conn: &Connection, keys: &Keys, n: i64) -> Result<Record, Broken> {
    let missing = || unreadable(&format!("job number {n}"), "it is missing");
    let closed = row::closed_by_n(conn, n)?.ok_or_else(missing)?;
    let events = read::events_of(conn, closed.stored.n, 0, u32::MAX)?;
    let (route, body) = (closed.stored.route.clone(), closed.stored.body);
    Ok(Record::Job { job: Box::new(closed.open(keys)?), events, route, body })
}
