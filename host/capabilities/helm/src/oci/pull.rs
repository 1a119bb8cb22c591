//! From a reference to a checked chart: tag or range to digest, manifest, content, caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moka::future::Cache;
use reqwest::header::{HeaderMap, LINK};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use sutler_model::Digest;

use super::cache::Disk;
use super::client::{Clock, Remote};
use super::error::RegistryError;
use super::range::{self, Range};
use super::reference::{ChartUrl, is_tag, tag_of};
use super::registries::Registries;
use crate::chart::Chart;
use crate::config::{ConfigError, HelmConfig, RegistryConfig};

const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const LEGACY_CONTENT_TYPE: &str = "application/tar+gzip";
const MANIFEST_TYPES: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const MANIFEST_LIMIT: u64 = 4 << 20;
/// Pages and tags of one list that are read before it is refused.
const PAGES: usize = 100;
const TAGS: usize = 20_000;

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct TagList {
    tags: Option<Vec<String>>,
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
            registries: Registries::new(registries, Duration::from_secs(config.timeout_seconds))?,
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
        let tags = Arc::new(list_tags(&remote, url, clock).await?);
        self.tags.insert(url.clone(), tags.clone()).await;
        Ok(tags)
    }

    /// The chart, from memory, from disk, or from its registry.
    pub(crate) async fn get(&self, wanted: &Wanted, clock: Clock) -> Result<Arc<Chart>, RegistryError> {
        // Waiting for somebody else's download ends with the call as well.
        tokio::time::timeout_at(clock.deadline.into(), self.get_in_time(wanted, clock))
            .await
            .unwrap_or_else(|_| Err(RegistryError::TimeUsedUp(wanted.url.host().to_owned())))
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
        let head = remote.send(Method::HEAD, url.repository(), at.clone(), MANIFEST_TYPES, clock).await?;
        let told = head.headers().get("docker-content-digest").and_then(|d| d.to_str().ok()?.parse().ok());
        match (head.status(), told) {
            (StatusCode::OK, Some(digest)) => Ok(digest),
            (StatusCode::NOT_FOUND, _) => Err(no_version(url, tag)),
            _ => {
                let bytes = self.manifest(remote, url, tag, clock).await?;
                let digest = Digest::of(&bytes);
                self.disk.put(url, digest, bytes).await;
                Ok(digest)
            }
        }
    }

    async fn manifest(
        &self,
        remote: &Remote,
        url: &ChartUrl,
        tag: &str,
        clock: Clock,
    ) -> Result<Bytes, RegistryError> {
        let at = remote.url(&format!("{}/manifests/{tag}", url.repository()))?;
        let response = remote.send(Method::GET, url.repository(), at, MANIFEST_TYPES, clock).await?;
        match response.status() {
            StatusCode::OK => {
                remote.body(response, MANIFEST_LIMIT, "the manifest", &url.to_string(), clock).await
            }
            StatusCode::NOT_FOUND => Err(no_version(url, tag)),
            s => Err(remote.status(s, format!("the manifest of {url}"))),
        }
    }

    async fn pull(&self, url: &ChartUrl, digest: Digest, clock: Clock) -> Result<Arc<Chart>, RegistryError> {
        let remote = self.registries.get(url.host())?;
        let manifest = match self.disk.get(url, digest).await {
            Some(bytes) => bytes,
            None => {
                let bytes = self.manifest(&remote, url, &digest.to_string(), clock).await?;
                verify(url, "the manifest", digest, &bytes)?;
                self.disk.put(url, digest, bytes.clone()).await;
                bytes
            }
        };
        let content = content_of(url, &manifest)?;
        let blob_digest: Digest =
            content.digest.parse().map_err(|_| not_a_chart(url, "its content has no sha256 digest"))?;
        let archive = match self.disk.get(url, blob_digest).await {
            Some(bytes) => bytes,
            None => {
                let bytes = self.blob(&remote, url, &content, blob_digest, clock).await?;
                self.disk.put(url, blob_digest, bytes.clone()).await;
                bytes
            }
        };
        let shown = url.to_string();
        tokio::task::spawn_blocking(move || Chart::read(archive, digest))
            .await
            .map_err(|_| remote.answer("reading the chart was interrupted"))?
            .map(Arc::new)
            .map_err(|e| RegistryError::NotAChart { chart: shown, why: e.to_string() })
    }

    async fn blob(
        &self,
        remote: &Remote,
        url: &ChartUrl,
        content: &Descriptor,
        digest: Digest,
        clock: Clock,
    ) -> Result<Bytes, RegistryError> {
        let chart = url.to_string();
        if content.size > self.max_chart {
            return Err(RegistryError::TooLarge { chart, what: "the content", limit: self.max_chart });
        }
        let at = remote.url(&format!("{}/blobs/{digest}", url.repository()))?;
        let started = Instant::now();
        let response = remote.send(Method::GET, url.repository(), at, "*/*", clock).await?;
        if !response.status().is_success() {
            return Err(remote.status(response.status(), format!("the content of {url}")));
        }
        let bytes = remote.body(response, self.max_chart, "the content", &chart, clock).await?;
        verify(url, "the content", digest, &bytes)?;
        tracing::info!(
            event = "helm.pulled",
            chart,
            bytes = bytes.len(),
            millis = started.elapsed().as_millis() as u64
        );
        Ok(bytes)
    }
}

