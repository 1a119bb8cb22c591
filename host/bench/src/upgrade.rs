//! Releases through the built host, against the helm binary on the same cluster, chart, values and registry.
//!
//! Requests are counted by the API server itself, in its audit log.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::registry::Target;
use sutler_testkit::{RealWorld, SutlerProcess, guest, real};

use crate::process::{Process, children_cpu};
use crate::{Row, median};

/// Upgrades a chart, after one that does not count.
const ROUNDS: u32 = 7;
/// Installs at the same time.
const AT_ONCE: usize = 50;
const OURS: &str = "bench-sutler";
const THEIRS: &str = "bench-helm";

/// `None` without a real cluster.
pub(crate) async fn run() -> Result<Option<Vec<Row>>> {
    let Some(world) = real() else { return Ok(None) };
    let bench = Bench::start(world).await?;
    let mut rows = Vec::new();
    for objects in [10, 100] {
        rows.extend(bench.upgrades(objects).await?);
    }
    rows.extend(bench.installs().await?);
    bench.end()?;
    Ok(Some(rows))
}

struct Bench {
    world: RealWorld,
    audit: PathBuf,
    host: SutlerProcess,
    folder: tempfile::TempDir,
}

/// `helm upgrade --install`, as its users call it, with folders of its own; the caller adds values and the namespace.
pub(crate) fn helm_upgrade(
    world: &RealWorld,
    folder: &Path,
    release: &str,
    chart: &str,
    version: &str,
) -> Command {
    let mut command = Command::new(&world.helm);
    command
        .args(["upgrade", "--install", release, chart, "--version", version, "--plain-http"])
        .env("KUBECONFIG", &world.kubeconfig)
        .env("HELM_CACHE_HOME", folder.join("helm-cache"))
        .env("HELM_CONFIG_HOME", folder.join("helm-config"))
        .env("HELM_DATA_HOME", folder.join("helm-data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Of a host on the test's cluster and registry that answers an apply when it is done; tables of plugins follow.
pub(crate) fn host_config(world: &RealWorld, plugins: &Path) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[catalog]\ndir = {plugins:?}\n\
         [operations]\nanswer-within-milliseconds = 60000\n\
         [kubernetes.clusters.default]\nkubeconfig = {:?}\n\
         [registries.{:?}]\nplain-http = true\n",
        world.kubeconfig, world.registry
    )
}

fn config(world: &RealWorld, plugins: &Path) -> String {
    let registry = &world.registry;
    format!(
        "{}[plugins.release.limits]\nconcurrent-calls = 64\n\
         [plugins.release.config]\nnamespace = {OURS:?}\n\
         [plugins.release.grants.helm]\ncharts = [\"oci://{registry}/charts/*\"]\nnamespaces = [{OURS:?}]\n",
        host_config(world, plugins)
    )
}

/// Of these kinds no pod comes, so that the cluster has the same work with both.
fn write_chart(folder: &Path, objects: u32) -> Result<PathBuf> {
    let chart = folder.join(format!("of-{objects}"));
    std::fs::create_dir_all(chart.join("templates"))?;
    std::fs::write(
        chart.join("Chart.yaml"),
        format!("apiVersion: v2\nname: of-{objects}\nversion: 1.0.0\n"),
    )?;
    std::fs::write(chart.join("values.yaml"), "x: 0\n")?;
    for n in 0..objects {
        let meta = format!("metadata: {{name: \"{{{{ .Release.Name }}}}-{n}\"}}");
        let text = match n % 5 {
            0 => format!(
                "apiVersion: apps/v1\nkind: Deployment\n{meta}\nspec:\n  replicas: 0\n  selector: {{matchLabels: {{n: \"{n}\"}}}}\n  \
                 template:\n    metadata: {{labels: {{n: \"{n}\"}}}}\n    \
                 spec: {{containers: [{{name: c, image: none, env: [{{name: X, value: \"{{{{ .Values.x }}}}\"}}]}}]}}\n"
            ),
            1 => format!(
                "apiVersion: v1\nkind: ServiceAccount\n{meta}\nimagePullSecrets: [{{name: \"x-{{{{ .Values.x }}}}\"}}]\n"
            ),
            _ => format!("apiVersion: v1\nkind: ConfigMap\n{meta}\ndata: {{x: \"{{{{ .Values.x }}}}\"}}\n"),
        };
        std::fs::write(chart.join(format!("templates/{n}.yaml")), text)?;
    }
    Ok(chart)
}

impl Bench {
    async fn start(world: RealWorld) -> Result<Self> {
        let audit = std::env::var_os("SUTLER_REAL_AUDIT").context("SUTLER_REAL_AUDIT is not set")?;
        let folder = tempfile::tempdir()?;
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins)?;
        std::fs::copy(guest("release"), plugins.join("release.wasm"))?;
        let host = SutlerProcess::start(&config(&world, &plugins), &[]).await;
        let bench = Self { world, audit: audit.into(), host, folder };
        for namespace in [OURS, THEIRS] {
            let args = ["delete", "namespace", namespace, "--ignore-not-found"];
            bench.tool(&bench.world.kubectl, &args)?;
            bench.tool(&bench.world.kubectl, &["create", "namespace", namespace])?;
        }
        Ok(bench)
    }

    fn end(&self) -> Result<()> {
        for namespace in [OURS, THEIRS] {
            self.tool(&self.world.kubectl, &["delete", "namespace", namespace, "--wait=false"])?;
        }
        Ok(())
    }

    fn tool(&self, program: &Path, args: &[&str]) -> Result<String> {
        self.world.run(program, args).map_err(anyhow::Error::msg)
    }

    async fn push(&self, objects: u32) -> Result<String> {
        let chart = write_chart(self.folder.path(), objects)?;
        let registry = Target { url: format!("http://{}", self.world.registry), login: None, ca: None };
        let path = format!("charts/of-{objects}");
        registry.push_chart(&chart, &path).await.map_err(|e| anyhow::anyhow!("pushing {path}: {e}"))?;
        Ok(format!("oci://{}/{path}", self.world.registry))
    }

    async fn apply(&self, application: &str, chart: &str, x: u32) -> Result<Duration> {
        let caller = Caller::new(&self.host.url);
        let settings = json!({"chart": chart, "values": {"x": x}});
        let request = SampleRequest::new("tool/release").application("id", application);
        let request = if x == 0 {
            request.create(settings)
        } else {
            request.update(settings, json!({"chart": chart, "values": {"x": x - 1}}))
        };
        let began = Instant::now();
        let answer = caller.apply(&request.body()).await;
        let outcome = answer.json.get("outcome").and_then(Value::as_str);
        ensure!(outcome == Some("succeeded"), "{} {}", answer.status, answer.text);
        Ok(began.elapsed())
    }

    fn helm(&self, release: &str, chart: &str, x: u32) -> Command {
        let mut command = helm_upgrade(&self.world, self.folder.path(), release, chart, "1.0.0");
        command.args(["--set", &format!("x={x}"), "-n", THEIRS]);
        command
    }

    async fn upgrades(&self, objects: u32) -> Result<[Row; 2]> {
        let chart = self.push(objects).await?;
        let name = format!("up-{objects}");
        let (mut walls, mut calls) = (Vec::new(), Vec::new());
        for x in 0..=ROUNDS + 1 {
            let from = self.audited()?;
            let ours = self.apply(&name, &chart, x).await?;
            let began = Instant::now();
            ensure!(self.helm(&name, &chart, x).status()?.success(), "helm upgrade failed");
            let theirs = began.elapsed();
            let (a, b) = self.requests(from)?;
            println!(
                "upgrade of {objects} objects, round {x}: sutler {ours:.1?} and {a} requests, helm {theirs:.1?} and {b}"
            );
            // The first installs, the second fills caches.
            if x > 1 {
                walls.push(ours.as_secs_f64() / theirs.as_secs_f64());
                calls.push(a as f64 / b as f64);
            }
        }
        self.equal(&name, objects)?;
        let (wall, call) = (median(&mut walls), median(&mut calls));
        let ten = objects == 10;
        Ok([
            Row {
                what: if ten {
                    "upgrade of 10 objects ÷ helm upgrade, wall"
                } else {
                    "upgrade of 100 objects ÷ helm upgrade, wall"
                },
                value: wall,
                unit: "",
                wanted: "<= 0.7",
                met: wall <= 0.7,
            },
            Row {
                what: if ten {
                    "upgrade of 10 objects ÷ helm upgrade, API calls"
                } else {
                    "upgrade of 100 objects ÷ helm upgrade, API calls"
                },
                value: call,
                unit: "",
                wanted: "<= 0.5",
                met: call <= 0.5,
            },
        ])
    }

    /// Both wrote what was asked of them last.
    fn equal(&self, name: &str, objects: u32) -> Result<()> {
        let each = "jsonpath={range .items[*]}{.metadata.annotations.meta\\.helm\\.sh/release-name} {.data.x}{\"\\n\"}{end}";
        for namespace in [OURS, THEIRS] {
            let found =
                self.tool(&self.world.kubectl, &["get", "configmaps", "-n", namespace, "-o", each])?;
            let right = found.lines().filter_map(|l| l.split_once(' ')).filter(|(release, x)| {
                let rest = release.strip_prefix(name);
                rest.is_some_and(|r| r.is_empty() || r.starts_with('-')) && *x == (ROUNDS + 1).to_string()
            });
            let right = right.count();
            ensure!(
                right == (objects * 3 / 5) as usize,
                "{namespace}: {right} of {name} have the last values"
            );
        }
        Ok(())
    }

    /// Bytes of the audit log so far.
    fn audited(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.audit).with_context(|| self.audit.display().to_string())?.len())
    }

    /// Requests of sutler and of helm since then.
    fn requests(&self, from: u64) -> Result<(usize, usize)> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = std::fs::File::open(&self.audit)?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let of =
            |agent: &str| text.lines().filter(|l| l.contains(&format!("\"userAgent\":\"{agent}"))).count();
        Ok((of("sutler/"), of("Helm/")))
    }

    async fn installs(&self) -> Result<Vec<Row>> {
        let chart = Arc::new(self.push(10).await?);
        let process = Process(self.host.id().context("the host has ended")?);
        let idle = process.restart_peak()?;
        let cpu = process.cpu()?;
        let began = Instant::now();
        let ours = (0..AT_ONCE).map(|n| {
            let chart = chart.clone();
            async move { self.apply(&format!("many-{n}"), &chart, 0).await }
        });
        try_join_all(ours).await?;
        let (wall, cpu, peak) = (began.elapsed().as_secs_f64(), process.cpu()? - cpu, process.peak()?);
        let before = children_cpu()?;
        let began = Instant::now();
        let started: Vec<_> = (0..AT_ONCE)
            .map(|n| self.helm(&format!("many-{n}"), &chart, 0).spawn())
            .collect::<Result<_, _>>()?;
        for mut child in started {
            ensure!(child.wait()?.success(), "helm install failed");
        }
        let (their_wall, their_cpu) = (began.elapsed().as_secs_f64(), children_cpu()? - before);
        let each = (peak - idle) / AT_ONCE as f64;
        println!(
            "{AT_ONCE} installs at once: sutler {wall:.2} s, {cpu:.2} s CPU, {idle:.0} to {peak:.0} MB; helm {their_wall:.2} s, {their_cpu:.2} s CPU"
        );
        let row = |what, value: f64, unit, wanted, limit: f64| Row {
            what,
            value,
            unit,
            wanted,
            met: value <= limit,
        };
        Ok(vec![
            row("50 installs at once ÷ 50 helm processes, wall", wall / their_wall, "", "<= 0.5", 0.5),
            row("50 installs at once ÷ 50 helm processes, CPU", cpu / their_cpu, "", "<= 0.3", 0.3),
            row("memory of the host for each of 50 installs at once", each, "MB", "< 20", 20.0),
        ])
    }
}
