//! A loaded plugin, and one call of it in a fresh sandbox.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sutler_logs::LogSource;
use sutler_model::{
    Application, Call, Checkpoint, Descriptor, Digest, Failure, Fault, FaultKind, Inquiry, Mode,
    Observed, Owner, Pair, PluginName, Progress, Proposal, Request, Secret, Stopped,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::Linker;
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::{logs, plugin as bound};
use crate::budget::Stop;
use crate::cache::CompileCache;
use crate::convert::{self, Broken};
use crate::engine::Engine;
use crate::random::Random;
use crate::sandbox::{Capabilities, GrantSet, State};
use crate::{faults, imports, limits::Limits, size};

/// Whether components that import WASI may be loaded: `[policy] wasi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WasiPolicy {
    /// WASI 0.2 is linked with nothing in it: no files, no sockets, no environment.
    #[default]
    Empty,
    /// A component that imports WASI is refused.
    None,
}

/// What the operator gives one plugin.
#[derive(Debug, Clone, Default)]
pub struct PluginSettings {
    /// A JSON object as text.
    pub config: String,
    pub secrets: HashMap<String, Secret>,
}

/// Why a file is not a plugin that can run here.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("it is a core WebAssembly module, not a component; build it as a component (see plugins/README.md)")]
    CoreModule,
    #[error("it is not a WebAssembly component: {0}")]
    NotComponent(String),
    #[error("{0}; sutler offers the imports of world sutler:provisioner/provisioner-plugin@0.1.0")]
    UnknownImport(String),
    #[error("it imports {0} and [policy] wasi = \"none\" refuses WASI; build it without WASI or allow it")]
    WasiRefused(String),
    #[error("it does not export sutler:provisioner/provisioner@0.1.0 as the contract has it: {0}")]
    WrongExport(String),
}

/// Why a call gave no answer of the plugin.
#[derive(Debug)]
pub enum RunError {
    Fault(Fault),
    /// No sandbox is free: of this plugin, or of the host.
    Overloaded { what: String, limit: usize },
}

