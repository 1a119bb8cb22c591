//! sutler as people run it: its image in a real cluster, installed with its chart, as a user without rights of its own on a
//! read-only root file system.

use std::fmt::Write as _;
use std::io::{Seek as _, Write as _};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::Digest as _;
use sutler_testkit::http::{Caller, SampleRequest, renewed};
use sutler_testkit::registry::{Registry, RegistryOptions, Target};
use sutler_testkit::{RealWorld, guest, real, sutler_binary, target_dir};
use tempfile::TempDir;

use crate::life::{chart, request};
use crate::real_chart;
use crate::real_life::{runner, small};

/// Where the host lives, where KSML's applications and where the other plugin's objects do.
const HOME: &str = "chart-home";
const KSML: &str = "ksml-chart";
const FEATURES: &str = "chart-features";
const ACCOUNT: &str = "system:serviceaccount:chart-home:sutler";

struct Pods {
    world: RealWorld,
    folder: TempDir,
    registry: Registry,
    token: String,
    /// What is in the registry that nodes pull from.
    image: String,
    plugins: String,
    runner: String,
}

impl Pods {
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.world.run(&self.world.kubectl, arguments).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.kubectl(&[arguments, ["-o", "json"].as_slice()].concat())).unwrap()
    }

    fn apply(&self, object: &Value) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(object.to_string().as_bytes()).unwrap();
        file.rewind().unwrap();
        self.world.run_with(&self.world.kubectl, &["apply", "-f", "-"], file.into()).unwrap();
    }

    /// `helm install` or `upgrade` with these values, until the pods are ready.
    fn release(&self, values: &Value) {
        let file = self.folder.path().join("values.json");
        std::fs::write(&file, values.to_string()).unwrap();
        let chart = real_chart::folder();
        let words = ["upgrade", "--install", "sutler", chart.to_str().unwrap(), "--namespace", HOME];
        let how = ["--reset-values", "--values", file.to_str().unwrap(), "--wait", "--timeout", "5m"];
        let said = self.world.run(&self.world.helm, &[words.as_slice(), how.as_slice()].concat());
        if let Err(said) = said {
            let about = |what: &[&str]| self.world.run(&self.world.kubectl, what).unwrap_or_else(|e| e);
            let pods = about(&["describe", "pods", "-n", HOME]);
            let log = about(&["logs", "-n", HOME, "statefulset/sutler", "--all-containers"]);
            panic!("{said}\n{pods}\n{log}");
        }
    }

    /// Through the Service, with the caller's token. Nodes hear of a pod that is ready a moment after others do.
    async fn caller(&self) -> Caller {
        let service = self.json(&["get", "service", "sutler", "-n", HOME]);
        let address = service["spec"]["clusterIP"].as_str().unwrap().to_owned();
        let caller = Caller::new(format!("http://{address}:8080")).with_token(&self.token);
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(e) = caller.try_send(http::Method::GET, "/readyz", "", None).await {
            assert!(Instant::now() < until, "the Service leads nowhere: {e}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        caller
    }

    fn common(&self) -> Value {
        let (repository, digest) = self.image.split_once('@').unwrap();
        json!({
            "image": {"repository": repository, "digest": digest},
            "access": {"secret": {"name": "access"}},
            "ledger": {"keySecret": {"name": "ledger-key"}},
            "persistence": {"storageClass": "chart-home", "size": "1Gi"},
        })
    }

    /// KSML, and a plugin of one's own with roles of one's own.
    fn working(&self) -> Value {
        let mut values = self.common();
        let mut config = format!("[registries.{:?}]\nplain-http = true\n", self.registry.host());
        let _ = write!(
            config,
            "[[plugins.rust-configmap.grants.kubernetes]]\nverbs = [\"get\", \"apply\", \"delete\"]\n\
             kinds = [\"ConfigMap\"]\nnamespaces = [\"{FEATURES}\"]\n"
        );
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]}]);
        values["ksml"] = json!({"chart": self.chart(), "image": self.runner, "namespaces": [KSML]});
        values["plugins"] = json!({"source": "image", "image": {"reference": self.plugins}});
        values["rbac"] = json!({"roles": [{"name": "features", "namespace": FEATURES, "rules": rules}]});
        values["config"] = config.into();
        values
    }

    /// The same host without KSML: it reads logs.
    fn reading(&self) -> Value {
        let mut values = self.common();
        values["ksml"] = json!({"enabled": false});
        values["logs"] = json!({"enabled": true, "plugin": "ksml", "namespaces": [KSML]});
        values["config"] = format!("[plugins.ksml.config]\nchart = {:?}\n", self.chart()).into();
        values
    }

    fn chart(&self) -> String {
        format!("oci://{}/charts/ksml", self.registry.host())
    }
}

