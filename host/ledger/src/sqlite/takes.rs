//! What applications take of their quotas.

use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};
use sutler_model::{Application, Identifier, OverQuota, Pair, Use};

use super::broken::{Broken, unreadable};
use super::row;
use crate::takes::{Counted, Totals, kept, over, text, used};
use crate::{Job, JobId, Taken, Takes, rules};

/// The first quota that a job would be over.
pub(super) fn over_quota(
    conn: &Connection,
    application: &Application,
    pair: &Pair,
    takes: &Takes,
) -> Result<Option<OverQuota>, Broken> {
    if takes.quotas.is_free() {
        return Ok(None);
    }
    let (instance, tenant) = (text(application.instance.as_ref()), text(application.tenant.as_ref()));
    let counted = "FROM resources_counted WHERE milli_cpus IS NOT NULL AND instance = ?1";
    let sums = "coalesce(sum(milli_cpus), 0), coalesce(sum(memory_mib), 0)";
    let sql = format!(
        "SELECT count(DISTINCT tenant || '/' || environment || '/' || application), {sums} {counted}"
    );
    let mut before =
        Counted { instance: conn.prepare_cached(&sql)?.query_row([instance], totals)?, ..Counted::default() };
    let sql =
        format!("SELECT count(DISTINCT environment || '/' || application), {sums} {counted} AND tenant = ?2");
    before.tenant = conn.prepare_cached(&sql)?.query_row([instance, tenant], totals)?;
    let sql = format!("SELECT 1 {counted} AND tenant = ?2 AND environment = ?3 AND application = ?4");
    let key = [instance, tenant, application.environment.as_str(), application.id.as_str()];
    before.application = conn.prepare_cached(&sql)?.exists(key)?;
    let scope = rules::scope(application, pair);
    for (resource, _) in &takes.resources {
        if let Some(used) = counted_now(conn, &scope, resource)? {
            before.own.insert(resource.to_string(), used);
        }
    }
    Ok(over(takes, &before))
}

fn totals(row: &Row<'_>) -> Result<Totals, rusqlite::Error> {
    let n = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(Totals { applications: n(0)?, used: Use { milli_cpus: n(1)?, memory_mib: n(2)? } })
}

fn counted_now(conn: &Connection, scope: &str, resource: &Identifier) -> Result<Option<Use>, Broken> {
    let sql = "SELECT milli_cpus, memory_mib FROM resources_counted WHERE scope = ?1 AND resource = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let found =
        statement.query_row([scope, resource.as_str()], |r| Ok(used(r.get(0)?, r.get(1)?))).optional()?;
    Ok(found.flatten())
}

/// The later job that changed one of the job's resources last.
pub(super) fn later(conn: &Connection, n: i64, job: &Job) -> Result<Option<JobId>, Broken> {
    let scope = rules::scope(&job.application, &job.pair);
    let sql = "SELECT job FROM resource_takes WHERE scope = ?1 AND resource = ?2 AND job > ?3";
    let mut statement = conn.prepare_cached(sql)?;
    for r in &job.resources {
        if let Some(other) = statement.query_row(params![scope, r.as_str(), n], |r| r.get(0)).optional()? {
            return row::id_of(conn, other);
        }
    }
    Ok(None)
}

/// A new job's part.
pub(super) fn take(conn: &Connection, n: i64, job: &Job, takes: &Takes) -> Result<(), Broken> {
    let scope = rules::scope(&job.application, &job.pair);
    for (resource, after) in &takes.resources {
        let before = counted_now(conn, &scope, resource)?;
        if before.is_some() || after.is_some() {
            let taken = Taken {
                application: job.application.clone(),
                pair: job.pair.clone(),
                resource: resource.clone(),
                job: None,
                before,
                after: *after,
            };
            write(conn, &taken, Some(n))?;
        }
    }
    Ok(())
}

