//! The audit's rows.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio_postgres::Row;

use super::broken::{Broken, Effect, unreadable};
use super::connections::{Connection, Connections, Param};
use super::export::{Gone, Sent, give};
use super::row::{self, get};
use crate::audit::{FORGOTTEN, Texts, columns};
use crate::{Audit, AuditFilter, Millis, Names, Problem, Record, rules};

/// One row, of now or of another time.
pub(super) async fn append(connections: &Connections, row: &Audit, at: Option<Millis>) -> Result<(), Broken> {
    let sql = concat!(
        "INSERT INTO audit (",
        columns!(),
        ") VALUES (coalesce($1::bigint, greatest(ledger_now(), $2::bigint)), \
           $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
    );
    let Texts(texts) = row.texts();
    let (at, floor) = (at.map(|m| m.0), connections.floor());
    let mut params: Vec<Param<'_>> = vec![&at, &floor];
    params.extend(texts.iter().map(|t| t as Param<'_>));
    connections.write(sql, &params).await?;
    Ok(())
}

pub(super) async fn list(connections: &Connections, filter: &AuditFilter) -> Result<Vec<Audit>, Broken> {
    let limit = i64::from(filter.limit);
    let mut values: Vec<Param<'_>> = vec![&limit];
    let mut sql = concat!("SELECT n, ", columns!(), " FROM audit WHERE true").to_owned();
    for (column, names) in [("instance", &filter.instances), ("tenant", &filter.tenants)] {
        match names {
            Names::All => {}
            Names::Only(names) if names.is_empty() => sql.push_str(&format!(" AND {column} IS NULL")),
            Names::Only(names) => {
                values.push(names);
                sql.push_str(&format!(" AND {column} = ANY (${}::text[])", values.len()));
            }
        }
    }
    if filter.of_applications {
        sql.push_str(" AND application IS NOT NULL");
    }
    let texts = filter.texts();
    for (column, value) in &texts {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }
    let numbers = [("at >= $", filter.from.map(|m| m.0)), ("at < $", filter.to.map(|m| m.0))];
    for (condition, value) in &numbers {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" AND {condition}{}", values.len()));
        }
    }
    let before = filter.before.map(|b| (b.at.0, rules::int(b.n)));
    if let Some((at, n)) = &before {
        values.extend([at as Param<'_>, n]);
        sql.push_str(&format!(" AND (at, n) < (${}, ${})", values.len() - 1, values.len()));
    }
    sql.push_str(" ORDER BY at DESC, n DESC LIMIT $1");
    connections.read_once(&sql, &values).await?.iter().map(read).collect()
}

/// At most so many, the oldest first.
pub(super) async fn forget(connections: &Connections, older_than: Duration) -> Result<u64, Broken> {
    let sql = "WITH first AS MATERIALIZED (SELECT n FROM audit \
                 WHERE at <= (SELECT greatest(ledger_now(), $1::bigint) - $2::bigint) ORDER BY at, n LIMIT $3), \
               gone AS (DELETE FROM audit a USING first WHERE a.n = first.n RETURNING 1) \
               SELECT count(*) FROM gone";
    let params: [Param<'_>; 3] = [&connections.floor(), &row::distance(older_than), &FORGOTTEN];
    let rows = connections.write(sql, &params).await?;
    Ok(rows.first().map(|r| get::<i64>(r, 0)).transpose()?.unwrap_or_default().unsigned_abs())
}

const PAGE: &str = concat!("SELECT n, ", columns!(), " FROM audit WHERE n > $1 ORDER BY n LIMIT 500");

/// All of them, page by page.
pub(super) async fn export(c: &mut Connection, to: &Sender<Sent>) -> Result<Result<(), Gone>, Broken> {
    let mut after = 0_i64;
    loop {
        let rows = c.query(PAGE, &[&after], Effect::None).await?;
        let Some(last) = rows.last() else { return Ok(Ok(())) };
        after = get(last, 0)?;
        for r in &rows {
            if give(to, read(r).map(Record::Audit)).await.is_err() {
                return Ok(Err(Gone));
            }
        }
    }
}

/// Every row can be read.
pub(super) async fn check(c: &mut Connection, out: &mut Vec<Problem>) -> Result<(), Broken> {
    let mut after = 0_i64;
    loop {
        let rows = c.query(PAGE, &[&after], Effect::None).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = get(last, 0)?;
        let broken = rows.iter().filter_map(|r| read(r).err());
        out.extend(broken.map(|e| Problem::of("audit", &e.told())));
    }
}

fn read(r: &Row) -> Result<Audit, Broken> {
    let mut texts = [None; 10];
    for (nth, text) in texts.iter_mut().enumerate() {
        *text = get(r, nth + 2)?;
    }
    let (n, at) = (get::<i64>(r, 0)?.unsigned_abs(), Millis(get(r, 1)?));
    Audit::read(n, at, Texts(texts)).map_err(|e| unreadable(&format!("row {n} of the audit"), e))
}
