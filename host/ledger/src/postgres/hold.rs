//! Who uses the ledger: hosts share it, an import has it alone. The server keeps the lock as long as the session, so
//! that it goes with the process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_postgres::Client;

use super::address::{Address, CONNECT};
use super::broken::words;
use super::connections::Connections;
use super::open::Hold;
use crate::LedgerError;

/// "sutler" and a number, as bytes.
const LOCK: i64 = 0x7375_746c_6572_0002;
/// The pause before a lost session is replaced.
const AGAIN: Duration = Duration::from_secs(1);

/// Holds the ledger until it is aborted, and tells once whether it could at first. While a session that broke is
/// being replaced the ledger is barred; to whoever has it alone, for good, since others may have been at it.
pub(super) async fn hold(
    address: Address,
    hold: Hold,
    connections: Arc<Connections>,
    first: oneshot::Sender<Result<(), LedgerError>>,
) {
    let mut first = Some(first);
    loop {
        let at = &address.shown;
        let away = |why: String| LedgerError::Unavailable(format!("{at}: {why}"));
        let connecting = tokio::time::timeout(CONNECT, address.config.connect(address.tls.clone())).await;
        let (held, got) = match connecting {
            Err(_) => (false, Err(away(format!("no answer within {} s", CONNECT.as_secs())))),
            Ok(Err(e)) => (false, Err(away(words(&e)))),
            Ok(Ok((client, connection))) => {
                let mut held = false;
                let work = async {
                    let got = take(&client, at, hold).await;
                    held = got.is_ok();
                    connections.bar(!held);
                    tell(&mut first, got);
                    if held {
                        // As long as the connection.
                        std::future::pending::<()>().await;
                    }
                };
                let ended = tokio::select! {
                    () = work => Ok(()),
                    ended = connection => ended.map_err(|e| away(words(&e))),
                };
                (held, ended)
            }
        };
        connections.bar(true);
        tell(&mut first, got);
        match (held, hold) {
            (true, Hold::Alone) => return,
            (true, _) => {}
            (false, _) => tokio::time::sleep(AGAIN).await,
        }
    }
}

fn tell(first: &mut Option<oneshot::Sender<Result<(), LedgerError>>>, got: Result<(), LedgerError>) {
    match (first.take(), got) {
        // Who opened the ledger may have gone.
        (Some(first), got) => drop(first.send(got)),
        (None, Err(e)) => tracing::warn!(event = "ledger-not-held", error = %e),
        (None, Ok(())) => {}
    }
}

async fn take(client: &Client, at: &str, hold: Hold) -> Result<(), LedgerError> {
    let (sql, taken) = match hold {
        Hold::Nothing => return Ok(()),
        Hold::Serving => (
            "SELECT pg_try_advisory_lock_shared($1)",
            "an import into it is under way; start the host when it has ended",
        ),
        Hold::Alone => (
            "SELECT pg_try_advisory_lock($1)",
            "a host serves it or another import is under way; stop every host of it first",
        ),
    };
    let got = client.query_one(sql, &[&LOCK]).await.and_then(|row| row.try_get::<_, bool>(0));
    match got {
        Ok(true) => Ok(()),
        Ok(false) => Err(LedgerError::Open(format!("the ledger {at} is in use: {taken}"))),
        Err(e) => Err(LedgerError::Unavailable(format!("{at}: {}", words(&e)))),
    }
}
