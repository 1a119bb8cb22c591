//! Logs for one call: grants, then the cluster.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use sutler_containers::Containers;
use sutler_kubernetes::{Cluster, Clusters, LogQuery, Pod};
use sutler_model::{Call, Effective};

use crate::follow::{Granted, Readers};
use crate::grant::{self, Ask, Grants, Reach};
use crate::hub::Hubs;
use crate::line::since_seconds;
use crate::parse::{Lines, is_refusal, stamped};
use crate::release::{self, Found};
use crate::{Error, LogLine, LogSource, Source, StreamOptions, container, output};

const DEFAULT_TAIL: u32 = 100;
const MOST_TAIL: u32 = 10_000;
const DEFAULT_BYTES: u32 = 64 << 10;
const MOST_BYTES: u32 = 1 << 20;

/// A bounded read (`sutler:logs/read` `options`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TailOptions {
    /// Needed where the pod has several.
    pub container: Option<String>,
    /// Of the container's run before this one.
    pub previous: bool,
    pub since: Option<Duration>,
    /// 0 for the default of 100; at most 10,000.
    pub tail_lines: u32,
    /// 0 for the default of 64 KiB; at most 1 MiB. The last line may be cut.
    pub limit_bytes: u32,
}

/// What plugins and people are given.
#[derive(Debug, Clone)]
pub struct Logs {
    clusters: Arc<Clusters>,
    containers: Option<Arc<Containers>>,
    hubs: Arc<Hubs>,
}

impl Logs {
    pub fn new(clusters: Arc<Clusters>) -> Self {
        describe_metrics();
        Self { clusters, containers: None, hubs: Arc::default() }
    }

    /// Also reads what containers of the local Docker daemon wrote.
    #[must_use]
    pub fn with_containers(self, containers: Option<Arc<Containers>>) -> Self {
        Self { containers, ..self }
    }

    fn reach(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        ns: &str,
    ) -> Result<Reach, Error> {
        let ask = Ask {
            cluster: self.clusters.name(cluster),
            default_cluster: self.clusters.is_default(cluster),
            namespace: ns,
            owner: &call.owner,
        };
        Ok(grant::reach(grants, &ask)?)
    }

    async fn cluster(&self, call: &Call, cluster: Option<&str>) -> Result<Cluster, Error> {
        Ok(self.clusters.get(cluster).await?.of_call(call))
    }

    /// The pods that the selector names, as far as the grants reach.
    ///
    /// # Errors
    /// `NotGranted`, and what the API server says.
    pub async fn pods(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<Pod>, Error> {
        let reach = self.reach(call, grants, cluster, namespace)?;
        let cluster = self.cluster(call, cluster).await?;
        let pods = cluster.pods(namespace, labels).await?;
        release::keep(&cluster, namespace, pods, reach, &call.owner, &mut Found::default()).await
    }

    /// The last lines of one container, without time stamps.
    ///
    /// # Errors
    /// `NotGranted`; `NotFound` also for another owner's pod in a shared namespace.
    pub async fn tail(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        namespace: &str,
        pod: &str,
        options: &TailOptions,
    ) -> Result<Vec<String>, Error> {
        let reach = self.reach(call, grants, cluster, namespace)?;
        let cluster = self.cluster(call, cluster).await?;
        if reach == Reach::Owned {
            let found = vec![cluster.pod(namespace, pod).await?];
            let mut known = Found::default();
            if release::keep(&cluster, namespace, found, reach, &call.owner, &mut known).await?.is_empty() {
                return Err(Error::NotFound);
            }
        }
        let tail = if options.tail_lines == 0 { DEFAULT_TAIL } else { options.tail_lines.min(MOST_TAIL) };
        let query = LogQuery {
            container: options.container.clone(),
            previous: options.previous,
            since_seconds: options.since.map(rounded_up),
            tail_lines: Some(tail.into()),
            // They tell a line from what the kubelet says instead of one.
            timestamps: true,
            ..LogQuery::default()
        };
        let bytes =
            if options.limit_bytes == 0 { DEFAULT_BYTES } else { options.limit_bytes.min(MOST_BYTES) };
        let reading = async {
            let chunks = cluster.log_stream(namespace, pod, &query).await?;
            collect(chunks, tail as usize, bytes as usize).await
        };
        tokio::time::timeout(call.left(), reading).await.unwrap_or(Err(Error::TimedOut))
    }

    /// The lines of all sources: of pods as [`Logs::stream`] has them, and of containers of the Docker daemon in the same
    /// way. There pod and container are both the container's name, and of a container that is replaced the next one is
    /// read.
    ///
    /// # Errors
    /// As [`Logs::stream`]; `Other` with code `not-supported` for the run before of a container, which Docker does not
    /// keep apart, and `not-configured` where the host has no Docker daemon.
    pub async fn open(
        &self,
        call: &Call,
        grants: (&Effective<Grants>, &Effective<sutler_containers::Grants>),
        sources: Vec<Source>,
        options: StreamOptions,
    ) -> Result<BoxStream<'static, LogLine>, Error> {
        let (mut pods, mut names) = (Vec::new(), Vec::new());
        for source in sources {
            match source {
                Source::Pods(source) => pods.push(source),
                Source::Container(name) => names.push(name),
            }
        }
        if names.is_empty() {
            return self.stream(call, grants.0, pods, options).await;
        }
        let containers = self.containers.as_ref().ok_or_else(|| Error::Other {
            code: "not-configured",
            message: "this host has no Docker daemon configured; set [containers] in sutler.toml".into(),
        })?;
        let logs = names.iter().map(|name| containers.log(call, grants.1, name));
        let lines = container::stream(logs.collect::<Result<_, _>>()?, &options)?;
        if pods.is_empty() {
            return Ok(lines);
        }
        let of_pods = self.stream(call, grants.0, pods, options).await?;
        Ok(futures::stream::select(of_pods, lines).boxed())
    }

