//! A host's jobs over the ledger in memory; its clock is tokio's, which the tests pause and move.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use sutler_jobs::machine::replay;
use sutler_jobs::{Answered, Asked, Ended, New, Operations, OperationsConfig, Ran, Who, Worker};
use sutler_ledger::{Clock, Event, Happened, Job, JobId, Ledger, LedgerError, Memory, Millis, Moment, Phase};
use sutler_model::{
    Action, Application, Applied, Change, Checkpoint, Digest, Failure, Fence, Identifier, NextStep, Pair,
    Pause, PluginName, Progress, Request, RequestId, Stopped,
};
use tokio::time::Instant;

pub(crate) fn id(s: &str) -> Identifier {
    Identifier::parse(s).unwrap()
}

pub(crate) fn asked(request_id: &str) -> Asked {
    asked_of(request_id, "orders", None)
}

pub(crate) fn asked_of(request_id: &str, application: &str, tenant: Option<&str>) -> Asked {
    let change = Change {
        resource: id("main"),
        action: Action::Create,
        settings: Some(json!({"size": 3})),
        previous_settings: None,
        previous_outputs: None,
    };
    let application =
        Application { id: id(application), environment: id("prod"), tenant: tenant.map(id), instance: None };
    Asked {
        request: Request {
            id: RequestId::parse(request_id).unwrap(),
            pair: "deployment/ksml".parse().unwrap(),
            application,
            changes: vec![change],
        },
        planned: vec![],
        pins: Value::Null,
    }
}

pub(crate) fn new(request_id: &str) -> New {
    new_of(asked(request_id), [1; 32])
}

pub(crate) fn new_of(asked: Asked, body: [u8; 32]) -> New {
    New {
        caller: "platform".into(),
        asked,
        plugin: PluginName::parse("ksml").unwrap(),
        digest: Digest::of(b"one"),
        body,
        takes: sutler_ledger::Takes::default(),
    }
}

/// One call as the worker sees it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) id: JobId,
    pub(crate) step: String,
    pub(crate) state: String,
    pub(crate) attempt: u32,
    pub(crate) written_by: String,
    pub(crate) phase: Phase,
    pub(crate) token: u64,
    pub(crate) digest: Digest,
    pub(crate) fence: Fence,
    pub(crate) at: Duration,
}

type Play = dyn Fn(Seen) -> BoxFuture<'static, Ran> + Send + Sync;

/// A worker that does what a test says, and remembers its calls.
pub(crate) struct Script {
    host: Arc<str>,
    play: Box<Play>,
    start: Instant,
    pub(crate) seen: Mutex<Vec<Seen>>,
    pub(crate) running: AtomicUsize,
    pub(crate) most: AtomicUsize,
    pub(crate) longest: BTreeMap<Pair, Duration>,
    pub(crate) runnable: Option<Vec<Digest>>,
    pub(crate) current: Option<(PluginName, Digest)>,
}

struct InCall<'a>(&'a Script);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker for Script {
    fn run<'a>(
        &'a self,
        job: &'a Job,
        at: Checkpoint,
        asked: &'a Asked,
        phase: Phase,
        fence: Fence,
    ) -> BoxFuture<'a, Ran> {
        assert_eq!(asked.request.pair, job.pair);
        Box::pin(async move {
            let seen = Seen {
                id: job.id.clone(),
                step: at.step,
                state: at.state,
                attempt: at.attempt,
                written_by: at.written_by,
                phase,
                token: job.token,
                digest: job.digest,
                fence,
                at: self.start.elapsed(),
            };
            self.seen.lock().unwrap().push(seen.clone());
            let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            let _in_call = InCall(self);
            (self.play)(seen).await
        })
    }
    fn runnable(&self) -> Option<Vec<Digest>> {
        self.runnable.clone()
    }
    fn longest(&self) -> BTreeMap<Pair, Duration> {
        self.longest.clone()
    }
    fn version(&self, _digest: &Digest) -> String {
        "1.0.0".into()
    }
    fn current(&self, _pair: &Pair) -> Option<(PluginName, Digest)> {
        self.current.clone()
    }
}

impl Script {
    pub(crate) fn new(host: &str, play: impl Fn(Seen) -> Ran + Send + Sync + 'static) -> Self {
        Self::slow(host, move |s| {
            let ran = play(s);
            Box::pin(async move { ran })
        })
    }
    pub(crate) fn slow(
        host: &str,
        play: impl Fn(Seen) -> BoxFuture<'static, Ran> + Send + Sync + 'static,
    ) -> Self {
        Self {
            host: host.into(),
            play: Box::new(play),
            start: Instant::now(),
            seen: Mutex::default(),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            longest: BTreeMap::new(),
            runnable: None,
            current: None,
        }
    }
    /// Step and attempt of each call.
    pub(crate) fn calls(&self) -> Vec<(String, u32)> {
        self.seen.lock().unwrap().iter().map(|s| (s.step.clone(), s.attempt)).collect()
    }
}

