//! What applications take of their quotas. The server decides, in `over_quota`: see the migration.

use sutler_model::{Application, Measure, OverQuota, Pair, QuotaOf, Use};
use tokio::sync::mpsc::Sender;
use tokio_postgres::Row;

use super::broken::{Broken, Effect, unreadable};
use super::connections::{Connection, Connections, Param};
use super::export::{Gone, Sent, give};
use super::row::{self, get};
use crate::takes::{kept, text, used};
use crate::{Job, LedgerError, Record, Taken, Takes, rules};

/// What a job takes, as the client library takes it.
pub(super) struct Asked<'a> {
    pub(super) resources: Vec<&'a str>,
    pub(super) milli_cpus: Vec<Option<i64>>,
    pub(super) memory_mib: Vec<Option<i64>>,
    /// Of the instance and the tenant, by [`Measure::ALL`].
    pub(super) limits: Vec<Option<i64>>,
    /// Whether there is any limit.
    pub(super) limited: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn new(takes: &'a Takes) -> Self {
        let both = [takes.quotas.instance, takes.quotas.tenant];
        Self {
            resources: takes.resources.iter().map(|(r, _)| r.as_str()).collect(),
            milli_cpus: takes.resources.iter().map(|(_, u)| u.map(|u| kept(u.milli_cpus))).collect(),
            memory_mib: takes.resources.iter().map(|(_, u)| u.map(|u| kept(u.memory_mib))).collect(),
            limits: both.iter().flat_map(|q| Measure::ALL.map(|m| q.of(m).map(rules::int))).collect(),
            limited: !takes.quotas.is_free(),
        }
    }
}

/// What `over_quota` found, from its four columns.
pub(super) fn found(r: &Row, at: usize) -> Result<Option<OverQuota>, Broken> {
    let Some(nth) = get::<Option<i32>>(r, at)? else { return Ok(None) };
    let n = |at| get::<i64>(r, at).map(i64::unsigned_abs);
    let place = usize::try_from(nth).unwrap_or_default().saturating_sub(1);
    let measures = Measure::ALL.len();
    let measure = Measure::ALL.get(place % measures).copied().unwrap_or(Measure::Applications);
    let of = if place < measures { QuotaOf::Instance } else { QuotaOf::Tenant };
    Ok(Some(OverQuota { of, measure, used: n(at + 1)?, asked: n(at + 2)?, limit: n(at + 3)? }))
}

pub(super) async fn over_quota(
    connections: &Connections,
    application: &Application,
    pair: &Pair,
    takes: &Takes,
) -> Result<Option<OverQuota>, Broken> {
    let asked = Asked::new(takes);
    if !asked.limited {
        return Ok(None);
    }
    let (a, scope) = (application, rules::scope(application, pair));
    let (instance, tenant) = (text(a.instance.as_ref()), text(a.tenant.as_ref()));
    let params: [Param<'_>; 9] = [
        &scope,
        &instance,
        &tenant,
        &a.environment.as_str(),
        &a.id.as_str(),
        &asked.resources,
        &asked.milli_cpus,
        &asked.memory_mib,
        &asked.limits,
    ];
    let sql = "SELECT nth, used, asked, most FROM over_quota($1::text, $2::text, $3::text, $4::text, $5::text, \
               $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], false)";
    let rows = connections.read(sql, &params).await?;
    rows.first().map_or(Ok(None), |r| found(r, 0))
}

/// `LedgerError::Superseded`, where a later job changed one of the job's resources last.
pub(super) async fn refuse_if_later(connections: &Connections, n: i64, job: &Job) -> Result<(), Broken> {
    let sql = "SELECT j.id FROM resource_takes t JOIN provisioning_jobs j ON j.n = t.job \
               WHERE t.scope = $1 AND t.resource = ANY ($2) AND t.job > $3 LIMIT 1";
    let scope = rules::scope(&job.application, &job.pair);
    let resources: Vec<&str> = job.resources.iter().map(|r| r.as_str()).collect();
    let rows = connections.read(sql, &[&scope, &resources, &n]).await?;
    let Some(r) = rows.first() else { return Ok(()) };
    let later = row::get::<&str>(r, 0)?.parse().map_err(|e| unreadable("a job's id", e))?;
    Err(LedgerError::Superseded(later).into())
}

