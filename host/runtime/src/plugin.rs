//! A loaded plugin, and one call of it in a fresh sandbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sutler_logs::Source;
use sutler_model::{
    Application, Call, Checkpoint, Descriptor, Digest, Failure, Fault, FaultKind, Fence, Inquiry, Mode,
    Observed, Owner, Pair, PluginName, Progress, Proposal, Request, Stopped,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, InstancePre, Lift, Lower};
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::logs::exports::sutler::provisioner::log_sources as l;
use crate::bindings::plugin::exports::sutler::provisioner::provisioner as p;
use crate::bindings::plugin::sutler::provisioner::types as t;
use crate::budget::Stop;
use crate::convert::{self, Broken};
use crate::engine::Engine;
use crate::random::{Lazy, Seed};
use crate::sandbox::{Capabilities, GrantSet, Pins, State};
use crate::settings::PluginSettings;
use crate::{faults, limits::Limits, size};

/// Why a call gave no answer of the plugin.
#[derive(Debug)]
pub enum RunError {
    Fault(Box<Fault>),
    /// No sandbox is free: of this plugin, or of the host.
    Overloaded {
        what: String,
        limit: usize,
    },
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
    pub(crate) limits: Arc<Limits>,
    pub(crate) reading: InstancePre<State>,
    pub(crate) calling: InstancePre<State>,
    pub(crate) exports: Exports,
    pub(crate) calls: Arc<Semaphore>,
    pub(crate) engine: Engine,
    pub(crate) world: Arc<Capabilities>,
    pub(crate) settings: Arc<PluginSettings>,
    pub(crate) random_key: [u8; 32],
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// Where the functions are, looked up once: a sandbox finds and checks only the one that it calls.
pub(crate) struct Exports {
    pub(crate) describe: ComponentExportIndex,
    pub(crate) plan: ComponentExportIndex,
    pub(crate) apply: ComponentExportIndex,
    pub(crate) cancel: ComponentExportIndex,
    pub(crate) inspect: ComponentExportIndex,
    pub(crate) locate: Option<ComponentExportIndex>,
}

/// One call of one step.
#[derive(Debug)]
pub struct StepCall<'a> {
    /// `Apply` or `Cancel`.
    pub mode: Mode,
    /// The job's id: with the step, what the call's random bytes follow from.
    pub job: &'a str,
    pub request: &'a Request,
    /// The JSON object beside the request.
    pub context: &'a str,
    pub at: &'a Checkpoint,
    pub pins: &'a Pins,
    /// The lease: once it is lost, no capability does anything.
    pub fence: Fence,
}

/// A store with what keeps its place in the pool.
struct Sandbox<'a> {
    store: Store<State>,
    _places: [SemaphorePermit<'a>; 2],
}

impl Plugin {
    pub const fn has_logs(&self) -> bool {
        self.exports.locate.is_some()
    }
    /// A fault of this plugin that was found outside its sandbox.
    pub fn fault(&self, mode: Mode, kind: FaultKind, message: impl Into<String>) -> Fault {
        faults::new(self.name.as_str(), mode, kind, message)
    }

