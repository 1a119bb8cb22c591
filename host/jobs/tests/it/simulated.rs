//! One host of the simulation: it is paused, it dies, it comes back; its worker changes the world.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_jobs::{Asked, Operations, OperationsConfig, Ran, Worker};
use sutler_ledger::{Job, JobId, Memory, Phase};
use sutler_model::{
    Applied, Checkpoint, Digest, Failure, Fence, NextStep, Pair, Pause, PluginName, Progress, Stopped,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::common::applied;
use crate::flaky::{Flaky, Weather};
use crate::simulation::{World, chance, millis};

/// The longest that a request of a plugin is on its way: what takeover waits for beyond the lease.
const ON_ITS_WAY: u64 = 900;

/// What is done to a process from outside.
#[derive(Default)]
struct Process {
    state: Mutex<ProcessState>,
}

#[derive(Default)]
struct ProcessState {
    paused: bool,
    dead: bool,
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Process {
    fn set(&self, change: impl FnOnce(&mut ProcessState)) {
        let mut state = self.state.lock().unwrap();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_values().for_each(Waker::wake);
    }

    /// A future of this process: not polled while it is paused, dropped when it dies.
    fn own<T>(self: &Arc<Self>, work: impl Future<Output = T> + Send + 'static) -> Owned<T> {
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        Owned { process: self.clone(), number: state.next, work: Some(Box::pin(work)) }
    }
}

struct Owned<T> {
    process: Arc<Process>,
    number: u64,
    work: Option<BoxFuture<'static, T>>,
}

impl<T> Future for Owned<T> {
    type Output = Option<T>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let (paused, dead) = {
            let mut state = this.process.state.lock().unwrap();
            state.wakers.insert(this.number, cx.waker().clone());
            (state.paused, state.dead)
        };
        if dead {
            this.work = None;
        }
        let Some(work) = &mut this.work else { return Poll::Ready(None) };
        if paused {
            return Poll::Pending;
        }
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            this.work = None;
            this.process.state.lock().unwrap().wakers.remove(&this.number);
        }
        polled.map(Some)
    }
}

pub(crate) struct SimHost {
    number: usize,
    world: Arc<World>,
    ledger: Arc<Memory>,
    weather: Arc<Weather>,
    config: OperationsConfig,
    now: Mutex<(Arc<Process>, Operations, u32)>,
}

impl SimHost {
    pub(crate) fn new(
        number: usize,
        world: Arc<World>,
        ledger: Arc<Memory>,
        weather: Arc<Weather>,
        config: OperationsConfig,
    ) -> Arc<Self> {
        let (process, ops) = boot(number, 0, &world, &ledger, &weather, &config);
        Arc::new(Self { number, world, ledger, weather, config, now: Mutex::new((process, ops, 0)) })
    }

    fn process(&self) -> Arc<Process> {
        self.now.lock().unwrap().0.clone()
    }

    pub(crate) fn kill(&self) {
        self.process().set(|s| s.dead = true);
    }

    fn boot_again(&self) {
        let mut now = self.now.lock().unwrap();
        let starts = now.2 + 1;
        let (process, ops) =
            boot(self.number, starts, &self.world, &self.ledger, &self.weather, &self.config);
        *now = (process, ops, starts);
    }

    /// Asks the host something; no answer where it dies meanwhile.
    pub(crate) async fn ask<F>(&self, ask: impl FnOnce(Operations) -> F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let (process, asked) = {
            let now = self.now.lock().unwrap();
            (now.0.clone(), ask(now.1.clone()))
        };
        process.own(asked).await
    }

    /// Pauses and deaths, until trouble is over.
    pub(crate) async fn suffer(self: Arc<Self>, trouble: Duration) {
        let start = Instant::now();
        while start.elapsed() < trouble {
            tokio::time::sleep(millis(25_000)).await;
            if chance(50) {
                self.world.count("paused");
                self.process().set(|s| s.paused = true);
                tokio::time::sleep(millis(15_000)).await;
                self.process().set(|s| s.paused = false);
            } else {
                self.world.count("died");
                self.kill();
                tokio::time::sleep(millis(10_000)).await;
                self.boot_again();
            }
        }
    }
}

fn boot(
    number: usize,
    starts: u32,
    world: &Arc<World>,
    ledger: &Arc<Memory>,
    weather: &Arc<Weather>,
    config: &OperationsConfig,
) -> (Arc<Process>, Operations) {
    let process = Arc::new(Process::default());
    let flaky = Flaky { inner: ledger.clone(), world: world.clone(), weather: weather.clone() };
    let owner = process.clone();
    let wrap = move |work: BoxFuture<'static, ()>| -> BoxFuture<'static, ()> {
        let owned = owner.own(work);
        Box::pin(async move {
            owned.await;
        })
    };
    let worker = Arc::new(Worked { world: world.clone() });
    let holder = format!("host-{number}-{starts}");
    let ops = Operations::wrapped(Arc::new(flaky), worker, config, &holder, Arc::new(wrap)).unwrap();
    ops.start();
    (process, ops)
}

