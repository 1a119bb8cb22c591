//! The fair choice over all hosts, at a cost that does not grow with the jobs that are parked: what has become due
//! moves into an index of its own by tenant and lane, the choice jumps through that from tenant to tenant, and rows
//! are locked only where they are taken, passing over those that another host has just locked.

use std::time::Duration;

use futures::future::OptionFuture;
use sutler_model::PluginName;
use tokio_postgres::{Row, Statement};

use super::broken::{Broken, Effect, unreadable};
use super::choose::{Candidate, Choice, Tenant};
use super::connections::{Connection, Connections, PATIENCE, Param};
use super::row::{self, Closed, columns, get};
use crate::Claim;
use crate::rules::{Lane, Places};

/// At most so many jobs become ready at once, from either end.
pub(super) const OLDEST: i64 = 400;
const NEWEST: i64 = 100;
/// So many tenants are looked at in one go.
const TENANTS: usize = 64;
/// So many jobs of a lane are looked at in one go.
const MOST: usize = 256;
/// So often it is looked again where other hosts were faster.
const TRIES: usize = 5;
/// Hosts whose jobs are limited in number claim one after the other: "sutler" and a number, as bytes.
const TURN: i64 = 0x7375_746c_6572_0001;

/// Moves what has become due into the index of ready jobs: those that are due longest, and some that became due last,
/// so that new work is not behind a crowd. An array is looked up by the key; of a subquery the server would
/// expect thousands, and read the whole table for them.
const PROMOTE: &str = "WITH t AS MATERIALIZED (SELECT greatest(ledger_now(), $1::bigint) AS now), \
     oldest AS MATERIALIZED (SELECT n FROM provisioning_jobs WHERE queue = 0 AND wake <= (SELECT now FROM t) \
       ORDER BY wake LIMIT $3::bigint FOR UPDATE SKIP LOCKED), \
     newest AS MATERIALIZED (SELECT n FROM provisioning_jobs WHERE queue = 0 AND wake <= (SELECT now FROM t) \
       ORDER BY wake DESC LIMIT $4::bigint FOR UPDATE SKIP LOCKED), \
     lapsed AS MATERIALIZED (SELECT n FROM provisioning_jobs WHERE queue = 1 \
       AND wake <= (SELECT now FROM t) - $2::bigint ORDER BY wake LIMIT $3::bigint FOR UPDATE SKIP LOCKED), \
     moved AS (UPDATE provisioning_jobs SET queue = 2 WHERE n = ANY (ARRAY \
       (SELECT n FROM oldest UNION SELECT n FROM newest UNION SELECT n FROM lapsed)) RETURNING n) \
     SELECT (SELECT now FROM t), greatest((SELECT count(*) FROM oldest), (SELECT count(*) FROM lapsed)), \
       (SELECT count(*) FROM moved)";

/// The next tenants after one, each with its lanes, each with its first jobs.
const PAGE: &str = "WITH RECURSIVE turn AS ( \
       (SELECT tenancy FROM provisioning_jobs WHERE queue = 2 AND tenancy > $1::text \
         AND tenancy <= coalesce($2::text, tenancy) ORDER BY tenancy LIMIT 1) \
       UNION ALL SELECT x.tenancy FROM turn CROSS JOIN LATERAL \
       (SELECT j.tenancy FROM provisioning_jobs j WHERE j.queue = 2 AND j.tenancy > turn.tenancy \
         AND j.tenancy <= coalesce($2::text, j.tenancy) ORDER BY j.tenancy LIMIT 1) x) \
     SELECT t.tenancy, l.plugin, l.pair, l.digest, c.n, c.wake \
     FROM (SELECT tenancy FROM turn LIMIT $3::bigint) t CROSS JOIN LATERAL ( \
       WITH RECURSIVE lane AS ( \
         (SELECT j.plugin, j.pair, j.digest FROM provisioning_jobs j WHERE j.queue = 2 AND j.tenancy = t.tenancy \
           ORDER BY j.plugin, j.pair, j.digest LIMIT 1) \
         UNION ALL SELECT x.plugin, x.pair, x.digest FROM lane CROSS JOIN LATERAL \
         (SELECT j.plugin, j.pair, j.digest FROM provisioning_jobs j WHERE j.queue = 2 AND j.tenancy = t.tenancy \
           AND (j.tenancy, j.plugin, j.pair, j.digest) > (t.tenancy, lane.plugin, lane.pair, lane.digest) \
           ORDER BY j.plugin, j.pair, j.digest LIMIT 1) x) \
       SELECT plugin, pair, digest FROM lane) l CROSS JOIN LATERAL \
     (SELECT j.n, j.wake FROM provisioning_jobs j WHERE j.queue = 2 AND j.tenancy = t.tenancy AND j.plugin = l.plugin \
       AND j.pair = l.pair AND j.digest = l.digest ORDER BY j.wake LIMIT $4::bigint) c ORDER BY t.tenancy";

