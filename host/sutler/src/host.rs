//! The parts of a host, put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sutler_catalog::{Catalog, CatalogConfig, Snapshot};
use sutler_containers::{Containers, Daemon, Login, Logins};
use sutler_dispatch::{
    Asker, CallError, Dispatcher, EventView, HandleView, ObservedView, OperationFilter, OperationView,
    Outcome, PlanView, PluginView, PluginWorker, Provisioner, Readiness, Work,
};
use sutler_helm::{Helm, RegistryLogin, RegistryLogins, TemplateEngine};
use sutler_jobs::Operations;
use sutler_kubernetes::{Clusters, Kubernetes};
use sutler_ledger::{Audit, AuditFilter, Ledger};
use sutler_logs::{LogLine, Logs, StreamOptions};
use sutler_model::{Fault, Inquiry, Pair, Request};
use sutler_runtime::{Capabilities, CompileCache, Engine, HelmEngine, Runtime};

use crate::config::Config;
use crate::jobs::LedgerJobs;
use crate::ledger::Opened;

/// Helm's engine, zstd; empty where the build had none.
static HELM_ENGINE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helm-engine.wasm.zst"));

/// What a running host is made of.
pub(crate) struct Host {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) runtime: Arc<Runtime>,
}

/// A runtime without any capability: enough to look at a plugin.
pub(crate) fn bare_runtime(config: &Config) -> anyhow::Result<(Arc<Runtime>, CompileCache)> {
    let cache = CompileCache::open(&config.cache.folder().join("compiled"))?;
    let engine = Engine::new(config.runtime.clone())?;
    let runtime = Runtime::new(engine, cache.clone(), Capabilities::default(), config.policy.wasi)?;
    Ok((Arc::new(runtime), cache))
}

/// Connects capabilities and makes the dispatcher; no plugin is loaded yet.
pub(crate) async fn build(config: &Config, catalog: CatalogConfig, opened: Opened) -> anyhow::Result<Host> {
    let cache = CompileCache::open(&config.cache.folder().join("compiled"))?;
    let engine = Engine::new(config.runtime.clone())?;
    let helm_engine = HelmEngine::start(engine.clone(), cache.clone(), HELM_ENGINE);
    let Opened { ledger, hash_key } = opened;
    let capabilities = capabilities(config, helm_engine.clone(), ledger.clone()).await?;
    let logs = capabilities.logs.clone();
    let runtime = Arc::new(Runtime::new(engine, cache.clone(), capabilities, config.policy.wasi)?);
    let catalog = Catalog::new(
        runtime.clone(),
        catalog,
        config.plugins.clone(),
        pairs(config)?,
        config.instance_scopes(),
        config.tenants.clone(),
    );
    let catalog = Arc::new(catalog);
    let worker = Arc::new(PluginWorker::new(catalog.clone(), ledger.clone()));
    let operations = Operations::new(ledger.clone(), worker, &config.operations, &holder())?;
    let readiness = vec![engine_readiness(helm_engine)];
    let dispatcher = Dispatcher::new(catalog, operations, ledger, logs, hash_key, config.quotas(), readiness);
    Ok(Host { dispatcher, runtime })
}

/// A name for this start of this host: no other has or had it.
fn holder() -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = if machine.trim().is_empty() { "host" } else { machine.trim() };
    format!("{machine}/{}/{}", std::process::id(), uuid::Uuid::new_v4().simple())
}

async fn capabilities(
    config: &Config,
    engine: Arc<HelmEngine>,
    ledger: Arc<dyn Ledger>,
) -> anyhow::Result<Capabilities> {
    let containers = containers(config)?;
    let Some(clusters) = &config.kubernetes else {
        // Without a cluster, too, people read the logs of containers.
        let none = Arc::new(Clusters::of(vec![]));
        let logs =
            containers.is_some().then(|| Arc::new(Logs::new(none).with_containers(containers.clone())));
        return Ok(Capabilities { containers, logs, ..Capabilities::default() });
    };
    let clusters = Arc::new(Clusters::connect(clusters).await.context("[kubernetes]")?);
    let mut helm = config.helm.clone();
    helm.cache_folder.get_or_insert_with(|| config.cache.folder().join("charts"));
    let engine: Arc<dyn TemplateEngine> = engine;
    let jobs = Arc::new(LedgerJobs(ledger));
    let helm = Helm::new(&helm, &config.registries, clusters.clone(), engine, jobs).context("[helm]")?;
    Ok(Capabilities {
        kubernetes: Some(Arc::new(Kubernetes::new(clusters.clone()))),
        helm: Some(Arc::new(helm)),
        logs: Some(Arc::new(Logs::new(clusters).with_containers(containers.clone()))),
        containers,
    })
}

