//! The schema, and which versions of it this binary can work with.

use tokio_postgres::Client;

use super::address::{Address, CONNECT};
use super::broken::words;
use crate::LedgerError;
use crate::rules::{self, Behind};

mod embedded {
    refinery::embed_migrations!("migrations/postgres");
}

/// Of several hosts that start at once one migrates, the others wait: "sutler" and a number, as bytes.
const LOCK: i64 = 0x7375_746c_6572_0000;

/// A session of its own: a migration may take longer than any statement of a host.
pub(super) async fn look(address: &Address, behind: Behind) -> Result<(), LedgerError> {
    let at = &address.shown;
    let lost = |e: tokio_postgres::Error| LedgerError::Unavailable(format!("{at}: {}", words(&e)));
    let connected = tokio::time::timeout(CONNECT, address.config.connect(address.tls.clone())).await;
    let silent = |_| LedgerError::Unavailable(format!("{at}: no answer within {} s", CONNECT.as_secs()));
    let (mut client, connection) = connected.map_err(silent)?.map_err(lost)?;
    let work = async {
        let done = bring(&mut client, at, behind).await;
        drop(client);
        done
    };
    // The connection ends when the client has gone; one that breaks is told by the client's errors.
    let (done, _) = tokio::join!(work, connection);
    done
}

async fn bring(client: &mut Client, at: &str, behind: Behind) -> Result<(), LedgerError> {
    let lost = |e: tokio_postgres::Error| LedgerError::Unavailable(format!("{at}: {}", words(&e)));
    let mut runner = embedded::migrations::runner();
    let known = runner.get_migrations().iter().map(refinery::Migration::version).max().unwrap_or_default();
    if version(client).await.map_err(lost)? == i64::from(known) {
        return Ok(());
    }
    client.batch_execute("SET statement_timeout = 0; SET lock_timeout = '60s'").await.map_err(lost)?;
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(lost)?;
    // Another host may have done it meanwhile.
    let found = version(client).await.map_err(lost)?;
    if found > i64::from(known) {
        return Err(LedgerError::Open(format!(
            "the ledger {at} was written by a newer version of sutler (schema {found}, this one knows {known}); \
             install that version again, or restore the backup from before the upgrade"
        )));
    }
    if found < i64::from(known) {
        if behind == Behind::Refuse {
            return Err(rules::older(at, found, i64::from(known)));
        }
        runner = runner.set_abort_divergent(true).set_abort_missing(true);
        let failed =
            |e| LedgerError::Open(format!("the ledger {at} cannot be brought to schema {known}: {e}"));
        runner.run_async(client).await.map_err(failed)?;
    }
    Ok(())
}

/// 0 for a database without a ledger.
async fn version(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let there = client.query_one("SELECT to_regclass('refinery_schema_history') IS NOT NULL", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    let sql = "SELECT coalesce(max(version), 0)::bigint FROM refinery_schema_history";
    client.query_one(sql, &[]).await?.try_get(0)
}