/// A folder of the host's user on the machine that is the node, as a disk would be.
fn volume(pods: &Pods) {
    let disk = pods.folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    std::os::unix::fs::chown(&disk, Some(65532), Some(65532)).unwrap();
    pods.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "chart-home"},
        "spec": {
            "storageClassName": "chart-home", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": disk},
        },
    }));
}

fn secrets(pods: &Pods) {
    let key = pods.folder.path().join("ledger.key");
    let made = Command::new(sutler_binary())
        .args(["ledger", "rotate-key"])
        .env("SUTLER__LEDGER__PATH", pods.folder.path().join("none.db"))
        .env("SUTLER__LEDGER__KEY_FILE", &key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let from = format!("--from-file={}", key.display());
    pods.kubectl(&["create", "secret", "generic", "ledger-key", "-n", HOME, &from]);
    let hash = sha2::Sha256::digest(pods.token.as_bytes());
    let hash = hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let callers = format!(
        "--from-literal=callers=[{{name = \"test\", token-hash = [\"sha256:{hash}\"], tenants = [\"*\"]}}]"
    );
    pods.kubectl(&["create", "secret", "generic", "access", "-n", HOME, &callers]);
}

/// Everything that is there before the chart.
async fn start(world: RealWorld) -> Pods {
    let folder = tempfile::tempdir().unwrap();
    let nodes = world.run(&world.kubectl, &["get", "nodes", "-o", "json"]).unwrap();
    let nodes: Value = serde_json::from_str(&nodes).unwrap();
    let addresses = nodes["items"][0]["status"]["addresses"].as_array().unwrap();
    let node = addresses.iter().find(|a| a["type"] == "InternalIP").unwrap()["address"].as_str().unwrap();
    // Pods reach it there; nodes pull images from the other registry.
    let listen = SocketAddr::new(node.parse().unwrap(), 0);
    let registry = Registry::start(RegistryOptions { listen, ..RegistryOptions::default() }).await;
    registry.push_chart(&chart(), "charts/ksml").unwrap();
    let plain = Target { url: format!("http://{}", world.registry), login: None, ca: None };
    let archive = folder.path().join("sutler.tar");
    let made = Command::new(target_dir().join("debug/xtask"))
        .args(["image", "--binary"])
        .arg(sutler_binary())
        .arg("--out")
        .arg(&archive)
        .output()
        .expect("target/debug/xtask: run it as cargo xtask test --real");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let sutler = plain.push_archive(&archive, "images/sutler", "test").await.unwrap();
    plain.push_image(&runner(folder.path()), "images/ksml-runner", "test").await.unwrap();
    let wasm = |name: &str| std::fs::read(guest(name)).unwrap();
    let files = [
        ("bin/cp", std::fs::read("/bin/busybox").unwrap()),
        ("plugins/ksml.wasm", wasm("ksml")),
        ("plugins/rust-configmap.wasm", wasm("rust-configmap")),
    ];
    let plugins = plain.push_files(&files, "images/plugins", "test").await.unwrap();
    let at = |name: &str, digest: &str| format!("{}/images/{name}@{digest}", world.registry);
    let pods = Pods {
        image: at("sutler", &sutler),
        plugins: at("plugins", &plugins),
        runner: format!("{}/images/ksml-runner:test", world.registry),
        token: uuid::Uuid::new_v4().simple().to_string(),
        world,
        folder,
        registry,
    };
    for (name, level) in [(HOME, "restricted"), (KSML, "privileged"), (FEATURES, "restricted")] {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        pods.apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
        );
    }
    volume(&pods);
    secrets(&pods);
    pods
}

async fn succeeds(caller: &Caller, path: &str, body: &Value) -> Value {
    let answered = match path {
        "/apply" => caller.apply(&renewed(body)).await,
        _ => caller.post(path, body).await,
    };
    assert_eq!(answered.status, 200, "{path}: {}", answered.text);
    assert_ne!(answered.json["outcome"], "failed", "{path}: {}", answered.text);
    answered.json
}

