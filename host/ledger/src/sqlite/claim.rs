//! The fair choice, at a cost that does not grow with the jobs that are parked: what has become due moves into an
//! index of its own by tenant and lane, and the choice jumps through that from tenant to tenant.

use std::collections::VecDeque;
use std::time::Duration;

use rusqlite::{Connection, params};

use super::begin;
use super::broken::{Broken, unreadable};
use super::desk::Desk;
use super::row::{self, Closed, Stored};
use crate::rules::{self, Lane, Places};
use crate::{Claim, Millis};

/// At most so many jobs become ready at once.
const OLDEST: usize = 400;
const NEWEST: usize = 100;

macro_rules! promotion {
    ($queue:literal, $order:literal) => {
        concat!(
            "UPDATE provisioning_jobs SET queue = 2 WHERE n IN (SELECT n FROM provisioning_jobs WHERE ",
            $queue,
            " AND wake <= ?1 ORDER BY wake ",
            $order,
            " LIMIT ?2)"
        )
    };
}

pub(super) fn claim(conn: &Connection, desk: &mut Desk, claim: &Claim) -> Result<Vec<Closed>, Broken> {
    promote(conn, desk, claim.takeover_after)?;
    let now = desk.now();
    let mut places = Places::new(claim);
    if places.limited() {
        count(conn, overdue(now, claim.takeover_after), &mut places)?;
    }
    let mut taken = Vec::new();
    let mut turn = Turn::after(desk.last.clone());
    while taken.len() < claim.places as usize {
        let Some(tenancy) = turn.next(conn)? else { break };
        if !places.tenant_has_room(&tenancy) {
            continue;
        }
        let Some(n) = oldest(conn, &tenancy, &places)? else { continue };
        let Some(row) = readable(conn, n)? else {
            turn.again(tenancy);
            continue;
        };
        places.add(&tenancy, &row.stored.job.plugin, &row.stored.job.pair);
        taken.push(take(conn, row, claim, now)?);
        desk.last = Some(tenancy.clone());
        turn.again(tenancy);
    }
    Ok(taken)
}

/// A row that cannot be read is set aside, so that it does not stop the others.
fn readable(conn: &Connection, n: i64) -> Result<Option<Closed>, Broken> {
    match row::closed_by_n(conn, n) {
        Ok(Some(row)) => return Ok(Some(row)),
        Ok(None) => {
            tracing::error!(event = "ledger-row-set-aside", row = n, error = "it is in an index only")
        }
        Err(Broken::Refused(e)) => tracing::error!(event = "ledger-row-set-aside", row = n, error = %e),
        Err(e) => return Err(e),
    }
    conn.prepare_cached("UPDATE provisioning_jobs SET queue = 3 WHERE n = ?1")?.execute([n])?;
    Ok(None)
}

fn take(conn: &Connection, row: Closed, claim: &Claim, now: Millis) -> Result<Closed, Broken> {
    let (job, event) = rules::claimed(&row.stored.job, claim, now);
    let events = rules::events(row.stored.last_event, &[event], now);
    let last_event = row.stored.last_event + events.len() as u64;
    let stored = Stored { job, last_event, ..row.stored };
    row::update(conn, &stored)?;
    begin::append(conn, stored.n, &events)?;
    Ok(Closed { stored, ..row })
}

/// Moves what has become due into the index of ready jobs: those that are due longest, and some that became due last,
/// so that new work is not behind a crowd. Where there is more than is well done at once, the writer goes on with it
/// beside its other work.
pub(super) fn promote(conn: &Connection, desk: &mut Desk, takeover_after: Duration) -> Result<bool, Broken> {
    let now = desk.now();
    let mut moved = 0;
    desk.behind = None;
    for (sql, until, most) in [
        (promotion!("queue = 0", ""), now, OLDEST),
        (promotion!("queue = 0", "DESC"), now, NEWEST),
        (promotion!("queue = 1", ""), overdue(now, takeover_after), OLDEST),
    ] {
        let count = conn.prepare_cached(sql)?.execute([until.0, most as i64])?;
        if count == most {
            desk.behind = Some(takeover_after);
        }
        moved += count;
    }
    Ok(moved > 0)
}