/// Builds plugins and the linkers they share.
pub struct Runtime {
    engine: Engine,
    cache: CompileCache,
    world: Arc<Capabilities>,
    wasi: WasiPolicy,
    reading: Linker<State>,
    calling: Linker<State>,
    random_key: [u8; 32],
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Runtime {
    /// # Errors
    /// wasmtime's, where the linkers do not fit the bindings; a fault of the build.
    pub fn new(engine: Engine, cache: CompileCache, world: Capabilities, wasi: WasiPolicy) -> Result<Self, LoadError> {
        let linker = |writing| -> wasmtime::Result<Linker<State>> {
            let mut l = Linker::new(engine.wasmtime());
            imports::link(&mut l, writing)?;
            if wasi == WasiPolicy::Empty {
                wasmtime_wasi::p2::add_to_linker_async(&mut l)?;
            }
            Ok(l)
        };
        let broken = |e: wasmtime::Error| LoadError::WrongExport(format!("{e:#}"));
        Ok(Self {
            reading: linker(false).map_err(broken)?,
            calling: linker(true).map_err(broken)?,
            random_key: cache.derived_key("random"),
            engine,
            cache,
            world: Arc::new(world),
            wasi,
        })
    }

    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Compiles (or takes from the cache) and links. Blocks for as long as compiling takes.
    ///
    /// # Errors
    /// `LoadError` naming what the file lacks or asks for.
    pub fn load(
        &self,
        name: PluginName,
        wasm: &[u8],
        settings: PluginSettings,
        limits: Limits,
    ) -> Result<Plugin, LoadError> {
        if wasm.get(..8) == Some(&[0, b'a', b's', b'm', 1, 0, 0, 0]) {
            return Err(LoadError::CoreModule);
        }
        let digest = Digest::of(wasm);
        let started = Instant::now();
        let (component, cached) = self
            .cache
            .compile(&self.engine, &digest, || Ok(wasm.into()))
            .map_err(|e| LoadError::NotComponent(e.root_cause().to_string()))?;
        let imports: Vec<String> =
            component.component_type().imports(self.engine.wasmtime()).map(|(n, _)| n.to_owned()).collect();
        if self.wasi == WasiPolicy::None
            && let Some(w) = imports.iter().find(|i| i.starts_with("wasi:"))
        {
            return Err(LoadError::WasiRefused(w.clone()));
        }
        let link = |l: &Linker<State>| {
            l.instantiate_pre(&component).map_err(|e| LoadError::UnknownImport(one_line(&e)))
        };
        let (reading, calling) = (link(&self.reading)?, link(&self.calling)?);
        let wrong = |e: wasmtime::Error| LoadError::WrongExport(one_line(&e));
        Ok(Plugin {
            logs: logs::LogSourcesOnlyPre::new(reading.clone()).ok(),
            reading: bound::ProvisionerPluginPre::new(reading).map_err(wrong)?,
            calling: bound::ProvisionerPluginPre::new(calling).map_err(wrong)?,
            calls: Arc::new(Semaphore::new(limits.concurrent_calls as usize)),
            compile_time: started.elapsed(),
            engine: self.engine.clone(),
            world: self.world.clone(),
            settings: Arc::new(settings),
            limits: Arc::new(limits),
            random_key: self.random_key,
            size: wasm.len(),
            name,
            digest,
            cached,
            imports,
        })
    }
}

fn one_line(e: &wasmtime::Error) -> String {
    format!("{e:#}").lines().collect::<Vec<_>>().join(" ")
}

/// One generation of one plugin.
pub struct Plugin {
    pub name: PluginName,
    pub digest: Digest,
    /// Bytes of the file.
    pub size: usize,
    /// Whether the compiled form came from the cache.
    pub cached: bool,
    pub compile_time: Duration,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    limits: Arc<Limits>,
    reading: bound::ProvisionerPluginPre<State>,
    calling: bound::ProvisionerPluginPre<State>,
    logs: Option<logs::LogSourcesOnlyPre<State>>,
    calls: Arc<Semaphore>,
    engine: Engine,
    world: Arc<Capabilities>,
    settings: Arc<PluginSettings>,
    random_key: [u8; 32],
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("name", &self.name).field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// A store with what keeps its place in the pool.
struct Sandbox {
    store: Store<State>,
    _places: [OwnedSemaphorePermit; 2],
}

/// What random bytes follow from.
enum Seed<'a> {
    /// Everything the plugin is asked, but not the request's id: equal plans are equal.
    Question(&'a Request),
    /// Job and step: a repeated step makes the same names.
    Step { request: &'a str, step: &'a str },
    Inquiry,
}

impl Plugin {
    pub const fn has_logs(&self) -> bool {
        self.logs.is_some()
    }
    /// A fault of this plugin that was found outside its sandbox.
    pub fn fault(&self, mode: Mode, kind: FaultKind, message: impl Into<String>) -> Fault {
        faults::new(self.name.as_str(), mode, kind, message)
    }
    pub fn calls_in_use(&self) -> usize {
        (self.limits.concurrent_calls as usize).saturating_sub(self.calls.available_permits())
    }

    fn open(&self, mode: Mode, owner: Owner, id: &str, grants: &Arc<GrantSet>, seed: &Seed<'_>) -> Result<Sandbox, RunError> {
        let place = |s: &Arc<Semaphore>, what: &str, limit: u32| {
            s.clone()
                .try_acquire_owned()
                .map_err(|_| RunError::Overloaded { what: what.into(), limit: limit as usize })
        };
        let places = [
            place(&self.calls, &format!("plugin {}", self.name), self.limits.concurrent_calls)?,
            place(self.engine.sandboxes(), "this host", self.engine.config().sandboxes)?,
        ];
        let random = self.random(mode, &owner, seed);
        let call = Call {
            plugin: self.name.clone(),
            owner,
            mode,
            request_id: id.into(),
            deadline: Instant::now() + self.limits.wall(),
        };
        let state = State::new(
            Arc::new(call),
            grants.clone(),
            self.world.clone(),
            self.settings.clone(),
            self.limits.clone(),
            random,
        );
        let mut store = Store::new(self.engine.wasmtime(), state);
        store.limiter(|s| &mut s.budget);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut ctx| {
            ctx.data_mut().budget.tick().map_err(wasmtime::Error::new)?;
            Ok(UpdateDeadline::Yield(1))
        });
        Ok(Sandbox { store, _places: places })
    }