    fn open(
        &self,
        mode: Mode,
        owner: Owner,
        seed: Seed,
        fence: Fence,
        grants: &Arc<GrantSet>,
    ) -> Result<Sandbox<'_>, RunError> {
        let full = |what: String, limit: u32| RunError::Overloaded { what, limit: limit as usize };
        let places = [
            self.calls
                .try_acquire()
                .map_err(|_| full(format!("plugin {}", self.name), self.limits.concurrent_calls))?,
            self.engine
                .sandboxes()
                .try_acquire()
                .map_err(|_| full("this host".into(), self.engine.config().sandboxes))?,
        ];
        let call = Call {
            plugin: self.name.clone(),
            owner,
            mode,
            request_id: seed.request_id().into(),
            job: seed.job().cloned(),
            deadline: Instant::now() + self.limits.wall(),
            fence,
        };
        let state = State::new(
            Arc::new(call),
            grants.clone(),
            self.world.clone(),
            self.settings.clone(),
            self.limits.clone(),
            Lazy::new(self.random_key, seed),
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

    /// One call of one export in its sandbox, within the plugin's time: its answer, or the fault that it was.
    async fn run<P, R>(
        &self,
        mode: Mode,
        sandbox: &mut Sandbox<'_>,
        export: &ComponentExportIndex,
        asked: P,
    ) -> Result<R, RunError>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: Send + Sync + 'static,
        (R,): ComponentNamedList + Lift,
    {
        let guest = if mode.writes() { &self.calling } else { &self.reading };
        let store = &mut sandbox.store;
        let result = tokio::time::timeout(self.limits.wall(), async {
            let guest = guest.instantiate_async(&mut *store).await?;
            let function = guest.get_typed_func::<P, (R,)>(&mut *store, export)?;
            function.call_async(&mut *store, asked).await
        })
        .await;
        let name = self.name.as_str();
        let fault = match result {
            Ok(Ok((answer,))) => return Ok(answer),
            Ok(Err(e)) => faults::classify(name, mode, &e),
            Err(_) => match sandbox.store.data().budget.waiting_for {
                Some(on) => {
                    faults::new(name, mode, FaultKind::DependencyTimeout, Stop::Dependency(on).to_string())
                }
                None => {
                    let text = format!("it ran longer than {} s", self.limits.wall_seconds);
                    faults::new(name, mode, FaultKind::Wall, text)
                }
            },
        };
        Err(RunError::Fault(Box::new(fault)))
    }

    fn checked<T>(&self, mode: Mode, result: Result<T, Broken>) -> Result<T, RunError> {
        result.map_err(|b| RunError::Fault(Box::new(self.fault(mode, FaultKind::Contract, b.0))))
    }

    /// Refuses an answer that is larger than the plugin may give.
    fn sized(&self, mode: Mode, bytes: usize) -> Result<(), RunError> {
        if bytes <= self.limits.output_bytes() {
            return Ok(());
        }
        let text = format!("its answer has {bytes} bytes; {} KiB are allowed", self.limits.output_kib);
        Err(RunError::Fault(Box::new(self.fault(mode, FaultKind::Output, text))))
    }

    /// What the plugin says of itself. No capability is available to it.
    ///
    /// # Errors
    /// `RunError` when it faults or says what the contract does not allow.
    pub async fn describe(&self, grants: &Arc<GrantSet>) -> Result<Descriptor, RunError> {
        let mode = Mode::Describe;
        let mut sandbox =
            self.open(mode, Owner::nobody(), Seed::Call("describe".into()), Fence::endless(), grants)?;
        let d = self.run(mode, &mut sandbox, &self.exports.describe, ()).await?;
        self.checked(mode, convert::descriptor_in(d))
    }

    /// `context`: the JSON object beside the request.
    ///
    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn plan(
        &self,
        request: &Arc<Request>,
        context: &str,
        grants: &Arc<GrantSet>,
    ) -> Result<Result<(Proposal, Pins), Failure>, RunError> {
        let mode = Mode::Plan;
        let owner = owner(&request.application, &request.pair);
        let mut sandbox =
            self.open(mode, owner, Seed::Question(request.clone()), Fence::endless(), grants)?;
        let asked = convert::request_out(request, context);
        match self
            .run::<_, Result<p::Proposal, t::Failure>>(mode, &mut sandbox, &self.exports.plan, (&asked,))
            .await?
        {
            Ok(p) => {
                self.sized(mode, size::proposal_bytes(&p))?;
                let pins = std::mem::take(&mut sandbox.store.data_mut().pins);
                self.checked(mode, convert::proposal_in(p)).map(|p| Ok((p, pins)))
            }
            Err(f) => {
                self.checked(mode, convert::failure_in(f)).map(|f| Err(self.told(f, &request.application)))
            }
        }
    }

    /// One call of apply or, in `Mode::Cancel`, of cancel.
    ///
    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn apply(
        &self,
        call: StepCall<'_>,
        grants: &Arc<GrantSet>,
    ) -> Result<Result<Progress, Stopped>, RunError> {
        let StepCall { mode, job, request, context, at, pins, fence } = call;
        let seed = Seed::Step { request: request.id.clone(), job: job.into(), step: at.step.clone() };
        let mut sandbox = self.open(mode, owner(&request.application, &request.pair), seed, fence, grants)?;
        sandbox.store.data_mut().pins = pins.clone();
        let (asked, at) = (convert::request_out(request, context), convert::checkpoint_out(at));
        let export = if mode == Mode::Cancel { &self.exports.cancel } else { &self.exports.apply };
        match self
            .run::<_, Result<p::Progress, p::Stopped>>(mode, &mut sandbox, export, (&asked, &at))
            .await?
        {
            Ok(p) => {
                self.sized(mode, size::progress_bytes(&p))?;
                self.checked(mode, convert::progress_in(p)).map(Ok)
            }
            Err(s) => {
                let mut stopped = self.checked(mode, convert::stopped_in(s))?;
                stopped.failure = self.told(stopped.failure, &request.application);
                Ok(Err(stopped))
            }
        }
    }

    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn inspect(
        &self,
        inquiry: &Inquiry,
        context: &str,
        grants: &Arc<GrantSet>,
    ) -> Result<Result<Vec<Observed>, Failure>, RunError> {
        let mode = Mode::Inspect;
        let mut sandbox = self.ask(mode, inquiry, grants)?;
        let asked = convert::inquiry_out(inquiry, context);
        match self
            .run::<_, Result<Vec<p::Observed>, t::Failure>>(
                mode,
                &mut sandbox,
                &self.exports.inspect,
                (&asked,),
            )
            .await?
        {
            Ok(o) => {
                self.sized(mode, size::observed_bytes(&o))?;
                self.checked(mode, convert::observed_in(o)).map(Ok)
            }
            Err(f) => {
                self.checked(mode, convert::failure_in(f)).map(|f| Err(self.told(f, &inquiry.application)))
            }
        }
    }

    /// Where the logs of resources are; `None` for a plugin that exports no log sources.
    ///
    /// # Errors
    /// `RunError` when it faults, breaks its contract, or no sandbox is free.
    pub async fn locate(
        &self,
        inquiry: &Inquiry,
        context: &str,
        grants: &Arc<GrantSet>,
    ) -> Result<Option<Result<Vec<Source>, Failure>>, RunError> {
        let Some(export) = &self.exports.locate else { return Ok(None) };
        let mode = Mode::Locate;
        let mut sandbox = self.ask(mode, inquiry, grants)?;
        let asked = convert::inquiry_out(inquiry, context);
        match self.run::<_, Result<Vec<l::Source>, t::Failure>>(mode, &mut sandbox, export, (&asked,)).await?
        {
            Ok(sources) => {
                let sources = sources.into_iter().map(convert::source_in).collect();
                self.checked(mode, sources).map(|s| Some(Ok(s)))
            }
            Err(f) => self
                .checked(mode, convert::failure_in(f))
                .map(|f| Some(Err(self.told(f, &inquiry.application)))),
        }
    }

    /// The failure with the name of the table that its call's configuration comes from.
    fn told(&self, mut failure: Failure, application: &Application) -> Failure {
        if failure.code == "invalid-config" {
            failure.reason = self.settings.named(&failure.reason, self.name.as_str(), application);
        }
        failure
    }

    fn ask(&self, mode: Mode, inquiry: &Inquiry, grants: &Arc<GrantSet>) -> Result<Sandbox<'_>, RunError> {
        let owner = owner(&inquiry.application, &inquiry.pair);
        self.open(mode, owner, Seed::Call(inquiry.id.as_str().into()), Fence::endless(), grants)
    }
}

fn owner(application: &Application, pair: &Pair) -> Owner {
    Owner { application: application.clone(), pair: pair.clone() }
}
