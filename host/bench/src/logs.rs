//! Logs of many pods through the built host, against `kubectl logs -f` on the same pods, and what a follower costs.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use sutler_testkit::http::client;
use sutler_testkit::{RealWorld, SutlerProcess, guest, real};

use crate::process::Process;
use crate::{Row, median};

const PODS: usize = 20;
/// Of each pod; of about 100 bytes, so that no kubelet rotates them.
const LINES: usize = 20_000;
const ROUNDS: usize = 7;
const FOLLOWERS: usize = 200;
const NAMESPACE: &str = "bench-logs";

/// `None` without a real cluster.
pub(crate) async fn run() -> Result<Option<Vec<Row>>> {
    let Some(world) = real() else { return Ok(None) };
    let folder = tempfile::tempdir()?;
    let bench = Bench { host: start(&world, folder.path()).await?, world };
    bench.pods(folder.path())?;
    // What the first round fills does not count.
    bench.follow("", PODS * LINES).await?;
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let ours = bench.follow("", PODS * LINES).await?;
        let theirs = bench.kubectl()?;
        let rate = |time: Duration| (PODS * LINES) as f64 / time.as_secs_f64();
        println!(
            "logs of {PODS} pods, round {round}: sutler {:.0} lines/s, kubectl logs -f {:.0} lines/s",
            rate(ours),
            rate(theirs)
        );
        ratios.push(theirs.as_secs_f64() / ours.as_secs_f64());
    }
    let ratio = median(&mut ratios);
    let each = bench.memory().await?;
    bench.tool(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
    Ok(Some(vec![
        Row {
            what: "logs followed of 20 pods ÷ kubectl logs -f, lines a second",
            value: ratio,
            unit: "",
            wanted: ">= 1.0",
            met: ratio >= 1.0,
        },
        Row {
            what: "memory of the host for each of 200 followers of a pod",
            value: each,
            unit: "MB",
            wanted: "< 1",
            met: each < 1.0,
        },
    ]))
}

struct Bench {
    world: RealWorld,
    host: SutlerProcess,
}

async fn start(world: &RealWorld, folder: &std::path::Path) -> Result<SutlerProcess> {
    let plugins = folder.join("plugins");
    std::fs::create_dir(&plugins)?;
    std::fs::copy(guest("kafka-connect"), plugins.join("kafka-connect.wasm"))?;
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[catalog]\ndir = {plugins:?}\n\
         [api]\nmax-log-streams = {}\n[kubernetes.clusters.default]\nkubeconfig = {:?}\n\
         [plugins.kafka-connect.config]\nnamespaces = [{NAMESPACE:?}]\nselector = \"app=writer\"\n\
         [plugins.kafka-connect.grants.logs]\nnamespaces = [{NAMESPACE:?}]\nany-owner = true\n",
        FOLLOWERS + 8,
        world.kubeconfig
    );
    Ok(SutlerProcess::start(&config, &[]).await)
}

impl Bench {
    fn tool(&self, words: &[&str]) -> Result<String> {
        self.world.run(&self.world.kubectl, words).map_err(anyhow::Error::msg)
    }

    /// They write everything at once, and stay.
    fn pods(&self, folder: &std::path::Path) -> Result<()> {
        self.tool(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])?;
        self.tool(&["create", "namespace", NAMESPACE])?;
        self.tool(&["-n", NAMESPACE, "wait", "--for=create", "serviceaccount/default", "--timeout=60s"])?;
        let script = format!(
            "pad=$(printf %90s | tr ' ' x); i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo $i $pad; done; \
             touch /tmp/done; sleep 100000"
        );
        let one = |n: usize| {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("w-{n}"), "namespace": NAMESPACE, "labels": {"app": "writer"}},
                "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [
                    {"name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "IfNotPresent",
                     "command": ["/bin/sh", "-c", script],
                     "readinessProbe": {"exec": {"command": ["/bin/ls", "/tmp/done"]}, "periodSeconds": 1}}]}})
        };
        let list =
            json!({"apiVersion": "v1", "kind": "List", "items": (0..PODS).map(one).collect::<Vec<_>>()});
        let file = folder.join("pods.json");
        std::fs::write(&file, list.to_string())?;
        self.tool(&["apply", "-f", file.to_str().context("a path that is text")?])?;
        self.tool(&["-n", NAMESPACE, "wait", "--for=condition=Ready", "pods", "--all", "--timeout=300s"])?;
        Ok(())
    }

    async fn open(&self, query: &str) -> Result<reqwest::Response> {
        let url = format!(
            "{}/logs?kind=tool&type=kafka-connect&tenant=acme&application=orders&environment=prod&follow=true{query}",
            self.host.url
        );
        let answer = client().get(url).send().await?;
        ensure!(answer.status() == 200, "{}", answer.text().await?);
        Ok(answer)
    }

    /// Until so many lines have come.
    async fn follow(&self, query: &str, lines: usize) -> Result<Duration> {
        let began = Instant::now();
        read(&mut self.open(query).await?, lines).await?;
        Ok(began.elapsed())
    }

    fn kubectl(&self) -> Result<Duration> {
        let began = Instant::now();
        let most = format!("--max-log-requests={PODS}");
        let mut child = Command::new(&self.world.kubectl)
            .args(["-n", NAMESPACE, "logs", "-f", "-l", "app=writer", "--tail=-1", "--prefix", &most])
            .env("KUBECONFIG", &self.world.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = child.stdout.take().context("no output")?;
        let (mut left, mut buffer) = (PODS * LINES, vec![0; 1 << 16]);
        while left > 0 {
            let n = out.read(&mut buffer)?;
            ensure!(n > 0, "kubectl ended with {left} lines to come");
            left = left.saturating_sub(newlines(buffer.get(..n).unwrap_or_default()));
        }
        let elapsed = began.elapsed();
        child.kill()?;
        child.wait()?;
        Ok(elapsed)
    }

    /// MB of the host for each follower that has read everything of one pod and waits for more.
    async fn memory(&self) -> Result<f64> {
        let process = Process(self.host.id().context("the host has ended")?);
        let one = || async {
            let mut answer = self.open("&pod=w-0").await?;
            read(&mut answer, LINES).await?;
            anyhow::Ok(answer)
        };
        let first = one().await?;
        let before = process.memory()?;
        let others = try_join_all((1..FOLLOWERS).map(|_| one())).await?;
        let after = process.memory()?;
        println!("{FOLLOWERS} followers of one pod: {before:.0} MB with one, {after:.0} MB with all");
        drop((first, others));
        Ok((after - before) / (FOLLOWERS - 1) as f64)
    }
}

async fn read(answer: &mut reqwest::Response, lines: usize) -> Result<()> {
    let mut left = lines;
    while left > 0 {
        let chunk = answer.chunk().await?.context("the stream ended early")?;
        left = left.saturating_sub(newlines(&chunk));
    }
    Ok(())
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|b| **b == b'\n').count()
}