fn write(conn: &Connection, taken: &Taken, job: Option<i64>) -> Result<(), Broken> {
    let sql = "INSERT INTO resource_takes (scope, resource, instance, tenant, environment, application, pair, job, \
                 before_milli_cpus, before_memory_mib, after_milli_cpus, after_memory_mib) \
               VALUES (:scope, :resource, :instance, :tenant, :environment, :application, :pair, :job, \
                 :before_cpu, :before_memory, :after_cpu, :after_memory) \
               ON CONFLICT (scope, resource) DO UPDATE SET job = :job, before_milli_cpus = :before_cpu, \
                 before_memory_mib = :before_memory, after_milli_cpus = :after_cpu, after_memory_mib = :after_memory";
    let a = &taken.application;
    conn.prepare_cached(sql)?.execute(named_params! {
        ":scope": rules::scope(a, &taken.pair),
        ":resource": taken.resource.as_str(),
        ":instance": text(a.instance.as_ref()),
        ":tenant": text(a.tenant.as_ref()),
        ":environment": a.environment.as_str(),
        ":application": a.id.as_str(),
        ":pair": taken.pair.to_string(),
        ":job": job,
        ":before_cpu": taken.before.map(|u| kept(u.milli_cpus)),
        ":before_memory": taken.before.map(|u| kept(u.memory_mib)),
        ":after_cpu": taken.after.map(|u| kept(u.milli_cpus)),
        ":after_memory": taken.after.map(|u| kept(u.memory_mib)),
    })?;
    Ok(())
}

/// What counts while the job is there counts on without it.
pub(super) fn settle(conn: &Connection, n: i64) -> Result<(), Broken> {
    for sql in [
        "DELETE FROM resource_takes WHERE job = ?1 AND (scope, resource) IN \
         (SELECT scope, resource FROM resources_counted WHERE job = ?1 AND milli_cpus IS NULL)",
        "UPDATE resource_takes AS t SET (after_milli_cpus, after_memory_mib) = \
         (SELECT c.milli_cpus, c.memory_mib FROM resources_counted c \
         WHERE c.scope = t.scope AND c.resource = t.resource) WHERE t.job = ?1",
        "UPDATE resource_takes SET job = NULL, before_milli_cpus = after_milli_cpus, \
         before_memory_mib = after_memory_mib WHERE job = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([n])?;
    }
    Ok(())
}

pub(super) fn import(conn: &Connection, taken: &Taken) -> Result<(), Broken> {
    let n = match &taken.job {
        None => None,
        // One that could not be saved counts as forgotten.
        Some(id) => row::closed_by_id(conn, id)?.map(|found| found.stored.n),
    };
    write(conn, taken, n)
}

/// The next rows after a scope and a resource.
pub(super) fn page(conn: &Connection, after: &(String, String)) -> Result<Vec<Taken>, Broken> {
    let mut statement = conn.prepare_cached(
        "SELECT t.instance, t.tenant, t.environment, t.application, t.pair, t.resource, j.id, t.before_milli_cpus, \
         t.before_memory_mib, t.after_milli_cpus, t.after_memory_mib FROM resource_takes t \
         LEFT JOIN provisioning_jobs j ON j.n = t.job WHERE (t.scope, t.resource) > (?1, ?2) \
         ORDER BY t.scope, t.resource LIMIT 500",
    )?;
    let mut rows = statement.query(params![after.0, after.1])?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        out.push(taken(r)?);
    }
    Ok(out)
}

fn taken(r: &Row<'_>) -> Result<Taken, Broken> {
    let text = |at: usize| r.get_ref(at)?.as_str().map_err(|e| unreadable("what a resource takes", e));
    let names = [text(0)?, text(1)?, text(2)?, text(3)?, text(4)?, text(5)?];
    let job: Option<String> = r.get(6)?;
    let (before, after) = (used(r.get(7)?, r.get(8)?), used(r.get(9)?, r.get(10)?));
    Taken::read(names, job.as_deref(), before, after).map_err(|e| unreadable("what a resource takes", e))
}
