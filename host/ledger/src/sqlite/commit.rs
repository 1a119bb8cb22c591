//! Guarded writes and renewals.

use rusqlite::{Connection, params};

use super::audit;
use super::begin;
use super::broken::Broken;
use super::desk::Desk;
use super::row::{self, Closed, Stored};
use super::takes;
use crate::{Audit, Held, JobId, LedgerError, Write, rules};

/// What a write brings, sealed.
pub(super) struct Brought {
    pub(super) state: Option<Vec<u8>>,
    /// The inner `None` takes the answer away.
    pub(super) answer: Option<Option<Vec<u8>>>,
}

pub(super) fn commit(
    conn: &Connection,
    desk: &mut Desk,
    write: &Write,
    brought: &Brought,
) -> Result<Closed, Broken> {
    let now = desk.now();
    let mut row =
        row::closed_by_id(conn, &write.id)?.ok_or_else(|| LedgerError::NotFound(write.id.clone()))?;
    let before = row.stored;
    let n = before.n;
    let job = rules::written(&before.job, write, now)?;
    let events = rules::events(before.last_event, &write.events, now);
    match (before.job.standing.status.is_final(), job.standing.status.is_final()) {
        (true, false) => {
            if let Some(other) = begin::holder(conn, &job, Some(n))? {
                return Err(begin::busy(conn, other)?);
            }
            if let Some(later) = takes::later(conn, n, &job)? {
                return Err(LedgerError::Superseded(later).into());
            }
            begin::take(conn, n, &job)?;
        }
        (false, true) => begin::free(conn, n, &job)?,
        _ => {}
    }
    let last_event = before.last_event + events.len() as u64;
    let stored = Stored { job, last_event, ..before };
    row::update(conn, &stored)?;
    if write.generation.is_some() {
        let sql = "UPDATE provisioning_jobs SET plugin = ?2, digest = ?3 WHERE n = ?1";
        let j = &stored.job;
        conn.prepare_cached(sql)?.execute(params![n, j.plugin.as_str(), j.digest.to_string()])?;
    }
    begin::append(conn, n, &events)?;
    audit::append(conn, Audit::of_write(write, &stored.job).as_slice())?;
    keep_texts(conn, n, brought)?;
    desk.wake |= rules::in_queue(stored.job.standing.status) && stored.job.lease.is_none();
    if let Some(state) = &brought.state {
        row.texts.state.clone_from(state);
    }
    if let Some(answer) = &brought.answer {
        row.texts.answer.clone_from(answer);
    }
    Ok(Closed { stored, ..row })
}

fn keep_texts(conn: &Connection, n: i64, brought: &Brought) -> Result<(), Broken> {
    if let Some(state) = &brought.state {
        let sql = "UPDATE sealed_states SET sealed = ?2 WHERE job = ?1";
        conn.prepare_cached(sql)?.execute(params![n, state])?;
    }
    match &brought.answer {
        None => {}
        Some(Some(answer)) => {
            let sql = "INSERT INTO sealed_answers (job, sealed) VALUES (?1, ?2) \
                       ON CONFLICT (job) DO UPDATE SET sealed = excluded.sealed";
            conn.prepare_cached(sql)?.execute(params![n, answer])?;
        }
        Some(None) => {
            conn.prepare_cached("DELETE FROM sealed_answers WHERE job = ?1")?.execute([n])?;
        }
    }
    Ok(())
}

pub(super) fn renew(
    conn: &Connection,
    desk: &mut Desk,
    holder: &str,
    held: &[Held],
) -> Result<Vec<JobId>, Broken> {
    let now = desk.now();
    let mut statement = conn.prepare_cached(
        "UPDATE provisioning_jobs SET lease_until = ?4, queue = 1, wake = ?4 \
         WHERE substr(id, -32) = ?5 AND id = ?1 AND token = ?2 AND lease_holder = ?3",
    )?;
    let mut lost = Vec::new();
    for h in held {
        let until = now.plus(h.lease).0;
        if statement.execute(params![
            h.id.as_str(),
            rules::int(h.token),
            holder,
            until,
            row::digits(&h.id)
        ])? == 0
        {
            lost.push(h.id.clone());
        }
    }
    Ok(lost)
}
