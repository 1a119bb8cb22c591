//! Reads everything and compares what must agree.

use tokio_postgres::Row;

use super::audit;
use super::broken::{Broken, Effect};
use super::connections::{Connection, Connections};
use super::export::{PAGE, events_between};
use super::read;
use super::row::{self, get};
use crate::seal::Keys;
use crate::{Event, LedgerError, Problem, check, rules};

/// What is wrong. The files are the server's to check (pg_amcheck, checksums).
pub(super) async fn check(connections: &Connections, keys: &Keys) -> Result<Vec<Problem>, Broken> {
    let mut c = connections.get().await?;
    c.snapshot().await?;
    let mut out = Vec::new();
    let mut after = 0_i64;
    loop {
        let rows = c.query(read::ALL, &[&after, &PAGE], Effect::None).await?;
        let Some(last) = rows.last() else { break };
        let mut events = events_between(&mut c, after, get(last, 0)?).await?;
        after = get(last, 0)?;
        for r in &rows {
            let told = events.remove(&get(r, 0)?).unwrap_or_else(|| Ok(Vec::new()));
            one(r, told, keys, &mut out);
        }
    }
    crossed(&mut c, &mut out).await?;
    audit::check(&mut c, &mut out).await?;
    Ok(out)
}

fn one(r: &Row, events: Result<Vec<Event>, Broken>, keys: &Keys, out: &mut Vec<Problem>) {
    let at = get::<&str>(r, 1).unwrap_or("a job").to_owned();
    let mut wrong = |e: LedgerError| out.push(Problem::of(&at, &e));
    let says = LedgerError::Unreadable;
    let closed = match row::closed(r) {
        Ok(closed) => closed,
        Err(e) => return wrong(e.told()),
    };
    match (get::<i16>(r, read::QUEUE), get::<i64>(r, read::QUEUE + 1)) {
        (Ok(queue), Ok(wake)) => {
            if let Some(message) = rules::misplaced(&closed.job, (queue.into(), wake)) {
                wrong(says(message));
            }
        }
        (Err(e), _) | (_, Err(e)) => wrong(e.told()),
    }
    match events {
        Ok(events) => {
            if events.last().map_or(0, |e| e.seq) != closed.last_event {
                wrong(says(format!("ends with another event than the row says ({})", closed.last_event)));
            }
            let found = check::job(&closed.job, &events);
            found.into_iter().for_each(|p| wrong(says(p.message)));
        }
        Err(e) => wrong(e.told()),
    }
    if let Err(e) = closed.open(keys) {
        wrong(e);
    }
}

/// An unfinished job has all of its resources, a final one has none; no row refers to a job that is not there, and
/// every job can be asked for.
async fn crossed(c: &mut Connection, out: &mut Vec<Problem>) -> Result<(), Broken> {
    for (what, sql) in [
        (
            "is unfinished and does not have the resource",
            "SELECT j.id, x.name FROM provisioning_jobs j CROSS JOIN LATERAL unnest(j.resources) x (name) \
             WHERE j.status NOT IN ('completed', 'failed', 'cancelled') AND NOT EXISTS (SELECT FROM job_resources r \
             WHERE r.scope = j.scope AND r.resource = x.name AND r.job = j.n)",
        ),
        (
            "is final and still has the resource",
            "SELECT j.id, r.resource FROM job_resources r JOIN provisioning_jobs j ON j.n = r.job \
             WHERE j.status IN ('completed', 'failed', 'cancelled')",
        ),
    ] {
        for r in c.query(sql, &[], Effect::None).await? {
            let (at, resource): (&str, &str) = (get(&r, 0)?, get(&r, 1)?);
            out.push(Problem::new(at, format!("{what} {resource:?}")));
        }
    }
    for (table, what, sql) in [
        (
            "job_resources",
            "hold a resource for no job",
            "SELECT count(*) FROM job_resources x WHERE NOT EXISTS (SELECT FROM provisioning_jobs j WHERE j.n = x.job)",
        ),
        (
            "job_requests",
            "remember a request of no job",
            "SELECT count(*) FROM job_requests x WHERE NOT EXISTS (SELECT FROM provisioning_jobs j WHERE j.n = x.job)",
        ),
        (
            "job_events",
            "tell of no job",
            "SELECT count(*) FROM job_events x WHERE NOT EXISTS (SELECT FROM provisioning_jobs j WHERE j.n = x.job)",
        ),
        (
            "provisioning_jobs",
            "are not remembered by their request id",
            "SELECT count(*) FROM provisioning_jobs j WHERE NOT EXISTS (SELECT FROM job_requests x WHERE x.job = j.n \
             AND x.caller = j.caller AND x.route = j.route AND x.request_id = j.request_id)",
        ),
    ] {
        let rows = c.query(sql, &[], Effect::None).await?;
        let count = rows.first().map(|r| get::<i64>(r, 0)).transpose()?.unwrap_or_default();
        if count > 0 {
            out.push(Problem::new(table, format!("{count} rows {what}; restore a backup")));
        }
    }
    Ok(())
}
