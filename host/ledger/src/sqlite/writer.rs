//! The one thread that writes. What is queued while a commit is on its way goes into the next one: one sync of the disk
//! for all, and one's failure harms no other.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::broken::{self, Broken};
use super::claim;
use super::desk::Desk;
use crate::wake::Wake;
use crate::{LedgerError, failpoint};

/// At most so many pieces wait; further callers wait for room.
const QUEUE: usize = 1024;
/// At most so many pieces share a commit.
const BATCH: usize = 256;

/// A piece of work. It may run twice: when its commit found the disk full, it is tried again alone, and when another
/// piece was refused half-way, all are run again.
trait Piece: Send {
    fn run(&mut self, conn: &Connection, desk: &mut Desk) -> Result<(), Broken>;
    /// Gives the answer: what `run` had, or why nothing came of it.
    fn answer(&mut self, outcome: Result<(), LedgerError>);
}

struct Work<T, F> {
    work: F,
    got: Option<Result<T, LedgerError>>,
    answer: Option<oneshot::Sender<Result<T, LedgerError>>>,
}

impl<T: Send, F> Piece for Work<T, F>
where
    F: FnMut(&Connection, &mut Desk) -> Result<T, Broken> + Send,
{
    fn run(&mut self, conn: &Connection, desk: &mut Desk) -> Result<(), Broken> {
        match (self.work)(conn, desk) {
            Ok(got) => {
                self.got = Some(Ok(got));
                Ok(())
            }
            Err(Broken::Refused(e)) => {
                self.got = Some(Err(e.clone()));
                Err(Broken::Refused(e))
            }
            Err(e) => Err(e),
        }
    }
    fn answer(&mut self, outcome: Result<(), LedgerError>) {
        let nothing = || Err(LedgerError::Unavailable("the work was not done".into()));
        let got = match outcome {
            Ok(()) => self.got.take().unwrap_or_else(nothing),
            Err(e) => Err(e),
        };
        if let Some(to) = self.answer.take() {
            // A caller that has gone does not undo the write.
            let _ = to.send(got);
        }
    }
}

/// Moves due jobs on after a claim that could not move them all.
struct Promotion(Duration);

impl Piece for Promotion {
    fn run(&mut self, conn: &Connection, desk: &mut Desk) -> Result<(), Broken> {
        desk.wake |= claim::promote(conn, desk, self.0)?;
        Ok(())
    }
    fn answer(&mut self, _: Result<(), LedgerError>) {}
}

/// Opens the writing connection, at the start and after it broke.
pub(super) type Opener = Box<dyn Fn() -> Result<Connection, LedgerError> + Send>;

/// The way to the writer's thread. Dropping it lets the thread finish what is queued, and joins it.
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Box<dyn Piece>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        conn: Connection,
        opener: Opener,
        desk: Desk,
        wake: Arc<Wake>,
    ) -> Result<Self, LedgerError> {
        let (queue, pieces) = mpsc::channel(QUEUE);
        let mut bench = Bench { conn: Some(conn), opener, desk, wake };
        let thread =
            std::thread::Builder::new().name("ledger-writer".into()).spawn(move || bench.serve(pieces));
        let thread =
            thread.map_err(|e| LedgerError::Open(format!("the ledger's writer cannot start: {e}")))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection, &mut Desk) -> Result<T, Broken> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let stopped = || LedgerError::Unavailable("the ledger's writer has stopped".into());
        let (answer, answered) = oneshot::channel();
        let piece = Box::new(Work { work, got: None, answer: Some(answer) });
        self.queue.as_ref().ok_or_else(stopped)?.send(piece).await.map_err(|_| stopped())?;
        // The piece was taken: without an answer nobody knows what became of it.
        answered.await.unwrap_or_else(|_| Err(LedgerError::Unknown("the ledger's writer has stopped".into())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why a batch was not committed.
enum Failed {
    /// Nothing of it is in the database.
    Nothing {
        why: LedgerError,
        full: bool,
    },
    Unknown(LedgerError),
}

struct Bench {
    conn: Option<Connection>,
    opener: Opener,
    desk: Desk,
    wake: Arc<Wake>,
}

impl Bench {
    fn serve(&mut self, mut pieces: mpsc::Receiver<Box<dyn Piece>>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            match self.desk.behind.take() {
                Some(takeover_after) => batch.push(Box::new(Promotion(takeover_after)) as Box<dyn Piece>),
                None => match pieces.blocking_recv() {
                    Some(first) => batch.push(first),
                    None => return,
                },
            }
            while batch.len() < BATCH
                && let Ok(next) = pieces.try_recv()
            {
                batch.push(next);
            }
            self.commit(&mut batch);
            batch.clear();
        }
    }

    fn commit(&mut self, batch: &mut [Box<dyn Piece>]) {
        failpoint("sqlite-before-begin");
        let outcome = match self.attempt(batch) {
            Err(Failed::Nothing { full: true, .. }) if batch.len() > 1 => {
                for one in batch.chunks_mut(1) {
                    self.commit(one);
                }
                return;
            }
            Ok(()) => Ok(()),
            Err(Failed::Nothing { why, .. } | Failed::Unknown(why)) => Err(why),
        };
        if let Err(e) = &outcome {
            // The next claim finds out again.
            self.desk.behind = None;
            tracing::error!(event = "ledger-write-failed", pieces = batch.len(), error = %e);
        }
        for piece in batch {
            piece.answer(outcome.clone());
        }
        if std::mem::take(&mut self.desk.wake) && outcome.is_ok() {
            self.wake.fire();
        }
        failpoint("sqlite-after-answer");
    }

    /// The batch in one transaction.
    fn attempt(&mut self, batch: &mut [Box<dyn Piece>]) -> Result<(), Failed> {
        let nothing = |why| Failed::Nothing { why, full: false };
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => (self.opener)().map_err(|e| nothing(unavailable(e)))?,
        };
        #[cfg(feature = "failpoints")]
        super::trouble::said(&conn).map_err(|e| nothing(broken::told(&e)))?;
        let mut ran = within(&conn, batch, &mut self.desk, false);
        if let Ok(false) = ran {
            // Rare, and dearer: each piece in a savepoint of its own.
            ran = conn.execute_batch("ROLLBACK").and_then(|()| within(&conn, batch, &mut self.desk, true));
        }
        let (got, uncertain) = match ran {
            Ok(_) => {
                failpoint("sqlite-before-commit");
                let got = conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([]));
                failpoint("sqlite-after-commit");
                (got.map(|_| ()), true)
            }
            Err(e) => (Err(e), false),
        };
        let Err(e) = got else {
            self.conn = Some(conn);
            return Ok(());
        };
        let rolled_back = conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok();
        if rolled_back && !broken::needs_reopening(&e) {
            self.conn = Some(conn);
        }
        let why = broken::told(&e);
        if uncertain && broken::is_uncertain(&e) {
            return Err(Failed::Unknown(LedgerError::Unknown(e.to_string())));
        }
        Err(Failed::Nothing { full: broken::is_full(&e), why })
    }
}

