//! One request of a reader: what is asked, and what becomes of each line that comes.

use std::sync::Arc;

use futures::StreamExt as _;
use sutler_kubernetes::LogQuery;

use super::{End, IDLE, Reader};
use crate::hub::Last;
use crate::line::since_seconds;
use crate::output::{Closed, Item};
use crate::parse::{Lines, Piece, Stamp, is_refusal, stamped};
use crate::resume::Verdict;
use crate::{LogLine, Since};

/// Bytes of lines that go out together, about.
const TOGETHER: usize = 32 << 10;

/// How much of a long line is out.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Its time stamp.
    of: i64,
    /// Pieces that went out.
    out: usize,
    /// Pieces of the present reading.
    here: usize,
}

impl Reader {
    pub(super) fn query(&self, previous: bool, follow: bool) -> LogQuery {
        let mut query = LogQuery {
            container: Some(self.key.container.clone()),
            follow,
            previous,
            timestamps: true,
            since_time: self.resume.since(),
            ..LogQuery::default()
        };
        if self.narrowed && query.since_time.is_none() {
            // Beyond this the API server cannot read it.
            let most = i64::MAX.unsigned_abs();
            query.tail_lines = self.options.tail_lines.map(|n| n.clamp(u64::from(self.silent), most));
            match &self.options.since {
                None => {}
                Some(Since::Time(time)) => query.since_time = Some(time.clone()),
                Some(Since::Ago(ago)) => {
                    query.since_seconds =
                        Some(since_seconds(ago.saturating_add(self.started.elapsed()).as_secs()));
                }
            }
        }
        query
    }

    /// One request, to its end.
    pub(super) async fn read(&mut self, previous: bool, follow: bool) -> End {
        let end = self.request(previous, follow).await;
        match self.deliver().await {
            Ok(()) => end,
            Err(Closed) => End::Done,
        }
    }

    async fn request(&mut self, previous: bool, follow: bool) -> End {
        let query = self.query(previous, follow);
        self.resume.begin(self.same_file);
        self.unfinished = None;
        let opening = self.cluster.log_stream(&self.key.namespace, &self.key.pod, &query);
        // The head of a stream that follows may come with the first line only.
        let mut chunks = match tokio::time::timeout(IDLE, opening).await {
            Ok(Ok(chunks)) => chunks,
            Ok(Err(e)) => return End::Refused(e),
            Err(_) => return End::Idle,
        };
        let mut lines = Lines::default();
        let mut current: Option<(Stamp, bool)> = None;
        loop {
            let chunk = match tokio::time::timeout(IDLE, chunks.next()).await {
                Err(_) => return End::Idle,
                Ok(Some(Err(e))) => return End::Broken(e.to_string()),
                Ok(Some(Ok(chunk))) => chunk,
                Ok(None) => {
                    self.unfinished = lines.finish();
                    // A kubelet's refusal may end without a newline.
                    return match self.unfinished.take_if(|p| p.first && is_refusal(&p.bytes)) {
                        Some(piece) => End::Broken(refusal(&piece.bytes)),
                        None => End::Clean,
                    };
                }
            };
            self.same_file = true;
            lines.push(&chunk);
            while let Some(piece) = lines.next() {
                if let Err(end) = self.take(piece, &mut current) {
                    return end;
                }
                if self.bytes > TOGETHER && self.deliver().await.is_err() {
                    return End::Done;
                }
            }
            if self.deliver().await.is_err() {
                return End::Done;
            }
        }
    }

