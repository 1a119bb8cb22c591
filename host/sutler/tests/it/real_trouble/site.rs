//! A host whose way to the real API server is in the test's hands.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use sutler_testkit::cluster::ApiProxy;
use sutler_testkit::registry::{Registry, RegistryOptions};
use sutler_testkit::{RealWorld, SutlerProcess, guest};
use tempfile::TempDir;

use crate::real_helm::charts::named;

/// Charts whose releases have hooks of every event: ConfigMaps, and Jobs that end at once.
pub(crate) const CHARTS: [&str; 2] = ["every-event", "counted-hooks"];

/// Its pod writes ten numbered lines a second.
pub(crate) const TALKING: &str = "talking";

const GRANTS: &str = r#"
[plugins.release.config]
namespace = "{tenant}"
name = "app"

[plugins.release.grants.logs]
namespaces = ["{tenant}"]

[plugins.release.grants.helm]
charts = ["oci://REGISTRY/charts/*"]
namespaces = ["{tenant}"]

[[plugins.rust-configmap.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["ConfigMap"]
namespaces = ["{tenant}"]
"#;

/// Everything but the host, which may come and go.
pub(crate) struct Site {
    pub(crate) world: RealWorld,
    pub(crate) proxy: ApiProxy,
    registry: Registry,
    folder: TempDir,
    config: String,
}

impl Site {
    /// With these lines in `[operations]`.
    pub(crate) async fn start(world: RealWorld, operations: &str) -> Self {
        let proxy = ApiProxy::to(&world.kubeconfig).await;
        let registry = Registry::start(RegistryOptions::default()).await;
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        for name in ["release", "rust-configmap"] {
            std::fs::copy(guest(name), plugins.join(format!("{name}.wasm"))).unwrap();
        }
        for name in CHARTS.into_iter().chain([TALKING]) {
            let archive = std::fs::read(named(name).write(folder.path())).unwrap();
            registry.push_archive(archive, &format!("charts/{name}")).unwrap();
        }
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, proxy.kubeconfig()).unwrap();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[catalog]\ndir = {plugins:?}\n\
             [kubernetes.clusters.default]\nkubeconfig = {kubeconfig:?}\n[ledger]\npath = {:?}\n\
             [registries.{:?}]\nplain-http = true\n[operations]\n{operations}\n{}",
            folder.path().join("ledger.db"),
            registry.host(),
            GRANTS.replace("REGISTRY", &registry.host()),
        );
        Self { world, proxy, registry, folder, config }
    }

    /// A host on the same configuration, ledger and world as every one before it.
    pub(crate) async fn host(&self) -> SutlerProcess {
        SutlerProcess::start(&self.config, &[]).await
    }

    pub(crate) fn chart(&self, name: &str) -> String {
        format!("oci://{}/charts/{name}", self.registry.host())
    }

    /// The archive of a chart and its values as files, for helm's binaries.
    pub(crate) fn files(&self, name: &str, values: &Value) -> (String, String) {
        let file = self.folder.path().join("values.json");
        std::fs::write(&file, values.to_string()).unwrap();
        let archive = self.folder.path().join(format!("{name}-1.0.0.tgz"));
        (archive.display().to_string(), file.display().to_string())
    }

    /// The way that the host takes, for another tool.
    pub(crate) fn same_way(&self) -> RealWorld {
        RealWorld { kubeconfig: self.folder.path().join("kubeconfig"), ..self.world.clone() }
    }

    pub(crate) async fn namespace(&self, ns: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
        let (status, answer) = self.proxy.direct(Method::POST, "/api/v1/namespaces", Some(&object)).await;
        assert_eq!(status, 201, "{answer}");
    }

    pub(crate) async fn drop_namespace(&self, ns: &str) {
        self.proxy.direct(Method::DELETE, &format!("/api/v1/namespaces/{ns}"), None).await;
    }

    /// An object as it is, by the path behind its namespace; `None` where there is none.
    pub(crate) async fn live(&self, path: &str) -> Option<Value> {
        let (status, object) = self.proxy.direct(Method::GET, path, None).await;
        match status {
            200 => Some(object),
            404 => None,
            other => panic!("{path} answered {other}: {object}"),
        }
    }

    /// Every revision of the release in a namespace, oldest first.
    pub(crate) async fn revisions(&self, ns: &str) -> Vec<Revision> {
        let path = format!("/api/v1/namespaces/{ns}/secrets?labelSelector=owner%3Dhelm");
        let list = self.live(&path).await.unwrap();
        let mut all: Vec<Revision> = list["items"].as_array().unwrap().iter().map(Revision::of).collect();
        all.sort_by_key(|r| r.number);
        all
    }
}

/// A release record, as far as it counts here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Revision {
    pub(crate) number: u64,
    pub(crate) status: String,
    pub(crate) chart: String,
    /// The value that its chart puts into a ConfigMap.
    pub(crate) x: String,
    pub(crate) version: String,
}

impl Revision {
    pub(crate) fn under_way(&self) -> bool {
        self.status.starts_with("pending") || self.status == "uninstalling"
    }

    fn of(secret: &Value) -> Self {
        let packed = STANDARD.decode(secret["data"]["release"].as_str().unwrap()).unwrap();
        let packed = STANDARD.decode(packed).unwrap();
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut text).unwrap();
        let release: Value = serde_json::from_slice(&text).unwrap();
        let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let status = word(&release["info"]["status"]);
        assert_eq!(status, word(&secret["metadata"]["labels"]["status"]), "label and record differ");
        Self {
            number: release["version"].as_u64().unwrap(),
            status,
            chart: word(&release["chart"]["metadata"]["name"]),
            x: word(&release["config"]["x"]),
            version: word(&secret["metadata"]["resourceVersion"]),
        }
    }
}
