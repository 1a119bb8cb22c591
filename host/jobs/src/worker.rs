//! Who runs a step: the dispatcher, behind this trait.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_ledger::{Job, Phase};
use sutler_model::{Checkpoint, Digest, Fence, Pair, PluginName, Progress, Stopped};

use crate::Asked;

/// What came of one call.
#[derive(Debug, Clone, PartialEq)]
pub enum Ran {
    /// `Next` names a declared step that comes later: the worker has seen to it.
    Progress(Progress),
    /// With the fault's id where a fault is behind it.
    Stopped(Stopped, Option<String>),
    /// No sandbox is free. The attempt does not count.
    NoRoom,
    /// This host cannot run the job's generation, and why. The attempt does not count.
    CannotRun(String),
}

/// Runs single calls of plugins. Dropping a call's future stops its sandbox at once.
pub trait Worker: Send + Sync + 'static {
    /// One call: apply forward, cancel in cleanup. Nothing may be changed once `fence` has nothing left.
    fn run<'a>(
        &'a self,
        job: &'a Job,
        at: Checkpoint,
        asked: &'a Asked,
        phase: Phase,
        fence: Fence,
    ) -> BoxFuture<'a, Ran>;

    /// The digests that this host can run; `None` for all.
    fn runnable(&self) -> Option<Vec<Digest>>;

    /// The longest step of each pair.
    fn longest(&self) -> BTreeMap<Pair, Duration>;

    /// The version that the generation calls itself; it is kept beside the state that it wrote.
    fn version(&self, digest: &Digest) -> String;

    /// The generation that serves the pair now.
    fn current(&self, pair: &Pair) -> Option<(PluginName, Digest)>;
}
