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

pub(super) fn list(conn: &Connection, filter: &AuditFilter) -> Result<Vec<Audit>, Broken> {
    let mut sql = concat!("SELECT n, ", columns!(), " FROM audit WHERE 1 = 1").to_owned();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    for (column, names) in [("instance", &filter.instances), ("tenant", &filter.tenants)] {
        match names {
            Names::All => {}
            Names::Only(names) if names.is_empty() => sql.push_str(&format!(" AND {column} IS NULL")),
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
    for (condition, value) in [
        ("at >= ?", filter.from.map(|m| m.0)),
        ("at < ?", filter.to.map(|m| m.0)),
        ("n < ?", filter.before.map(rules::int)),
    ] {
        if let Some(value) = value {
            sql.push_str(&format!(" AND {condition}"));
            values.push(Box::new(value));
        }
    }
    sql.push_str(" ORDER BY n DESC LIMIT ?");
    values.push(Box::new(filter.limit));
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

/// The oldest come first, so that what is not old ends the search.
pub(super) fn forget(conn: &Connection, now: Millis, older_than: Duration) -> Result<u64, Broken> {
    let sql = "DELETE FROM audit WHERE n IN (SELECT n FROM audit ORDER BY n LIMIT ?2) AND at <= ?1";
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
