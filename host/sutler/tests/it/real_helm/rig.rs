//! Helm's capability with the engine that ships, on the real cluster, beside the helm binary.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_helm::{ChartReference, Error, Grants, Helm, NoJobs, Options, Outcome, Release, ReleaseReference};
use sutler_kubernetes::{ClusterConfig, Clusters, ClustersConfig};
use sutler_model::{Application, Call, Effective, Fence, Identifier, Layer, Mode, Owner};
use sutler_runtime::{CompileCache, Engine, EngineConfig, HelmEngine};
use sutler_testkit::registry::{Registry, RegistryOptions};
use sutler_testkit::{RealWorld, target_dir};
use tempfile::TempDir;

use super::charts::Chart;

pub(crate) struct Rig {
    pub(crate) world: RealWorld,
    pub(crate) engine: Arc<HelmEngine>,
    pub(crate) helm: Helm,
    pub(crate) folder: TempDir,
    registry: Registry,
}

/// Compiled once for all tests of this folder, which takes longer than a rendering may.
async fn engine() -> Arc<HelmEngine> {
    let file = std::env::var_os("SUTLER_HELM_ENGINE").expect("SUTLER_HELM_ENGINE: run cargo xtask test");
    let compressed: &'static [u8] = Box::leak(std::fs::read(file).unwrap().into_boxed_slice());
    let cache = CompileCache::open(&target_dir().join("helm-engine-cache")).unwrap();
    let engine = HelmEngine::start(Engine::new(EngineConfig::default()).unwrap(), cache, compressed);
    while engine.ready().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine
}

fn id(s: &str) -> Identifier {
    Identifier::parse(s).unwrap()
}

/// What a call asks is told by its number.
pub(crate) fn call(number: usize) -> Call {
    let application =
        Application { id: id("orders"), environment: id("prod"), tenant: Some(id("acme")), instance: None };
    Call {
        plugin: "ksml".parse().unwrap(),
        owner: Owner { application, pair: "deployment/ksml".parse().unwrap() },
        mode: Mode::Apply,
        request_id: format!("r-{number}"),
        deadline: Instant::now() + Duration::from_secs(60),
        job: None,
        fence: Fence::endless(),
    }
}

pub(crate) fn of(namespace: &str) -> ReleaseReference {
    ReleaseReference { cluster: None, namespace: namespace.into(), name: "app".into() }
}

impl Rig {
    /// `kubeconfig`: another way to the cluster than the world's own.
    pub(crate) async fn start(world: RealWorld, kubeconfig: Option<&Path>) -> Self {
        let registry = Registry::start(RegistryOptions::default()).await;
        let folder = tempfile::tempdir().unwrap();
        let file = kubeconfig.unwrap_or(&world.kubeconfig).to_owned();
        let cluster = ClusterConfig { kubeconfig: Some(file), ..ClusterConfig::default() };
        let clusters = ClustersConfig {
            clusters: BTreeMap::from([("default".into(), cluster)]),
            ..ClustersConfig::default()
        };
        let config = serde_json::from_value(json!({"cache-folder": folder.path().join("cache")})).unwrap();
        let plain = serde_json::from_value(json!({"plain-http": true})).unwrap();
        let engine = engine().await;
        let clusters = Arc::new(Clusters::new(&clusters).unwrap());
        let registries = BTreeMap::from([(registry.host(), plain)]);
        let helm = Helm::new(&config, &registries, clusters, engine.clone(), Arc::new(NoJobs)).unwrap();
        Self { world, engine, helm, folder, registry }
    }

    pub(crate) fn grants(&self) -> Effective<Grants> {
        let all = json!({
            "charts": [format!("oci://{}/*", self.registry.host())], "namespaces": ["*"], "unowned": true,
            "cluster-scoped-kinds": ["ClusterRole", "CustomResourceDefinition", "Namespace"],
        });
        Effective::new(vec![(Layer::Plugin("ksml".into()), Arc::new(serde_json::from_value(all).unwrap()))])
    }

    pub(crate) fn push(&self, chart: &Chart) -> ChartReference {
        let archive = std::fs::read(chart.write(self.folder.path())).unwrap();
        let url = self.registry.push_archive(archive, &format!("charts/{}", chart.name)).unwrap().url;
        ChartReference { url, version: None, digest: None }
    }

    /// Repeats until it is done.
    pub(crate) async fn until_done<F: Future<Output = Result<Outcome, Error>>>(
        &self,
        mut ask: impl FnMut() -> F,
    ) -> Result<Release, Error> {
        let began = Instant::now();
        loop {
            match ask().await? {
                Outcome::Done(release) => return Ok(release),
                Outcome::InProgress(why) => {
                    assert!(began.elapsed() < Duration::from_secs(120), "no end: {why}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    pub(crate) async fn upgrade(
        &self,
        chart: &ChartReference,
        ns: &str,
        values: &Value,
        n: usize,
    ) -> Result<Release, Error> {
        let (grants, values, of) = (self.grants(), values.to_string(), of(ns));
        let options = Options { create_namespace: false, ..Options::default() };
        self.until_done(async || self.helm.upgrade(&call(n), &grants, chart, &of, &values, options).await)
            .await
    }

    pub(crate) async fn rollback(&self, ns: &str, revision: u32, n: usize) -> Result<Release, Error> {
        let (grants, of) = (self.grants(), of(ns));
        self.until_done(async || {
            self.helm.rollback(&call(n), &grants, &of, revision, Options::default()).await
        })
        .await
    }

    pub(crate) async fn uninstall(&self, ns: &str, n: usize) -> Result<Release, Error> {
        let (grants, of) = (self.grants(), of(ns));
        self.until_done(async || self.helm.uninstall(&call(n), &grants, &of, false).await).await
    }

    pub(crate) async fn test(&self, ns: &str, n: usize) -> Result<Release, Error> {
        let (grants, of) = (self.grants(), of(ns));
        self.until_done(async || self.helm.test(&call(n), &grants, &of).await).await
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.world.run(&self.world.kubectl, arguments).unwrap()
    }

    pub(crate) fn tool(&self, arguments: &[&str]) -> Result<String, String> {
        self.world.run(&self.world.helm, arguments)
    }

    /// The binary on the release `app` of a namespace.
    pub(crate) fn binary(&self, ns: &str, arguments: &[&str]) -> Result<String, String> {
        self.tool(&[arguments, &["-n", ns]].concat())
    }

    /// `helm install` or `helm upgrade` by the binary.
    pub(crate) fn binary_with(
        &self,
        ns: &str,
        verb: &str,
        chart: &Chart,
        values: &Value,
        more: &[&str],
    ) -> Result<String, String> {
        let (archive, file) = self.files(ns, chart, values);
        self.binary(ns, &[&[verb, "app", &archive, "-f", &file], more].concat())
    }

    /// The archive of a chart and its values, as a binary is told them.
    pub(crate) fn files(&self, ns: &str, chart: &Chart, values: &Value) -> (String, String) {
        let file = self.folder.path().join(format!("{ns}.json"));
        std::fs::write(&file, values.to_string()).unwrap();
        (chart.write(self.folder.path()).display().to_string(), file.display().to_string())
    }

    pub(crate) fn namespace(&self, ns: &str) {
        self.kubectl(&["create", "namespace", ns]);
    }

    pub(crate) fn drop_namespace(&self, ns: &str) {
        self.kubectl(&["delete", "namespace", ns, "--wait=false"]);
    }
}
