//! What one sandbox holds while it lives: whose call it is, what it may use, what it has used.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;

use sutler_containers::Containers;
use sutler_helm::Helm;
use sutler_kubernetes::Kubernetes;
use sutler_logs::Logs;
use sutler_model::{Call, Effective, Mode, Secret};
use wasmtime_wasi::{WasiCtxView, WasiView};

use crate::budget::{Budget, Stop};
use crate::clock::Clock;
use crate::imports::Weigh;
use crate::limits::Limits;
use crate::random::Lazy;
use crate::settings::PluginSettings;
use crate::wasi::Wasi;

/// The world as the host offers it; what is absent is not configured.
#[derive(Default)]
pub struct Capabilities {
    pub kubernetes: Option<Arc<Kubernetes>>,
    pub helm: Option<Arc<Helm>>,
    pub logs: Option<Arc<Logs>>,
    pub containers: Option<Arc<Containers>>,
}

/// What holds for one plugin, instance and tenant.
#[derive(Debug, Clone)]
pub struct GrantSet {
    pub kubernetes: Effective<sutler_kubernetes::Grants>,
    pub helm: Effective<sutler_helm::Grants>,
    pub logs: Effective<sutler_logs::Grants>,
    pub containers: Effective<sutler_containers::Grants>,
}

/// Charts by what a plugin named (address and version) with the digest that it was at that moment: a plan finds
/// them, its hash covers them, and the apply uses them.
pub type Pins = BTreeMap<(String, Option<String>), String>;

/// The data of a store.
pub(crate) struct State {
    pub(crate) call: Arc<Call>,
    pub(crate) grants: Arc<GrantSet>,
    pub(crate) world: Arc<Capabilities>,
    pub(crate) settings: Arc<PluginSettings>,
    pub(crate) budget: Budget,
    pub(crate) clock: Clock,
    pub(crate) random: Lazy,
    pub(crate) log_left: usize,
    pub(crate) pins: Pins,
    /// Secrets handed to the guest in this call, to be hidden from what it logs.
    pub(crate) seen_secrets: HashMap<String, Secret>,
    limits: Arc<Limits>,
    wasi: Option<Box<Wasi>>,
}

/// A capability's error, as far as the sandbox cares.
pub(crate) trait CapabilityError {
    fn timed_out(&self) -> bool;
}

impl State {
    pub(crate) fn new(
        call: Arc<Call>,
        grants: Arc<GrantSet>,
        world: Arc<Capabilities>,
        settings: Arc<PluginSettings>,
        limits: Arc<Limits>,
        random: Lazy,
    ) -> Self {
        Self {
            budget: Budget::new(&limits),
            clock: Clock::of(call.mode),
            log_left: limits.log_bytes(),
            pins: Pins::new(),
            seen_secrets: HashMap::new(),
            call,
            grants,
            world,
            settings,
            limits,
            random,
            wasi: None,
        }
    }

    /// Describe is pure: whatever a capability would do, it is not available there.
    pub(crate) fn describing(&self) -> bool {
        self.call.mode == Mode::Describe
    }

    /// Runs one capability call: counts its bytes, says what is being waited for, and turns a time-out of the
    /// call itself into the end of the sandbox.
    pub(crate) async fn through<T: Weigh, E: CapabilityError>(
        &mut self,
        name: &'static str,
        bytes_in: usize,
        work: impl Future<Output = Result<T, E>>,
    ) -> wasmtime::Result<Result<T, E>> {
        self.budget.spend(bytes_in).map_err(wasmtime::Error::new)?;
        if self.call.fence.left().is_zero() {
            return Err(wasmtime::Error::new(Stop::Lease));
        }
        self.budget.enter(name);
        let out = work.await;
        self.budget.leave();
        match &out {
            Ok(v) => self.budget.spend(v.weigh()).map_err(wasmtime::Error::new)?,
            Err(e) if e.timed_out() && self.call.fence.left().is_zero() => {
                return Err(wasmtime::Error::new(Stop::Lease));
            }
            Err(e) if e.timed_out() => return Err(wasmtime::Error::new(Stop::Dependency(name))),
            Err(_) => {}
        }
        Ok(out)
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let (call, clock, random, bytes) =
            (&self.call, &self.clock, &mut self.random, self.limits.log_bytes());
        let w = self
            .wasi
            .get_or_insert_with(|| Box::new(Wasi::new(call.plugin.as_str(), clock, random.of(call), bytes)));
        WasiCtxView { ctx: &mut w.ctx, table: &mut w.table }
    }
}
