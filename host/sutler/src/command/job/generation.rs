//! The generation that serves a pair, as far as the command line has to do with it: it is named, never run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_catalog::{Catalog, Entry};
use sutler_jobs::{Asked, Ran, Worker};
use sutler_ledger::{Job, Phase};
use sutler_model::{Checkpoint, Digest, Fence, Pair, PluginName};

use crate::config::Config;
use crate::host;

/// What a retry moves a job to. The default knows of none.
#[derive(Debug, Default)]
pub(super) struct Generation(Option<(Pair, PluginName, Digest)>);

impl Generation {
    pub(super) fn of(pair: &Pair, entry: &Entry) -> Self {
        Self(Some((pair.clone(), entry.plugin.name.clone(), entry.plugin.digest)))
    }
}

impl Worker for Generation {
    /// Never called: nothing is started that would claim a job.
    fn run<'a>(&'a self, _: &'a Job, _: Checkpoint, _: &'a Asked, _: Phase, _: Fence) -> BoxFuture<'a, Ran> {
        Box::pin(async { Ran::CannotRun("the command line runs no steps".into()) })
    }
    fn runnable(&self) -> Option<Vec<Digest>> {
        Some(vec![])
    }
    fn longest(&self) -> BTreeMap<Pair, Duration> {
        BTreeMap::new()
    }
    fn version(&self, _: &Digest) -> String {
        String::new()
    }
    fn current(&self, pair: &Pair) -> Option<(PluginName, Digest)> {
        self.0.as_ref().filter(|(p, ..)| p == pair).map(|(_, name, digest)| (name.clone(), *digest))
    }
}

/// The plugin of the folder that serves the pair, as a host that starts now would have it.
pub(super) async fn current(config: &Config, pair: &Pair) -> anyhow::Result<Arc<Entry>> {
    let (runtime, _) = host::bare_runtime(config)?;
    let catalog = Catalog::new(
        runtime,
        config.catalog.clone(),
        config.plugins.clone(),
        host::pairs(config)?,
        config.instance_scopes(),
        config.tenants.clone(),
    );
    let snapshot = catalog.reload().await.map_err(anyhow::Error::msg)?;
    if let Some(entry) = snapshot.get(pair) {
        return Ok(entry.clone());
    }
    let refused =
        snapshot.files.iter().filter_map(|(n, f)| f.reason.as_ref().map(|r| format!("\n  {n}: {r}")));
    anyhow::bail!(
        "no plugin in {} serves {pair} now; put one there, or let the job go on with the one that it had: \
         --same-digest{}",
        config.catalog.dir.display(),
        refused.collect::<String>()
    )
}