pub(crate) fn done() -> Ran {
    Ran::Progress(Progress::Done(applied()))
}
pub(crate) fn applied() -> Vec<Applied> {
    vec![Applied { resource: id("main"), outputs: json!({"url": "u"}), secret_outputs: json!({"key": "k"}) }]
}
pub(crate) fn goes_on(step: &str) -> Ran {
    Ran::Progress(Progress::Next(NextStep { step: step.into(), state: format!("{{\"to\":\"{step}\"}}") }))
}
pub(crate) fn save(state: &str) -> Ran {
    Ran::Progress(Progress::Save(state.into()))
}
pub(crate) fn wait(millis: u64) -> Ran {
    Ran::Progress(Progress::Wait(Pause {
        state: "{\"waited\":1}".into(),
        after: Duration::from_millis(millis),
        message: "the database starts".into(),
    }))
}
pub(crate) fn stops(code: &str, retryable: bool) -> Ran {
    let mut failure = Failure::new(code, "it did not work");
    failure.retryable = retryable;
    Ran::Stopped(Stopped { failure, applied: vec![], state: format!("{{\"stopped\":\"{code}\"}}") }, None)
}

/// The ledger's time is tokio's.
pub(crate) fn clock() -> Clock {
    let start = Instant::now();
    Clock::from_fn(move || Millis(1_800_000_000_000).plus(start.elapsed()))
}

/// What the ledger answers instead of doing it, by operation; the calls it got.
#[derive(Default)]
pub(crate) struct Trouble {
    pub(crate) calls: Mutex<Vec<&'static str>>,
    pub(crate) plan: Mutex<Vec<(&'static str, Moment, LedgerError)>>,
    /// Every operation fails.
    pub(crate) down: std::sync::atomic::AtomicBool,
}

impl Trouble {
    /// The next call of the operation fails so.
    pub(crate) fn next(&self, name: &'static str, moment: Moment, error: LedgerError) {
        self.plan.lock().unwrap().push((name, moment, error));
    }
    pub(crate) fn writes(&self) -> Vec<&'static str> {
        let calls = self.calls.lock().unwrap();
        calls.iter().copied().filter(|c| matches!(*c, "begin" | "commit" | "claim")).collect()
    }
}

pub(crate) fn ledger() -> (Arc<Memory>, Arc<Trouble>) {
    let trouble = Arc::new(Trouble::default());
    let t = trouble.clone();
    let hook = move |name: &'static str, moment: Moment| {
        if moment == Moment::Before {
            t.calls.lock().unwrap().push(name);
            if t.down.load(Ordering::SeqCst) {
                return Some(LedgerError::Unavailable("down".into()));
            }
        }
        let mut plan = t.plan.lock().unwrap();
        let at = plan.iter().position(|(n, m, _)| *n == name && *m == moment)?;
        Some(plan.remove(at).2)
    };
    (Arc::new(Memory::new(clock()).with_hook(Arc::new(hook))), trouble)
}

pub(crate) fn config() -> OperationsConfig {
    OperationsConfig { attempts: 3, ..OperationsConfig::default() }
}

pub(crate) fn host(ledger: &Arc<Memory>, worker: Script) -> (Operations, Arc<Script>) {
    host_with(ledger, worker, &config())
}

pub(crate) fn host_with(
    ledger: &Arc<Memory>,
    worker: Script,
    config: &OperationsConfig,
) -> (Operations, Arc<Script>) {
    let worker = Arc::new(worker);
    let holder = worker.host.to_string();
    let ops = Operations::new(ledger.clone(), worker.clone(), config, &holder).unwrap();
    (ops, worker)
}

pub(crate) fn accepted(answer: &Answered) -> JobId {
    match answer {
        Answered::Accepted { id, .. } => id.clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn code(answer: &Answered) -> String {
    match answer {
        Answered::Done(_, ended) => ended_code(ended),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn ended_code(ended: &Ended) -> String {
    match ended {
        Ended::Succeeded(_) => "succeeded".into(),
        Ended::Failed { failure, .. } => failure.code.clone(),
    }
}

/// Waits for the job's end and answers how it ended.
pub(crate) async fn ended(ops: &Operations, id: &JobId) -> Ended {
    loop {
        if let Some(e) = ops.operation(Who::Operator("ops"), id).await.unwrap().ended {
            return e;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The names of a job's events, after its history was replayed against its row.
pub(crate) async fn history(ledger: &Memory, id: &JobId) -> Vec<&'static str> {
    let (job, events) = row(ledger, id).await;
    let happened: Vec<Happened> = events.iter().map(|e| e.what.clone()).collect();
    assert_eq!(replay(job.mode, &happened).unwrap(), job.standing);
    happened.iter().map(Happened::name).collect()
}

pub(crate) async fn row(ledger: &Memory, id: &JobId) -> (Job, Vec<Event>) {
    let job = ledger.job(id.clone()).await.unwrap().unwrap();
    (job, ledger.events(id.clone(), 0, 10_000).await.unwrap())
}
