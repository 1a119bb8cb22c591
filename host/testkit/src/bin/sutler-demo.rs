//! The demonstration: a whole life of a KSML application over HTTP, each request and answer printed.
//! On embedded parts it proves nothing about a real cluster, and says so.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a program for people; only JSON is indexed, by name"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_testkit::SutlerProcess;
use sutler_testkit::cluster::Emulator;
use sutler_testkit::http::client;
use sutler_testkit::registry::{Registry, Target};

#[derive(Parser)]
struct Args {
    /// Folder of the built plugins
    #[arg(long)]
    plugins: PathBuf,
    /// Folder of the chart
    #[arg(long)]
    chart: PathBuf,
    /// The chart's image program, for a real cluster
    #[arg(long)]
    program: Option<PathBuf>,
    #[arg(long, requires = "registry")]
    cluster: Option<PathBuf>,
    #[arg(long, requires = "cluster")]
    registry: Option<String>,
    /// Leave everything running
    #[arg(long)]
    keep: bool,
}

/// Where charts and pods are, and what has to live as long as the demonstration.
struct World {
    kubeconfig: PathBuf,
    registry: String,
    image: Option<String>,
    _parts: (Option<Emulator>, Option<Registry>),
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let world = world(&args, folder.path()).await?;
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins)?;
    for name in ["ksml.wasm", "namespace.wasm"] {
        std::fs::copy(args.plugins.join(name), plugins.join(name))
            .with_context(|| format!("{name} is not in {}", args.plugins.display()))?;
    }
    let config = config(&world, &plugins);
    say("sutler.toml", &config);
    println!("\nStarting sutler. Helm's engine is compiled the first time and cached.");
    let mut host = SutlerProcess::start(&config, &[]).await;
    println!("sutler listens on {}", host.url);
    let result = life(&host.url, args.cluster.is_some()).await;
    if args.keep && result.is_ok() {
        println!(
            "\nStill running (--keep). Try:\n  curl -s {}/handles | head -c 600\nCtrl-C ends it.",
            host.url
        );
        tokio::signal::ctrl_c().await?;
    }
    let ended = host.stop().await;
    result?;
    ensure!(ended.success(), "sutler ended with {ended}");
    println!(
        "\nDone: planned, applied, inspected, read its logs, deleted. Next: README.md, \"One's own plugin\"."
    );
    Ok(())
}

async fn world(args: &Args, folder: &Path) -> Result<World> {
    if let (Some(cluster), Some(url)) = (&args.cluster, &args.registry) {
        let target = Target { url: url.trim_end_matches('/').to_owned(), login: None, ca: None };
        let host = target.url.split("://").last().unwrap_or_default().to_owned();
        target.push_chart(&args.chart, "charts/ksml").await?;
        let image = match &args.program {
            Some(p) => {
                target.push_image(p, "images/ksml-runner", "demo").await?;
                Some(format!("{host}/images/ksml-runner:demo"))
            }
            None => None,
        };
        println!("Real parts: cluster {}, registry {url} (chart and image were pushed).", cluster.display());
        return Ok(World { kubeconfig: cluster.clone(), registry: host, image, _parts: (None, None) });
    }
    let emulator = Emulator::start().await;
    let registry = Registry::serve_folder(args.chart.parent().unwrap_or(Path::new("."))).await?;
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, emulator.kubeconfig())?;
    println!(
        "Embedded parts: a cluster EMULATOR on {} (it stores objects and calls everything ready at once; it runs \
         nothing) and a chart registry over a folder on {}.",
        emulator.url(),
        registry.host()
    );
    Ok(World { kubeconfig, registry: registry.host(), image: None, _parts: (Some(emulator), Some(registry)) })
}

