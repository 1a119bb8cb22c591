//! Logs of pods that run nothing: ten canned lines a container, what a test writes, and while somebody follows
//! one more line every half second.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::stream;
use serde_json::Value;

use super::resource::meta;
use super::status::Refusal;
use super::store::{Key, Store};
use super::write::Ask;

/// How often a followed container speaks by itself.
const EVERY: TimeDelta = TimeDelta::milliseconds(500);
/// How often a follower looks.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
struct Line {
    time: DateTime<Utc>,
    text: String,
}

impl Line {
    fn rendered(&self, timestamps: bool) -> String {
        let time = self.time.to_rfc3339_opts(SecondsFormat::Nanos, true);
        if timestamps { format!("{time} {}\n", self.text) } else { format!("{}\n", self.text) }
    }
}

/// The log of one container.
#[derive(Debug, Default)]
struct Log {
    lines: Vec<Line>,
    /// Lines before the first that is kept.
    rotated: usize,
    /// The log before the last restart.
    previous: Option<Vec<Line>>,
    restarts: u32,
}

impl Log {
    fn canned(container: &str) -> Self {
        let start = Utc::now() - TimeDelta::seconds(10);
        let lines = (0..10)
            .map(|n| Line { time: start + TimeDelta::seconds(n), text: format!("{container} says line {n}") })
            .collect();
        Self { lines, ..Self::default() }
    }

    fn end(&self) -> usize {
        self.rotated + self.lines.len()
    }

    /// The lines from an absolute position on.
    fn from(&self, position: usize) -> &[Line] {
        self.lines.get(position.saturating_sub(self.rotated)..).unwrap_or_default()
    }

    /// Speaks, when it has been silent long enough.
    fn tick(&mut self) {
        let now = Utc::now();
        if self.lines.last().is_none_or(|l| now - l.time >= EVERY) {
            let text = format!("tick {}", self.end());
            self.lines.push(Line { time: now, text });
        }
    }
}

/// By the pod's UID and the container.
type Buffers = BTreeMap<(String, String), Log>;

#[derive(Default)]
pub(crate) struct Logs {
    buffers: Mutex<Buffers>,
    cuts: AtomicU64,
    quiet: AtomicBool,
}

impl Logs {
    fn with<R>(&self, uid: &str, container: &str, work: impl FnOnce(&mut Log) -> R) -> R {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (uid.to_owned(), container.to_owned());
        work(buffers.entry(key).or_insert_with(|| Log::canned(container)))
    }

    pub(crate) fn write(&self, uid: &str, container: &str, time: DateTime<Utc>, text: &str) {
        self.with(uid, container, |log| log.lines.push(Line { time, text: text.into() }));
    }

    pub(crate) fn rotate(&self, uid: &str, container: &str) {
        self.with(uid, container, |log| {
            log.rotated = log.end();
            log.lines.clear();
        });
    }

    pub(crate) fn restart(&self, uid: &str, container: &str) -> u32 {
        self.with(uid, container, |log| {
            log.rotated = log.end();
            log.previous = Some(std::mem::take(&mut log.lines));
            log.restarts += 1;
            log.restarts
        })
    }

    pub(crate) fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn set_quiet(&self, quiet: bool) {
        self.quiet.store(quiet, Ordering::SeqCst);
    }
}

struct Options {
    follow: bool,
    timestamps: bool,
    since: Option<DateTime<Utc>>,
    tail: Option<usize>,
    limit: Option<usize>,
}

fn options(ask: &Ask) -> Result<Options, Refusal> {
    let number = |name: &str| match ask.value(name) {
        "" => Ok(None),
        text => text.parse::<usize>().map(Some).map_err(|_| {
            Refusal::new(422, "Invalid", format!("PodLogOptions is invalid: {name}: Invalid value: {text:?}"))
        }),
    };
    let ago = number("sinceSeconds")?.and_then(|s| TimeDelta::try_seconds(i64::try_from(s).ok()?));
    let time = match ask.value("sinceTime") {
        "" => None,
        text => Some(
            DateTime::parse_from_rfc3339(text)
                .map_err(|e| Refusal::bad_request(format!("sinceTime: {e}")))?,
        ),
    };
    if ago.is_some() && time.is_some() {
        let message =
            "PodLogOptions is invalid: at most one of `sinceTime` or `sinceSeconds` may be specified";
        return Err(Refusal::new(422, "Invalid", message));
    }
    Ok(Options {
        follow: ask.flag("follow"),
        timestamps: ask.flag("timestamps"),
        since: ago.map(|a| Utc::now() - a).or_else(|| time.map(|t| t.to_utc())),
        tail: number("tailLines")?,
        limit: number("limitBytes")?,
    })
}