/// Seven steps, each of which makes one thing outside, by name.
pub(crate) struct Worked {
    world: Arc<World>,
}

impl Worked {
    pub(crate) const STEPS: [&'static str; 7] = ["", "two", "three", "four", "five", "six", "seven"];

    pub(crate) fn name(job: &JobId, step: &str) -> String {
        format!("{job}/{step}")
    }

    /// Sends one request, if the lease holds. It is on its way whatever becomes of the host.
    async fn request(
        &self,
        job: &Job,
        at: &Checkpoint,
        fence: &Fence,
        step: &str,
        make: bool,
    ) -> Result<(), Ran> {
        let (name, state) = (Self::name(&job.id, step), at.state.as_str());
        if fence.left_at(Instant::now().into_std()).is_zero() {
            self.world.count("refused-by-fence");
            return Err(stopped("dependency-timeout", state));
        }
        let (world, id, token) = (self.world.clone(), job.id.clone(), job.token);
        let (to, arrived) = oneshot::channel();
        let lost = chance(3);
        tokio::spawn(async move {
            tokio::time::sleep(millis(ON_ITS_WAY)).await;
            let newest = world.tokens.lock().unwrap().get(&id).copied();
            if newest != Some(token) {
                world.wrong(format!(
                    "{name}: a request under token {token} arrived, the newest is {newest:?}"
                ));
            }
            let mut effects = world.effects.lock().unwrap();
            if make {
                if effects.insert(name.clone()) {
                    *world.made.lock().unwrap().entry(name).or_default() += 1;
                }
            } else if effects.remove(&name) {
                world.count("undone");
            }
            drop(effects);
            if !lost {
                let _gone = to.send(());
            }
        });
        // The answer may get lost although the request was served.
        arrived.await.map_err(|_| stopped("dependency-timeout", state))
    }

    async fn forward(&self, job: &Job, at: &Checkpoint, fence: &Fence) -> Result<Ran, Ran> {
        let fresh = fresh(&at.step);
        if at.state != fresh && at.state != made(&at.step) {
            self.world.wrong(format!("{} came to step {:?} with state {}", job.id, at.step, at.state));
        }
        if chance(10) {
            return Ok(stopped("throttled", &at.state));
        }
        self.request(job, at, fence, &at.step, true).await?;
        if chance(10) {
            return Ok(stopped("throttled", &at.state));
        }
        if at.state == fresh && chance(40) {
            let state = made(&at.step);
            return Ok(Ran::Progress(if chance(50) {
                Progress::Save(state)
            } else {
                Progress::Wait(Pause { state, after: millis(5000), message: String::new() })
            }));
        }
        let here = Self::STEPS.iter().position(|s| *s == at.step).unwrap();
        Ok(Ran::Progress(match Self::STEPS.get(here + 1) {
            Some(next) => Progress::Next(NextStep { step: (*next).into(), state: self::fresh(next) }),
            None => Progress::Done(applied()),
        }))
    }

    async fn cleanup(&self, job: &Job, at: &Checkpoint, fence: &Fence) -> Result<Ran, Ran> {
        let removed = Self::STEPS.map(|step| self.request(job, at, fence, step, false));
        futures::future::join_all(removed).await.into_iter().collect::<Result<(), Ran>>()?;
        Ok(Ran::Progress(Progress::Done(Vec::<Applied>::new())))
    }
}

/// The state that a step begins with.
fn fresh(step: &str) -> String {
    if step.is_empty() { "{}".into() } else { format!("{{\"at\":\"{step}\"}}") }
}

/// The state once the step's thing is made.
fn made(step: &str) -> String {
    format!("{{\"at\":\"{step}\",\"made\":true}}")
}

fn stopped(code: &str, state: &str) -> Ran {
    let failure = Failure::new(code, "try again").retryable();
    Ran::Stopped(Stopped { failure, applied: vec![], state: state.into() }, None)
}

impl Worker for Worked {
    fn run<'a>(
        &'a self,
        job: &'a Job,
        at: Checkpoint,
        _asked: &'a Asked,
        phase: Phase,
        fence: Fence,
    ) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            if job.token > 1 && at.attempt > 1 {
                self.world.count("taken-over");
            }
            if chance(3) {
                return Ran::NoRoom;
            }
            tokio::time::sleep(millis(if chance(10) {
                20_000
            } else if chance(30) {
                0
            } else {
                800
            }))
            .await;
            let ran = match phase {
                Phase::Forward => self.forward(job, &at, &fence).await,
                Phase::Cleanup => self.cleanup(job, &at, &fence).await,
            };
            ran.unwrap_or_else(|stopped| stopped)
        })
    }
    fn runnable(&self) -> Option<Vec<Digest>> {
        None
    }
    fn longest(&self) -> BTreeMap<Pair, Duration> {
        BTreeMap::new()
    }
    fn version(&self, _digest: &Digest) -> String {
        "1.0.0".into()
    }
    fn current(&self, _pair: &Pair) -> Option<(PluginName, Digest)> {
        None
    }
}
