//! Logs of containers on the Docker daemon, over restarts, replacements and cuts, each line once.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use sutler_containers::{Error as DockerError, Log, LogQuery, Now};

use crate::line::Cause;
use crate::output::{self, Closed, Item, Output};
use crate::parse::{SECOND, Stamp, stamped};
use crate::resume::{Resume, Verdict};
use crate::{Error, LogLine, Since, StreamOptions};

/// Of a longer line the rest is left out.
const MAX_LINE: usize = 1 << 20;
/// A container that does not run is looked at this often.
const LOOK: Duration = Duration::from_secs(2);
/// How often a container has to be found still before its log is over: a replaced one is back sooner.
const STILL: u32 = 3;
/// Tries without a new line before a gap is told.
const TRIES: u32 = 5;

/// # Errors
/// `NotFound` where the options name another container; `Other` with code `not-supported` for `previous`.
pub(crate) fn stream(logs: Vec<Log>, options: &StreamOptions) -> Result<BoxStream<'static, LogLine>, Error> {
    if options.previous {
        return Err(Error::Other {
            code: "not-supported",
            message: "Docker keeps the runs of a container in one log; leave previous out, and read it from the time that matters"
                .into(),
        });
    }
    let named = |log: &Log| [&options.pod, &options.container].into_iter().flatten().all(|n| n == log.name());
    let logs: Vec<Log> = logs.into_iter().filter(named).collect();
    if logs.is_empty() {
        return Err(Error::NotFound);
    }
    let (output, mut stream) = output::channel();
    for log in logs {
        let reader = Reader::new(log, options.clone(), output.clone());
        stream.spawn(async move {
            // Closed: nobody reads any more.
            let _ = reader.run().await;
        });
    }
    Ok(stream.boxed())
}

struct Reader {
    log: Log,
    options: StreamOptions,
    output: Output,
    resume: Resume,
    /// Bytes that may still be delivered.
    budget: Option<u64>,
    /// Nanoseconds since 1970; what is older was not asked for.
    from: Option<i64>,
    /// The container whose log was read last.
    before: Option<String>,
}

enum End {
    Clean,
    /// All that was asked for is out.
    Done,
    Broken(DockerError),
    Lost {
        next: String,
    },
}

/// A line whose pieces have not all come, of stdout or stderr.
#[derive(Default)]
struct Open {
    line: Option<(Stamp, bool)>,
    text: BytesMut,
}

impl Reader {
    fn new(log: Log, options: StreamOptions, output: Output) -> Self {
        let from = match &options.since {
            Some(Since::Ago(ago)) => {
                chrono::Utc::now().timestamp_nanos_opt().map(|now| now.saturating_sub(nanos(*ago)))
            }
            since => since.as_ref().and_then(Since::nanos),
        };
        Self {
            budget: options.limit_bytes,
            log,
            options,
            output,
            resume: Resume::default(),
            from,
            before: None,
        }
    }

    async fn run(mut self) -> Result<(), Closed> {
        let (mut still, mut failed) = (0, 0);
        loop {
            let before = self.resume.last().map(str::to_owned);
            let (end, lives) = match self.log.now().await {
                Ok(Now::Gone) if !self.options.follow => return Ok(()),
                Ok(Now::Gone) => {
                    self.pause(LOOK).await?;
                    continue;
                }
                Ok(Now::Lives { id }) => (self.read(id, self.options.follow).await?, true),
                Ok(Now::Still { id }) => (self.read(id, false).await?, false),
                Err(e) => (End::Broken(e), true),
            };
            let told = self.resume.last() != before.as_deref();
            failed = if told { 0 } else { failed + 1 };
            match end {
                End::Done => return Ok(()),
                End::Lost { next } => {
                    self.before = None;
                    self.gap(
                        Some(next),
                        Cause::Rotated,
                        "the log was rotated while the connection was cut".into(),
                    )
                    .await?;
                    continue;
                }
                End::Clean if !self.options.follow => return Ok(()),
                End::Clean => {}
                // Removed in this moment.
                End::Broken(DockerError::NotFound) => {}
                End::Broken(e) if failed == TRIES => {
                    self.gap(None, Cause::Unreadable, e.to_string()).await?;
                    if !self.options.follow {
                        return Ok(());
                    }
                }
                End::Broken(_) => {}
            }
            still = if lives { 0 } else { still + 1 };
            if still >= STILL {
                return Ok(());
            }
            let pause = if lives { Duration::from_millis(250) * failed.clamp(1, 8) } else { LOOK };
            self.pause(pause).await?;
        }
    }

