//! The audit's rows.

use std::time::Duration;

use rusqlite::{Connection, Row, ToSql, params, params_from_iter};

use super::broken::{Broken, unreadable};
use crate::audit::{self, FORGOTTEN, Texts, columns};
use crate::{Audit, AuditFilter, Millis, Names, rules};

pub(super) fn append(conn: &Connection, rows: &[Audit]) -> Result<(), Broken> {
    let sql =
        concat!("INSERT INTO audit (", columns!(), ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
    for row in rows {
        let Texts(texts) = row.texts();
        let at: &dyn ToSql = &row.at.0;
        let all = std::iter::once(at).chain(texts.iter().map(|t| t as &dyn ToSql));
        conn.prepare_cached(sql)?.execute(params_from_iter(all))?;
    }
    Ok(())
}

/// The statement and its parameters.
fn select(filter: &AuditFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let mut sql = concat!("SELECT n, ", columns!(), " FROM audit WHERE 1 = 1").to_owned();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    for (column, names) in [("instance", &filter.instances), ("tenant", &filter.tenants)] {
        match names {
            Names::All => {}
            Names::Only(names) if names.is_empty() => sql.push_str(&format!(" AND {column} IS NULL")),
            Names::Only(names) if names.len() == 1 => {
                sql.push_str(&format!(" AND {column} = ?"));
                values.extend(names.iter().map(|n| Box::new(n.clone()) as Box<dyn ToSql>));
            }
            Names::Only(names) => {
                let places = vec!["?"; names.len()].join(", ");
                sql.push_str(&format!(" AND {column} IN ({places})"));
                values.extend(names.iter().map(|n| Box::new(n.clone()) as Box<dyn ToSql>));
            }
        }
    }
    if filter.of_applications {
        sql.push_str(" AND application IS NOT NULL");
    }
    for (column, value) in filter.texts() {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {column} = ?"));
            values.push(Box::new(value.to_owned()));
        }
    }
    for (condition, value) in [("at >= ?", filter.from.map(|m| m.0)), ("at < ?", filter.to.map(|m| m.0))] {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {condition}"));
            values.push(Box::new(value));
        }
    }
    if let Some(before) = filter.before {
        sql.push_str(" AND (at, n) < (?, ?)");
        values.extend([before.at.0, rules::int(before.n)].map(|v| Box::new(v) as Box<dyn ToSql>));
    }
    sql.push_str(" ORDER BY at DESC, n DESC LIMIT ?");
    values.push(Box::new(filter.limit));
    (sql, values)
}

pub(super) fn list(conn: &Connection, filter: &AuditFilter) -> Result<Vec<Audit>, Broken> {
    let (sql, values) = select(filter);
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        out.push(read(r)?);
    }
    Ok(out)
}

/// The next rows after a number, the oldest first.
pub(super) fn page(conn: &Connection, after: u64) -> Result<Vec<Audit>, Broken> {
    let sql = concat!("SELECT n, ", columns!(), " FROM audit WHERE n > ?1 ORDER BY n LIMIT 500");
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([rules::int(after)])?;
    let mut out = Vec::new();
    while let Some(r) = rows.next()? {
        out.push(read(r)?);
    }
    Ok(out)
}

/// At most so many, the oldest first.
pub(super) fn forget(conn: &Connection, now: Millis, older_than: Duration) -> Result<u64, Broken> {
    let sql = "DELETE FROM audit WHERE n IN (SELECT n FROM audit WHERE at <= ?1 ORDER BY at, n LIMIT ?2)";
    let gone = conn.prepare_cached(sql)?.execute(params![audit::cutoff(now, older_than), FORGOTTEN])?;
    Ok(gone as u64)
}

fn read(r: &Row<'_>) -> Result<Audit, Broken> {
    let mut texts = [None; 10];
    for (nth, text) in texts.iter_mut().enumerate() {
        *text = r.get_ref(nth + 2)?.as_str_or_null().map_err(|e| unreadable("a row of the audit", e))?;
    }
    let (n, at) = (r.get::<_, i64>(0)?.unsigned_abs(), Millis(r.get(1)?));
    Audit::read(n, at, Texts(texts)).map_err(|e| unreadable(&format!("row {n} of the audit"), e))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::AuditPlace;

    /// A page costs what it shows, however long the history is.
    #[test]
    fn no_page_sorts() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../migrations/sqlite/V3__audit.sql")).unwrap();
        let only = |name: &str| Names::Only(vec![name.into()]);
        let emea =
            || AuditFilter { instances: only("emea"), instance: Some("emea".into()), ..Default::default() };
        let operation = format!("op_{}", "0".repeat(32)).parse().unwrap();
        let (from, before) = (Some(Millis(1)), Some(AuditPlace { at: Millis(9), n: 9 }));
        for (filter, index) in [
            (AuditFilter::default(), "audit_by_time"),
            (AuditFilter { from, ..Default::default() }, "audit_by_time"),
            (AuditFilter { before, of_applications: true, ..Default::default() }, "audit_by_time"),
            (emea(), "audit_by_instance"),
            (AuditFilter { from, before, of_applications: true, ..emea() }, "audit_by_instance"),
            (AuditFilter { tenants: only("acme"), ..emea() }, "audit_by_tenancy"),
            (
                AuditFilter { instances: Names::Only(vec![]), tenants: only("acme"), ..Default::default() },
                "audit_by_tenancy",
            ),
            (AuditFilter { operation: Some(operation), ..Default::default() }, "audit_by_operation"),
        ] {
            let (sql, values) = select(&filter);
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let rows = plan.query_map(params_from_iter(values), |r| r.get::<_, String>(3)).unwrap();
            let plan: Vec<String> = rows.map(Result::unwrap).collect();
            assert!(plan[0].contains(index), "{filter:?}: {plan:?}");
            assert!(filter.operation.is_some() || plan.len() == 1, "{filter:?}: {plan:?}");
        }
    }
}