fn container(ask: &Ask, pod: &Value) -> Result<String, Refusal> {
    let name = meta(pod, "name");
    let all: Vec<&str> = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| pod["spec"][list].as_array())
        .flatten()
        .filter_map(|c| c["name"].as_str())
        .collect();
    match (ask.value("container"), all.as_slice()) {
        ("", [only]) => Ok((*only).to_owned()),
        ("", _) => Err(Refusal::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
        (asked, all) if all.contains(&asked) => Ok(asked.into()),
        (asked, _) => Err(Refusal::bad_request(format!("container {asked} is not valid for pod {name}"))),
    }
}

struct Follow {
    store: Arc<Store>,
    logs: Arc<Logs>,
    pod: Key,
    uid: String,
    container: String,
    options: Options,
    position: usize,
    restarts: u32,
    cuts: u64,
    sent: usize,
    first: Option<Bytes>,
    over: bool,
}

/// Answers `GET …/pods/NAME/log`.
pub(crate) fn read(
    store: &Arc<Store>,
    logs: &Arc<Logs>,
    ask: &Ask,
    key: &Key,
    pod: &Value,
) -> Result<Response, Refusal> {
    let options = options(ask)?;
    let container = container(ask, pod)?;
    let uid = meta(pod, "uid").to_owned();
    if pod["status"]["phase"] == "Pending" {
        let message =
            format!("container {container:?} in pod {:?} is waiting to start: ContainerCreating", key.name);
        return Err(Refusal::bad_request(message));
    }
    let previous = ask.flag("previous");
    let (lines, position, restarts) = logs.with(&uid, &container, |log| {
        let lines = if previous { log.previous.clone() } else { Some(log.lines.clone()) };
        (lines, log.end(), log.restarts)
    });
    let lines = lines.ok_or_else(|| {
        let message = format!("previous terminated container {container:?} in pod {:?} not found", key.name);
        Refusal::bad_request(message)
    })?;
    let kept: Vec<&Line> = lines.iter().filter(|l| options.since.is_none_or(|s| l.time >= s)).collect();
    let skip = options.tail.map_or(0, |n| kept.len().saturating_sub(n));
    let mut text: String = kept.into_iter().skip(skip).map(|l| l.rendered(options.timestamps)).collect();
    let full = options.limit.is_some_and(|limit| text.len() >= limit);
    if let Some(limit) = options.limit {
        text.truncate(limit);
    }
    let headers = [(http::header::CONTENT_TYPE, "text/plain")];
    if !options.follow || full || previous {
        return Ok((headers, text).into_response());
    }
    let follow = Follow {
        store: store.clone(),
        logs: logs.clone(),
        pod: key.clone(),
        uid,
        container,
        options,
        position,
        restarts,
        cuts: logs.cuts.load(Ordering::SeqCst),
        sent: text.len(),
        first: Some(text.into()),
        over: false,
    };
    let pieces = stream::unfold(follow, |mut follow| async {
        let piece = follow.next().await?;
        Some((piece, follow))
    });
    Ok((headers, Body::from_stream(pieces)).into_response())
}

impl Follow {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(first) = self.first.take().filter(|f| !f.is_empty()) {
            return Some(Ok(first));
        }
        loop {
            if self.over {
                return None;
            }
            if self.logs.cuts.load(Ordering::SeqCst) != self.cuts {
                self.over = true;
                return Some(Err(io::Error::other("the test cut the stream")));
            }
            let piece = self.gather();
            if !piece.is_empty() {
                return Some(Ok(piece.into()));
            }
            if !self.over {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    fn gather(&mut self) -> String {
        let phase = self.store.with(|state| {
            let pod = state.objects.get(&self.pod).filter(|e| meta(&e.object, "uid") == self.uid)?;
            Some(pod.object["status"]["phase"] == "Running")
        });
        let speaks = phase == Some(true) && !self.logs.quiet.load(Ordering::SeqCst);
        let (restarts, position, timestamps) = (self.restarts, self.position, self.options.timestamps);
        let (mut text, end, restarted) = self.logs.with(&self.uid, &self.container, |log| {
            if log.restarts != restarts {
                return (String::new(), position, true);
            }
            if speaks {
                log.tick();
            }
            (log.from(position).iter().map(|l| l.rendered(timestamps)).collect(), log.end(), false)
        });
        self.position = end;
        self.over = restarted || phase != Some(true);
        if let Some(limit) = self.options.limit {
            text.truncate(limit.saturating_sub(self.sent));
            self.sent += text.len();
            self.over |= self.sent >= limit;
        }
        text
    }
}