/// A lease that ran out before this may be taken over.
fn overdue(now: Millis, takeover_after: Duration) -> Millis {
    Millis(now.0.saturating_sub(Millis(0).plus(takeover_after).0))
}

/// The leases that count against the limits.
fn count(conn: &Connection, overdue: Millis, places: &mut Places) -> Result<(), Broken> {
    let sql = "SELECT tenancy, plugin, pair FROM provisioning_jobs WHERE queue = 1 AND wake > ?1";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([overdue.0])?;
    while let Some(r) = rows.next()? {
        let (tenancy, plugin, pair): (String, String, String) = (r.get(0)?, r.get(1)?, r.get(2)?);
        let plugin = plugin.parse().map_err(|e| unreadable("a job's plugin", e))?;
        places.add(&tenancy, &plugin, &pair.parse().map_err(|e| unreadable("a job's pair", e))?);
    }
    Ok(())
}

/// Goes once round the tenants that have ready jobs, and then round those that had one with room.
struct Turn {
    /// Where the round began and where it is.
    first: Option<String>,
    at: Option<String>,
    wrapped: bool,
    round_over: bool,
    again: VecDeque<String>,
}

impl Turn {
    fn after(last: Option<String>) -> Self {
        Self { at: last.clone(), first: last, wrapped: false, round_over: false, again: VecDeque::new() }
    }
    fn again(&mut self, tenancy: String) {
        self.again.push_back(tenancy);
    }
    fn next(&mut self, conn: &Connection) -> Result<Option<String>, Broken> {
        if !self.round_over {
            if let Some(next) = self.round(conn)? {
                return Ok(Some(next));
            }
            self.round_over = true;
        }
        Ok(self.again.pop_front())
    }
    /// One jump in the index.
    fn round(&mut self, conn: &Connection) -> Result<Option<String>, Broken> {
        let sql =
            "SELECT tenancy FROM provisioning_jobs WHERE queue = 2 AND tenancy > ?1 ORDER BY tenancy LIMIT 1";
        let text = |r: &rusqlite::Row<'_>| Ok(r.get::<_, String>(0)?);
        let from = self.at.clone().unwrap_or_default();
        let mut next = row::one(conn.prepare_cached(sql)?, [&from], text)?;
        if next.is_none() && !self.wrapped && self.first.is_some() {
            self.wrapped = true;
            next = row::one(conn.prepare_cached(sql)?, [""], text)?;
        }
        // The tenant that the round began after comes last.
        if self.wrapped && next.as_ref() > self.first.as_ref() {
            return Ok(None);
        }
        self.at.clone_from(&next);
        Ok(next)
    }
}

/// A tenant's job that is due longest among the lanes with room: one jump for each lane.
fn oldest(conn: &Connection, tenancy: &str, places: &Places) -> Result<Option<i64>, Broken> {
    let mut statement = conn.prepare_cached(
        "SELECT plugin, pair, digest, wake, n FROM provisioning_jobs WHERE queue = 2 AND tenancy = ?1 \
         AND (plugin, pair, digest) > (?2, ?3, ?4) ORDER BY plugin, pair, digest, wake LIMIT 1",
    )?;
    let mut at = [String::new(), String::new(), String::new()];
    let mut best: Option<(i64, i64)> = None;
    loop {
        let [plugin, pair, digest] = &at;
        let mut rows = statement.query(params![tenancy, plugin, pair, digest])?;
        let Some(r) = rows.next()? else { return Ok(best.map(|(_, n)| n)) };
        let next: [String; 3] = [r.get(0)?, r.get(1)?, r.get(2)?];
        let found = (r.get(3)?, r.get(4)?);
        drop(rows);
        if places.lane_has_room(&lane(&next)?) && best.is_none_or(|b| found < b) {
            best = Some(found);
        }
        at = next;
    }
}

fn lane([plugin, pair, digest]: &[String; 3]) -> Result<Lane, Broken> {
    Ok(Lane {
        plugin: plugin.parse().map_err(|e| unreadable("a job's plugin", e))?,
        pair: pair.parse().map_err(|e| unreadable("a job's pair", e))?,
        digest: digest.parse().map_err(|e| unreadable("a job's digest", e))?,
    })
}
