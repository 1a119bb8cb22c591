//! Upgrades of a KSML application through the built host and its plugin, against the helm binary on the same cluster, with
//! the same chart and values.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::registry::Target;
use sutler_testkit::{RealWorld, SutlerProcess, checkout, guest, real};

use crate::upgrade::{helm_upgrade, host_config};
use crate::{Row, median};

/// Upgrades, after one that does not count.
const ROUNDS: u32 = 7;
const OURS: &str = "bench-application-sutler";
const THEIRS: &str = "bench-application-helm";

/// `None` without a real cluster.
pub(crate) async fn run() -> Result<Option<Row>> {
    let Some(world) = real() else { return Ok(None) };
    let bench = Bench::start(world).await?;
    let mut ratios = Vec::new();
    let mut release = String::new();
    for x in 0..=ROUNDS + 1 {
        let (ours, name) = bench.apply(x).await?;
        let theirs = bench.helm(&name)?;
        release = name;
        println!("upgrade of a KSML application, round {x}: sutler {ours:.2?}, helm {theirs:.2?}");
        // The first installs, the second fills caches.
        if x > 1 {
            ratios.push(ours.as_secs_f64() / theirs.as_secs_f64());
        }
    }
    bench.equal(&release)?;
    for namespace in [OURS, THEIRS] {
        bench.kubectl(&["delete", "namespace", namespace, "--wait=false"])?;
    }
    let value = median(&mut ratios);
    Ok(Some(Row {
        what: "upgrade of a KSML application ÷ helm upgrade, wall",
        value,
        unit: "",
        wanted: "<= 1.0",
        met: value <= 1.0,
    }))
}

struct Bench {
    world: RealWorld,
    host: SutlerProcess,
    chart: String,
    version: String,
    folder: tempfile::TempDir,
}

fn config(world: &RealWorld, plugins: &Path, version: &str) -> String {
    let registry = &world.registry;
    format!(
        "{}[plugins.ksml.config]\nchart = \"oci://{registry}/charts/ksml\"\nversion = {version:?}\n\
         namespace = {OURS:?}\n\
         image = \"{registry}/images/ksml-runner:test\"\n\
         [plugins.ksml.grants.helm]\ncharts = [\"oci://{registry}/charts/*\"]\nnamespaces = [{OURS:?}]\n\
         [[plugins.ksml.grants.kubernetes]]\nverbs = [\"get\", \"apply\", \"delete\"]\nkinds = [\"Secret\"]\n\
         namespaces = [{OURS:?}]\n\
         [[plugins.ksml.grants.kubernetes]]\nverbs = [\"list\"]\nkinds = [\"Pod\"]\nnamespaces = [{OURS:?}]\n",
        host_config(world, plugins)
    )
}

/// Each round asks for another port in the NetworkPolicy: the pod goes on, so that what is measured is the upgrade and not
/// the start of a program.
fn settings(x: u32) -> Value {
    json!({
        "size": "XS",
        "definitions": {"orders": "streams:\n  in:\n    topic: in\n    keyType: string\n    valueType: string\npipelines:\n  main:\n    from: in\n    print: true\n"},
        "kafka": {"bootstrapServers": "kafka:9092", "security": {"type": "none"}},
        "networkPolicy": {"enabled": true, "ingress": [{"ports": [{"port": 9000 + x}]}]},
    })
}

impl Bench {
    async fn start(world: RealWorld) -> Result<Self> {
        let root = checkout();
        let folder = tempfile::tempdir()?;
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins)?;
        std::fs::copy(guest("ksml"), plugins.join("ksml.wasm"))?;
        let program = folder.path().join("ksml-runner");
        let build = root.join("host/testkit/images/ksml-runner/build.sh");
        ensure!(Command::new(build).arg(&program).status()?.success(), "the image's program was not built");
        let registry = Target { url: format!("http://{}", world.registry), login: None, ca: None };
        registry.push_image(&program, "images/ksml-runner", "test").await?;
        let source = root.join("examples/charts/ksml");
        registry.push_chart(&source, "charts/ksml").await?;
        let text = std::fs::read_to_string(source.join("Chart.yaml"))?;
        let version =
            text.lines().find_map(|l| l.strip_prefix("version: ")).context("a chart without version")?;
        let host = SutlerProcess::start(&config(&world, &plugins, version), &[]).await;
        let chart = format!("oci://{}/charts/ksml", world.registry);
        let bench = Self { world, host, chart, version: version.to_owned(), folder };
        for namespace in [OURS, THEIRS] {
            bench.kubectl(&["delete", "namespace", namespace, "--ignore-not-found"])?;
            bench.kubectl(&["create", "namespace", namespace])?;
        }
        Ok(bench)
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.world.run(&self.world.kubectl, args).map_err(anyhow::Error::msg)
    }

    fn ask_helm(&self, args: &[&str]) -> Result<String> {
        self.world.run(&self.world.helm, args).map_err(anyhow::Error::msg)
    }

    /// The whole apply, readiness too, and the release's name.
    async fn apply(&self, x: u32) -> Result<(Duration, String)> {
        let request = SampleRequest::new("deployment/ksml");
        let request = match x.checked_sub(1) {
            None => request.create(settings(x)),
            Some(before) => request.update(settings(x), settings(before)),
        };
        let began = Instant::now();
        let answer = Caller::new(&self.host.url).apply(&request.body()).await;
        let took = began.elapsed();
        let outcome = answer.json.get("outcome").and_then(Value::as_str);
        ensure!(outcome == Some("succeeded"), "{} {}", answer.status, answer.text);
        let release = answer.json.pointer("/resources/0/outputs/release").and_then(Value::as_str);
        Ok((took, release.context("no release in the outputs")?.to_owned()))
    }

    /// `helm upgrade --install`, as its users call it, with the values that the plugin made. It waits for nothing.
    fn helm(&self, release: &str) -> Result<Duration> {
        let values = self.folder.path().join("values.json");
        std::fs::write(&values, self.ask_helm(&["get", "values", release, "-n", OURS, "-o", "json"])?)?;
        let folder = self.folder.path();
        let mut command = helm_upgrade(&self.world, folder, release, &self.chart, &self.version);
        command.args(["-n", THEIRS, "-f"]).arg(values);
        let began = Instant::now();
        ensure!(command.status()?.success(), "helm upgrade failed");
        Ok(began.elapsed())
    }

    /// Both did the same work: as many revisions, and the same objects but for their namespace.
    fn equal(&self, release: &str) -> Result<()> {
        let of = |what: &[&str], namespace: &str| {
            self.ask_helm(&[what, &[release, "-n", namespace]].concat())
                .map(|text| text.replace(namespace, "NAMESPACE"))
        };
        let manifest = of(&["get", "manifest"], OURS)?;
        ensure!(manifest.contains(&(9000 + ROUNDS + 1).to_string()), "the last port is not in {manifest}");
        ensure!(manifest == of(&["get", "manifest"], THEIRS)?, "the two releases differ");
        for namespace in [OURS, THEIRS] {
            let history = self.ask_helm(&["history", release, "-n", namespace, "-o", "json"])?;
            let history: Vec<Value> = serde_json::from_str(&history)?;
            let last = history.last().and_then(|h| h.get("revision")).and_then(Value::as_u64);
            ensure!(last == Some(u64::from(ROUNDS) + 2), "{namespace} ended with revision {last:?}");
        }
        Ok(())
    }
}
