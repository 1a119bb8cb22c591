//! Helm's own template engine, a Go program as a component, run for one rendering in a fresh sandbox. Go's start takes
//! as long as a small chart's rendering: sandboxes that have it behind them wait for the next ones.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_helm::{EngineError, RenderAnswer, RenderRequest, TemplateEngine};
use sutler_model::Digest;
use tokio::sync::{mpsc, watch};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::engine::sutler::helm_engine::{host, sys};
use crate::bindings::engine::{EngineHost, EngineHostPre};
use crate::budget::{Budget, Stop};
use crate::cache::CompileCache;
use crate::engine::Engine;
use crate::limits::Limits;
use crate::random::Random;

/// What one rendering may use: a chart of thousands of templates fits, a template that loops does not.
fn limits() -> Limits {
    Limits {
        memory_mib: 512,
        cpu_milliseconds: 30_000,
        wall_seconds: 60,
        host_call_mib: 256,
        ..Limits::default()
    }
}

type Ready = Result<EngineHostPre<State>, EngineError>;

/// Compiled in the background when made; renderings wait for it.
pub struct HelmEngine {
    engine: Engine,
    limits: Limits,
    ready: watch::Receiver<Option<Ready>>,
    /// Made from the first rendering on: one waits here, and one to get here.
    spares: OnceLock<Mutex<mpsc::Receiver<Fresh>>>,
}

/// A sandbox that has rendered nothing yet.
struct Fresh {
    store: Store<State>,
    guest: EngineHost,
}

struct State {
    request: Vec<u8>,
    answer: Vec<u8>,
    random: Random,
    now: Duration,
    reads: u64,
    budget: Budget,
}

impl HelmEngine {
    /// `compressed`: the component, zstd. Empty where the host was built without it.
    pub fn start(engine: Engine, cache: CompileCache, compressed: &'static [u8]) -> Arc<Self> {
        let (tell, ready) = watch::channel(None);
        let its = engine.clone();
        tokio::task::spawn_blocking(move || {
            let started = std::time::Instant::now();
            let result = compile(&its, &cache, compressed);
            match &result {
                Ok((_, cached)) => tracing::info!(
                    event = "helm-engine-ready",
                    cached,
                    duration_ms = started.elapsed().as_millis() as u64
                ),
                Err(error) => tracing::error!(event = "helm-engine-failed", %error),
            }
            // Nobody waits any more where the host has been dropped meanwhile.
            let _ = tell.send(Some(result.map(|(pre, _)| pre)));
        });
        let memory_mib = limits().memory_mib.min(engine.config().max_memory_mib);
        let limits = Limits { memory_mib, ..limits() };
        Arc::new(Self { engine, limits, ready, spares: OnceLock::new() })
    }

    /// Whether the engine can render now, or why it never will.
    pub fn ready(&self) -> Option<Result<(), EngineError>> {
        self.ready.borrow().as_ref().map(|r| r.as_ref().map(|_| ()).map_err(Clone::clone))
    }

    async fn compiled(&self) -> Ready {
        let mut ready = self.ready.clone();
        match ready.wait_for(Option::is_some).await {
            Ok(r) => r.as_ref().map_or_else(|| Err(stopped()), Clone::clone),
            Err(_) => Err(stopped()),
        }
    }

    async fn run(&self, request: RenderRequest) -> Result<RenderAnswer, EngineError> {
        let pre = self.compiled().await?;
        let place = self.engine.sandboxes().clone().acquire_owned().await;
        let _place = place.map_err(|_| stopped())?;
        let spare = self.spare(&pre);
        let work = async {
            let Fresh { mut store, guest } = match spare {
                Some(fresh) => fresh,
                None => fresh(&self.engine, &self.limits, &pre).await?,
            };
            let state = store.data_mut();
            state.request = request.to_json();
            state.random = Random::from_seed(request.seed);
            state.now = Duration::from_millis(request.now_millis);
            guest.call_run(&mut store).await.map_err(stop)?;
            RenderAnswer::from_json(&store.data().answer)
        };
        let late = || EngineError::Limit(format!("it ran longer than {} s", self.limits.wall_seconds));
        tokio::time::timeout(self.limits.wall(), work).await.unwrap_or_else(|_| Err(late()))
    }

