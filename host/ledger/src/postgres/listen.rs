//! What other hosts write is heard of at once where the server can tell it; whoever waits also looks by itself, so
//! that nothing depends on it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio_postgres::AsyncMessage;

use super::address::{Address, CONNECT};
use super::broken::words;
use crate::wake::Wake;

/// A job that is due so soon is told to the other hosts. Telling has its price: the server lets one commit at a time
/// tell something.
pub(super) const SOON: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Goes on until it is aborted.
pub(super) async fn listen(address: Address, wake: Arc<Wake>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let why = match hear(&address, &wake, &mut pause).await {
            Ok(()) => "the server closed the connection".to_owned(),
            Err(e) => words(&e),
        };
        tracing::warn!(event = "ledger-listening-interrupted", server = address.shown, error = why);
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// One connection's life.
async fn hear(address: &Address, wake: &Wake, pause: &mut Duration) -> Result<(), tokio_postgres::Error> {
    let connecting = tokio::time::timeout(CONNECT, address.config.connect(address.tls.clone()));
    let Ok(connected) = connecting.await else { return Ok(()) };
    let (client, mut connection) = connected?;
    let mut messages = futures::stream::poll_fn(move |cx| connection.poll_message(cx));
    let mut listening = std::pin::pin!(client.batch_execute("LISTEN sutler_jobs"));
    let mut heard = false;
    loop {
        tokio::select! {
            begun = &mut listening, if !heard => {
                begun?;
                heard = true;
                *pause = FIRST_PAUSE;
                // What happened while nobody listened.
                wake.fire();
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(_))) => wake.fire(),
                Some(Ok(_)) => {}
                Some(Err(e)) => return Err(e),
                None => return Ok(()),
            },
        }
    }
}
