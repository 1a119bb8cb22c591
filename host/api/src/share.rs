//! What one instance, or one caller, takes of the host's limits at once, so that something is left for the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::ApiConfig;
use crate::refusal::Refusal;

/// The most of `max-concurrent-requests`, `max-log-streams` and `max-event-streams` that one takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub requests: usize,
    pub streams: usize,
    pub events: usize,
}

/// Which of the host's limits a route counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Requests,
    /// Of logs.
    Streams,
    /// Streams of operations' events.
    Events,
}

impl Counted {
    /// `None` for a route that always answers: health, metrics, the document.
    pub(crate) fn of(route: &str) -> Option<Self> {
        match route {
            "/plan" | "/apply" | "/inspect" | "/handles" | "/operations" | "/operations/{id}" | "/audit" => {
                Some(Self::Requests)
            }
            "/logs" => Some(Self::Streams),
            "/operations/{id}/events" => Some(Self::Events),
            _ => None,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Streams => "streams",
            Self::Events => "streams of events",
        }
    }

    /// What an operator changes for a share that stands in this table.
    fn key(self, table: &str) -> String {
        match self {
            Self::Requests => format!("max-requests in {table}"),
            Self::Streams => format!("max-log-streams in {table}"),
            Self::Events => "half of max-event-streams in [api]".into(),
        }
    }
}

/// The shares of a host: made once, counted without a lock.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    instances: HashMap<String, Holder>,
    callers: HashMap<String, Holder>,
}

/// Who has a share.
#[derive(Debug)]
pub(crate) struct Holder {
    /// `instance "emea"`
    who: String,
    /// `[instances.emea]`
    table: String,
    requests: Arc<Gate>,
    streams: Arc<Gate>,
    events: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    most: usize,
    taken: AtomicUsize,
}

/// A place within a share, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shares {
    pub(crate) fn new(config: &ApiConfig) -> Self {
        let all = |shares: &BTreeMap<String, Share>, names: fn(&str) -> (String, String)| {
            let one = |name: &str, share: &Share| Holder::new(names(name), *share);
            shares.iter().map(|(name, share)| (name.clone(), one(name, share))).collect()
        };
        Self {
            instances: all(&config.instance_shares, |name| {
                (format!("instance {name:?}"), format!("[instances.{name}]"))
            }),
            callers: all(&config.caller_shares, |name| {
                (format!("caller {name}"), "its [[access.callers]]".into())
            }),
        }
    }

    pub(crate) fn of_instance(&self, name: &str) -> Option<&Holder> {
        self.instances.get(name)
    }
    pub(crate) fn of_caller(&self, name: &str) -> Option<&Holder> {
        self.callers.get(name)
    }
}

impl Holder {
    fn new((who, table): (String, String), share: Share) -> Self {
        let gate = |most| Arc::new(Gate { most, taken: AtomicUsize::new(0) });
        Self {
            who,
            table,
            requests: gate(share.requests),
            streams: gate(share.streams),
            events: gate(share.events),
        }
    }

    /// # Errors
    /// 503 naming the limit and its key, where the share is used up.
    pub(crate) fn take(&self, counted: Counted) -> Result<Place, Refusal> {
        let gate = match counted {
            Counted::Requests => &self.requests,
            Counted::Streams => &self.streams,
            Counted::Events => &self.events,
        };
        let next = |taken: usize| (taken < gate.most).then_some(taken + 1);
        match gate.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(Place(gate.clone())),
            Err(_) => Err(Refusal::overloaded(format!(
                "{} is at its limit of {} {} at once ({})",
                self.who,
                gate.most,
                counted.as_str(),
                counted.key(&self.table)
            ))),
        }
    }
}
