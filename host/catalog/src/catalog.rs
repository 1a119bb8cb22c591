//! Loading and reloading.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use sutler_model::{Digest, Pair, PluginName};
use sutler_runtime::{PluginSettings, RunError, Runtime};
use tokio::sync::Mutex;

use crate::config::{CatalogConfig, InstanceScope, PluginConfig, ScopeConfig, laid_over};
use crate::entry::{Entry, GrantTable};
use crate::faults::FaultLog;
use crate::folder::{self, Found};
use crate::index::{FileState, Snapshot};

/// Plugins that are compiled at the same time.
const COMPILING: usize = 4;

/// The plugins of one folder.
#[derive(Debug)]
pub struct Catalog {
    runtime: Arc<Runtime>,
    config: CatalogConfig,
    plugins: BTreeMap<String, PluginConfig>,
    pairs: BTreeMap<Pair, String>,
    instances: BTreeMap<String, InstanceScope>,
    tenants: BTreeMap<String, ScopeConfig>,
    snapshot: ArcSwap<Snapshot>,
    faults: FaultLog,
    /// Held while a reload runs; what each loaded file's content was.
    loading: Mutex<HashMap<String, Digest>>,
}

impl Catalog {
    /// Empty until the first [`Catalog::reload`].
    pub fn new(
        runtime: Arc<Runtime>,
        config: CatalogConfig,
        plugins: BTreeMap<String, PluginConfig>,
        pairs: BTreeMap<Pair, String>,
        instances: BTreeMap<String, InstanceScope>,
        tenants: BTreeMap<String, ScopeConfig>,
    ) -> Self {
        Self {
            runtime,
            config,
            plugins,
            pairs,
            instances,
            tenants,
            snapshot: ArcSwap::default(),
            faults: FaultLog::default(),
            loading: Mutex::default(),
        }
    }

    /// What serves now.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }
    pub const fn faults(&self) -> &FaultLog {
        &self.faults
    }
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Reads the folder again. What is unchanged stays; what is new is compiled and described; what is broken
    /// leaves its working predecessor in place. Reloads run one after the other.
    ///
    /// # Errors
    /// Words where the folder itself cannot be read; everything then stays as it was.
    pub async fn reload(&self) -> Result<Arc<Snapshot>, String> {
        let mut known = self.loading.lock().await;
        let (dir, configured) = (self.config.dir.clone(), self.plugins.clone());
        let listing = tokio::task::spawn_blocking(move || folder::read(&dir, &configured))
            .await
            .map_err(|e| format!("reading the plugin folder was interrupted: {e}"))??;
        let before = self.snapshot.load_full();
        let loaded: Vec<(String, Option<Digest>, FileState)> = stream::iter(listing)
            .map(|(name, found)| {
                let old = before.files.get(&name).cloned();
                let seen = known.get(&name).copied();
                async move {
                    let fingerprint = found.as_ref().ok().map(|f| f.fingerprint);
                    let state = self.one(found, old, seen).await;
                    (name, fingerprint, state)
                }
            })
            .buffer_unordered(COMPILING)
            .collect()
            .await;
        *known = loaded.iter().filter_map(|(n, d, _)| d.map(|d| (n.clone(), d))).collect();
        let files = loaded.into_iter().map(|(n, _, s)| (n, s)).collect();
        let next = Arc::new(Snapshot::of(files, &before, &self.pairs));
        for (name, file) in &next.files {
            match (&file.entry, &file.reason) {
                (Some(e), None) => {
                    tracing::info!(event = "plugin-loaded", plugin = %name, version = %e.descriptor.version, digest = %e.plugin.digest)
                }
                (_, Some(reason)) => {
                    tracing::warn!(event = "plugin-refused", plugin = %name, serves_older = file.entry.is_some(), "{reason}")
                }
                (None, None) => {}
            }
        }
        self.snapshot.store(next.clone());
        Ok(next)
    }

    async fn one(
        &self,
        found: Result<Found, String>,
        old: Option<FileState>,
        seen: Option<Digest>,
    ) -> FileState {
        let keep = |reason: String| FileState {
            entry: old.as_ref().and_then(|o| o.entry.clone()),
            reason: Some(reason),
        };
        let found = match found {
            Ok(f) => f,
            Err(reason) => return keep(reason),
        };
        if let Some(o) = &old
            && seen == Some(found.fingerprint)
            && o.entry.is_some()
            && o.reason.is_none()
        {
            return o.clone();
        }
        match self.load(found.name, found.wasm, &found.config).await {
            Ok(entry) => FileState { entry: Some(Arc::new(entry)), reason: None },
            Err(reason) => keep(reason),
        }
    }

    /// A generation that jobs began with and that the folder no longer holds, with what the operator wrote for the
    /// plugin of that name. It serves no pair.
    ///
    /// # Errors
    /// Words on why these bytes cannot be run here.
    pub async fn generation(&self, name: PluginName, wasm: Bytes) -> Result<Entry, String> {
        let file = self.config.dir.join(format!("{name}.wasm"));
        let (config, _) = folder::config(&file, name.as_str(), &self.plugins)?;
        self.load(name, wasm, &config).await
    }

    async fn load(&self, name: PluginName, wasm: Bytes, config: &PluginConfig) -> Result<Entry, String> {
        let grants = GrantTable::new(&name, &config.grants, &self.instances, &self.tenants);
        let mut secrets = HashMap::new();
        for (name, source) in &config.secrets {
            secrets.insert(name.clone(), source.read().map_err(|e| format!("secret {name}: {e}"))?);
        }
        let limits = config.limits.clone();
        let whole = config.whole()?;
        let of_instances = self.instances.iter().filter_map(|(instance, i)| {
            let laid = laid_over(&whole, i.config.get(name.as_str())?);
            Some(
                laid.map(|config| (instance.clone(), config.to_string()))
                    .map_err(|e| format!("[instances.{instance}.config.{name}]: {e}")),
            )
        });
        let of_instances = of_instances.collect::<Result<HashMap<_, _>, _>>()?;
        let config = whole.to_string();
        let max = self.runtime.engine().config().max_memory_mib;
        limits.check(max).map_err(|e| format!("limits: {e}"))?;
        let (runtime, bytes) = (self.runtime.clone(), wasm.clone());
        let plugin = tokio::task::spawn_blocking(move || {
            runtime.load(name, &bytes, PluginSettings { config, of_instances, secrets }, limits)
        })
        .await
        .map_err(|e| format!("compiling it was interrupted: {e}"))?
        .map_err(|e| e.to_string())?;
        let descriptor = plugin.describe(grants.plain()).await.map_err(|e| match e {
            RunError::Fault(f) => {
                self.faults.record(&f);
                format!("its describe failed: {f}")
            }
            RunError::Overloaded { what, limit } => {
                format!("{what} has no sandbox free of {limit}; reload again")
            }
        })?;
        Entry::new(plugin, wasm, descriptor, grants)
    }
}