    /// The lines of every container that the sources name, merged: in order within a container. Each line that the
    /// kubelet still serves comes once; what is lost is a gap. Dropping the stream ends everything behind it.
    ///
    /// Streams that follow outlive the call's deadline, which bounds the opening only. They end when every pod has
    /// ended for good; pods that newly match are picked up at once where the host's account
    /// may watch pods, otherwise within two seconds. All that follow a container share one request for it, unless they
    /// ask for `limit_bytes`; who reads slower than the container writes reads by a request of its own, and hears of a
    /// gap where the kubelet does not serve any more what comes next.
    ///
    /// # Errors
    /// `NotGranted` before anything is sent, where any source's namespace is not granted; `NotFound` where
    /// `options.pod` is not among the pods, or none of the pods has the container that is named; `Other` with code
    /// `too-many-containers`. What the API server refuses of a single container is a gap of the stream.
    pub async fn stream(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        sources: Vec<LogSource>,
        options: StreamOptions,
    ) -> Result<BoxStream<'static, LogLine>, Error> {
        let mut reaches = Vec::with_capacity(sources.len());
        for s in &sources {
            reaches.push(self.reach(call, grants, s.cluster.as_deref(), &s.namespace)?);
        }
        let mut granted = Vec::with_capacity(sources.len());
        let mut found = Vec::with_capacity(sources.len());
        for (source, reach) in sources.into_iter().zip(reaches) {
            let cluster = self.clusters.get(source.cluster.as_deref()).await?;
            let mut one =
                Granted { cluster, source, reach, owner: call.owner.clone(), found: Found::default() };
            let bounded = one.cluster.until(call.deadline);
            found.push(one.pods(&bounded, &options).await?);
            granted.push(one);
        }
        if options.pod.is_some() && found.iter().all(Vec::is_empty) {
            return Err(Error::NotFound);
        }
        let (output, mut stream) = output::channel();
        let mut readers = Readers::new(granted, options, output, self.hubs.clone());
        readers.start(&found, true).await?;
        stream.spawn(readers.run());
        Ok(stream.boxed())
    }
}

fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_gauge};
    describe_gauge!("sutler_log_upstreams", "Containers whose log is followed, each by one request.");
    describe_gauge!("sutler_log_followers", "Streams that follow a container, over all containers.");
    describe_counter!("sutler_log_lines_total", "Lines put out into streams.");
    describe_counter!("sutler_log_gaps_total", "Gaps in logs, by reason.");
    describe_gauge!(
        "sutler_log_queued_bytes",
        Unit::Bytes,
        "What is kept for followers: in upstreams for all, in followers for each."
    );
}

fn rounded_up(since: Duration) -> u64 {
    since_seconds(since.as_secs().saturating_add(u64::from(since.subsec_nanos() > 0)))
}

/// The first `bytes` of the lines, as `limitBytes` counts them without time stamps.
async fn collect(
    mut chunks: BoxStream<'static, Result<bytes::Bytes, sutler_kubernetes::Error>>,
    most: usize,
    bytes: usize,
) -> Result<Vec<String>, Error> {
    let mut lines = Lines::default();
    let (mut out, mut room) = (Vec::new(), bytes);
    let mut take = |line: &[u8]| -> Result<bool, Error> {
        let text = match stamped(line) {
            Some((_, text)) => text,
            None if is_refusal(line) => {
                return Err(Error::Unavailable("the kubelet cannot read this container's log now".into()));
            }
            None => line,
        };
        let text = text.get(..room).unwrap_or(text);
        out.push(String::from_utf8_lossy(text).into_owned());
        room = room.saturating_sub(text.len() + 1);
        Ok(room > 0 && out.len() < most)
    };
    while let Some(chunk) = chunks.next().await {
        lines.push(&chunk?);
        while let Some(piece) = lines.next() {
            if !take(&piece.bytes)? {
                return Ok(out);
            }
        }
    }
    if let Some(piece) = lines.finish() {
        take(&piece.bytes)?;
    }
    Ok(out)
}