/// The Docker daemon, with the credentials of `[registries]` for its pulls.
fn containers(config: &Config) -> anyhow::Result<Option<Arc<Containers>>> {
    let Some(of) = &config.containers else { return Ok(None) };
    let logins = RegistryLogins::new(&config.helm, &config.registries).context("[registries]")?;
    Ok(Some(Arc::new(Containers::new(Arc::new(Daemon::new(of)), Arc::new(ImageLogins(logins))))))
}

struct ImageLogins(RegistryLogins);

impl Logins for ImageLogins {
    fn login<'a>(&'a self, registry: &'a str) -> BoxFuture<'a, Result<Option<Login>, String>> {
        Box::pin(async move {
            Ok(match self.0.of(registry).await? {
                RegistryLogin::Anonymous => None,
                RegistryLogin::Basic { username, password } => Some(Login::Basic { username, password }),
                RegistryLogin::Token(token) => Some(Login::Token(token)),
                RegistryLogin::Identity(token) => Some(Login::Identity(token)),
            })
        })
    }
}

pub(crate) fn pairs(config: &Config) -> anyhow::Result<BTreeMap<Pair, String>> {
    config
        .pairs
        .iter()
        .map(|(p, n)| Ok((p.parse::<Pair>().with_context(|| format!("[pairs] {p:?}"))?, n.clone())))
        .collect()
}

/// A host whose plugins use charts is ready once Helm's engine has been compiled.
fn engine_readiness(engine: Arc<HelmEngine>) -> Readiness {
    Box::new(move |snapshot: &Snapshot| {
        let uses_charts = |f: &sutler_catalog::FileState| {
            f.entry.as_ref().is_some_and(|e| e.plugin.imports.iter().any(|i| i.starts_with("sutler:helm/")))
        };
        if !snapshot.files.values().any(uses_charts) {
            return None;
        }
        match engine.ready() {
            Some(Ok(())) => None,
            Some(Err(e)) => Some(format!("Helm's engine: {e}")),
            None => Some("Helm's engine is being compiled (once; it is cached)".into()),
        }
    })
}

/// A provisioner that handles nothing, where only its surroundings are looked at.
pub(crate) struct Nobody;

impl Provisioner for Nobody {
    fn plan(&self, _: Request) -> BoxFuture<'_, Outcome<PlanView>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn apply(&self, _: Arc<str>, _: Request, _: Option<String>) -> BoxFuture<'_, Outcome<Work>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn operation(&self, _: Asker, _: String) -> BoxFuture<'_, Result<OperationView, CallError>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn operations(
        &self,
        _: Asker,
        _: OperationFilter,
    ) -> BoxFuture<'_, Result<Vec<OperationView>, CallError>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn operation_events(
        &self,
        _: Asker,
        _: String,
        _: u64,
        _: u32,
    ) -> BoxFuture<'_, Result<(Vec<EventView>, bool), CallError>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn inspect(&self, _: Inquiry) -> BoxFuture<'_, Outcome<Vec<ObservedView>>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn logs(&self, _: Inquiry, _: StreamOptions) -> BoxFuture<'_, Outcome<BoxStream<'static, LogLine>>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn handles(&self) -> Vec<HandleView> {
        vec![]
    }
    fn plugins(&self) -> Vec<PluginView> {
        vec![]
    }
    fn faults(&self, _: &str) -> Option<Vec<Fault>> {
        None
    }
    fn audit(&self, _: AuditFilter) -> BoxFuture<'_, Result<Vec<Audit>, CallError>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn reload(&self, _: Arc<str>) -> BoxFuture<'_, Result<Vec<PluginView>, CallError>> {
        Box::pin(async { Err(CallError::Stopping) })
    }
    fn not_ready(&self) -> Vec<String> {
        vec![]
    }
    fn lose_pair(&self, _: &Pair) {}
}
