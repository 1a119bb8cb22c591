//! The events of one watch, which begins anew where it fails.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::watcher::{self, DefaultBackoff, Event};
use tokio::time::{Instant, sleep_until};

use crate::Cluster;

/// Requests that one watch sends within [`WITHIN`] at most: one that ends without an error is begun anew at once.
const REQUESTS: u64 = 10;
const WITHIN: Duration = Duration::from_secs(5);
/// So that a connection that died silently is not listened to for ever.
const WATCH_SECONDS: u32 = 240;
/// Where a watch fails again and again, it is tried this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

type Stream<K> = BoxStream<'static, Result<Event<K>, watcher::Error>>;

/// What a watch tells. After a failure it begins anew with a list: one that went on would say nothing until an object
/// changes, so nobody would know that it is there again.
pub(crate) struct Events<F, K> {
    begin: F,
    stream: Stream<K>,
    backoff: DefaultBackoff,
    /// When it begins anew, after a failure.
    again: Option<Instant>,
}

impl<K, F: Fn() -> Stream<K>> Events<F, K> {
    pub(crate) fn new(begin: F) -> Self {
        Self { stream: begin(), begin, backoff: DefaultBackoff::default(), again: None }
    }

    /// The next event; dropped, it has lost none.
    ///
    /// # Errors
    /// What happened, in a word: the library's own text may quote the answer. A watch has no end of its own.
    pub(crate) async fn next(&mut self) -> Result<Event<K>, &'static str> {
        if let Some(again) = self.again {
            sleep_until(again).await;
            self.again = None;
            self.stream = (self.begin)();
        }
        match self.stream.next().await {
            Some(Ok(event)) => Ok(event),
            failed => {
                self.again = Some(Instant::now() + self.backoff.next().unwrap_or(LONGEST_PAUSE));
                Err(failed.and_then(Result::err).map_or("end", |e| kind_of(&e)))
            }
        }
    }
}

pub(crate) fn config(labels: &str) -> watcher::Config {
    watcher::Config::default().labels(labels).timeout(WATCH_SECONDS)
}

const fn kind_of(error: &watcher::Error) -> &'static str {
    match error {
        watcher::Error::InitialListFailed(_) => "list",
        watcher::Error::WatchStartFailed(_) => "watch",
        watcher::Error::WatchError(_) => "refused",
        watcher::Error::WatchFailed(_) => "connection",
        watcher::Error::NoResourceVersion => "no-resource-version",
    }
}

impl Cluster {
    /// A client for one watch.
    pub(crate) fn of_watch(&self) -> kube::Client {
        let inner = self.client().clone();
        let send = tower::service_fn(move |request| {
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        let rate = tower::limit::rate::Rate::new(REQUESTS, WITHIN);
        kube::Client::new(tower::limit::RateLimit::new(send, rate), "default")
    }
}
