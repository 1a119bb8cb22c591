//! The whole way on a real Kubernetes with kubelet, real registries, and the real helm binary as judge.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_testkit::http::{Caller, client};
use sutler_testkit::registry::Target;
use sutler_testkit::{RealWorld, SutlerProcess, checkout, guest, real};
use tempfile::TempDir;

use crate::life::{KSML, chart, request, settings};

pub(crate) struct Real {
    world: RealWorld,
    pub(crate) host: SutlerProcess,
    config: String,
    _folder: TempDir,
}

/// Builds the program that runs instead of KSML.
pub(crate) fn runner(folder: &Path) -> PathBuf {
    let program = folder.join("ksml-runner");
    let build = checkout().join("host/testkit/images/ksml-runner/build.sh");
    let built = Command::new("sh").arg(build).arg(&program).status().unwrap();
    assert!(built.success(), "the image's program could not be built");
    program
}

/// Pushes chart and image, starts a host for this tenant's namespace.
pub(crate) async fn start(world: RealWorld, tls: bool) -> Real {
    start_with(world, tls, "").await
}

/// The same with these tables besides.
pub(crate) async fn start_with(world: RealWorld, tls: bool, more: &str) -> Real {
    let folder = tempfile::tempdir().unwrap();
    let plain = Target { url: format!("http://{}", world.registry), login: None, ca: None };
    let program = runner(folder.path());
    plain.push_image(&program, "images/ksml-runner", "test").await.unwrap();
    let (registry, table) = if tls {
        let secured = Target {
            url: format!("https://{}", world.registry_tls),
            login: Some((world.registry_user.clone(), world.registry_password.clone())),
            ca: Some(std::fs::read(&world.registry_ca).unwrap()),
        };
        secured.push_chart(&chart(), "charts/ksml").await.unwrap();
        let password = folder.path().join("password");
        std::fs::write(&password, &world.registry_password).unwrap();
        let table = format!(
            "ca = {:?}\nusername = {:?}\npassword-file = {password:?}\n",
            world.registry_ca, world.registry_user
        );
        (world.registry_tls.clone(), table)
    } else {
        plain.push_chart(&chart(), "charts/ksml").await.unwrap();
        (world.registry.clone(), "plain-http = true\n".into())
    };
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    for name in ["ksml", "namespace"] {
        std::fs::copy(guest(name), plugins.join(format!("{name}.wasm"))).unwrap();
    }
    let image = format!("[plugins.ksml.config]\nimage = \"{}/images/ksml-runner:test\"\n", world.registry);
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[catalog]\ndir = {plugins:?}\n\
         [kubernetes.clusters.default]\nkubeconfig = {:?}\n[registries.{registry:?}]\n{table}\n{}\n{GRANTS}\n{more}",
        world.kubeconfig,
        KSML.replace("[plugins.ksml.config]\n", &image).replace("REGISTRY", &registry),
    );
    let host = SutlerProcess::start(&config, &[]).await;
    Real { world, host, config, _folder: folder }
}

