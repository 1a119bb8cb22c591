//! Everything, in one snapshot, one record after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio_postgres::Row;

use super::broken::{Broken, Effect, unreadable};
use super::connections::{Connection, Connections};
use super::row::{self, get};
use super::{audit, read, takes};
use crate::seal::Keys;
use crate::{Event, LedgerError, Record};

/// So many jobs are read at once.
pub(super) const PAGE: i64 = 100;

pub(super) type Sent = Result<Record, LedgerError>;
/// The receiver has gone.
pub(super) struct Gone;

pub(super) fn export(connections: Arc<Connections>, keys: Keys) -> BoxStream<'static, Sent> {
    let start = async move {
        let (to, from) = channel(16);
        // It ends with the stream.
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            if let Err(e) = everything(&connections, &keys, &to).await {
                let _ = to.send(Err(e.told())).await;
            }
        });
        stream::unfold((from, reading), |(mut from, reading): (Receiver<Sent>, _)| async move {
            from.recv().await.map(|record| (record, (from, reading)))
        })
    };
    stream::once(start).flatten().boxed()
}

/// What one record cannot be read is told in its place; the others follow.
async fn everything(connections: &Connections, keys: &Keys, to: &Sender<Sent>) -> Result<(), Broken> {
    let mut c = connections.get().await?;
    c.snapshot().await?;
    let listened = plugins(&mut c, to).await?.is_ok()
        && jobs(&mut c, keys, to).await?.is_ok()
        && requests(&mut c, to).await?.is_ok();
    if listened && takes::export(&mut c, to).await?.is_ok() {
        let _ = audit::export(&mut c, to).await?;
    }
    Ok(())
}

pub(super) async fn give(to: &Sender<Sent>, record: Result<Record, Broken>) -> Result<(), Gone> {
    to.send(record.map_err(Broken::told)).await.map_err(|_| Gone)
}

async fn plugins(c: &mut Connection, to: &Sender<Sent>) -> Result<Result<(), Gone>, Broken> {
    let digests = c.query("SELECT digest FROM plugins ORDER BY digest", &[], Effect::None).await?;
    for r in &digests {
        let digest: &str = get(r, 0)?;
        let rows = c.query("SELECT bytes FROM plugins WHERE digest = $1", &[&digest], Effect::None).await?;
        for r in &rows {
            let bytes = Bytes::copy_from_slice(get(r, 0)?);
            let record = digest.parse().map(|digest| Record::Plugin { digest, bytes });
            if give(to, record.map_err(|e| unreadable("a plugin's digest", e))).await.is_err() {
                return Ok(Err(Gone));
            }
        }
    }
    Ok(Ok(()))
}

async fn jobs(c: &mut Connection, keys: &Keys, to: &Sender<Sent>) -> Result<Result<(), Gone>, Broken> {
    let mut after = 0_i64;
    loop {
        let rows = c.query(read::ALL, &[&after, &PAGE], Effect::None).await?;
        let Some(last) = rows.last() else { return Ok(Ok(())) };
        let mut events = events_between(c, after, get(last, 0)?).await?;
        after = get(last, 0)?;
        for r in &rows {
            let told = events.remove(&get(r, 0)?).unwrap_or_else(|| Ok(Vec::new()));
            if give(to, told.and_then(|events| job(keys, r, events))).await.is_err() {
                return Ok(Err(Gone));
            }
        }
    }
}

fn job(keys: &Keys, r: &Row, events: Vec<Event>) -> Result<Record, Broken> {
    let closed = row::closed(r)?;
    let (route, body) = (closed.route.clone(), closed.body);
    Ok(Record::Job { job: Box::new(closed.open(keys)?), events, route, body })
}

/// The events of the jobs whose numbers are after one and up to another.
pub(super) async fn events_between(
    c: &mut Connection,
    after: i64,
    upto: i64,
) -> Result<BTreeMap<i64, Result<Vec<Event>, Broken>>, Broken> {
    let sql = "SELECT job, seq, at, what FROM job_events WHERE job > $1 AND job <= $2 ORDER BY job, seq";
    let mut out: BTreeMap<i64, Result<Vec<Event>, Broken>> = BTreeMap::new();
    for r in c.query(sql, &[&after, &upto], Effect::None).await? {
        let of = out.entry(get(&r, 0)?).or_insert_with(|| Ok(Vec::new()));
        match (row::event(&r, 1), of.as_mut()) {
            (Ok(event), Ok(events)) => events.push(event),
            (Err(e), _) => *of = Err(e),
            (Ok(_), Err(_)) => {}
        }
    }
    Ok(out)
}

async fn requests(c: &mut Connection, to: &Sender<Sent>) -> Result<Result<(), Gone>, Broken> {
    let sql = "SELECT r.caller, r.route, r.request_id, j.id FROM job_requests r \
               JOIN provisioning_jobs j ON j.n = r.job WHERE r.further";
    for r in c.query(sql, &[], Effect::None).await? {
        let (caller, route, request_id) = (get(&r, 0)?, get(&r, 1)?, get(&r, 2)?);
        let id = get::<&str>(&r, 3)?.parse().map_err(|e| unreadable("a job's id", e));
        if give(to, id.map(|job| Record::Request { caller, route, request_id, job })).await.is_err() {
            return Ok(Err(Gone));
        }
    }
    Ok(Ok(()))
}