fn no_version(url: &ChartUrl, tag: &str) -> RegistryError {
    RegistryError::NoVersion { chart: url.to_string(), version: tag.into() }
}

fn not_a_chart(url: &ChartUrl, why: &str) -> RegistryError {
    RegistryError::NotAChart { chart: url.to_string(), why: why.into() }
}

fn verify(url: &ChartUrl, what: &'static str, expected: Digest, bytes: &[u8]) -> Result<(), RegistryError> {
    let actual = Digest::of(bytes);
    if actual == expected {
        return Ok(());
    }
    Err(RegistryError::Digest {
        chart: url.to_string(),
        what,
        expected: expected.to_string(),
        actual: actual.to_string(),
    })
}

/// The one layer with the chart; a provenance layer beside it is passed over.
fn content_of(url: &ChartUrl, manifest: &[u8]) -> Result<Descriptor, RegistryError> {
    let manifest: Manifest = serde_json::from_slice(manifest)
        .map_err(|_| not_a_chart(url, "its manifest is not an OCI image manifest"))?;
    if manifest.config.media_type != CONFIG_TYPE {
        let found: String = manifest.config.media_type.chars().take(100).collect();
        return Err(not_a_chart(url, &format!("it is an artifact of type {found}, not {CONFIG_TYPE}")));
    }
    let is_content = |d: &Descriptor| d.media_type == CONTENT_TYPE || d.media_type == LEGACY_CONTENT_TYPE;
    let mut contents = manifest.layers.into_iter().filter(is_content);
    match (contents.next(), contents.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(not_a_chart(url, "its manifest has no layer with a chart")),
        (Some(_), Some(_)) => Err(not_a_chart(url, "its manifest has more than one layer with a chart")),
    }
}

async fn list_tags(remote: &Remote, url: &ChartUrl, clock: Clock) -> Result<Vec<String>, RegistryError> {
    let mut next = Some(format!("{}/tags/list?n=1000", url.repository()));
    let mut out = Vec::new();
    for _ in 0..PAGES {
        let Some(path) = next else { return Ok(out) };
        let response =
            remote.send(Method::GET, url.repository(), remote.url(&path)?, "application/json", clock).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(RegistryError::NoChart(url.to_string())),
            s => return Err(remote.status(s, format!("the tags of {url}"))),
        }
        next = next_page(response.headers());
        let body = remote.body(response, MANIFEST_LIMIT, "the list of tags", &url.to_string(), clock).await?;
        let page: TagList =
            serde_json::from_slice(&body).map_err(|_| remote.answer("its list of tags is not JSON"))?;
        out.extend(page.tags.unwrap_or_default().into_iter().filter(|t| is_tag(t)));
        if out.len() > TAGS {
            break;
        }
    }
    if next.is_none() && out.len() <= TAGS {
        return Ok(out);
    }
    Err(remote.answer(format!(
        "its list of tags has more than {TAGS} entries or {PAGES} pages; name a version or a digest"
    )))
}

/// `Link: </v2/a/tags/list?last=x>; rel="next"`; relative to the list's own address.
fn next_page(headers: &HeaderMap) -> Option<String> {
    headers.get_all(LINK).iter().filter_map(|l| l.to_str().ok()).flat_map(|l| l.split(",")).find_map(|link| {
        let (target, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        rest.replace([' ', '"'], "").contains("rel=next").then(|| target.to_owned())
    })
}