/// The leases that count against the limits.
const LEASED: &str = "SELECT tenancy, plugin, pair, count(*) FROM provisioning_jobs \
     WHERE queue = 1 AND wake > greatest(ledger_now(), $1::bigint) - $2::bigint GROUP BY tenancy, plugin, pair";

/// What `rules::claimed` says, in the server's words.
const TAKE: &str = concat!(
    "WITH t AS MATERIALIZED (SELECT greatest(ledger_now(), $1::bigint) AS now), \
     wanted AS MATERIALIZED (SELECT j.n, w.lease, w.nth FROM \
       unnest($2::bigint[], $3::bigint[]) WITH ORDINALITY w (n, lease, nth) \
       JOIN provisioning_jobs j ON j.n = w.n WHERE j.queue = 2 FOR UPDATE OF j SKIP LOCKED), \
     new AS (UPDATE provisioning_jobs j SET token = j.token + 1, revision = j.revision + 1, \
       status = CASE j.status WHEN 'queued' THEN 'running' ELSE j.status END, lease_holder = $4::text, \
       lease_until = greatest(t.now, j.updated) + wanted.lease, queue = 1, \
       wake = greatest(t.now, j.updated) + wanted.lease, \
       updated = greatest(t.now, j.updated), last_event = j.last_event + 1 \
       FROM t, wanted WHERE j.n = wanted.n RETURNING ",
    columns!(),
    ", wanted.nth), \
     tells AS (INSERT INTO job_events (job, seq, at, what) SELECT n, last_event, updated, \
       json_build_object('event', 'claimed', 'token', token, 'holder', $4::text)::text FROM new) \
     SELECT ",
    columns!(),
    " FROM new j ORDER BY j.nth"
);

/// What a claim brought.
#[derive(Default)]
pub(super) struct Claimed {
    pub(super) rows: Vec<Row>,
    /// The tenant that was served last.
    pub(super) last: String,
    /// More jobs are due than were moved to the ready ones at once.
    pub(super) behind: bool,
}

pub(super) async fn claim(connections: &Connections, claim: &Claim, last: String) -> Result<Claimed, Broken> {
    let mut got = Claimed { last, ..Claimed::default() };
    for _ in 0..TRIES {
        let most = (claim.places as usize).saturating_sub(got.rows.len());
        if most == 0 {
            break;
        }
        let work = attempt(connections, claim, most, &mut got);
        let silent = |_| Err(Broken::Lost(Effect::Commits.lost("the server does not answer".into())));
        match tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(silent) {
            Ok(true) => {}
            Ok(false) => break,
            // What is taken already is not lost over what is not.
            Err(e) if got.rows.is_empty() => return Err(e),
            Err(_) => break,
        }
    }
    Ok(got)
}

/// The statements of a claim. They are prepared before the first is sent, so that they arrive in their order.
struct Prepared {
    turn: Statement,
    promote: Statement,
    leased: Statement,
    page: Statement,
    take: Statement,
}

impl Prepared {
    async fn new(c: &Connection) -> Result<Self, Broken> {
        Ok(Self {
            turn: c.prepare("SELECT 1 FROM (SELECT pg_advisory_xact_lock($1)) x").await?,
            promote: c.prepare(PROMOTE).await?,
            leased: c.prepare(LEASED).await?,
            page: c.prepare(PAGE).await?,
            take: c.prepare(TAKE).await?,
        })
    }
}

