//! Runs the steps of jobs: on the generation that a job began with, wherever its bytes are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use moka::future::Cache;
use sutler_catalog::{Catalog, Entry};
use sutler_jobs::{Asked, Ran, Worker};
use sutler_ledger::{Job, Ledger, Phase};
use sutler_model::{Checkpoint, Digest, Fence, Pair, PluginName};
use sutler_runtime::{Pins, StepCall};

use crate::{answers, apply};

/// Generations beside those that serve: as many as this, as long as this after their last call.
const OLDER: u64 = 64;
const OLDER_FOR: Duration = Duration::from_secs(600);

/// The plugins of a catalog as the jobs' worker.
pub struct PluginWorker {
    catalog: Arc<Catalog>,
    ledger: Arc<dyn Ledger>,
    older: Cache<Digest, Arc<Entry>>,
}

impl std::fmt::Debug for PluginWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginWorker").finish_non_exhaustive()
    }
}

impl PluginWorker {
    pub fn new(catalog: Arc<Catalog>, ledger: Arc<dyn Ledger>) -> Self {
        let older = Cache::builder().max_capacity(OLDER).time_to_idle(OLDER_FOR).build();
        Self { catalog, ledger, older }
    }

    fn serving(&self, digest: &Digest) -> Option<Arc<Entry>> {
        let snapshot = self.catalog.snapshot();
        let mut entries = snapshot.files.values().filter_map(|f| f.entry.as_ref());
        entries.find(|e| e.plugin.digest == *digest).cloned()
    }

    /// # Errors
    /// Words on why this host cannot run it.
    async fn entry(&self, name: &PluginName, digest: &Digest) -> Result<Arc<Entry>, String> {
        let serving = self.serving(digest).filter(|e| e.plugin.name == *name);
        if let Some(entry) = serving {
            return Ok(entry);
        }
        let load = async {
            let bytes = self.ledger.plugin(*digest).await.map_err(|e| e.to_string())?;
            let bytes = bytes.ok_or_else(|| format!("the ledger does not hold {digest} of plugin {name}"))?;
            self.catalog.generation(name.clone(), bytes).await.map(Arc::new)
        };
        self.older.try_get_with(*digest, load).await.map_err(|e| e.as_ref().clone())
    }

    async fn step(&self, job: &Job, at: Checkpoint, asked: &Asked, phase: Phase, fence: Fence) -> Ran {
        let entry = match self.entry(&job.plugin, &job.digest).await {
            Ok(e) => e,
            Err(why) => return Ran::CannotRun(why),
        };
        let Some(pair) = entry.pairs.get(&job.pair) else {
            return Ran::CannotRun(format!(
                "plugin {} {} does not handle {}",
                job.plugin, job.digest, job.pair
            ));
        };
        let pins = match pins_in(&asked.pins) {
            Ok(p) => p,
            Err(e) => return Ran::CannotRun(format!("the plan that was kept cannot be read: {e}")),
        };
        let call = StepCall {
            mode: apply::mode(phase),
            job: job.id.as_str(),
            request: &asked.request,
            context: &pair.context,
            at: &at,
            pins: &pins,
            fence,
        };
        let result = entry.plugin.apply(call, entry.grants(&asked.request.application)).await;
        let (ran, fault) = apply::ran(&entry, pair, asked, (phase, &at), result);
        if let Some(fault) = fault {
            answers::record(&fault, self.catalog.faults());
        }
        ran
    }
}

/// What a plan found, in the form that a job keeps.
pub(crate) fn pins_out(pins: &Pins) -> serde_json::Value {
    pins.iter().map(|((url, version), digest)| serde_json::json!([url, version, digest])).collect()
}

fn pins_in(kept: &serde_json::Value) -> serde_json::Result<Pins> {
    use serde::Deserialize as _;
    let list = Vec::<(String, Option<String>, String)>::deserialize(kept)?;
    Ok(list.into_iter().map(|(url, version, digest)| ((url, version), digest)).collect())
}

impl Worker for PluginWorker {
    fn run<'a>(
        &'a self,
        job: &'a Job,
        at: Checkpoint,
        asked: &'a Asked,
        phase: Phase,
        fence: Fence,
    ) -> BoxFuture<'a, Ran> {
        Box::pin(self.step(job, at, asked, phase, fence))
    }

    /// Every one: those that the folder does not hold come out of the ledger.
    fn runnable(&self) -> Option<Vec<Digest>> {
        None
    }

    fn longest(&self) -> BTreeMap<Pair, Duration> {
        let snapshot = self.catalog.snapshot();
        let of = |(pair, e): (&Pair, &Arc<Entry>)| {
            let steps = e.pairs.get(pair)?.steps.iter();
            let longest = steps.map(|s| s.timeout_seconds).max()?;
            Some((pair.clone(), Duration::from_secs(u64::from(longest))))
        };
        snapshot.pairs().into_iter().filter_map(of).collect()
    }

    fn version(&self, digest: &Digest) -> String {
        let entry = self.serving(digest).or_else(|| self.older.get(digest).now_or_never().flatten());
        entry.map(|e| e.descriptor.version.clone()).unwrap_or_default()
    }

    fn current(&self, pair: &Pair) -> Option<(PluginName, Digest)> {
        let snapshot = self.catalog.snapshot();
        snapshot.get(pair).map(|e| (e.plugin.name.clone(), e.plugin.digest))
    }
}