/// What the account may do in a namespace besides asking who it is: (resource, verb).
fn allowed(pods: &Pods, namespace: &str) -> Vec<(String, String)> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let file = pods.folder.path().join("review.json");
    std::fs::write(&file, review.to_string()).unwrap();
    let answer = pods.json(&["create", "--validate=false", "--as", ACCOUNT, "-f", file.to_str().unwrap()]);
    let texts = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut out = Vec::new();
    for rule in answer["status"]["resourceRules"].as_array().unwrap() {
        let own = ["authorization.k8s.io", "authentication.k8s.io"];
        if texts(&rule["apiGroups"]).iter().any(|group| own.contains(&group.as_str())) {
            continue;
        }
        for resource in texts(&rule["resources"]) {
            out.extend(texts(&rule["verbs"]).into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    out
}

fn writes(rights: &[(String, String)]) -> Vec<&(String, String)> {
    rights.iter().filter(|(_, verb)| !matches!(verb.as_str(), "get" | "list" | "watch")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_chart_of_sutler() {
    let Some(world) = real() else { return };
    let pods = start(world).await;
    pods.release(&pods.working());
    let caller = pods.caller().await;
    let stranger = caller.clone().with_token("somebody").get("/handles").await;
    assert_eq!(stranger.status, 401, "{}", stranger.text);

    let features = || {
        SampleRequest::new("managed-resource/features")
            .application("tenant", FEATURES)
            .create(json!({"features": {"dark-mode": "on"}}))
            .body()
    };
    let plan = succeeds(&caller, "/plan", &features()).await;
    assert_eq!(plan["changes"][0]["action"], "create", "{plan}");
    let applied = succeeds(&caller, "/apply", &features()).await;
    let name = applied["resources"][0]["outputs"]["name"].as_str().unwrap();
    let live = pods.json(&["get", "configmap", name, "-n", FEATURES]);
    assert_eq!(live["data"]["dark-mode"], "on", "{live}");

    let of = || request().application("tenant", "chart");
    let once = renewed(&of().create(small()).body());
    let applied = caller.apply(&once).await;
    assert_eq!(applied.json["resources"][0]["outputs"]["ready"], true, "{}", applied.text);
    let list = pods.world.run(&pods.world.helm, &["list", "-n", KSML, "-o", "json"]).unwrap();
    assert!(list.contains("deployed"), "{list}");
    looks(&pods);

    survives(&pods, &once, &applied.json).await;

    pods.release(&pods.reading());
    reads_alone(&pods, &of().delete(small()).body()).await;

    pods.release(&pods.working());
    succeeds(&pods.caller().await, "/apply", &of().delete(small()).body()).await;
    end(&pods);
}

/// The pod is what the chart says, and the host in it finds nothing wrong.
fn looks(pods: &Pods) {
    let list = pods.json(&["get", "pods", "-n", HOME]);
    let pod = &list["items"][0];
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod}");
    assert_eq!(pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(pod["spec"]["securityContext"]["runAsUser"], 65532);
    let doctor = ["exec", "-n", HOME, "statefulset/sutler", "--", "sutler", "doctor", "--output", "json"];
    let findings: Vec<Value> = serde_json::from_str(&pods.kubectl(&doctor)).unwrap();
    let rights = findings.iter().filter(|f| f["area"] == "rights" && f["level"] == "ok").count();
    assert!(rights >= 2, "{findings:?}");
}

/// Another pod on the same claim knows what the first one did.
async fn survives(pods: &Pods, once: &Value, answer: &Value) {
    let began = Instant::now();
    pods.kubectl(&["delete", "pod", "-n", HOME, "-l", "app.kubernetes.io/name=sutler"]);
    assert!(began.elapsed() < Duration::from_secs(40), "it was killed instead of having ended");
    pods.kubectl(&["rollout", "status", "statefulset/sutler", "-n", HOME, "--timeout=5m"]);
    let list = pods.json(&["get", "pods", "-n", HOME]);
    let restarts = &list["items"][0]["status"]["containerStatuses"][0]["restartCount"];
    assert_eq!(restarts, 0, "it had to wait for the file: {list}");
    let again = pods.caller().await.apply(once).await;
    assert_eq!(again.json["resources"], answer["resources"], "{}", again.text);
    let revisions = pods.kubectl(&["get", "secrets", "-n", KSML, "-l", "owner=helm", "-o", "name"]);
    assert_eq!(revisions.lines().count(), 1, "{revisions}");
}

/// With KSML switched off the account reads pods and logs in the listed namespace, and can write nowhere.
async fn reads_alone(pods: &Pods, delete: &Value) {
    for namespace in [HOME, KSML, FEATURES] {
        let rights = allowed(pods, namespace);
        assert!(writes(&rights).is_empty(), "{namespace}: {rights:?}");
        let logs = rights.contains(&("pods/log".into(), "get".into()));
        assert_eq!(logs, namespace == KSML, "{namespace}: {rights:?}");
    }
    let caller = pods.caller().await;
    let query = "kind=deployment&type=ksml&tenant=chart&application=orders&environment=prod&tailLines=5";
    let logs = caller.get(&format!("/logs?{query}")).await;
    assert!(logs.status == 200 && logs.text.lines().count() >= 1, "{} {}", logs.status, logs.text);
    let refused = caller.post("/plan", delete).await;
    assert!(refused.text.contains("not-granted"), "{}", refused.text);
}

fn end(pods: &Pods) {
    pods.world.run(&pods.world.helm, &["uninstall", "sutler", "-n", HOME, "--wait"]).unwrap();
    let claim = pods.kubectl(&["get", "persistentvolumeclaim", "sutler", "-n", HOME, "-o", "name"]);
    assert!(!claim.is_empty(), "the ledger outlives the release");
    pods.kubectl(&["delete", "namespace", HOME, KSML, FEATURES]);
    pods.kubectl(&["delete", "persistentvolume", "chart-home"]);
}
