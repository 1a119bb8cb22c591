//! A loaded plugin, and one call of it in a fresh sandbox.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sutler_logs::LogSource;
use sutler_model::{
    Application, Call, Checkpoint, Descriptor, Digest, Failure, Fault, FaultKind, Inquiry, Mode, Observed,
    Owner, Pair, PluginName, Progress, Proposal, Request, Secret, Stopped,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{Store, UpdateDeadline};

use crate::bindings::{logs, plugin as bound};
use crate::budget::Stop;
use crate::convert::{self, Broken};
use crate::engine::Engine;
use crate::random::Random;
use crate::sandbox::{Capabilities, GrantSet, Pins, State};
use crate::{faults, limits::Limits, size};

/// What the operator gives one plugin.
#[derive(Debug, Clone, Default)]
pub struct PluginSettings {
    /// A JSON object as text.
    pub config: String,
    pub secrets: HashMap<String, Secret>,
}

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
    pub(crate) reading: bound::ProvisionerPluginPre<State>,
    pub(crate) calling: bound::ProvisionerPluginPre<State>,
    pub(crate) logs: Option<logs::LogSourcesOnlyPre<State>>,
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
    Step {
        request: &'a str,
        step: &'a str,
    },
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

    fn open(
        &self,
        mode: Mode,
        owner: Owner,
        id: &str,
        grants: &Arc<GrantSet>,
        seed: &Seed<'_>,
    ) -> Result<Sandbox, RunError> {
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

    async fn within<T>(
        &self,
        work: impl Future<Output = wasmtime::Result<T>>,
    ) -> Result<wasmtime::Result<T>, tokio::time::error::Elapsed> {
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
    pub async fn plan(
        &self,
        request: &Request,
        grants: &Arc<GrantSet>,
    ) -> Result<Result<(Proposal, Pins), Failure>, RunError> {
        let mode = Mode::Plan;
        let mut sandbox = self.open(
            mode,
            owner(&request.application, &request.pair),
            request.id.as_str(),
            grants,
            &Seed::Question(request),
        )?;
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
                let pins = std::mem::take(&mut sandbox.store.data_mut().pins);
                self.checked(mode, convert::proposal_in(p)).map(|p| Ok((p, pins)))
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
        pins: &Pins,
    ) -> Result<Result<Progress, Stopped>, RunError> {
        let seed = Seed::Step { request: request.id.as_str(), step: &at.step };
        let mut sandbox =
            self.open(mode, owner(&request.application, &request.pair), request.id.as_str(), grants, &seed)?;
        sandbox.store.data_mut().pins = pins.clone();
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
    pub async fn inspect(
        &self,
        inquiry: &Inquiry,
        grants: &Arc<GrantSet>,
    ) -> Result<Result<Vec<Observed>, Failure>, RunError> {
        let mode = Mode::Inspect;
        let mut sandbox = self.open(
            mode,
            owner(&inquiry.application, &inquiry.pair),
            inquiry.id.as_str(),
            grants,
            &Seed::Inquiry,
        )?;
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
        let mut sandbox = self.open(
            mode,
            owner(&inquiry.application, &inquiry.pair),
            inquiry.id.as_str(),
            grants,
            &Seed::Inquiry,
        )?;
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
