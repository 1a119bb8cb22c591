//! Charts made in the test, an engine that answers what a test wants, and a host's call.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use sutler_helm::{
    ChartReference, EngineError, Grants, Helm, HelmConfig, Jobs, Options, Outcome, RegistryConfig, Release,
    ReleaseReference, RenderAnswer, RenderRequest, TemplateEngine,
};
use sutler_kubernetes::{ClusterConfig, Clusters, ClustersConfig};
use sutler_model::{Application, Call, Effective, Identifier, Layer, Mode, Owner};
use sutler_testkit::cluster::Emulator;
use sutler_testkit::registry::{Registry, RegistryOptions};

/// A tar.gz of files.
pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        // `set_path` refuses what hostile archives hold.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, *data).unwrap();
    }
    let mut gzip = tar.into_inner().unwrap();
    gzip.flush().unwrap();
    gzip.finish().unwrap()
}

/// A chart that holds nothing but what the host reads.
pub(crate) fn chart(name: &str, version: &str) -> Vec<u8> {
    let meta = format!("apiVersion: v2\nname: {name}\nversion: {version}\nappVersion: 1.10\n");
    archive(&[
        (&format!("{name}/Chart.yaml"), meta.as_bytes()),
        (&format!("{name}/values.yaml"), b"replicas: 1\nmode: 0644\n"),
        (&format!("{name}/values.schema.json"), b"{\"type\":\"object\"}"),
        (&format!("{name}/templates/x.yaml"), b"kind: {{ .Values.kind }}\n"),
    ])
}

type Render = Box<dyn Fn(&RenderRequest) -> Result<RenderAnswer, EngineError> + Send + Sync>;

/// Answers what the test sets.
pub(crate) struct FakeEngine {
    pub(crate) render: Mutex<Render>,
    pub(crate) requests: Mutex<Vec<RenderRequest>>,
}

impl TemplateEngine for FakeEngine {
    fn render(&self, request: RenderRequest) -> BoxFuture<'_, Result<RenderAnswer, EngineError>> {
        let answer = (self.render.lock().unwrap())(&request);
        self.requests.lock().unwrap().push(request);
        Box::pin(async move { answer })
    }
}

/// A manifest as Helm prints it.
pub(crate) fn manifest(objects: &[Value]) -> String {
    objects.iter().enumerate().map(|(i, o)| format!("---\n# Source: app/templates/{i}.yaml\n{o}\n")).collect()
}

pub(crate) fn answer(objects: &[Value]) -> RenderAnswer {
    serde_json::from_value(json!({
        "manifest": manifest(objects), "notes": "hello",
        "chart": {"metadata": {"name": "app", "version": "1.0.0"}, "templates": [], "values": {}, "files": []},
    }))
    .unwrap()
}

/// A hook as Helm stores it, of a Job, Pod or ConfigMap.
pub(crate) fn hook(kind: &str, name: &str, events: &[&str], weight: i64, policies: &[&str]) -> Value {
    let containers = json!([{"name": "c", "image": "i:1"}]);
    let mut object = match kind {
        "Job" => {
            json!({"apiVersion": "batch/v1", "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}})
        }
        "Pod" => json!({"apiVersion": "v1", "spec": {"restartPolicy": "Never", "containers": containers}}),
        _ => json!({"apiVersion": "v1", "data": {"hook": name}}),
    };
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": name});
    let mut out = json!({
        "name": name, "kind": kind, "path": format!("app/templates/{name}.yaml"), "manifest": object.to_string(),
        "events": events, "last_run": {"phase": ""},
    });
    if weight != 0 {
        out["weight"] = json!(weight);
    }
    if !policies.is_empty() {
        out["delete_policies"] = json!(policies);
    }
    out
}

/// What an API server keeps of a record: the JSON of the release.
pub(crate) fn record(secret: &Value) -> Value {
    use base64::Engine as _;
    use std::io::Read as _;
    let b64 = base64::engine::general_purpose::STANDARD;
    let outer = b64.decode(secret["data"]["release"].as_str().unwrap()).unwrap();
    let mut json = String::new();
    flate2::read::GzDecoder::new(b64.decode(outer).unwrap().as_slice()).read_to_string(&mut json).unwrap();
    serde_json::from_str(&json).unwrap()
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
    })
}