/// Looks and takes; answers whether to look again, because others were faster or there may be more.
async fn attempt(
    connections: &Connections,
    claim: &Claim,
    most: usize,
    got: &mut Claimed,
) -> Result<bool, Broken> {
    let mut c = connections.get().await?;
    let prepared = Prepared::new(&c).await?;
    c.in_the_midst();
    let done = look_and_take(&c, &prepared, connections.floor(), claim, most, got).await;
    if let Ok((now, again)) = done {
        connections.seen(now);
        c.done();
        return Ok(again);
    }
    done.map(|(_, again)| again)
}

async fn look_and_take(
    c: &Connection,
    prepared: &Prepared,
    floor: i64,
    claim: &Claim,
    most: usize,
    got: &mut Claimed,
) -> Result<(i64, bool), Broken> {
    let mut places = Places::new(claim);
    let limited = places.limited();
    let delay = row::distance(claim.takeover_after);
    let begin = OptionFuture::from(limited.then(|| c.say("BEGIN", Effect::None)));
    let turn = OptionFuture::from(limited.then(|| c.run(&prepared.turn, &[&TURN], Effect::None)));
    let promote = promotion(c, &prepared.promote, floor, delay);
    let leased = async { c.run(&prepared.leased, &[&floor, &delay], Effect::None).await };
    let leased = OptionFuture::from(limited.then_some(leased));
    let look = Look { c, page: &prepared.page, each: most.min(MOST) as i64 };
    let last = std::mem::take(&mut got.last);
    let (after, upto) = (look.page(&last, None), look.page("", Some(&last)));
    // All are on their way at once; the server takes them in this order.
    let (begun, turn, promoted, leased, after, upto) =
        futures::join!(begin, turn, promote, leased, after, upto);
    begun.transpose()?;
    turn.transpose()?;
    let promoted = promoted?;
    got.behind |= promoted.behind;
    for r in leased.transpose()?.unwrap_or_default() {
        count(&r, &mut places)?;
    }
    let mut choice = Choice::new(places, most);
    choice.last = Some(last.clone());
    look.round(&mut choice, after?, None).await?;
    look.round(&mut choice, upto?, Some(&last)).await?;
    choice.finish();
    got.last = choice.last.take().unwrap_or_default();
    let taken = take(c, &prepared.take, floor, claim, &choice.chosen, limited).await?;
    let again = taken.len() < choice.chosen.len() || (most > MOST && !taken.is_empty());
    got.rows.extend(taken);
    Ok((promoted.now, again))
}

async fn take(
    c: &Connection,
    statement: &Statement,
    floor: i64,
    claim: &Claim,
    chosen: &[Candidate],
    limited: bool,
) -> Result<Vec<Row>, Broken> {
    let length = |c: &Candidate| claim.lease_of.get(&c.lane.pair).copied().unwrap_or(claim.lease);
    let numbers: Vec<i64> = chosen.iter().map(|c| c.n).collect();
    let leases: Vec<i64> = chosen.iter().map(|c| row::distance(length(c))).collect();
    let holder = &*claim.holder;
    let effect = if limited { Effect::None } else { Effect::Commits };
    let params: [Param<'_>; 4] = [&floor, &numbers, &leases, &holder];
    let take = OptionFuture::from((!chosen.is_empty()).then(|| c.run(statement, &params, effect)));
    let commit = OptionFuture::from(limited.then(|| c.say("COMMIT", Effect::Commits)));
    let (taken, committed) = futures::join!(take, commit);
    committed.transpose()?;
    Ok(taken.transpose()?.unwrap_or_default())
}

/// Reads the ready jobs, tenant by tenant.
struct Look<'a> {
    c: &'a Connection,
    page: &'a Statement,
    /// So many jobs of a lane.
    each: i64,
}

