//! From a reference to a checked chart: tag or range to digest, manifest, content, caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moka::future::Cache;
use reqwest::{Method, StatusCode};
use sutler_model::Digest;

use super::auth::Operation;
use super::cache::Disk;
use super::client::{Bounds, Clock, Remote, Request};
use super::cosign;
use super::error::RegistryError;
use super::manifest::{self, Part, not_a_chart, parts};
use super::provenance::{self, Keyring};
use super::range::{self, Range};
use super::reference::{ChartUrl, is_tag, tag_of};
use super::registries::Registries;
use super::tags;
use crate::chart::Chart;
use crate::config::{ConfigError, HelmConfig, RegistryConfig};

const MANIFEST_LIMIT: u64 = 4 << 20;

/// A chart as a plugin names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) url: ChartUrl,
    pub(crate) version: Option<String>,
    pub(crate) digest: Option<Digest>,
}

pub(crate) struct Charts {
    registries: Registries,
    disk: Disk,
    parsed: Cache<(ChartUrl, Digest), Arc<Chart>>,
    tags: Cache<ChartUrl, Arc<Vec<String>>>,
    digests: Cache<(ChartUrl, String), Digest>,
    max_chart: u64,
}

/// A blob to get.
struct Blob {
    what: &'static str,
    part: Part,
    /// Bytes.
    most: u64,
}

impl Charts {
    pub(crate) fn new(
        config: &HelmConfig,
        registries: &BTreeMap<String, RegistryConfig>,
    ) -> Result<Self, ConfigError> {
        let folder =
            config.cache_folder.clone().unwrap_or_else(|| std::env::temp_dir().join("sutler-charts"));
        let resolve = Duration::from_secs(config.resolve_seconds);
        let parsed = Cache::builder()
            .max_capacity(config.memory_cache_mib << 20)
            .weigher(|_, c: &Arc<Chart>| u32::try_from(c.bytes()).unwrap_or(u32::MAX))
            .build();
        Ok(Self {
            registries: Registries::new(config, registries)?,
            disk: Disk::open(folder, config.cache_mib << 20)?,
            parsed,
            tags: Cache::builder()
                .max_capacity(if resolve.is_zero() { 0 } else { 256 })
                .time_to_live(resolve)
                .build(),
            digests: Cache::builder()
                .max_capacity(if resolve.is_zero() { 0 } else { 4096 })
                .time_to_live(resolve)
                .build(),
            max_chart: config.max_chart_mib << 20,
        })
    }

    /// Every tag of a chart.
    pub(crate) async fn tags(&self, url: &ChartUrl, clock: Clock) -> Result<Arc<Vec<String>>, RegistryError> {
        if let Some(tags) = self.tags.get(url).await {
            return Ok(tags);
        }
        let remote = self.registries.get(url.host())?;
        let tags = Arc::new(tags::list(&remote, url, clock).await.map_err(|e| e.of(url))?);
        self.tags.insert(url.clone(), tags.clone()).await;
        Ok(tags)
    }

    /// The chart, from memory, from disk, or from its registry.
    pub(crate) async fn get(&self, wanted: &Wanted, clock: Clock) -> Result<Arc<Chart>, RegistryError> {
        // Waiting for somebody else's download ends with the call as well.
        tokio::time::timeout_at(clock.deadline.into(), self.get_in_time(wanted, clock))
            .await
            .unwrap_or_else(|_| Err(RegistryError::TimeUsedUp(wanted.url.host().to_owned())))
            .map_err(|e| e.of(&wanted.url))
    }

    async fn get_in_time(&self, wanted: &Wanted, clock: Clock) -> Result<Arc<Chart>, RegistryError> {
        let url = &wanted.url;
        let digest = match wanted.digest {
            Some(d) => d,
            None => self.resolve(url, wanted.version.as_deref(), clock).await?,
        };
        let key = (url.clone(), digest);
        // One download however many ask. Where the one that downloads runs out of its time, the next goes on.
        loop {
            match self.parsed.try_get_with(key.clone(), self.pull(url, digest, clock)).await {
                Ok(chart) => return Ok(chart),
                Err(e) if matches!(*e, RegistryError::TimeUsedUp(_)) && Instant::now() < clock.deadline => {}
                Err(e) => return Err(e.as_ref().clone()),
            }
        }
    }