pub(crate) fn owner(application: &str) -> Owner {
    let id = |s: &str| Identifier::parse(s).unwrap();
    Owner {
        application: Application {
            id: id(application),
            environment: id("prod"),
            tenant: Some(id("acme")),
            instance: None,
        },
        pair: "deployment/ksml".parse().unwrap(),
    }
}

/// Another request each time.
pub(crate) fn call(mode: Mode) -> Call {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    Call {
        plugin: "ksml".parse().unwrap(),
        owner: owner("orders"),
        mode,
        request_id: format!("r-{id}"),
        deadline: Instant::now() + Duration::from_secs(20),
        job: None,
        fence: sutler_model::Fence::endless(),
    }
}

pub(crate) fn grants(json: Value) -> Effective<Grants> {
    Effective::new(vec![(Layer::Plugin("ksml".into()), Arc::new(serde_json::from_value(json).unwrap()))])
}

/// Jobs that have not ended.
#[derive(Default)]
pub(crate) struct FakeJobs(pub(crate) Mutex<BTreeSet<String>>);

impl Jobs for FakeJobs {
    fn runs<'a>(&'a self, job: &'a str) -> BoxFuture<'a, Result<bool, sutler_helm::Error>> {
        Box::pin(async move { Ok(self.0.lock().unwrap().contains(job)) })
    }
}

pub(crate) fn helm(
    folder: &std::path::Path,
    registries: &BTreeMap<String, RegistryConfig>,
    kubeconfig: Option<String>,
    engine: Arc<FakeEngine>,
) -> Helm {
    helm_with(folder, registries, kubeconfig, engine, Arc::default())
}

fn helm_with(
    folder: &std::path::Path,
    registries: &BTreeMap<String, RegistryConfig>,
    kubeconfig: Option<String>,
    engine: Arc<FakeEngine>,
    jobs: Arc<FakeJobs>,
) -> Helm {
    let file = folder.join("kubeconfig");
    std::fs::write(&file, kubeconfig.unwrap_or_default()).unwrap();
    let cluster = ClusterConfig { kubeconfig: Some(file), ..ClusterConfig::default() };
    let clusters = ClustersConfig {
        clusters: BTreeMap::from([("default".into(), cluster)]),
        ..ClustersConfig::default()
    };
    let config: HelmConfig =
        serde_json::from_value(json!({"cache-folder": folder.join("charts"), "timeout-seconds": 5})).unwrap();
    Helm::new(&config, registries, Arc::new(Clusters::new(&clusters).unwrap()), engine, jobs).unwrap()
}

pub(crate) fn engine() -> Arc<FakeEngine> {
    Arc::new(FakeEngine {
        render: Mutex::new(Box::new(|_| Ok(RenderAnswer::default()))),
        requests: Mutex::default(),
    })
}

/// Helm against another cluster than the emulated one, with one chart.
pub(crate) struct Elsewhere {
    pub(crate) engine: Arc<FakeEngine>,
    pub(crate) helm: Helm,
    pub(crate) jobs: Arc<FakeJobs>,
    pub(crate) chart: ChartReference,
    _registry: Registry,
    _folder: tempfile::TempDir,
}

impl Elsewhere {
    pub(crate) async fn start(kubeconfig: String) -> Self {
        let registry = Registry::start(RegistryOptions::default()).await;
        let pushed = registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let plain = serde_json::from_value(json!({"plain-http": true})).unwrap();
        let (engine, jobs) = (engine(), Arc::new(FakeJobs::default()));
        let registries = BTreeMap::from([(registry.host(), plain)]);
        let helm = helm_with(folder.path(), &registries, Some(kubeconfig), engine.clone(), jobs.clone());
        let chart = ChartReference { url: pushed.url, version: Some("1.0.0".into()), digest: None };
        Self { engine, helm, jobs, chart, _registry: registry, _folder: folder }
    }

    pub(crate) fn renders(&self, objects: &[Value]) {
        let answer = answer(objects);
        *self.engine.render.lock().unwrap() = Box::new(move |_| Ok(answer.clone()));
    }
}