impl Look<'_> {
    async fn page(&self, after: &str, upto: Option<&str>) -> Result<Vec<Tenant>, Broken> {
        let params: [Param<'_>; 4] = [&after, &upto, &(TENANTS as i64), &self.each];
        let rows = self.c.run(self.page, &params, Effect::None).await?;
        let mut tenants: Vec<Tenant> = Vec::new();
        for r in &rows {
            let tenancy: &str = get(r, 0)?;
            if tenants.last().is_none_or(|t| t.tenancy != tenancy) {
                tenants.push(Tenant { tenancy: tenancy.to_owned(), jobs: Vec::new() });
            }
            // A lane that this version cannot read is left to one that can.
            match (candidate(r), tenants.last_mut()) {
                (Ok(job), Some(tenant)) => tenant.jobs.push(job),
                (Err(e), _) => {
                    tracing::error!(event = "ledger-row-passed-over", tenancy, error = %e.told());
                }
                (Ok(_), None) => {}
            }
        }
        Ok(tenants)
    }

    /// Goes on from a first page as long as there are places and tenants.
    async fn round(
        &self,
        choice: &mut Choice,
        mut page: Vec<Tenant>,
        upto: Option<&str>,
    ) -> Result<(), Broken> {
        loop {
            let full = page.len() == TENANTS;
            let end = page.last().map(|t| t.tenancy.clone()).unwrap_or_default();
            choice.round(page);
            if !full || choice.full() {
                return Ok(());
            }
            page = self.page(&end, upto).await?;
        }
    }
}

fn candidate(r: &Row) -> Result<Candidate, Broken> {
    let lane = Lane {
        plugin: get::<&str>(r, 1)?.parse().map_err(|e| unreadable("a job's plugin", e))?,
        pair: get::<&str>(r, 2)?.parse().map_err(|e| unreadable("a job's pair", e))?,
        digest: get::<&str>(r, 3)?.parse().map_err(|e| unreadable("a job's digest", e))?,
    };
    Ok(Candidate { n: get(r, 4)?, wake: get(r, 5)?, lane })
}

/// Leases of one lane's tenant into the count.
fn count(r: &Row, places: &mut Places) -> Result<(), Broken> {
    let plugin: PluginName = get::<&str>(r, 1)?.parse().map_err(|e| unreadable("a job's plugin", e))?;
    let pair = get::<&str>(r, 2)?.parse().map_err(|e| unreadable("a job's pair", e))?;
    for _ in 0..get::<i64>(r, 3)? {
        places.add(get(r, 0)?, &plugin, &pair);
    }
    Ok(())
}

/// What a promotion came to.
pub(super) struct Promoted {
    now: i64,
    pub(super) behind: bool,
    pub(super) moved: bool,
}

async fn promotion(
    c: &Connection,
    statement: &Statement,
    floor: i64,
    delay: i64,
) -> Result<Promoted, Broken> {
    let rows = c.run(statement, &[&floor, &delay, &OLDEST, &NEWEST], Effect::None).await?;
    let r = rows.first().ok_or_else(|| unreadable("an answer", "it is empty"))?;
    Ok(Promoted { now: get(r, 0)?, behind: get::<i64>(r, 1)? >= OLDEST, moved: get::<i64>(r, 2)? > 0 })
}

/// The part of a claim that a crowd of due jobs needs more often than there are claims.
pub(super) async fn promote(connections: &Connections, takeover_after: Duration) -> Result<Promoted, Broken> {
    let mut c = connections.get().await?;
    let statement = c.prepare(PROMOTE).await?;
    c.in_the_midst();
    let work = promotion(&c, &statement, connections.floor(), row::distance(takeover_after));
    let silent = |_| Err(Broken::Lost(Effect::None.lost("the server does not answer".into())));
    let done = tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(silent)?;
    c.done();
    Ok(done)
}

/// The rows of a claim.
pub(super) fn taken(claimed: &Claimed) -> Vec<Closed> {
    let read = |r: &Row| {
        row::closed(r).map_err(|e| tracing::error!(event = "ledger-job-unreadable", error = %e.told())).ok()
    };
    claimed.rows.iter().filter_map(read).collect()
}