    async fn resolve(
        &self,
        url: &ChartUrl,
        version: Option<&str>,
        clock: Clock,
    ) -> Result<Digest, RegistryError> {
        let tag = self.tag(url, version, clock).await?;
        let key = (url.clone(), tag);
        if let Some(digest) = self.digests.get(&key).await {
            return Ok(digest);
        }
        let remote = self.registries.get(url.host())?;
        let digest = self.digest_of(&remote, url, &key.1, clock).await?;
        self.digests.insert(key, digest).await;
        Ok(digest)
    }

    async fn tag(
        &self,
        url: &ChartUrl,
        version: Option<&str>,
        clock: Clock,
    ) -> Result<String, RegistryError> {
        let text = version.map(str::trim).filter(|v| !v.is_empty());
        let range = match text {
            None => Range::any(),
            Some(v) if range::is_exact(v) => return Ok(tag_of(v)),
            Some(v) => match v.parse::<Range>() {
                Ok(range) => range,
                // `latest` and other tags that are no versions.
                Err(_) if is_tag(v) => return Ok(v.to_owned()),
                Err(e) => return Err(RegistryError::Range(e.to_string())),
            },
        };
        let tags = self.tags(url, clock).await?;
        let exact = text.map(tag_of).and_then(|t| tags.iter().find(|x| **x == t));
        let found = exact.map(String::as_str).or_else(|| range.highest(tags.iter().map(String::as_str)));
        found.map(str::to_owned).ok_or_else(|| RegistryError::NoMatch {
            chart: url.to_string(),
            range: text.unwrap_or("*").to_owned(),
            count: tags.len(),
        })
    }

    /// Asks for the digest alone; a registry that does not tell it sends the manifest.
    async fn digest_of(
        &self,
        remote: &Remote,
        url: &ChartUrl,
        tag: &str,
        clock: Clock,
    ) -> Result<Digest, RegistryError> {
        let at = remote.url(&format!("{}/manifests/{tag}", url.repository()))?;
        let head = remote.send(Method::HEAD, at, &for_manifest(url, clock)).await?;
        let head = remote.no_page(head, "the manifest")?;
        let told = head.headers().get("docker-content-digest").and_then(|d| d.to_str().ok()?.parse().ok());
        match (head.status(), told) {
            (StatusCode::OK, Some(digest)) => Ok(digest),
            (StatusCode::NOT_FOUND, _) => Err(no_version(url, tag)),
            _ => Ok(Digest::of(&self.manifest(remote, url, tag, None, clock).await?)),
        }
    }

    async fn manifest(
        &self,
        remote: &Remote,
        url: &ChartUrl,
        tag: &str,
        digest: Option<Digest>,
        clock: Clock,
    ) -> Result<Bytes, RegistryError> {
        let at = remote.url(&format!("{}/manifests/{tag}", url.repository()))?;
        let response = remote.send(Method::GET, at, &for_manifest(url, clock)).await?;
        let response = remote.no_page(response, "the manifest")?;
        match response.status() {
            StatusCode::OK => {
                let of = url.to_string();
                let bounds =
                    Bounds { what: "the manifest", of: &of, most: MANIFEST_LIMIT, size: None, digest };
                remote.body(response, &bounds, clock).await
            }
            StatusCode::NOT_FOUND => Err(no_version(url, tag)),
            s => Err(remote.status(s, "the manifest")),
        }
    }

