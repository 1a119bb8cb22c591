//! Reading beside the writer: a few read-only connections, used on blocking threads.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::broken::Broken;
use super::open;
use super::place::Place;
use crate::LedgerError;

/// At most so many readings at once.
const MOST: usize = 8;

pub(super) struct Readers {
    place: Place,
    idle: Arc<Mutex<Vec<Connection>>>,
    places: Semaphore,
}

impl Readers {
    pub(super) fn new(place: Place) -> Self {
        Self { place, idle: Arc::default(), places: Semaphore::new(MOST) }
    }

    /// Runs `f` in a snapshot of the database.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T, Broken> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.one(|conn| snapshot(conn, f)).await
    }

    /// Runs `f`, which is one statement: that is a snapshot by itself.
    pub(super) async fn one<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Connection) -> Result<T, Broken> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let stopped = || LedgerError::Unavailable("the host is stopping".into());
        let _place = self.places.acquire().await.map_err(|_| stopped())?;
        let (idle, place) = (self.idle.clone(), self.place.clone());
        let read = move || {
            let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let conn = taken.map_or_else(|| open::reader(&place), Ok)?;
            let got = f(&conn);
            // A connection that failed is opened anew by the next.
            if !matches!(got, Err(Broken::Sqlite(_))) {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            }
            got.map_err(Broken::told)
        };
        tokio::task::spawn_blocking(read).await.map_err(|_| stopped())?
    }
}

pub(super) fn snapshot<T>(
    conn: &Connection,
    f: impl FnOnce(&Connection) -> Result<T, Broken>,
) -> Result<T, Broken> {
    let run = |sql| conn.prepare_cached(sql).and_then(|mut s| s.execute([]));
    run("BEGIN")?;
    let got = f(conn);
    // Nothing was written; a reading that failed keeps its own error.
    let ended = run("COMMIT");
    let got = got?;
    ended?;
    Ok(got)
}