/// What of forgotten jobs counted counts on without them: `old` are the jobs.
pub(super) const SETTLE: &str = "frees AS (DELETE FROM resource_takes t USING resources_counted c, old \
       WHERE t.job = old.n AND c.scope = t.scope AND c.resource = t.resource AND c.milli_cpus IS NULL), \
     settles AS (UPDATE resource_takes t SET job = NULL, before_milli_cpus = c.milli_cpus, \
       before_memory_mib = c.memory_mib, after_milli_cpus = c.milli_cpus, after_memory_mib = c.memory_mib \
       FROM resources_counted c, old WHERE t.job = old.n AND c.scope = t.scope AND c.resource = t.resource \
       AND c.milli_cpus IS NOT NULL), ";

pub(super) async fn import(connections: &Connections, taken: &Taken) -> Result<(), Broken> {
    let n = match &taken.job {
        None => None,
        // One that could not be saved counts as forgotten.
        Some(id) => row::by_id(connections, id).await?.map(|found| found.n),
    };
    let sql = "INSERT INTO resource_takes (scope, resource, instance, tenant, environment, application, pair, job, \
                 before_milli_cpus, before_memory_mib, after_milli_cpus, after_memory_mib) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (scope, resource) DO UPDATE \
               SET job = excluded.job, before_milli_cpus = excluded.before_milli_cpus, \
                 before_memory_mib = excluded.before_memory_mib, after_milli_cpus = excluded.after_milli_cpus, \
                 after_memory_mib = excluded.after_memory_mib";
    let a = &taken.application;
    let (cpu, memory) =
        (|u: Option<Use>| u.map(|u| kept(u.milli_cpus)), |u: Option<Use>| u.map(|u| kept(u.memory_mib)));
    let params: [Param<'_>; 12] = [
        &rules::scope(a, &taken.pair),
        &taken.resource.as_str(),
        &text(a.instance.as_ref()),
        &text(a.tenant.as_ref()),
        &a.environment.as_str(),
        &a.id.as_str(),
        &taken.pair.to_string(),
        &n,
        &cpu(taken.before),
        &memory(taken.before),
        &cpu(taken.after),
        &memory(taken.after),
    ];
    connections.write(sql, &params).await?;
    Ok(())
}

/// All of them, page by page.
pub(super) async fn export(c: &mut Connection, to: &Sender<Sent>) -> Result<Result<(), Gone>, Broken> {
    let sql = "SELECT t.instance, t.tenant, t.environment, t.application, t.pair, t.resource, j.id, \
               t.before_milli_cpus, t.before_memory_mib, t.after_milli_cpus, t.after_memory_mib, t.scope \
               FROM resource_takes t LEFT JOIN provisioning_jobs j ON j.n = t.job \
               WHERE (t.scope, t.resource) > ($1::text, $2::text) ORDER BY t.scope, t.resource LIMIT 500";
    let (mut scope, mut resource) = (String::new(), String::new());
    loop {
        let rows = c.query(sql, &[&scope, &resource], Effect::None).await?;
        let Some(last) = rows.last() else { return Ok(Ok(())) };
        (scope, resource) = (get(last, 11)?, get(last, 5)?);
        for r in &rows {
            if give(to, taken(r).map(Record::Taken)).await.is_err() {
                return Ok(Err(Gone));
            }
        }
    }
}

fn taken(r: &Row) -> Result<Taken, Broken> {
    let names = [get(r, 0)?, get(r, 1)?, get(r, 2)?, get(r, 3)?, get(r, 4)?, get(r, 5)?];
    let (before, after) = (used(get(r, 7)?, get(r, 8)?), used(get(r, 9)?, get(r, 10)?));
    Taken::read(names, get(r, 6)?, before, after).map_err(|e| unreadable("what a resource takes", e))
}
