//! A chart of 5 MB: pulled, found on disk by a new process, and found in memory, beside `helm pull` as a process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::BoxFuture;
use serde_json::json;
use sutler_helm::{
    ChartReference, EngineError, Grants, Helm, HelmConfig, NoJobs, RenderAnswer, RenderRequest,
    TemplateEngine,
};
use sutler_kubernetes::{ClusterConfig, Clusters, ClustersConfig};
use sutler_model::{Application, Call, Digest, Effective, Fence, Identifier, Layer, Mode, Owner};
use sutler_testkit::registry::{Registry, RegistryOptions, package};

use crate::{Row, median};

const ROUNDS: usize = 15;
const CACHED_ROUNDS: usize = 2000;
const SIZE: usize = 5 << 20;

/// Nothing is rendered here.
struct NoEngine;

impl TemplateEngine for NoEngine {
    fn render(&self, _: RenderRequest) -> BoxFuture<'_, Result<RenderAnswer, EngineError>> {
        Box::pin(async { Err(EngineError::Unavailable("no engine".into())) })
    }
}

/// A chart whose archive is about as large as its content: bytes that do not compress.
fn chart(folder: &Path) -> Result<Vec<u8>> {
    std::fs::create_dir_all(folder.join("files"))?;
    std::fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: app\nversion: 1.0.0\n")?;
    std::fs::write(folder.join("values.yaml"), "replicas: 1\n")?;
    let mut bytes = Vec::with_capacity(SIZE);
    let mut last = Digest::of(b"start");
    while bytes.len() < SIZE {
        bytes.extend_from_slice(last.as_bytes());
        last = Digest::of(last.as_bytes());
    }
    std::fs::write(folder.join("files/data"), bytes)?;
    Ok(package(folder)?)
}

fn call() -> Result<Call> {
    let id = Identifier::parse("bench")?;
    let application =
        Application { id: id.clone(), environment: id.clone(), tenant: Some(id), instance: None };
    Ok(Call {
        plugin: "bench".parse()?,
        owner: Owner { application, pair: "deployment/app".parse()? },
        mode: Mode::Plan,
        request_id: "bench".into(),
        deadline: Instant::now() + Duration::from_secs(600),
        job: None,
        fence: Fence::endless(),
    })
}

fn helm(cache: &Path, host: &str) -> Result<Helm> {
    let kubeconfig = cache.with_extension("kubeconfig");
    std::fs::write(&kubeconfig, "")?;
    let cluster = ClusterConfig { kubeconfig: Some(kubeconfig), ..ClusterConfig::default() };
    let clusters = ClustersConfig {
        clusters: BTreeMap::from([("default".into(), cluster)]),
        ..ClustersConfig::default()
    };
    let config = HelmConfig { cache_folder: Some(cache.to_owned()), ..HelmConfig::default() };
    let registries =
        BTreeMap::from([(host.to_owned(), serde_json::from_value(json!({"plain-http": true}))?)]);
    let clusters = Arc::new(Clusters::new(&clusters)?);
    Ok(Helm::new(&config, &registries, clusters, Arc::new(NoEngine), Arc::new(NoJobs))?)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// `helm pull` as a process, in milliseconds.
fn theirs_once(binary: &Path, url: &str, folder: &Path) -> Result<f64> {
    let began = Instant::now();
    let mut command = Command::new(binary);
    command.args(["pull", url, "--version", "1.0.0", "--plain-http", "--destination"]);
    let status = command.arg(folder).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(status.success(), "helm pull failed");
    Ok(millis(began))
}

pub(crate) async fn run() -> Result<Row> {
    let folder = tempfile::tempdir()?;
    let registry = Registry::start(RegistryOptions::default()).await;
    let archive = chart(&folder.path().join("app"))?;
    let size = archive.len();
    registry.push_archive(archive, "charts/app")?;
    let url = format!("oci://{}/charts/app", registry.host());
    let grants: Grants = serde_json::from_value(json!({"charts": [url]}))?;
    let grants = Effective::new(vec![(Layer::Plugin("bench".into()), Arc::new(grants))]);
    let wanted = ChartReference { url: url.clone(), version: Some("1.0.0".into()), digest: None };
    let call = call()?;
    let (mut cold, mut disk, mut memory, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let cache = folder.path().join(format!("cache-{round}"));
        for times in [&mut cold, &mut disk] {
            let helm = helm(&cache, &registry.host())?;
            let began = Instant::now();
            helm.pull(&call, &grants, &wanted).await?;
            times.push(millis(began));
        }
        if let Some(binary) = crate::helm::binary() {
            theirs.push(theirs_once(&binary, &url, folder.path())?);
        }
        std::fs::remove_dir_all(&cache)?;
    }
    let kept = helm(&folder.path().join("kept"), &registry.host())?;
    kept.pull(&call, &grants, &wanted).await?;
    registry.forget_requests();
    for _ in 0..CACHED_ROUNDS {
        let began = Instant::now();
        kept.pull(&call, &grants, &wanted).await?;
        memory.push(millis(began));
    }
    let asked = registry.requests().len();
    let cached = median(&mut memory);
    println!(
        "pull of {:.1} MB: {:.1} ms from the registry, {:.1} ms from disk in a new process, {cached:.4} ms from memory ({asked} requests in {CACHED_ROUNDS} pulls); helm pull as a process {:.1} ms",
        size as f64 / 1e6,
        median(&mut cold),
        median(&mut disk),
        median(&mut theirs),
    );
    Ok(Row { what: "a cached chart of 5 MB", value: cached, unit: "ms", wanted: "< 1", met: cached < 1.0 })
}