    /// Downloads what is not on disk, checks the whole, and only then keeps it.
    async fn pull(&self, url: &ChartUrl, digest: Digest, clock: Clock) -> Result<Arc<Chart>, RegistryError> {
        let remote = self.registries.get(url.host())?;
        let mut fresh = Vec::new();
        let manifest = match self.disk.get(url, digest).await {
            Some(bytes) => bytes,
            None => {
                let bytes = self.manifest(&remote, url, &digest.to_string(), Some(digest), clock).await?;
                fresh.push((digest, bytes.clone()));
                bytes
            }
        };
        if let Some(signers) = self.registries.signers(url.host()) {
            cosign::check(signers, &remote, url, digest, clock).await?;
        }
        let keyring = self.registries.keyring(url.host());
        let parts = parts(url, &manifest, keyring.is_some())?;
        let content = Blob { what: "the content", part: parts.content, most: self.max_chart };
        let archive = self.blob(&remote, url, content, &mut fresh, clock).await?;
        let signed = match keyring {
            None => None,
            Some(keyring) => {
                let part = parts.provenance.ok_or_else(|| RegistryError::NotSigned {
                    chart: url.to_string(),
                    key: "verify",
                    why: "there is no provenance file beside it; use `helm package --sign`, and push the chart with its .prov".into(),
                })?;
                let blob = Blob { what: "the provenance file", part, most: provenance::LIMIT };
                let file = self.blob(&remote, url, blob, &mut fresh, clock).await?;
                Some((keyring.clone(), file))
            }
        };
        let shown = url.clone();
        let chart = tokio::task::spawn_blocking(move || read(&shown, archive, digest, parts.content, signed))
            .await
            .map_err(|_| remote.answer("reading the chart was interrupted"))??;
        for (digest, bytes) in fresh {
            self.disk.put(url, digest, bytes).await;
        }
        Ok(Arc::new(chart))
    }

    /// A blob of a chart, from disk or from its registry; then it is added to `fresh`.
    async fn blob(
        &self,
        remote: &Remote,
        url: &ChartUrl,
        Blob { what, part, most }: Blob,
        fresh: &mut Vec<(Digest, Bytes)>,
        clock: Clock,
    ) -> Result<Bytes, RegistryError> {
        let chart = url.to_string();
        if part.size > most {
            return Err(RegistryError::TooLarge { chart, what, limit: most });
        }
        if let Some(bytes) = self.disk.get(url, part.digest).await {
            return Ok(bytes);
        }
        let at = remote.url(&format!("{}/blobs/{}", url.repository(), part.digest))?;
        let started = Instant::now();
        let request =
            Request { repository: url.repository(), operation: Operation::Pull, accept: "*/*", what, clock };
        let response = remote.send(Method::GET, at, &request).await?;
        if !response.status().is_success() {
            return Err(remote.status(response.status(), what));
        }
        let bounds = Bounds { what, of: &chart, most, size: Some(part.size), digest: Some(part.digest) };
        let bytes = remote.body(response, &bounds, clock).await?;
        tracing::info!(
            event = "helm.pulled",
            chart,
            bytes = bytes.len(),
            millis = started.elapsed().as_millis() as u64
        );
        fresh.push((part.digest, bytes.clone()));
        Ok(bytes)
    }
}

/// Reads a chart and checks who signed it. Blocking.
fn read(
    url: &ChartUrl,
    archive: Bytes,
    digest: Digest,
    content: Part,
    signed: Option<(Arc<Keyring>, Bytes)>,
) -> Result<Chart, RegistryError> {
    let chart = Chart::read(archive, digest).map_err(|e| not_a_chart(url, e.to_string()))?;
    let (name, version) = (&chart.metadata.name, &chart.metadata.version);
    if !range::is_version(version) {
        let version: String = version.chars().take(100).collect();
        return Err(not_a_chart(url, format!("Chart.yaml: version {version:?} is not a semantic version")));
    }
    if let Some((keyring, file)) = signed {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let key = keyring.check(&file, name, version, content.digest, now.as_secs()).map_err(|e| {
            RegistryError::NotSigned { chart: url.to_string(), key: "verify", why: e.to_string() }
        })?;
        tracing::info!(event = "helm.verified", chart = %url, version, key);
    }
    Ok(chart)
}

fn for_manifest(url: &ChartUrl, clock: Clock) -> Request<'_> {
    Request {
        repository: url.repository(),
        operation: Operation::Pull,
        accept: manifest::ACCEPTED,
        what: "the manifest",
        clock,
    }
}

fn no_version(url: &ChartUrl, tag: &str) -> RegistryError {
    RegistryError::NoVersion { chart: url.to_string(), version: tag.into() }
}
