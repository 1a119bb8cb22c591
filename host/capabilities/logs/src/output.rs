//! Where readers put what they read: into one stream, bounded by bytes, or into a hub.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec;

use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::LogLine;
use crate::hub::Hub;

/// Batches, each of what came at once.
const BATCHES: usize = 64;
/// KiB that one stream holds at most; a single batch may be larger, by one line at most.
const ROOM: u32 = 512;
/// What an item takes beside its text.
const BESIDE: usize = 128;

/// Nobody reads any more.
#[derive(Debug)]
pub(crate) struct Closed;

/// What a reader tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A line, or a piece of a long one.
    Line {
        line: LogLine,
        /// Its time stamp, since 1970.
        nanos: i64,
        /// The line begins here.
        first: bool,
        /// The line ends here.
        last: bool,
        /// The time stamp is its own, not that of the line before.
        counts: bool,
    },
    Gap {
        line: LogLine,
        /// The newest time stamp before it.
        after: Option<i64>,
    },
    /// From here on the container's run with so many restarts before it.
    Run(u32),
}

impl Item {
    /// Bytes that it takes, about.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Line { line, .. } | Self::Gap { line, .. } => line.text().len() + BESIDE,
            Self::Run(_) => BESIDE,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Output {
    Stream { batches: mpsc::Sender<Batch>, room: Arc<Semaphore> },
    Hub(Arc<Hub>),
}

/// What waits to be read, with its room.
pub(crate) struct Batch {
    items: vec::IntoIter<Item>,
    bytes: usize,
    _room: OwnedSemaphorePermit,
}

impl Batch {
    fn new(items: Vec<Item>, bytes: usize, room: OwnedSemaphorePermit) -> Self {
        queued(bytes as f64);
        Self { items: items.into_iter(), bytes, _room: room }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        queued(-(self.bytes as f64));
    }
}

impl Output {
    /// Waits for room: a slow reader holds the cluster's streams back.
    pub(crate) async fn send(&self, items: Vec<Item>) -> Result<(), Closed> {
        if items.is_empty() {
            return Ok(());
        }
        match self {
            Self::Hub(hub) => {
                hub.tell(items).await;
                Ok(())
            }
            Self::Stream { batches, room } => {
                let bytes: usize = items.iter().map(Item::size).sum();
                let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(ROOM).min(ROOM);
                let permit = room.clone().acquire_many_owned(kib).await.map_err(|_| Closed)?;
                let lines = items.iter().filter(|i| matches!(i, Item::Line { .. })).count();
                metrics::counter!("sutler_log_lines_total").increment(lines as u64);
                batches.send(Batch::new(items, bytes, permit)).await.map_err(|_| Closed)
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Stream { batches, .. } => batches.is_closed(),
            Self::Hub(_) => false,
        }
    }

    pub(crate) async fn closed(&self) {
        match self {
            Self::Stream { batches, .. } => batches.closed().await,
            // Its last follower ends its reader.
            Self::Hub(_) => std::future::pending().await,
        }
    }
}

/// The stream that is handed out. It owns the tasks behind it: dropped, it ends them and their requests.
pub(crate) struct LogStream {
    batches: mpsc::Receiver<Batch>,
    now: Option<Batch>,
    tasks: JoinSet<()>,
}

pub(crate) fn channel() -> (Output, LogStream) {
    let (tx, rx) = mpsc::channel(BATCHES);
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let stream = LogStream { batches: rx, now: None, tasks: JoinSet::new() };
    (Output::Stream { batches: tx, room }, stream)
}

impl LogStream {
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}

impl Stream for LogStream {
    type Item = LogLine;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LogLine>> {
        loop {
            match self.now.as_mut().and_then(|batch| batch.items.next()) {
                Some(Item::Line { line, .. } | Item::Gap { line, .. }) => return Poll::Ready(Some(line)),
                Some(Item::Run(_)) => continue,
                None => {}
            }
            self.now = None;
            match self.batches.poll_recv(cx) {
                Poll::Ready(Some(batch)) => self.now = Some(batch),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn queued(more: f64) {
    metrics::gauge!("sutler_log_queued_bytes", "of" => "followers").increment(more);
}