/// A registry with one chart, a cluster with namespace `ns`, and Helm between them.
pub(crate) struct World {
    pub(crate) cluster: Emulator,
    pub(crate) engine: Arc<FakeEngine>,
    pub(crate) helm: Helm,
    pub(crate) jobs: Arc<FakeJobs>,
    pub(crate) chart: ChartReference,
    pub(crate) grants: Effective<Grants>,
    _registry: Registry,
    _folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let cluster = Emulator::start().await;
        cluster.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}));
        let Elsewhere { engine, helm, jobs, chart, _registry, _folder } =
            Elsewhere::start(cluster.kubeconfig()).await;
        let grants = grants(json!({"charts": [chart.url], "namespaces": ["ns", "new"]}));
        Self { cluster, engine, helm, jobs, chart, grants, _registry, _folder }
    }

    /// What a process of its own needs to work in this world.
    pub(crate) fn way(&self) -> Value {
        json!({"kubeconfig": self.cluster.kubeconfig(), "registry": self._registry.host(), "chart": self.chart.url})
    }

    /// In a process of its own: the world that another one tells of. Its cluster is not to be looked at here.
    pub(crate) async fn of(way: &Value) -> Self {
        let text = |key: &str| way[key].as_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let plain = serde_json::from_value(json!({"plain-http": true})).unwrap();
        let (engine, jobs) = (engine(), Arc::default());
        let registries = BTreeMap::from([(text("registry"), plain)]);
        let helm = helm(folder.path(), &registries, Some(text("kubeconfig")), engine.clone());
        let chart = ChartReference { url: text("chart"), version: Some("1.0.0".into()), digest: None };
        let grants = grants(json!({"charts": [chart.url], "namespaces": ["ns", "new"]}));
        let registry = Registry::start(RegistryOptions::default()).await;
        let cluster = Emulator::start().await;
        Self { cluster, engine, helm, jobs, chart, grants, _registry: registry, _folder: folder }
    }

    pub(crate) fn renders(&self, objects: &[Value]) {
        self.answers(answer(objects));
    }

    pub(crate) fn answers(&self, answer: RenderAnswer) {
        *self.engine.render.lock().unwrap() = Box::new(move |_| Ok(answer.clone()));
    }

    pub(crate) async fn upgrade(&self) -> Result<Outcome, sutler_helm::Error> {
        self.upgrade_with("{}", Options::default()).await
    }

    pub(crate) async fn upgrade_with(
        &self,
        values: &str,
        options: Options,
    ) -> Result<Outcome, sutler_helm::Error> {
        self.helm.upgrade(&call(Mode::Apply), &self.grants, &self.chart, &of("app"), values, options).await
    }

    pub(crate) async fn installed(&self, objects: &[Value]) -> Release {
        self.renders(objects);
        done(self.upgrade().await.unwrap())
    }

    /// Past Helm.
    pub(crate) async fn delete(&self, path: &str) {
        assert!(client().delete(self.cluster.url() + path).send().await.unwrap().status().is_success());
    }

    /// Past Helm: a merge patch by the field manager that the path names.
    pub(crate) async fn patch(&self, path: &str, body: &Value) {
        let patch = client().patch(self.cluster.url() + path).body(body.to_string());
        let patch = patch.header("content-type", "application/merge-patch+json");
        assert!(patch.send().await.unwrap().status().is_success());
    }

    /// Renders these from now on, with these hooks.
    pub(crate) fn hooked(&self, objects: &[Value], hooks: &[Value]) {
        let mut answer = answer(objects);
        answer.hooks = hooks.to_vec();
        self.answers(answer);
    }

    pub(crate) fn writes(&self) -> Vec<String> {
        self.cluster
            .requests()
            .iter()
            .filter(|r| r.writes())
            .map(|r| format!("{} {}", r.method, r.path))
            .collect()
    }
}

fn client() -> reqwest::Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder().tls_backend_preconfigured(tls).build().unwrap()
}

pub(crate) fn of(name: &str) -> ReleaseReference {
    ReleaseReference { cluster: None, namespace: "ns".into(), name: name.into() }
}

pub(crate) fn done(outcome: Outcome) -> Release {
    match outcome {
        Outcome::Done(release) => release,
        Outcome::InProgress(why) => panic!("in progress: {why}"),
    }
}
