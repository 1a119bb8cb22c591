//! A host for a real Docker daemon, and what its callers say.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_testkit::docker::{RUNNER, RealDocker, real_docker};
use sutler_testkit::http::{Caller, SampleRequest, renewed};
use sutler_testkit::{SutlerProcess, guest};
use tempfile::TempDir;

pub(super) const PASSWORD: &str = "kafka-password-of-the-test";

pub(super) struct Site {
    pub(super) docker: RealDocker,
    pub(super) config: String,
    pub(super) host: SutlerProcess,
    pub(super) tenant: &'static str,
    pub(super) folder: TempDir,
}

impl Site {
    /// `None` where no real world is asked for. `env`: variables of the containers, as TOML.
    pub(super) async fn start(tenant: &'static str, env: &str) -> Option<Self> {
        let docker = real_docker()?;
        let folder = tempfile::tempdir().unwrap();
        docker.load_runner(folder.path());
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        std::fs::copy(guest("ksml"), plugins.join("ksml.wasm")).unwrap();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             [catalog]\ndir = {plugins:?}\n[ledger]\npath = {:?}\n[operations]\ntakeover-after-seconds = 1\n\
             [containers]\nsocket = {:?}\n\
             [plugins.ksml.config]\ntarget = \"docker\"\nimage = \"{RUNNER}\"\ngrace-seconds = 5\n\
             [plugins.ksml.config.env]\nKSML_DEFINITIONS = \"/ksml/definitions\"\n{env}\n\
             [plugins.ksml.grants.containers]\nimages = [\"sutler.test/*\"]\nvolumes = true\nmax-memory-mib = 4096\n",
            folder.path().join("ledger.db"),
            docker.socket,
        );
        let host = SutlerProcess::start(&config, &[]).await;
        Some(Self { docker, config, host, tenant, folder })
    }

    pub(super) fn file(&self) -> PathBuf {
        let file = self.folder.path().join("sutler.toml");
        std::fs::write(&file, &self.config).unwrap();
        file
    }

    pub(super) fn request(&self) -> SampleRequest {
        SampleRequest::new("deployment/ksml").application("tenant", self.tenant)
    }

    pub(super) async fn ok(&self, path: &str, body: &Value) -> Value {
        let api = Caller::new(&self.host.url);
        let answered = match path {
            "/apply" => api.apply(&renewed(body)).await,
            _ => api.post(path, body).await,
        };
        assert_eq!(answered.status, 200, "{}", answered.text);
        let log = || self.host.log_lines().join("\n");
        assert_ne!(answered.json["outcome"], "failed", "{path}: {}\n{}", answered.text, log());
        answered.json
    }

    /// Creates the application: its outputs.
    pub(super) async fn create(&self, settings: Value) -> Value {
        let applied = self.ok("/apply", &self.request().create(settings).body()).await;
        applied["resources"][0]["outputs"].clone()
    }

    /// The resource as `/inspect` shows it.
    pub(super) async fn seen(&self, settings: Value, outputs: Value) -> Value {
        let seen = self.ok("/inspect", &self.request().expect("main", settings, outputs).body()).await;
        seen["resources"][0].clone()
    }

    /// The first action of a plan.
    pub(super) async fn planned(&self, body: &Value) -> Value {
        self.ok("/plan", body).await["changes"][0].clone()
    }

    /// The one container of the tenant.
    pub(super) fn container(&self) -> (String, Value) {
        let names = self.docker.with_label(&self.label());
        assert_eq!(names.len(), 1, "{names:?}");
        (names[0].clone(), self.docker.inspect(&names[0]).unwrap())
    }

    pub(super) fn label(&self) -> String {
        format!("sutler.dev/tenant={}", self.tenant)
    }

    /// Waits for what the container comes to.
    pub(super) async fn until(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let now = self.docker.inspect(name).unwrap_or_default();
            if holds(&now) {
                return now;
            }
            assert!(Instant::now() < end, "{name} did not come to it: {}", now["State"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whatever the test left.
    pub(super) fn clear(&self) {
        for name in self.docker.with_label(&self.label()) {
            self.docker.run(&["rm", "--force", &name]);
        }
        for name in self.docker.volumes_with_label(&self.label()) {
            self.docker.run(&["volume", "rm", &name]);
        }
    }
}

pub(super) fn settings() -> Value {
    let definition = "streams:\n  in:\n    topic: in\n    keyType: string\n    valueType: string\npipelines:\n  main:\n    from: in\n    print: true\n";
    json!({
        "size": "XS",
        "definitions": {"orders": definition},
        "kafka": {
            "bootstrapServers": "kafka:9092",
            "security": {"type": "sasl", "username": "orders", "password": PASSWORD, "mechanism": "PLAIN"}
        }
    })
}
