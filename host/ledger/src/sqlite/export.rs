//! Everything, in one snapshot, one record after the other.

use std::path::PathBuf;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use rusqlite::Connection;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::broken::{Broken, unreadable};
use super::row::{self, select_closed};
use super::{open, read, readers};
use crate::seal::Keys;
use crate::{LedgerError, Record};

type Sent = Result<Record, LedgerError>;

pub(super) fn export(path: PathBuf, keys: Keys) -> BoxStream<'static, Sent> {
    let start = async move {
        let (to, from) = channel(16);
        // It ends with the receiver: a send into nothing stops it.
        let reading = tokio::task::spawn_blocking(move || {
            let all = |conn: &Connection| everything(conn, &keys, &to);
            if let Err(e) =
                open::reader(&path).and_then(|conn| readers::snapshot(&conn, all).map_err(Broken::told))
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

/// What one record cannot be read is told in its place; the others follow.
fn everything(conn: &Connection, keys: &Keys, to: &Sender<Sent>) -> Result<(), Broken> {
    let mut statement = conn.prepare("SELECT digest, bytes FROM plugins ORDER BY digest")?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let (digest, bytes): (String, Vec<u8>) = (r.get(0)?, r.get(1)?);
        let plugin = |digest| Record::Plugin { digest, bytes: Bytes::from(bytes) };
        let record = digest.parse().map(plugin).map_err(|e| unreadable("a plugin's digest", e).told());
        if to.blocking_send(record).is_err() {
            return Ok(());
        }
    }
    let mut statement = conn.prepare(select_closed!("ORDER BY substr(j.id, -32)"))?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        if to.blocking_send(job(conn, keys, r).map_err(Broken::told)).is_err() {
            return Ok(());
        }
    }
    let mut statement = conn.prepare(
        "SELECT x.caller, x.route, x.request_id, j.id FROM job_requests x JOIN provisioning_jobs j ON j.n = x.job \
         WHERE x.further = 1",
    )?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let (caller, route, request_id, id): (_, _, _, String) = (r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?);
        let request = |job| Record::Request { caller, route, request_id, job };
        let record = id.parse().map(request).map_err(|e| unreadable("a job's id", e).told());
        if to.blocking_send(record).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn job(conn: &Connection, keys: &Keys, r: &rusqlite::Row<'_>) -> Result<Record, Broken> {
    let closed = row::closed(r)?;
    let events = read::events_of(conn, closed.stored.n, 0, u32::MAX)?;
    let (route, body) = (closed.stored.route.clone(), closed.stored.body);
    Ok(Record::Job { job: Box::new(closed.open(keys)?), events, route, body })
}
