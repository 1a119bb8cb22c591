//! Many containers as one stream.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use sutler_kubernetes::{Cluster, Container, Pod, PodWatch, Watched};
use sutler_model::Owner;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::hub::{Begin, Hubs};
use crate::line::Cause;
use crate::output::{Item, Output};
use crate::reader::{Key, Reader};
use crate::release::{self, Found};
use crate::{Error, LogLine, LogSource, Reach, Since, StreamOptions};

/// Containers that one stream reads.
pub(crate) const MAX_CONTAINERS: usize = 200;
/// Logs read at once where the stream does not follow.
const AT_ONCE: usize = 16;
const POLL: Duration = Duration::from_secs(2);
const LONGEST_POLL: Duration = Duration::from_secs(15);

/// A source that a grant covers.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) cluster: Cluster,
    pub(crate) source: LogSource,
    pub(crate) reach: Reach,
    pub(crate) owner: Owner,
    pub(crate) found: Found,
}

impl Granted {
    /// The pods, as far as the reach and `options.pod` go.
    pub(crate) async fn pods(
        &mut self,
        cluster: &Cluster,
        options: &StreamOptions,
    ) -> Result<Vec<Pod>, Error> {
        let pods = cluster.pods(&self.source.namespace, &self.source.label_selector).await?;
        self.covered(cluster, pods, options).await
    }

    /// One watch for all streams of the same pods; `None` where too many run.
    fn watch(&self) -> Option<PodWatch> {
        self.cluster.watch_pods(&self.source.namespace, &self.source.label_selector).ok().flatten()
    }

    /// Of these pods those that the reach and `options.pod` cover.
    async fn covered(
        &mut self,
        cluster: &Cluster,
        mut pods: Vec<Pod>,
        options: &StreamOptions,
    ) -> Result<Vec<Pod>, Error> {
        let namespace = &self.source.namespace;
        pods.retain(|p| options.pod.as_ref().is_none_or(|name| *name == p.name));
        let mut pods =
            release::keep(cluster, namespace, pods, self.reach, &self.owner, &mut self.found).await?;
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    /// The containers to read: those named, or all but the init containers.
    fn containers<'a>(
        &'a self,
        pod: &'a Pod,
        options: &'a StreamOptions,
    ) -> impl Iterator<Item = &'a Container> {
        let names = [self.source.container.as_deref(), options.container.as_deref()];
        let named = names.iter().any(Option::is_some);
        pod.containers
            .iter()
            .filter(move |c| names.iter().flatten().all(|n| *n == c.name) && (named || !c.init))
    }

    fn key(&self, pod: &Pod, container: &Container) -> Key {
        Key {
            cluster: self.cluster.name().to_owned(),
            namespace: self.source.namespace.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            container: container.name.clone(),
        }
    }
}

/// The readers of one stream.
pub(crate) struct Readers {
    sources: Vec<Granted>,
    options: StreamOptions,
    output: Output,
    hubs: Arc<Hubs>,
    known: HashSet<Key>,
    tasks: JoinSet<()>,
    slots: Arc<Semaphore>,
    full_told: bool,
}

impl Readers {
    pub(crate) fn new(
        sources: Vec<Granted>,
        options: StreamOptions,
        output: Output,
        hubs: Arc<Hubs>,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        Self {
            sources,
            options,
            output,
            hubs,
            known: HashSet::new(),
            tasks: JoinSet::new(),
            slots,
            full_told: false,
        }
    }

    fn follows(&self) -> bool {
        self.options.follow && !self.options.previous
    }

    /// Starts a reader for each container that has none. `first`: these were there when the stream was opened.
    ///
    /// # Errors
    /// At the first time only: `NotFound` where no pod has the container that is named, and `Other` with code
    /// `too-many-containers`.
    pub(crate) async fn start(&mut self, found: &[Vec<Pod>], first: bool) -> Result<(), Error> {
        let mut new: HashMap<Key, (usize, Container)> = HashMap::new();
        let mut order = Vec::new();
        for (at, (source, pods)) in self.sources.iter().zip(found).enumerate() {
            for pod in pods {
                for container in source.containers(pod, &self.options) {
                    let key = source.key(pod, container);
                    if !self.known.contains(&key)
                        && new.insert(key.clone(), (at, container.clone())).is_none()
                    {
                        order.push(key);
                    }
                }
            }
        }
        if first && order.is_empty() && found.iter().any(|pods| !pods.is_empty()) {
            return Err(Error::NotFound);
        }
        if first && order.len() > MAX_CONTAINERS {
            return Err(Error::Other {
                code: "too-many-containers",
                message: format!(
                    "{} containers match; the most is {MAX_CONTAINERS}: name a pod or a container",
                    order.len()
                ),
            });
        }
        for key in order {
            if self.tasks.len() >= MAX_CONTAINERS {
                self.full(key).await;
                break;
            }
            let Some((at, container)) = new.remove(&key) else { continue };
            let Some(source) = self.sources.get(at) else { continue };
            self.known.insert(key.clone());
            let reader = self.reader(source, key, &container, first);
            let slots = (!self.follows()).then(|| self.slots.clone());
            self.tasks.spawn(async move {
                let _slot = match slots {
                    Some(slots) => slots.acquire_owned().await.ok(),
                    None => None,
                };
                reader.run().await;
            });
        }
        Ok(())
    }

