//! Reads everything and compares what must agree.

use rusqlite::Connection;
use sutler_model::Digest;

use super::audit;
use super::broken::{Broken, told};
use super::open;
use super::place::Place;
use super::read;
use super::row::{self, columns};
use crate::seal::Keys;
use crate::{LedgerError, Problem, check, rules};

/// What is wrong with the file; one that cannot even be read through is a problem too.
pub(super) fn check(place: &Place, keys: &Keys) -> Result<Vec<Problem>, LedgerError> {
    let at = place.path.display().to_string();
    let conn = open::salvager(place)?;
    let mut out = Vec::new();
    if let Err(e) = open::sound(&conn, &place.path) {
        out.push(Problem::of(&at, &e));
    }
    conn.execute_batch("BEGIN").map_err(|e| told(&e))?;
    for part in
        [each_job(&conn, keys, &mut out), crossed(&conn, &mut out), plugins(&conn, &mut out), audited(&conn)]
    {
        if let Err(e) = part {
            out.push(Problem::of(&at, &e.told()));
        }
    }
    Ok(out)
}

fn each_job(conn: &Connection, keys: &Keys, out: &mut Vec<Problem>) -> Result<(), Broken> {
    let sql = concat!("SELECT ", columns!(), ", j.queue, j.wake FROM provisioning_jobs j ORDER BY j.n");
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let at = r.get::<_, String>(1).unwrap_or_else(|_| "a job".into());
        let mut wrong = |e: LedgerError| out.push(Problem::of(&at, &e));
        let stored = match row::stored(r) {
            Ok(stored) => stored,
            Err(Broken::Refused(e)) => {
                wrong(e);
                continue;
            }
            Err(e) => return Err(e),
        };
        if let Some(message) = rules::misplaced(&stored.job, (r.get(32)?, r.get(33)?)) {
            wrong(LedgerError::Unreadable(message));
        }
        match row::closed_by_n(conn, stored.n)
            .map_err(Broken::told)
            .and_then(|c| c.map(|c| c.open(keys)).transpose())
        {
            Ok(_) => {}
            Err(e) => wrong(e),
        }
        match read::events_of(conn, stored.n, 0, u32::MAX) {
            Ok(events) => {
                if events.last().map_or(0, |e| e.seq) != stored.last_event {
                    let message =
                        format!("ends with another event than the row says ({})", stored.last_event);
                    wrong(LedgerError::Unreadable(message));
                }
                out.extend(check::job(&stored.job, &events));
            }
            Err(Broken::Refused(e)) => wrong(e),
            Err(e) => return Err(e),
        }
        resources(conn, &stored, out)?;
    }
    Ok(())
}

/// An unfinished job has all of its resources, a final one has none.
fn resources(conn: &Connection, stored: &row::Stored, out: &mut Vec<Problem>) -> Result<(), Broken> {
    let job = &stored.job;
    let scope = crate::rules::scope(&job.application, &job.pair);
    let sql = "SELECT count(*) FROM job_resources WHERE scope = ?1 AND resource = ?2 AND job = ?3";
    let mut statement = conn.prepare_cached(sql)?;
    for r in &job.resources {
        let has =
            statement.query_row(rusqlite::params![scope, r.as_str(), stored.n], |r| r.get::<_, i64>(0))? == 1;
        if has == job.standing.status.is_final() {
            let what = if has { "is final and still has" } else { "is unfinished and does not have" };
            out.push(Problem::new(job.id.as_str(), format!("{what} the resource {r:?}")));
        }
    }
    Ok(())
}

/// Rows that refer to a job that is not there, and jobs that nobody can ask for.
fn crossed(conn: &Connection, out: &mut Vec<Problem>) -> Result<(), Broken> {
    for (table, what, sql) in [
        (
            "job_resources",
            "hold a resource for no job",
            "SELECT count(*) FROM job_resources x WHERE NOT EXISTS (SELECT 1 FROM provisioning_jobs j WHERE j.n = x.job)",
        ),
        (
            "job_requests",
            "remember a request of no job",
            "SELECT count(*) FROM job_requests x WHERE NOT EXISTS (SELECT 1 FROM provisioning_jobs j WHERE j.n = x.job)",
        ),
        (
            "job_events",
            "tell of no job",
            "SELECT count(*) FROM job_events x WHERE NOT EXISTS (SELECT 1 FROM provisioning_jobs j WHERE j.n = x.job)",
        ),
        (
            "provisioning_jobs",
            "are not remembered by their request id",
            "SELECT count(*) FROM provisioning_jobs j WHERE NOT EXISTS (SELECT 1 FROM job_requests x WHERE x.job = j.n \
             AND x.caller = j.caller AND x.route = j.route AND x.request_id = j.request_id)",
        ),
    ] {
        let count: i64 = conn.prepare(sql)?.query_row([], |r| r.get(0))?;
        if count > 0 {
            out.push(Problem::new(table, format!("{count} rows {what}; restore a backup")));
        }
    }
    Ok(())
}

/// Every row of the audit can be read.
fn audited(conn: &Connection) -> Result<(), Broken> {
    let mut after = 0;
    while let Some(last) = audit::page(conn, after)?.last() {
        after = last.n;
    }
    Ok(())
}

/// A plugin's bytes are what its digest says.
fn plugins(conn: &Connection, out: &mut Vec<Problem>) -> Result<(), Broken> {
    let mut statement = conn.prepare("SELECT digest, bytes FROM plugins ORDER BY digest")?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let digest: String = r.get(0)?;
        let bytes = r.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if Digest::of(bytes).to_string() != digest {
            let message = "its bytes are not what its digest says; restore a backup";
            out.push(Problem::new(format!("plugin {digest}"), message));
        }
    }
    Ok(())
}