/// Begins the transaction and runs the pieces in it; `false` where a piece was refused after it had written, so that
/// all of it has to be rolled back and run again, guarded.
fn within(
    conn: &Connection,
    batch: &mut [Box<dyn Piece>],
    desk: &mut Desk,
    guarded: bool,
) -> Result<bool, rusqlite::Error> {
    let run = |sql| conn.prepare_cached(sql).and_then(|mut s| s.execute([]));
    run("BEGIN IMMEDIATE")?;
    for piece in batch {
        if guarded {
            run("SAVEPOINT piece")?;
        }
        let before = conn.total_changes();
        match piece.run(conn, desk) {
            Ok(()) => {}
            Err(Broken::Refused(_)) if guarded => {
                run("ROLLBACK TO piece")?;
            }
            Err(Broken::Refused(_)) if conn.total_changes() == before => {}
            Err(Broken::Refused(_)) => return Ok(false),
            Err(Broken::Sqlite(e)) => return Err(e),
        }
        if guarded {
            run("RELEASE piece")?;
        }
        failpoint("sqlite-within-transaction");
    }
    Ok(true)
}

/// What cannot be opened again now may be later: the host goes on.
fn unavailable(e: LedgerError) -> LedgerError {
    match e {
        LedgerError::Open(why) => LedgerError::Unavailable(why),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Time;
    use super::*;
    use crate::{Clock, Millis};

    #[tokio::test]
    async fn a_refused_piece_leaves_nothing_and_the_others_of_its_commit_stay() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY)").unwrap();
        let opener: Opener = Box::new(|| Err(LedgerError::Open("not again".into())));
        let time = Arc::new(Time::new(Clock::from_fn(|| Millis(0)), Millis(0)));
        let writer = Writer::start(conn, opener, Desk::new(time), Arc::default()).unwrap();
        // The first piece holds the writer until all the others are queued, so that they share a commit.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        // Once: what shares a commit with a refused piece is run again.
        let mut wait = Some(wait);
        let first = writer.run(move |_, _| {
            let _ = wait.take().map(|w| w.recv());
            Ok(0)
        });
        let insert = |n: i64| {
            writer.run(move |conn, _| {
                conn.execute("INSERT INTO t VALUES (?1)", [n])?;
                if n % 2 == 0 { Err(LedgerError::Unreadable("no".into()).into()) } else { Ok(n) }
            })
        };
        let others = async {
            let all = futures::future::join_all((1..=9).map(insert));
            futures::pin_mut!(all);
            // One look at each queues it.
            assert!(futures::poll!(&mut all).is_pending());
            go.send(()).unwrap();
            all.await
        };
        let (_, got) = tokio::join!(first, others);
        for (n, got) in (1..).zip(got) {
            assert_eq!(got.is_ok(), n % 2 == 1, "{n}: {got:?}");
        }
        let all = |conn: &Connection, _: &mut Desk| {
            let mut statement = conn.prepare("SELECT n FROM t ORDER BY n")?;
            let all = statement.query_map([], |r| r.get(0))?;
            Ok(all.collect::<Result<Vec<i64>, _>>()?)
        };
        assert_eq!(writer.run(all).await.unwrap(), [1, 3, 5, 7, 9]);
    }
}
