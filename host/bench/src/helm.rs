//! A rendering in a fresh sandbox, against `helm template` as a process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use sutler_helm::{RenderRequest, TemplateEngine as _};
use sutler_runtime::{CompileCache, Engine, EngineConfig, HelmEngine};
use sutler_testkit::registry::package;

use crate::Row;

const ROUNDS: usize = 15;

/// helm, where there is one.
pub(crate) fn binary() -> Option<PathBuf> {
    let given = std::env::var_os("SUTLER_REAL_HELM").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let built = std::fs::read_dir(home.join(".cache/sutler/kubernetes")).into_iter().flatten().flatten();
    given.or_else(|| built.map(|e| e.path().join("helm")).find(|p| p.exists()))
}

pub(crate) async fn run() -> Result<Option<Row>> {
    let Some(helm) = binary() else { return Ok(None) };
    let root = sutler_testkit::checkout();
    let chart = root.join("examples/charts/ksml");
    let engine_file = std::env::var_os("SUTLER_HELM_ENGINE").map(PathBuf::from);
    let Some(file) = engine_file else {
        return Err(anyhow!("SUTLER_HELM_ENGINE is not set: run cargo xtask bench"));
    };
    let compressed: &'static [u8] = Box::leak(std::fs::read(file)?.into_boxed_slice());
    let folder = tempfile::tempdir()?;
    let cache = CompileCache::open(&folder.path().join("cache"))?;
    let engine = HelmEngine::start(Engine::new(EngineConfig::default())?, cache, compressed);
    let values = json!({"ksmlRunnerConfig": {"kafka": {"application.id": "orders", "bootstrap.servers": "kafka:9092"}}});
    let request = RenderRequest {
        name: "orders".into(),
        namespace: "ns".into(),
        revision: 1,
        upgrade: false,
        chart: package(&chart)?.into(),
        values: values.clone(),
        kube_version: String::new(),
        api_versions: vec![],
        lookups: vec![],
        seed: [1; 32],
        now_millis: 0,
    };
    engine.render(request.clone()).await?;
    let file = folder.path().join("values.json");
    std::fs::write(&file, values.to_string())?;
    let mut times = BTreeMap::from([("sutler", Vec::new()), ("helm", Vec::new())]);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let answer = engine.render(request.clone()).await?;
        times.entry("sutler").or_default().push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(answer.manifest.contains("kind: StatefulSet"), "the rendering is empty");
        let began = Instant::now();
        let mut command = Command::new(&helm);
        command.args(["template", "orders"]).arg(&chart).arg("-f").arg(&file).stdout(Stdio::null());
        ensure!(command.status()?.success(), "helm template failed");
        times.entry("helm").or_default().push(began.elapsed().as_secs_f64() * 1e3);
    }
    let mut median = |who: &str| {
        let v = times.entry(if who == "helm" { "helm" } else { "sutler" }).or_default();
        v.sort_by(f64::total_cmp);
        v.get(v.len() / 2).copied().unwrap_or_default()
    };
    let (ours, theirs) = (median("sutler"), median("helm"));
    println!("render: sutler {ours:.1} ms in a fresh sandbox, helm template {theirs:.1} ms as a process");
    let ratio = ours / theirs;
    Ok(Some(Row {
        what: "Helm rendering in a fresh sandbox ÷ helm template as a process",
        value: ratio,
        unit: "",
        wanted: "<= 0.7",
        met: ratio <= 0.7,
    }))
}