    /// Nobody's reading ends it.
    async fn pause(&self, pause: Duration) -> Result<(), Closed> {
        tokio::select! {
            () = self.output.closed() => Err(Closed),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    fn query(&self, follow: bool) -> LogQuery {
        match self.resume.since_second() {
            Some(second) => LogQuery { follow, since: Some(second), tail: None },
            None => LogQuery {
                follow,
                since: self.from.map(|nanos| nanos.div_euclid(SECOND).max(1)),
                tail: self.options.tail_lines,
            },
        }
    }

    /// One request, to its end.
    async fn read(&mut self, id: String, follow: bool) -> Result<End, Closed> {
        self.resume.begin(self.before.as_ref() == Some(&id));
        let opened = self.log.read(&id, &self.query(follow)).await;
        self.before = Some(id);
        let mut pieces = match opened {
            Ok(pieces) => pieces,
            Err(e) => return Ok(End::Broken(e)),
        };
        let mut open = [Open::default(), Open::default()];
        loop {
            let piece = tokio::select! {
                () = self.output.closed() => return Err(Closed),
                piece = pieces.next() => piece,
            };
            let (stderr, bytes) = match piece {
                Some(Ok(piece)) => piece,
                Some(Err(e)) => return Ok(End::Broken(e)),
                None => break,
            };
            let [out, err] = &mut open;
            if let Some(end) = self.take(if stderr { err } else { out }, &bytes).await? {
                return Ok(end);
            }
        }
        // The last line of a container that ended may lack its newline.
        if !follow {
            for mut rest in open {
                if rest.line.is_some()
                    && let Some(end) = self.deliver(&mut rest).await?
                {
                    return Ok(end);
                }
            }
        }
        Ok(End::Clean)
    }

    /// A piece of a line; each has a time stamp of its own, and the first one's counts.
    async fn take(&mut self, open: &mut Open, piece: &Bytes) -> Result<Option<End>, Closed> {
        let (stamp, text) = match stamped(piece) {
            Some((stamp, text)) => (Some(stamp), text),
            None => (None, &piece[..]),
        };
        let text_only = text.strip_suffix(b"\n").unwrap_or(text);
        if open.line.is_none() {
            let Some(stamp) = stamp else { return Ok(None) };
            let wanted = self.from.is_none_or(|from| from <= stamp.nanos);
            let deliver = match self.resume.admit(&stamp, text_only) {
                _ if !wanted => false,
                Verdict::Deliver => true,
                Verdict::Drop => false,
                Verdict::Lost => return Ok(Some(End::Lost { next: stamp.text.to_string() })),
            };
            open.line = Some((stamp, deliver));
        }
        if open.text.len() + text_only.len() <= MAX_LINE {
            open.text.extend_from_slice(text_only);
        }
        if text_only.len() == text.len() {
            return Ok(None);
        }
        self.deliver(open).await
    }

    async fn deliver(&mut self, open: &mut Open) -> Result<Option<End>, Closed> {
        let text = open.text.split();
        let Some((stamp, true)) = open.line.take() else { return Ok(None) };
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if let Some(left) = &mut self.budget {
            let room = usize::try_from(*left).unwrap_or(usize::MAX);
            *left = left.saturating_sub(text.len() as u64 + 1);
            if room < text.len() {
                text.truncate((0..=room).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default());
            }
        }
        self.resume.delivered(&stamp);
        let (pod, container) = (self.log.name().into(), self.log.name().into());
        let line = LogLine::Line { pod, container, timestamp: stamp.text, text: text.into() };
        let item = Item::Line { line, nanos: stamp.nanos, first: true, last: true, counts: true };
        self.output.send(vec![item]).await?;
        Ok((self.budget == Some(0)).then_some(End::Done))
    }

    async fn gap(&self, to: Option<String>, cause: Cause, reason: String) -> Result<(), Closed> {
        cause.count();
        let (pod, container) = (self.log.name().into(), self.log.name().into());
        let from = self.resume.last().map(str::to_owned);
        let line = LogLine::Gap { pod, container, from, to, reason };
        self.output.send(vec![Item::Gap { line, after: self.resume.last_nanos() }]).await
    }
}

fn nanos(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}