    fn spare(&self, pre: &EngineHostPre<State>) -> Option<Fresh> {
        let spares = self.spares.get_or_init(|| {
            let (give, take) = mpsc::channel(1);
            let (engine, limits, pre) = (self.engine.clone(), self.limits.clone(), pre.clone());
            tokio::spawn(async move {
                // Until the engine is dropped. One that cannot be made is told to the rendering that makes its own.
                while let Ok(fresh) = fresh(&engine, &limits, &pre).await {
                    if give.send(fresh).await.is_err() {
                        return;
                    }
                }
            });
            Mutex::new(take)
        });
        spares.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }
}

/// Starts Go. What it draws and reads at that is the same each time, so that renderings follow from their requests
/// alone.
async fn fresh(engine: &Engine, limits: &Limits, pre: &EngineHostPre<State>) -> Result<Fresh, EngineError> {
    let state = State {
        request: Vec::new(),
        answer: Vec::new(),
        random: Random::from_seed([0; 32]),
        now: Duration::ZERO,
        reads: 0,
        budget: Budget::new(limits),
    };
    let mut store = Store::new(engine.wasmtime(), state);
    store.limiter(|s| &mut s.budget);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut ctx| {
        ctx.data_mut().budget.tick().map_err(wasmtime::Error::new)?;
        Ok(UpdateDeadline::Yield(1))
    });
    let guest = pre.instantiate_async(&mut store).await.map_err(stop)?;
    Ok(Fresh { store, guest })
}

fn stop(e: wasmtime::Error) -> EngineError {
    EngineError::Limit(match e.downcast_ref::<Stop>() {
        Some(stop) => stop.to_string(),
        None => e.root_cause().to_string(),
    })
}

fn stopped() -> EngineError {
    EngineError::Unavailable("the host is stopping".into())
}

fn compile(
    engine: &Engine,
    cache: &CompileCache,
    compressed: &[u8],
) -> Result<(EngineHostPre<State>, bool), EngineError> {
    if compressed.is_empty() {
        return Err(EngineError::Unavailable(
            "this sutler was built without Helm's engine; build it with: cargo xtask build".into(),
        ));
    }
    let failed =
        |e: wasmtime::Error| EngineError::Unavailable(format!("Helm's engine cannot be loaded: {e:#}"));
    let digest = Digest::of(compressed);
    let (component, cached) =
        cache.compile(engine, &digest, || zstd::decode_all(compressed).map(Into::into)).map_err(failed)?;
    let mut linker = Linker::new(engine.wasmtime());
    EngineHost::add_to_linker::<_, HasSelf<State>>(&mut linker, |s| s).map_err(failed)?;
    let pre = linker.instantiate_pre(&component).and_then(EngineHostPre::new).map_err(failed)?;
    Ok((pre, cached))
}

impl TemplateEngine for HelmEngine {
    fn render(&self, request: RenderRequest) -> BoxFuture<'_, Result<RenderAnswer, EngineError>> {
        Box::pin(self.run(request))
    }
}

impl host::Host for State {
    async fn op(&mut self, off: u32, max: u32) -> wasmtime::Result<Vec<u8>> {
        let from = (off as usize).min(self.request.len());
        let to = from.saturating_add(max as usize).min(self.request.len());
        Ok(self.request.get(from..to).unwrap_or_default().to_vec())
    }
    async fn result(&mut self, data: Vec<u8>) -> wasmtime::Result<()> {
        self.budget.spend(data.len()).map_err(wasmtime::Error::new)?;
        self.answer = data;
        Ok(())
    }
}

impl sys::Host for State {
    async fn wall_ns(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX))
    }
    /// Go measures its own pauses with it; a microsecond a reading is enough for them to end.
    async fn mono_ns(&mut self) -> wasmtime::Result<u64> {
        self.reads += 1;
        Ok(self.reads * 1_000)
    }
    async fn sleep_ns(&mut self, ns: u64) -> wasmtime::Result<()> {
        self.reads += ns / 1_000;
        tokio::time::sleep(Duration::from_nanos(ns).min(Duration::from_millis(1))).await;
        Ok(())
    }
    async fn random(&mut self) -> wasmtime::Result<u64> {
        Ok(self.random.next_u64())
    }
    async fn log(&mut self, line: Vec<u8>) -> wasmtime::Result<()> {
        tracing::debug!(event = "helm-engine-output", "{}", String::from_utf8_lossy(&line).trim_end());
        Ok(())
    }
}