fn config(world: &World, plugins: &Path) -> String {
    let registry = &world.registry;
    let image = world.image.as_ref().map_or_else(String::new, |i| format!("image = \"{i}\"\n"));
    format!(
        r#"[server]
listen = "127.0.0.1:0"
admin-listen = "127.0.0.1:0"

[catalog]
dir = "{plugins}"

[kubernetes.clusters.default]
kubeconfig = "{kubeconfig}"

[registries."{registry}"]
plain-http = true

[plugins.ksml.config]
chart = "oci://{registry}/charts/ksml"
namespace = "ksml-{{tenant}}"
{image}
[plugins.ksml.grants.helm]
charts = ["oci://{registry}/charts/*"]
namespaces = ["ksml-{{tenant}}"]
cluster-scoped-kinds = ["Namespace"]

[[plugins.ksml.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Secret"]
namespaces = ["ksml-{{tenant}}"]

[plugins.ksml.grants.logs]
namespaces = ["ksml-{{tenant}}"]

[[plugins.namespace.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Namespace"]
names = ["{{application}}-*"]
"#,
        plugins = plugins.display(),
        kubeconfig = world.kubeconfig.display(),
    )
}

fn settings() -> Value {
    json!({
        "size": "XS",
        "replicas": 1,
        "definitions": {"orders": "streams:\n  orders:\n    topic: orders\n    keyType: string\n    valueType: json\npipelines:\n  main:\n    from: orders\n    print: true\n"},
        "kafka": {"bootstrapServers": "kafka:9092", "topicPattern": "{tenant}-{topic}"}
    })
}

/// Plan, apply, inspect, logs, delete.
async fn life(url: &str, real: bool) -> Result<()> {
    let plan = call(url, "/plan", change("create")).await?;
    ensure!(plan["outcome"] == "planned", "the plan failed");
    let applied = apply(url, change("create")).await?;
    ensure!(applied["outcome"] == "succeeded", "the apply failed");
    let outputs = applied["resources"][0]["outputs"].clone();
    let mut ask = change("create");
    ask["changes"] = json!([{"resource": "main", "expected": {"settings": settings(), "outputs": outputs}}]);
    let seen = call(url, "/inspect", ask).await?;
    ensure!(seen["outcome"] == "inspected", "the inspection failed");
    logs(url).await?;
    let gone = apply(url, change("delete")).await?;
    ensure!(gone["outcome"] == "succeeded", "the deletion failed");
    if !real {
        println!("\nThe cluster was an emulator: see --cluster for the same on a real one.");
    }
    Ok(())
}

fn change(action: &str) -> Value {
    let mut change = json!({"resource": "main", "action": action});
    if action != "delete" {
        change["settings"] = settings();
    }
    json!({
        "requestId": format!("demo-{action}"), "kind": "deployment", "type": "ksml",
        "application": {"id": "orders", "environment": "demo", "tenant": "acme"},
        "changes": [change],
    })
}

async fn call(url: &str, path: &str, body: Value) -> Result<Value> {
    say(&format!("POST {path}"), &serde_json::to_string_pretty(&body)?);
    let answer = client().post(format!("{url}{path}")).json(&body).send().await?;
    let status = answer.status();
    let json: Value = answer.json().await?;
    say(&format!("{status}"), &serde_json::to_string_pretty(&json)?);
    ensure!(status.is_success(), "POST {path} was answered {status}");
    Ok(json)
}

/// An apply; where it is accepted, its operation until it is done.
async fn apply(url: &str, body: Value) -> Result<Value> {
    let mut answer = call(url, "/apply", body).await?;
    let Some(id) = answer["operationId"].as_str().map(str::to_owned) else { return Ok(answer) };
    while answer["status"] != "done" {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let response = client().get(format!("{url}/operations/{id}")).send().await?;
        answer = response.error_for_status()?.json().await?;
        say(&format!("GET /operations/{id}"), &serde_json::to_string_pretty(&answer)?);
    }
    Ok(answer)
}

async fn logs(url: &str) -> Result<()> {
    let path = "/logs?kind=deployment&type=ksml&tenant=acme&application=orders&environment=demo&follow=true&tailLines=3";
    say(&format!("GET {path}"), "(the first five lines)");
    let answer = client().get(format!("{url}{path}")).send().await?;
    ensure!(answer.status().is_success(), "GET /logs was answered {}", answer.status());
    let mut body = answer.bytes_stream();
    let mut text = String::new();
    while text.lines().count() < 5 {
        match tokio::time::timeout(Duration::from_secs(30), body.next()).await {
            Ok(Some(piece)) => text.push_str(&String::from_utf8_lossy(&piece?)),
            Ok(None) => break,
            Err(_) => anyhow::bail!("no log line for 30 s"),
        }
    }
    ensure!(!text.is_empty(), "the logs were empty");
    println!("{}", text.trim_end());
    Ok(())
}

fn say(title: &str, text: &str) {
    println!("\n── {title} {}", "─".repeat(70_usize.saturating_sub(title.chars().count())));
    println!("{text}");
}