    fn random(&self, mode: Mode, owner: &Owner, seed: &Seed<'_>) -> Random {
        let hash = owner.hash();
        let what = mode.as_str().as_bytes();
        match seed {
            Seed::Question(r) => {
                let mut text = String::new();
                for c in &r.changes {
                    use std::fmt::Write as _;
                    let settings = c.settings.as_ref().map(sutler_model::canonical);
                    let _ = write!(text, "{}\0{}\0{:?}\0", c.resource, c.action.as_str(), settings);
                }
                Random::new(&self.random_key, &[what, hash.as_bytes(), text.as_bytes()])
            }
            Seed::Step { request, step } => {
                Random::new(&self.random_key, &[what, hash.as_bytes(), request.as_bytes(), step.as_bytes()])
            }
            Seed::Inquiry => Random::new(&self.random_key, &[what, hash.as_bytes()]),
        }
    }

    /// Ends a call: its answer, or the fault that it was.
    fn close<T>(
        &self,
        mode: Mode,
        sandbox: &Sandbox,
        result: Result<wasmtime::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, RunError> {
        let name = self.name.as_str();
        let fault = match result {
            Ok(Ok(v)) => return Ok(v),
            Ok(Err(e)) => faults::classify(name, mode, &e),
            Err(_) => match sandbox.store.data().budget.waiting_for {
                Some(on) => faults::new(name, mode, FaultKind::DependencyTimeout, Stop::Dependency(on).to_string()),
                None => {
                    let text = format!("it ran longer than {} s", self.limits.wall_seconds);
                    faults::new(name, mode, FaultKind::Wall, text)
                }
            },
        };
        Err(RunError::Fault(fault))
    }

    fn checked<T>(&self, mode: Mode, result: Result<T, Broken>) -> Result<T, RunError> {
        result.map_err(|b| RunError::Fault(faults::new(self.name.as_str(), mode, FaultKind::Contract, b.0)))
    }

    /// Refuses an answer that is larger than the plugin may give.
    fn sized(&self, mode: Mode, bytes: usize) -> Result<(), RunError> {
        if bytes <= self.limits.output_bytes() {
            return Ok(());
        }
        let text = format!("its answer has {bytes} bytes; {} KiB are allowed", self.limits.output_kib);
        Err(RunError::Fault(faults::new(self.name.as_str(), mode, FaultKind::Output, text)))
    }

    async fn within<T>(&self, work: impl Future<Output = wasmtime::Result<T>>) -> Result<wasmtime::Result<T>, tokio::time::error::Elapsed> {
        tokio::time::timeout(self.limits.wall(), work).await
    }

    /// What the plugin says of itself. No capability is available to it.
    ///
    /// # Errors
    /// `RunError` when it faults or says what the contract does not allow.
    pub async fn describe(&self, grants: &Arc<GrantSet>) -> Result<Descriptor, RunError> {
        let mode = Mode::Describe;
        let mut sandbox = self.open(mode, Owner::nobody(), "describe", grants, &Seed::Inquiry)?;
        let store = &mut sandbox.store;
        let result = self
            .within(async {
                let guest = self.reading.instantiate_async(&mut *store).await?;
                guest.sutler_provisioner_provisioner().call_describe(&mut *store).await
            })
            .await;
        let d = self.close(mode, &sandbox, result)?;
        self.checked(mode, convert::descriptor_in(d))
    }

    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn plan(&self, request: &Request, grants: &Arc<GrantSet>) -> Result<Result<Proposal, Failure>, RunError> {
        let mode = Mode::Plan;
        let mut sandbox =
            self.open(mode, owner(&request.application, &request.pair), request.id.as_str(), grants, &Seed::Question(request))?;
        let store = &mut sandbox.store;
        let asked = convert::request_out(request);
        let result = self
            .within(async {
                let guest = self.reading.instantiate_async(&mut *store).await?;
                guest.sutler_provisioner_provisioner().call_plan(&mut *store, &asked).await
            })
            .await;
        match self.close(mode, &sandbox, result)? {
            Ok(p) => {
                self.sized(mode, size::proposal_bytes(&p))?;
                self.checked(mode, convert::proposal_in(p)).map(Ok)
            }
            Err(f) => self.checked(mode, convert::failure_in(f)).map(Err),
        }
    }

    /// One call of apply or, with `Mode::Cancel`, of cancel.
    ///
    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn apply(
        &self,
        mode: Mode,
        request: &Request,
        at: &Checkpoint,
        grants: &Arc<GrantSet>,
    ) -> Result<Result<Progress, Stopped>, RunError> {
        let seed = Seed::Step { request: request.id.as_str(), step: &at.step };
        let mut sandbox = self.open(mode, owner(&request.application, &request.pair), request.id.as_str(), grants, &seed)?;
        let store = &mut sandbox.store;
        let (asked, at) = (convert::request_out(request), convert::checkpoint_out(at));
        let result = self
            .within(async {
                let guest = self.calling.instantiate_async(&mut *store).await?;
                let guest = guest.sutler_provisioner_provisioner();
                match mode {
                    Mode::Cancel => guest.call_cancel(&mut *store, &asked, &at).await,
                    _ => guest.call_apply(&mut *store, &asked, &at).await,
                }
            })
            .await;
        match self.close(mode, &sandbox, result)? {
            Ok(p) => {
                self.sized(mode, size::progress_bytes(&p))?;
                self.checked(mode, convert::progress_in(p)).map(Ok)
            }
            Err(s) => self.checked(mode, convert::stopped_in(s)).map(Err),
        }
    }

    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn inspect(&self, inquiry: &Inquiry, grants: &Arc<GrantSet>) -> Result<Result<Vec<Observed>, Failure>, RunError> {
        let mode = Mode::Inspect;
        let mut sandbox =
            self.open(mode, owner(&inquiry.application, &inquiry.pair), inquiry.id.as_str(), grants, &Seed::Inquiry)?;
        let store = &mut sandbox.store;
        let asked = convert::inquiry_out(inquiry);
        let result = self
            .within(async {
                let guest = self.reading.instantiate_async(&mut *store).await?;
                guest.sutler_provisioner_provisioner().call_inspect(&mut *store, &asked).await
            })
            .await;
        match self.close(mode, &sandbox, result)? {
            Ok(o) => {
                self.sized(mode, size::observed_bytes(&o))?;
                self.checked(mode, convert::observed_in(o)).map(Ok)
            }
            Err(f) => self.checked(mode, convert::failure_in(f)).map(Err),
        }
    }

    /// Where the logs of resources are; `None` for a plugin that exports no log sources.
    ///
    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn locate(
        &self,
        inquiry: &Inquiry,
        grants: &Arc<GrantSet>,
    ) -> Result<Option<Result<Vec<LogSource>, Failure>>, RunError> {
        let Some(pre) = &self.logs else { return Ok(None) };
        let mode = Mode::Locate;
        let mut sandbox =
            self.open(mode, owner(&inquiry.application, &inquiry.pair), inquiry.id.as_str(), grants, &Seed::Inquiry)?;
        let store = &mut sandbox.store;
        let asked = convert::inquiry_out(inquiry);
        let result = self
            .within(async {
                let guest = pre.instantiate_async(&mut *store).await?;
                guest.sutler_provisioner_log_sources().call_locate(&mut *store, &asked).await
            })
            .await;
        match self.close(mode, &sandbox, result)? {
            Ok(sources) => Ok(Some(Ok(sources
                .into_iter()
                .map(|s| LogSource {
                    cluster: s.cluster,
                    namespace: s.namespace,
                    label_selector: s.label_selector,
                    container: s.container,
                })
                .collect()))),
            Err(f) => self.checked(mode, convert::failure_in(f)).map(|f| Some(Err(f))),
        }
    }
}

fn owner(application: &Application, pair: &Pair) -> Owner {
    Owner { application: application.clone(), pair: pair.clone() }
}
