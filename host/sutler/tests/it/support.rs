//! A host with plugins, an emulated cluster and a registry, for one test.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;
use sutler_testkit::cluster::Emulator;
use sutler_testkit::http::{Answered, Caller};
use sutler_testkit::registry::{Registry, RegistryOptions};
use sutler_testkit::{SutlerProcess, guest};
use tempfile::TempDir;

/// Everything a test may look at. Fields live as long as the host.
pub(crate) struct World {
    pub(crate) host: SutlerProcess,
    pub(crate) cluster: Emulator,
    pub(crate) registry: Registry,
    pub(crate) folder: TempDir,
    pub(crate) config: String,
}

/// The same without its host, which may come and go.
pub(crate) struct Site {
    pub(crate) cluster: Emulator,
    pub(crate) registry: Registry,
    pub(crate) folder: TempDir,
    pub(crate) config: String,
}

/// What a test wants of its host.
#[derive(Default)]
pub(crate) struct Wanted {
    plugins: Vec<(String, Vec<u8>)>,
    config: String,
    registry: RegistryOptions,
    registry_table: Option<String>,
    ready: bool,
}

pub(crate) const GRANTS: &str = r#"
[[plugins.namespace.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Namespace"]

[plugins.hostile.limits]
memory-mib = 48
cpu-milliseconds = 400
wall-seconds = 3
host-call-mib = 4
output-kib = 512
log-kib = 32

[[plugins.hostile.grants.kubernetes]]
verbs = ["get", "apply"]
kinds = ["ConfigMap"]
namespaces = ["t-{tenant}"]

[plugins.hostile.grants.logs]
namespaces = ["t-{tenant}"]
"#;

impl Wanted {
    pub(crate) fn new() -> Self {
        Self { ready: true, ..Self::default() }
    }
    /// A built guest under its own name.
    pub(crate) fn plugin(self, name: &str) -> Self {
        let wasm = std::fs::read(guest(name)).unwrap();
        self.bytes(name, wasm)
    }
    pub(crate) fn bytes(mut self, name: &str, wasm: Vec<u8>) -> Self {
        self.plugins.push((name.into(), wasm));
        self
    }
    pub(crate) fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self
    }
    pub(crate) fn registry(mut self, options: RegistryOptions, table: &str) -> Self {
        self.registry = options;
        self.registry_table = Some(table.into());
        self
    }
    /// Do not wait for `/readyz`.
    pub(crate) fn unready(mut self) -> Self {
        self.ready = false;
        self
    }

    pub(crate) async fn start(self) -> World {
        let ready = self.ready;
        let Site { cluster, registry, folder, config } = self.site().await;
        let host = SutlerProcess::start_unready(&config, &[]).await;
        if ready {
            host.wait_ready().await;
        }
        World { host, cluster, registry, folder, config }
    }

    /// Everything but the host.
    pub(crate) async fn site(self) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        for (name, wasm) in &self.plugins {
            std::fs::write(plugins.join(format!("{name}.wasm")), wasm).unwrap();
        }
        let cluster = Emulator::start().await;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        let registry = Registry::start(self.registry).await;
        if let Some(ca) = registry.ca_pem() {
            std::fs::write(folder.path().join("ca.pem"), ca).unwrap();
        }
        let mut config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n\n[log]\nformat = \"json\"\n\n\
             [catalog]\ndir = {:?}\n\n[kubernetes.clusters.default]\nkubeconfig = {kubeconfig:?}\n\n",
            plugins
        );
        let table = self.registry_table.unwrap_or_else(|| "plain-http = true".into());
        let table = table.replace("FOLDER", &folder.path().display().to_string());
        let _ = write!(config, "[registries.\"{}\"]\n{table}\n\n{}", registry.host(), self.config);
        let config = config
            .replace("REGISTRY", &registry.host())
            .replace("FOLDER", &folder.path().display().to_string());
        Site { cluster, registry, folder, config }
    }
}

impl Site {
    /// A host on the same configuration, files and world as every one before it.
    pub(crate) async fn host(&self) -> SutlerProcess {
        SutlerProcess::start(&self.config, &[]).await
    }

    /// With a host.
    pub(crate) async fn start(self) -> World {
        let host = self.host().await;
        let Self { cluster, registry, folder, config } = self;
        World { host, cluster, registry, folder, config }
    }
}

impl World {
    pub(crate) fn api(&self) -> Caller {
        Caller::new(&self.host.url)
    }
    pub(crate) fn admin(&self) -> Caller {
        Caller::new(self.host.admin_url.clone().unwrap())
    }
    /// An apply is a call of its own each time, and is followed to its end; repeats have tests of their own.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answered {
        if path == "/apply" {
            return self.api().apply(&sutler_testkit::http::renewed(body)).await;
        }
        self.api().post(path, body).await
    }
    pub(crate) fn plugin_file(&self, name: &str) -> PathBuf {
        self.folder.path().join("plugins").join(name)
    }
    pub(crate) async fn reload(&self) -> Value {
        let answered = self.admin().post("/plugins/reload", &serde_json::json!({})).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
        answered.json
    }
    /// The view of one plugin in an answer of `/plugins` or of a reload.
    pub(crate) async fn plugin(&self, name: &str) -> Value {
        let all = self.admin().get("/plugins").await.json;
        let list = all["plugins"].as_array().or_else(|| all.as_array()).cloned().unwrap_or_default();
        list.into_iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no plugin {name} in {all}"))
    }
}
