//! One container's log, over cuts, restarts and rotations, each line once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sutler_kubernetes::{Cluster, Container, Error};

use crate::hub::{Follower, Last};
use crate::line::Cause;
use crate::output::{Closed, Item, Output};
use crate::parse::Piece;
use crate::resume::Resume;
use crate::{Since, StreamOptions};

mod gap;
mod look;
mod shared;
mod upstream;

use look::{ANEW_AFTER_CUT, ANEW_AFTER_END, LOOK, Look};

/// A stream that says nothing for so long is opened anew: kubelets lose a rotated file, balancers forget connections.
const IDLE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Tries without a single new line before a gap is told.
const TRIES: u32 = 5;
const UNREAD: &str = "the log could not be read to its end";

/// Which container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) container: String,
}

pub(crate) struct Reader {
    cluster: Cluster,
    key: Key,
    pod: Arc<str>,
    container: Arc<str>,
    options: StreamOptions,
    output: Output,
    resume: Resume,
    restarts: u32,
    started: Instant,
    /// Bytes that may still be delivered. The kubelet would count the time stamps, which nobody asked for.
    budget: Option<u64>,
    /// The caller's tail and since hold for the first run that is read only.
    narrowed: bool,
    /// The next request reads the file that was read before.
    same_file: bool,
    /// The last line, without its newline yet.
    unfinished: Option<Piece>,
    gap_told: bool,
    /// The caller's `since`, where it is a time (nanoseconds since 1970).
    since: Option<i64>,
    /// What goes out together, and its bytes.
    pending: Vec<Item>,
    bytes: usize,
    pieces: upstream::Pieces,
    /// The last line that was read, in the order of the log.
    last: Option<Last>,
    /// Reads the last line only to know where the log ends.
    silent: bool,
    /// What is written now comes by the container's hub, not by a request of its own.
    follower: Option<Follower>,
}

/// Why a request's lines ended.
#[derive(Debug)]
enum End {
    /// The upstream ended it.
    Clean,
    /// The connection broke, or the kubelet said no in the body.
    Broken(String),
    /// The API server's answer was an error.
    Refused(Error),
    /// A line came that does not join on.
    Lost { next: String },
    /// Nothing was said for long.
    Idle,
    /// The hub went on without this reader, or began after what it has.
    Behind,
    /// All that was asked for is delivered, or nobody reads any more.
    Done,
}

impl End {
    /// What went wrong, where something did.
    fn why(&self) -> Option<String> {
        match self {
            Self::Broken(why) => Some(why.clone()),
            Self::Refused(e) => Some(e.to_string()),
            Self::Clean | Self::Lost { .. } | Self::Idle | Self::Behind | Self::Done => None,
        }
    }

    /// The container has no log: it never ran, or its log is removed.
    const fn is_no_log(&self) -> bool {
        matches!(self, Self::Refused(Error::Invalid(_) | Error::NotFound))
    }
}

impl Reader {
    /// `late`: the container came while the stream was already open, so all it wrote is new.
    pub(crate) fn new(
        cluster: Cluster,
        key: Key,
        container: &Container,
        options: &StreamOptions,
        output: Output,
        late: bool,
    ) -> Self {
        Self {
            pod: key.pod.as_str().into(),
            container: key.container.as_str().into(),
            cluster,
            key,
            options: options.clone(),
            output,
            resume: Resume::default(),
            restarts: container.restarts,
            started: Instant::now(),
            budget: options.limit_bytes,
            narrowed: !late,
            same_file: true,
            unfinished: None,
            gap_told: false,
            since: options.since.as_ref().and_then(Since::nanos),
            pending: Vec::new(),
            bytes: 0,
            pieces: upstream::Pieces::default(),
            last: None,
            silent: false,
            follower: None,
        }
    }

    /// The same, which takes what is written from now on from its container's hub.
    pub(crate) fn following(self, follower: Follower) -> Self {
        Self { follower: Some(follower), ..self }
    }

    /// Reads to the end, or until nobody reads any more.
    pub(crate) async fn run(mut self) {
        let output = self.output.clone();
        // A reader that waits for a quiet container must notice that its stream is gone.
        tokio::select! {
            () = output.closed() => {}
            _ = self.go() => {}
        }
    }

    async fn go(&mut self) -> Result<(), Closed> {
        if self.options.follow && !self.options.previous { self.follow().await } else { self.once().await }
    }

    /// Not followed: to the end of what is there.
    async fn once(&mut self) -> Result<(), Closed> {
        match self.drain(self.options.previous).await? {
            End::Clean | End::Done => self.flush().await,
            End::Refused(Error::NotFound) => self.gap(None, Cause::Gone, "the pod is gone".into()).await,
            end => self.gap(None, Cause::Unreadable, end.why().unwrap_or_else(|| UNREAD.into())).await,
        }
    }

    /// Reads a log that is not written any more, or what there is of one, to its end; answers how the last try ended.
    async fn drain(&mut self, previous: bool) -> Result<End, Closed> {
        let mut attempt = 0;
        loop {
            let end = self.read(previous, false).await;
            attempt += 1;
            match end {
                End::Clean | End::Done => return Ok(end),
                End::Refused(ref e) if !e.retryable() => return Ok(end),
                _ if attempt == TRIES => return Ok(end),
                End::Lost { next } => self.rotated(next).await?,
                End::Refused(_) | End::Broken(_) | End::Idle | End::Behind => {
                    tokio::time::sleep(pause(attempt - 1)).await;
                }
            }
            self.unfinished = None;
        }
    }