    /// Who only follows shares the upstream with all who follow the same container.
    fn reader(&self, source: &Granted, key: Key, container: &Container, first: bool) -> Reader {
        let cluster = source.cluster.clone();
        let alone =
            Reader::new(cluster.clone(), key.clone(), container, &self.options, self.output.clone(), !first);
        // What the API server would refuse, it refuses of this stream alone.
        let odd = |since: &Since| matches!(since, Since::Time(_)) && since.nanos().is_none();
        if !self.follows()
            || self.options.limit_bytes.is_some()
            || self.options.since.as_ref().is_some_and(odd)
        {
            return alone;
        }
        let begin = match (&self.options.since, self.options.tail_lines) {
            (None, None) => Begin::Whole,
            _ if !first => Begin::Whole,
            (None, Some(n)) if n > 0 => Begin::Tail(n),
            _ => Begin::Now,
        };
        let tail_lines = match begin {
            Begin::Whole => None,
            Begin::Tail(n) => Some(n),
            Begin::Now => Some(1),
        };
        let options = StreamOptions { follow: true, tail_lines, ..StreamOptions::default() };
        let follower = self.hubs.join(&key, container.restarts, begin, |hub| {
            Reader::new(cluster, key.clone(), container, &options, Output::Hub(hub), false)
        });
        alone.following(follower)
    }

    async fn full(&mut self, key: Key) {
        if std::mem::replace(&mut self.full_told, true) {
            return;
        }
        let reason = format!("more than {MAX_CONTAINERS} containers match; from here on some are not read");
        Cause::TooMany.count();
        let (pod, container) = (key.pod.into(), key.container.into());
        let line = LogLine::Gap { pod, container, from: None, to: None, reason };
        let _ = self.output.send(vec![Item::Gap { line, after: None }]).await;
    }

    /// Runs until all is read; where the stream follows, picks up what newly matches, and ends when every pod that
    /// there is has ended for good.
    pub(crate) async fn run(mut self) {
        if !self.follows() {
            while self.tasks.join_next().await.is_some() {}
            return;
        }
        let mut watches: Vec<Option<PodWatch>> = self.sources.iter().map(Granted::watch).collect();
        let (mut pause, mut complete) = (POLL, true);
        loop {
            // Where every watch is live, only a change is waited for, or the end of a reader.
            let asks =
                watches.iter().any(|w| !matches!(w.as_ref().map(PodWatch::now), Some(Watched::Live(_))));
            let mut changes: FuturesUnordered<_> =
                watches.iter_mut().flatten().map(PodWatch::changed).collect();
            tokio::select! {
                () = self.output.closed() => return,
                () = tokio::time::sleep(pause), if asks || !complete => {}
                Some(()) = changes.next() => {}
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => {}
            }
            drop(changes);
            while self.tasks.try_join_next().is_some() {}
            let mut found = Vec::with_capacity(self.sources.len());
            complete = true;
            for (source, watch) in self.sources.iter_mut().zip(&watches) {
                let cluster = source.cluster.clone();
                let pods = match watch.as_ref().map(PodWatch::now) {
                    Some(Watched::Live(pods)) => source.covered(&cluster, pods.to_vec(), &self.options).await,
                    _ => source.pods(&cluster, &self.options).await,
                };
                match pods {
                    Ok(pods) => found.push(pods),
                    Err(error) => {
                        tracing::debug!(event = "logs-list-failed", namespace = source.source.namespace, %error);
                        complete = false;
                        found.push(Vec::new());
                    }
                }
            }
            pause = if complete { POLL } else { (pause * 2).min(LONGEST_POLL) };
            let _ = self.start(&found, false).await;
            if complete {
                self.forget(&found);
                let mut pods = found.iter().flatten().peekable();
                if self.tasks.is_empty() && pods.peek().is_some() && pods.all(Pod::is_over) {
                    return;
                }
            }
        }
    }

    /// Pods that are gone need not be remembered.
    fn forget(&mut self, found: &[Vec<Pod>]) {
        let there: HashSet<&str> = found.iter().flatten().map(|p| p.uid.as_str()).collect();
        self.known.retain(|k| there.contains(k.uid.as_str()));
    }
}
