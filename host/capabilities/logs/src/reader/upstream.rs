//! One request of a reader: what is asked, and what becomes of each line that comes.

use futures::StreamExt as _;
use sutler_kubernetes::LogQuery;

use super::{End, IDLE, Reader};
use crate::Since;
use crate::output::Closed;
use crate::parse::{Lines, MAX_LINE, Piece, Stamp, is_refusal, stamped};
use crate::resume::Verdict;

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
            query.tail_lines = self.options.tail_lines;
            query.limit_bytes = self.budget;
            match &self.options.since {
                None => {}
                Some(Since::Time(time)) => query.since_time = Some(time.clone()),
                Some(Since::Ago(ago)) => {
                    query.since_seconds = Some((*ago + self.started.elapsed()).as_secs().max(1));
                }
            }
        }
        query
    }

    /// One request, to its end.
    pub(super) async fn read(&mut self, previous: bool, follow: bool) -> End {
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
                if let Err(end) = self.take(piece, &mut current).await {
                    return end;
                }
            }
        }
    }

    /// One line, or a piece of a long one: `current` is its time stamp, and whether it is delivered.
    async fn take(&mut self, piece: Piece, current: &mut Option<(Stamp, bool)>) -> Result<(), End> {
        let (mut text, mut head) = (&piece.bytes[..], 0);
        let mut counts = true;
        if piece.first {
            match stamped(&piece.bytes) {
                Some((stamp, rest)) => {
                    (text, head) = (rest, piece.bytes.len() - rest.len());
                    let deliver = match self.resume.admit(&stamp) {
                        Verdict::Deliver => true,
                        Verdict::Drop => false,
                        Verdict::Lost => return Err(End::Lost { next: stamp.text }),
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
        let Some(text) = self.within_budget(head, text, piece.last) else { return Err(End::Done) };
        self.line(stamp.text.clone(), text).await.map_err(|Closed| End::Done)?;
        if piece.last && counts {
            self.resume.delivered(&stamp);
        }
        if self.budget == Some(0) { Err(End::Done) } else { Ok(()) }
    }

    /// The text as far as `limitBytes` goes, which counts the time stamp (`head`) too; `None` where it is cut.
    fn within_budget(&mut self, head: usize, text: &[u8], last: bool) -> Option<String> {
        let mut text = text;
        if let Some(left) = &mut self.budget {
            let head = head as u64;
            if *left <= head {
                *left = 0;
                return None;
            }
            let room = usize::try_from(*left - head).unwrap_or(MAX_LINE);
            text = text.get(..room).unwrap_or(text);
            *left = left.saturating_sub(head + text.len() as u64 + u64::from(last));
        }
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// The last line of a log that does not end in a newline.
    pub(super) async fn flush(&mut self) -> Result<(), Closed> {
        let Some(piece) = self.unfinished.take() else { return Ok(()) };
        let mut current = None;
        // What cannot be read as a line is a time stamp that `limitBytes` cut.
        if piece.first {
            let _ = self.take(piece, &mut current).await;
        } else {
            let stamp = self.resume.last().unwrap_or_default().to_owned();
            self.line(stamp, String::from_utf8_lossy(&piece.bytes).into_owned()).await?;
        }
        if self.output.is_closed() { Err(Closed) } else { Ok(()) }
    }
}

/// What the kubelet said instead of the log, shortened.
fn refusal(line: &[u8]) -> String {
    String::from_utf8_lossy(line.get(..200).unwrap_or(line)).into_owned()
}