    async fn follow(&mut self) -> Result<(), Closed> {
        let mut rounds = 0;
        // Whether the last request that told anything was ended by the upstream.
        let mut intact = true;
        loop {
            let before = self.resume.last().map(str::to_owned);
            let end =
                if self.follower.is_some() { self.shared().await } else { self.read(false, true).await };
            if self.resume.last() == before.as_deref() {
                rounds += 1;
            } else {
                rounds = 0;
                self.gap_told = false;
            }
            match &end {
                End::Done => return self.flush().await,
                End::Refused(Error::Forbidden(why)) => {
                    return self.gap(None, Cause::Unreadable, why.clone()).await;
                }
                _ => {}
            }
            let why = end.why();
            let clean = matches!(end, End::Clean);
            let look = if matches!(end, End::Lost { .. }) {
                self.anew(if intact { ANEW_AFTER_END } else { ANEW_AFTER_CUT }).await?
            } else {
                self.look(clean).await?
            };
            if !matches!(end, End::Refused(_)) {
                intact = clean;
            }
            match look {
                Look::Gone => return self.gone(intact, why).await,
                Look::Over if clean || matches!(end, End::Behind) => return self.settle().await,
                // All was read before its log was removed.
                Look::Over if end.is_no_log() && intact && self.resume.last().is_some() => return Ok(()),
                Look::Over if end.is_no_log() => {
                    return self.gap(None, Cause::Unreadable, why.unwrap_or_default()).await;
                }
                Look::Over if rounds >= TRIES => {
                    return self.gap(None, Cause::Unreadable, why.unwrap_or_else(|| UNREAD.into())).await;
                }
                Look::Waiting if clean => {
                    self.settle().await?;
                    self.await_run().await?;
                }
                Look::Restarted => {
                    rounds = 0;
                    continue;
                }
                Look::Over | Look::Waiting | Look::Running | Look::Unknown => {}
            }
            rounds = self.pause_after(end, look, rounds).await?;
        }
    }

    /// Before the next request of a log that is followed: what it must tell, and how long it waits.
    async fn pause_after(&mut self, end: End, look: Look, mut rounds: u32) -> Result<u32, Closed> {
        self.unfinished = None;
        let why = end.why();
        match end {
            End::Lost { next } => self.rotated(next).await?,
            End::Idle => {}
            End::Behind if rounds == 0 => {}
            // It waits to start, which is no failure.
            End::Refused(Error::Invalid(_)) if look == Look::Waiting => {
                rounds = rounds.min(TRIES - 2);
                tokio::time::sleep(pause(rounds).min(LOOK)).await;
            }
            _ => {
                if let (Some(why), TRIES..) = (why, rounds) {
                    self.gap_once(why).await?;
                }
                tokio::time::sleep(pause(rounds)).await;
            }
        }
        Ok(rounds)
    }

    async fn gone(&mut self, intact: bool, why: Option<String>) -> Result<(), Closed> {
        // Where not a single read worked, what it wrote may be lost.
        if intact && (why.is_none() || self.resume.last().is_some()) {
            return self.flush().await;
        }
        let why = why.unwrap_or_else(|| "its stream had gone silent".into());
        self.gap(None, Cause::Gone, format!("the pod is gone: {why}")).await
    }

    /// The container has ended, and so has its stream: reads once more, since the stream may have ended before it.
    async fn settle(&mut self) -> Result<(), Closed> {
        let unfinished = self.unfinished.take();
        let mut end = self.read(false, false).await;
        // Meanwhile it may run anew already.
        if matches!(end, End::Lost { .. }) && self.anew(ANEW_AFTER_END).await? == Look::Restarted {
            return Ok(());
        }
        if !matches!(end, End::Clean | End::Done) {
            end = self.drain(false).await?;
        }
        if !matches!(end, End::Clean | End::Done) {
            self.unfinished = unfinished;
        }
        self.flush().await
    }

    async fn restarted(&mut self, restarts: u32, clean: bool) -> Result<(), Closed> {
        let runs = restarts - self.restarts;
        self.restarts = restarts;
        if clean {
            self.flush().await?;
        }
        self.unfinished = None;
        if runs > 1 {
            let why =
                format!("the container was started {runs} times meanwhile; only its last two runs are kept");
            self.gap(None, Cause::Restarted, why).await?;
            self.same_file = false;
        }
        self.narrowed = self.narrowed && self.resume.last().is_none() && runs == 1;
        match self.drain(true).await? {
            End::Clean | End::Done => self.flush().await?,
            // Its end was read before.
            _ if clean => {}
            end => {
                let why = end.why().unwrap_or_else(|| UNREAD.into());
                self.gap(None, Cause::Restarted, format!("the container was started anew: {why}")).await?;
            }
        }
        self.unfinished = None;
        self.same_file = false;
        self.narrowed = false;
        self.pending.push(Item::Run(restarts));
        self.deliver().await
    }
}

/// 250 ms, doubled for each round without a new line.
fn pause(rounds: u32) -> Duration {
    (FIRST_PAUSE * 2_u32.saturating_pow(rounds.min(8))).min(LONGEST_PAUSE)
}