const GRANTS: &str = r#"
[[plugins.namespace.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Namespace"]
"#;

impl Real {
    /// The host is killed, and another one on the same configuration takes its place.
    pub(crate) async fn succeed(&mut self) {
        self.host.kill().await;
        self.host = SutlerProcess::start(&self.config, &[]).await;
    }

    async fn ok(&self, path: &str, body: &Value) -> Value {
        let api = Caller::new(&self.host.url);
        let answered = match path {
            "/apply" => api.apply(&sutler_testkit::http::renewed(body)).await,
            _ => api.post(path, body).await,
        };
        assert_eq!(answered.status, 200, "{}", answered.text);
        assert_ne!(
            answered.json["outcome"],
            "failed",
            "{path}: {}\n{}",
            answered.text,
            self.host.log_lines().join("\n")
        );
        answered.json
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.world.run(&self.world.kubectl, args).unwrap()
    }
    pub(crate) fn helm(&self, args: &[&str]) -> String {
        self.world.run(&self.world.helm, args).unwrap()
    }

    /// Every object that the test could have changed, with its resourceVersion.
    fn versions(&self, selector: &str) -> String {
        let kinds = "namespaces,secrets,configmaps,serviceaccounts,services,statefulsets,deployments,jobs,networkpolicies";
        self.kubectl(&[
            "get",
            kinds,
            "-A",
            "-l",
            selector,
            "-o",
            "custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name,V:.metadata.resourceVersion",
            "--no-headers",
        ])
    }
}

/// Settings of a test whose pods need no Kafka.
pub(crate) fn small() -> Value {
    let mut s = settings();
    s["size"] = json!("XS");
    s
}

#[tokio::test(flavor = "multi_thread")]
async fn real_life_of_an_application() {
    let Some(world) = real() else { return };
    let tenant = "real-life";
    let namespace = "ksml-real-life";
    let r = start(world, false).await;
    let of = || request().application("tenant", tenant);
    let create = of().create(small()).body();

    let before = r.versions("");
    let plan = r.ok("/plan", &create).await;
    assert_eq!(plan, r.ok("/plan", &create).await, "two plans are equal");
    assert_eq!(before, r.versions(""), "a plan changes nothing");

    let applied = r.ok("/apply", &create).await;
    let outputs = applied["resources"][0]["outputs"].clone();
    assert_eq!((&outputs["revision"], &outputs["ready"]), (&json!(1), &json!(true)), "{applied}");
    let release = outputs["release"].as_str().unwrap().to_owned();
    let pods = r.kubectl(&["get", "pods", "-n", namespace, "-o", "json"]);
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let conditions = pods["items"][0]["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"), "{conditions:?}");

    let inspect = of().expect("main", small(), outputs.clone()).body();
    let seen = r.ok("/inspect", &inspect).await;
    assert_eq!(
        (&seen["resources"][0]["presence"], &seen["resources"][0]["drift"]),
        (&json!("present"), &json!([])),
        "{seen}"
    );

    follow(&r, tenant).await;

    let again = r.ok("/apply", &create).await;
    assert_eq!(
        again["resources"][0]["outputs"]["revision"], 1,
        "nothing changed, so no new revision: {again}"
    );

    r.kubectl(&["scale", "statefulset", "-n", namespace, &release, "--replicas=2"]);
    let seen = r.ok("/inspect", &inspect).await;
    let drift = seen["resources"][0]["drift"].as_array().unwrap();
    let replicas = drift.iter().find(|d| d["path"].as_str().is_some_and(|p| p.ends_with("/spec/replicas")));
    let replicas = replicas.unwrap_or_else(|| panic!("the person's change is not seen: {seen}"));
    assert_eq!((&replicas["expected"], &replicas["actual"]), (&json!(1), &json!(2)), "{seen}");
    let mended = r.ok("/apply", &of().update(small(), small()).body()).await;
    assert_eq!(mended["resources"][0]["outputs"]["revision"], 2, "{mended}");
    assert_eq!(r.ok("/inspect", &inspect_after(&mended, tenant)).await["resources"][0]["drift"], json!([]));

    helm_works_on_it(&r, namespace, &release);

    // What helm changed is taken back by the next apply, then everything is deleted.
    let back = r.ok("/apply", &of().update(small(), small()).body()).await;
    assert_eq!(back["resources"][0]["outputs"]["revision"], 4, "{back}");
    r.ok("/apply", &of().delete(small()).body()).await;
    r.ok("/apply", &of().delete(small()).body()).await;
    gone(&r, namespace).await;

    // And helm may remove what sutler installed.
    let applied = r.ok("/apply", &of().create(small()).body()).await;
    assert_eq!(applied["resources"][0]["outputs"]["revision"], 1);
    r.helm(&["uninstall", &release, "-n", namespace, "--wait"]);
    let seen = r.ok("/inspect", &inspect).await;
    assert_eq!(seen["resources"][0]["presence"], "absent", "{seen}");
    r.ok("/apply", &of().delete(small()).body()).await;
    gone(&r, namespace).await;
    r.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

fn inspect_after(applied: &Value, tenant: &str) -> Value {
    let outputs = applied["resources"][0]["outputs"].clone();
    request().application("tenant", tenant).expect("main", small(), outputs).body()
}

async fn follow(r: &Real, tenant: &str) {
    let url = format!(
        "{}/logs?kind=deployment&type=ksml&tenant={tenant}&application=orders&environment=prod&follow=true",
        r.host.url
    );
    let answer = client().get(url).header("accept", "application/x-ndjson").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut body, mut text) = (answer.bytes_stream(), String::new());
    let first = Instant::now();
    let mut arrived = Vec::new();
    while arrived.len() < 12 && first.elapsed() < Duration::from_secs(60) {
        let piece =
            tokio::time::timeout(Duration::from_secs(30), body.next()).await.expect("a line within 30 s");
        text.push_str(&String::from_utf8_lossy(&piece.unwrap().unwrap()));
        arrived.resize(text.matches('\n').count(), first.elapsed());
    }
    assert!(arrived.len() >= 12, "{text}");
    // Written one a second: they came while they were written, not at the end.
    assert!(arrived.last().unwrap().saturating_sub(arrived[0]) > Duration::from_secs(1), "{arrived:?}");
    let numbers: Vec<u64> = text
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .filter_map(|l| {
            l["line"]
                .as_str()
                .and_then(|t| t.split(|c: char| !c.is_ascii_digit()).find_map(|n| n.parse().ok()))
        })
        .collect();
    assert!(numbers.windows(2).all(|w| w[0] <= w[1]), "in order: {numbers:?}");
}

fn helm_works_on_it(r: &Real, namespace: &str, release: &str) {
    let list: Value = serde_json::from_str(&r.helm(&["list", "-n", namespace, "-o", "json"])).unwrap();
    assert_eq!(
        (&list[0]["name"], &list[0]["status"], &list[0]["revision"]),
        (&json!(release), &json!("deployed"), &json!("2")),
        "{list}"
    );
    let status: Value =
        serde_json::from_str(&r.helm(&["status", release, "-n", namespace, "-o", "json"])).unwrap();
    assert_eq!(status["info"]["status"], "deployed", "{status}");
    let values = r.helm(&["get", "values", release, "-n", namespace, "-o", "json"]);
    assert!(values.contains("kafka:9092") && !values.contains("kafka-password-of-the-test"), "{values}");
    assert!(r.helm(&["get", "manifest", release, "-n", namespace]).contains("kind: StatefulSet"));
    let history: Value =
        serde_json::from_str(&r.helm(&["history", release, "-n", namespace, "-o", "json"])).unwrap();
    let states: Vec<&str> = history.as_array().unwrap().iter().filter_map(|h| h["status"].as_str()).collect();
    assert_eq!(states, ["superseded", "deployed"], "{history}");
    let chart = chart();
    let upgraded = r.helm(&[
        "upgrade",
        release,
        chart.to_str().unwrap(),
        "-n",
        namespace,
        "--reuse-values",
        "--set",
        "replicaCount=2",
    ]);
    assert!(upgraded.contains("REVISION: 3"), "{upgraded}");
}

/// Nothing of an application is left in the namespace, pods included.
async fn gone(r: &Real, namespace: &str) {
    let until = Instant::now() + Duration::from_secs(90);
    loop {
        let kinds =
            "pods,secrets,configmaps,services,statefulsets,deployments,jobs,networkpolicies,serviceaccounts";
        let left = r.kubectl(&["get", kinds, "-n", namespace, "-o", "name"]);
        // What every namespace has by itself.
        let left: Vec<&str> = left
            .lines()
            .filter(|l| *l != "configmap/kube-root-ca.crt" && *l != "serviceaccount/default")
            .collect();
        if left.is_empty() || left == ["No resources found"] {
            return;
        }
        assert!(Instant::now() < until, "left behind: {left:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_registry_with_tls_and_password() {
    let Some(world) = real() else { return };
    let r = start(world, true).await;
    let body = request().application("tenant", "real-tls").create(small()).body();
    let plan = r.ok("/plan", &body).await;
    assert_eq!(plan["changes"][0]["action"], "create");
    let log = r.host.log_lines().join("\n");
    assert!(!log.contains(&r.world.registry_password));
}

#[tokio::test(flavor = "multi_thread")]
async fn real_namespace_by_server_side_apply() {
    let Some(world) = real() else { return };
    let r = start(world, false).await;
    let of = || {
        sutler_testkit::http::SampleRequest::new("target/kubernetes-namespace").application("id", "real-ns")
    };
    let settings = json!({"name": "real-ns-one", "labels": {"team": "a"}});
    let applied = r.ok("/apply", &of().create(settings.clone()).body()).await;
    let outputs = applied["resources"][0]["outputs"].clone();
    let live: Value =
        serde_json::from_str(&r.kubectl(&["get", "namespace", "real-ns-one", "-o", "json"])).unwrap();
    assert_eq!(
        (&live["metadata"]["uid"], &live["metadata"]["labels"]["team"]),
        (&outputs["uid"], &json!("a"))
    );
    assert!(live["metadata"]["labels"]["sutler.dev/owner"].is_string());
    r.kubectl(&["label", "namespace", "real-ns-one", "team=b", "--overwrite"]);
    let seen = r.ok("/inspect", &of().expect("main", settings.clone(), outputs).body()).await;
    let drift = &seen["resources"][0]["drift"][0];
    assert_eq!(
        (&drift["path"], &drift["expected"], &drift["actual"]),
        (&json!("/labels/team"), &json!("a"), &json!("b")),
        "{seen}"
    );
    r.ok("/apply", &of().delete(settings).body()).await;
    let until = Instant::now() + Duration::from_secs(60);
    while r.world.run(&r.world.kubectl, &["get", "namespace", "real-ns-one"]).is_ok() {
        assert!(Instant::now() < until, "the namespace is still there");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