    /// One line, or a piece of a long one: `current` is its time stamp, and whether it is delivered.
    fn take(&mut self, piece: Piece, current: &mut Option<(Stamp, bool)>) -> Result<(), End> {
        let mut text = &piece.bytes[..];
        let mut counts = true;
        if piece.first {
            match stamped(&piece.bytes) {
                Some((stamp, rest)) => {
                    text = rest;
                    let deliver = match self.resume.admit(&stamp, rest) {
                        Verdict::Deliver => true,
                        Verdict::Drop => false,
                        Verdict::Lost => return Err(End::Lost { next: stamp.text.to_string() }),
                    };
                    *current = Some((stamp, deliver));
                }
                None if is_refusal(&piece.bytes) || current.is_none() => {
                    return Err(End::Broken(refusal(&piece.bytes)));
                }
                // Belongs to the line before, whose time stamp is counted already.
                None => counts = false,
            }
        }
        let Some((stamp, true)) = current.as_ref().map(|(s, d)| (s.clone(), *d)) else { return Ok(()) };
        let Some(text) = self.within_budget(text, piece.last) else { return Err(End::Done) };
        let (first, last) = (piece.first && counts, piece.last);
        self.tell(stamp.text.clone(), stamp.nanos, text.into(), (first, last, counts));
        if last && counts {
            self.resume.delivered(&stamp);
        }
        if self.budget == Some(0) { Err(End::Done) } else { Ok(()) }
    }

    /// Puts a line beside those that go out together.
    fn tell(&mut self, timestamp: Arc<str>, nanos: i64, text: Arc<str>, how: (bool, bool, bool)) {
        let (first, last, counts) = how;
        let skipped = self.skip_piece(nanos, first, last);
        if last {
            self.last = Some(Last { nanos, text: text.clone() });
        }
        if skipped || self.silent {
            return;
        }
        let line =
            LogLine::Line { pod: self.pod.clone(), container: self.container.clone(), timestamp, text };
        let item = Item::Line { line, nanos, first, last, counts };
        self.bytes += item.size();
        self.pending.push(item);
    }

    /// Whether this piece of a long line went out before the line was cut off, or overtaken.
    pub(super) fn skip_piece(&mut self, nanos: i64, first: bool, last: bool) -> bool {
        if first {
            self.pieces.here = 0;
        }
        if (first && last) || self.pieces.of != nanos {
            self.pieces = Pieces { of: nanos, ..Pieces::default() };
        }
        self.pieces.here += 1;
        let skipped = self.pieces.here <= self.pieces.out;
        self.pieces.out = if last { 0 } else { self.pieces.out.max(self.pieces.here) };
        skipped
    }

    /// Sends what is told.
    pub(super) async fn deliver(&mut self) -> Result<(), Closed> {
        self.bytes = 0;
        self.output.send(std::mem::take(&mut self.pending)).await
    }

    /// The text as far as `limitBytes` goes, which counts texts and newlines; `None` where nothing of it is left.
    fn within_budget(&mut self, text: &[u8], last: bool) -> Option<String> {
        let mut text = text;
        if let Some(left) = &mut self.budget {
            if *left == 0 {
                return None;
            }
            let cut = usize::try_from(*left).ok().filter(|room| *room < text.len());
            if let Some(room) = cut {
                *left = 0;
                text = whole_characters(text.get(..room)?);
                if text.is_empty() {
                    return None;
                }
            } else {
                *left = left.saturating_sub(text.len() as u64 + u64::from(last));
            }
        }
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The last line of a log that does not end in a newline.
    pub(super) async fn flush(&mut self) -> Result<(), Closed> {
        let Some(piece) = self.unfinished.take() else { return Ok(()) };
        let mut current = None;
        // What cannot be read as a line is a time stamp that was cut.
        if piece.first {
            let _ = self.take(piece, &mut current);
        } else {
            let stamp = self.resume.last().unwrap_or_default().into();
            let nanos = self.resume.last_nanos().unwrap_or_default();
            if let Some(text) = self.within_budget(&piece.bytes, piece.last) {
                self.tell(stamp, nanos, text.into(), (false, true, false));
            }
        }
        self.deliver().await?;
        if self.output.is_closed() { Err(Closed) } else { Ok(()) }
    }
}

/// Without a character that is cut at the end: made readable, it would be longer than what was left.
fn whole_characters(text: &[u8]) -> &[u8] {
    let Some(start) = text.iter().rposition(|b| *b & 0xC0 != 0x80) else { return text };
    match std::str::from_utf8(text.get(start..).unwrap_or_default()) {
        Err(e) if e.error_len().is_none() => text.get(..start).unwrap_or_default(),
        _ => text,
    }
}

/// What the kubelet said instead of the log, shortened.
fn refusal(line: &[u8]) -> String {
    String::from_utf8_lossy(line.get(..200).unwrap_or(line)).into_owned()
}
