//! Where readers put their lines: bounded by number and by bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::LogLine;

const LINES: usize = 256;
/// KiB that one stream holds at most; a line is at most 1 MiB.
const ROOM: u32 = 4096;

/// Nobody reads any more.
pub(crate) struct Closed;

type Item = (LogLine, OwnedSemaphorePermit);

#[derive(Clone)]
pub(crate) struct Output {
    lines: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
}

impl Output {
    /// Waits for room: a slow reader holds the cluster's streams back.
    pub(crate) async fn send(&self, line: LogLine) -> Result<(), Closed> {
        let bytes = match &line {
            LogLine::Line { text, .. } => text.len(),
            LogLine::Gap { .. } => 0,
        };
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(ROOM).min(ROOM);
        let permit = self.room.clone().acquire_many_owned(kib).await.map_err(|_| Closed)?;
        self.lines.send((line, permit)).await.map_err(|_| Closed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lines.is_closed()
    }

    pub(crate) async fn closed(&self) {
        self.lines.closed().await;
    }
}

/// The stream that is handed out. It owns the tasks behind it: dropped, it ends them and their requests.
pub(crate) struct LogStream {
    lines: mpsc::Receiver<Item>,
    tasks: JoinSet<()>,
}

pub(crate) fn channel() -> (Output, LogStream) {
    let (tx, rx) = mpsc::channel(LINES);
    let room = Arc::new(Semaphore::new(ROOM as usize));
    (Output { lines: tx, room }, LogStream { lines: rx, tasks: JoinSet::new() })
}

impl LogStream {
    pub(crate) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}

impl Stream for LogStream {
    type Item = LogLine;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LogLine>> {
        self.lines.poll_recv(cx).map(|item| item.map(|(line, _)| line))
    }
}
