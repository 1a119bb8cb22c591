//! A world in memory behind the SDK's functions, one a thread, and a way to run a pipeline as the host does.
//!
//! Kubernetes objects are stored and merged, releases are stored with their values, readiness answers what the test
//! queued, containers run once they are asked for. Charts, logs and HTTP are not there: they answer `unavailable`.
#![allow(clippy::result_large_err, reason = "the contract's types are as large as they are")]

pub(crate) mod docker;
pub(crate) mod host;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use crate::containers::{Spec, Status};
use crate::drive::{Handler, Handles};
use crate::helm::{Drift, Health};
use crate::wit::exports::sutler::provisioner::provisioner as wire;
use crate::wit::sutler::helm::releases::Release;
use crate::wit::sutler::provisioner::types::{self as words, Action, Application};
use crate::{LogSource, Pipeline};

/// Everything that the functions of the SDK reach on this thread.
#[derive(Default)]
pub struct World {
    /// The plugin's `config` table.
    pub config: Value,
    pub secrets: BTreeMap<String, String>,
    /// By `Kind namespace/name`.
    pub objects: BTreeMap<String, Value>,
    /// By `namespace/name`.
    pub releases: BTreeMap<String, Release>,
    /// What `readiness` answers, in order; then `ready`.
    pub health: VecDeque<Health>,
    pub drift: Vec<Drift>,
    /// By name, on the Docker daemon.
    pub containers: BTreeMap<String, Container>,
    /// Notes of named volumes.
    pub volumes: BTreeMap<String, String>,
    /// Kinds (`Secret`) and verbs of Helm and of containers (`upgrade`, `run`) that no grant covers.
    pub refused: BTreeSet<String>,
    /// The messages written to the log.
    pub log: Vec<String>,
    /// Every write, as `apply Secret shop/orders`.
    pub writes: Vec<String>,
    /// During plan and inspect.
    pub read_only: bool,
    uid: u64,
}

/// A container as it was asked for, and how it is.
pub struct Container {
    pub spec: Spec,
    pub status: Status,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World { config: json!({}), ..World::default() });
}

/// Looks into the world, or changes it.
pub fn world<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with(|w| f(&mut w.borrow_mut()))
}

/// Starts with an empty world and this configuration of the plugin.
pub fn reset(config: Value) {
    world(|w| *w = World { config, ..World::default() });
}

/// Runs a pipeline (or a resource) for one application as the host would, through the contract.
pub struct Session<P> {
    handler: Handler<P>,
    pub application: Application,
    /// Every step that the last apply went through, and the messages of its pauses.
    pub trail: Vec<String>,
}

/// What one resource came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    pub code: String,
    pub reason: String,
    pub retryable: bool,
}

impl From<words::Failure> for Failed {
    fn from(f: words::Failure) -> Self {
        Self { code: f.code, reason: f.reason, retryable: f.retryable }
    }
}

fn value(text: Option<&String>) -> Value {
    text.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default()
}

impl<P: Pipeline> Session<P> {
    pub fn new(id: &str, environment: &str, tenant: Option<&str>) -> Self {
        let application = Application {
            id: id.into(),
            environment: environment.into(),
            tenant: tenant.map(str::to_owned),
            instance: None,
        };
        Self { handler: Handler::new(), application, trail: vec![] }
    }

    fn pair() -> words::Pair {
        words::Pair { kind: P::PAIR.kind, type_: P::PAIR.type_name.into() }
    }

    fn request(&self, changes: &[(&str, Action, Value, Value)]) -> words::Request {
        let some = |v: &Value| (!v.is_null()).then(|| v.to_string());
        words::Request {
            id: "r-1".into(),
            pair: Self::pair(),
            application: self.application.clone(),
            changes: changes
                .iter()
                .map(|(resource, action, settings, previous)| words::Change {
                    resource: (*resource).into(),
                    action: *action,
                    settings: some(settings),
                    previous_settings: some(previous),
                    previous_outputs: None,
                })
                .collect(),
            context: "{}".into(),
        }
    }

    /// The plan of one change: action, before, after, replaceBecause, warnings, steps.
    ///
    /// # Errors
    /// The plugin's failure.
    pub fn plan(&self, action: Action, settings: Value, previous: Value) -> Result<Value, Failed> {
        let proposal = reading(|| self.handler.plan(&self.request(&[("main", action, settings, previous)])))?;
        let c = proposal.changes.first().ok_or_else(|| Failed {
            code: "no-change".into(),
            reason: String::new(),
            retryable: false,
        })?;
        Ok(json!({
            "action": format!("{:?}", c.action), "before": value(c.before.as_ref()), "after": value(c.after.as_ref()),
            "replaceBecause": c.replace_because, "warnings": c.warnings, "steps": proposal.steps,
        }))
    }

    /// Applies one change to `main` to the end, through every step and pause; the outputs.
    ///
    /// # Errors
    /// The plugin's failure.
    pub fn apply(&mut self, action: Action, settings: Value, previous: Value) -> Result<Value, Failed> {
        let all = self.apply_all(&[("main", action, settings, previous)])?;
        Ok(all.get("main").cloned().unwrap_or_default())
    }

    /// Applies several changes (resource, action, settings, previous settings); outputs by resource.
    ///
    /// # Errors
    /// The plugin's failure.
    pub fn apply_all(
        &mut self,
        changes: &[(&str, Action, Value, Value)],
    ) -> Result<BTreeMap<String, Value>, Failed> {
        let request = self.request(changes);
        self.drive(|handler, at| handler.apply(&request, at))
    }

    /// Cancels a finished or interrupted apply, given the state it stopped with.
    ///
    /// # Errors
    /// The plugin's failure.
    pub fn cancel(
        &mut self,
        changes: &[(&str, Action, Value, Value)],
    ) -> Result<BTreeMap<String, Value>, Failed> {
        let request = self.request(changes);
        self.drive(|handler, at| handler.cancel(&request, at))
    }

    fn drive(
        &mut self,
        call: impl Fn(&Handler<P>, &wire::Checkpoint) -> Result<wire::Progress, wire::Stopped>,
    ) -> Result<BTreeMap<String, Value>, Failed> {
        let mut at = wire::Checkpoint {
            step: String::new(),
            state: "{}".into(),
            attempt: 1,
            written_by: String::new(),
        };
        self.trail.clear();
        for _ in 0..1000 {
            match call(&self.handler, &at).map_err(|s| Failed::from(s.failure))? {
                wire::Progress::Done(applied) => {
                    return Ok(applied.into_iter().map(|a| (a.resource, value(Some(&a.outputs)))).collect());
                }
                wire::Progress::Next(next) => {
                    self.trail.push(next.step.clone());
                    (at.step, at.state) = (next.step, next.state);
                }
                wire::Progress::Save(state) => at.state = state,
                wire::Progress::Wait(pause) => {
                    self.trail.push(pause.message);
                    at.state = pause.state;
                }
            }
        }
        Err(Failed {
            code: "no-end".into(),
            reason: "the pipeline did not end in 1000 calls".into(),
            retryable: false,
        })
    }

    /// Inspects `main`, as the caller knows it: presence, settings, outputs, differences, warnings.
    ///
    /// # Errors
    /// The plugin's failure.
    pub fn inspect(&self, settings: Value, outputs: Value) -> Result<Value, Failed> {
        let seen = reading(|| self.handler.inspect(&self.inquiry(&settings, &outputs)))?;
        let o = seen.first().ok_or_else(|| Failed {
            code: "no-answer".into(),
            reason: String::new(),
            retryable: false,
        })?;
        let differences: Vec<Value> = o
            .differences
            .iter()
            .map(|d| {
                json!({"at": d.at, "class": format!("{:?}", d.class),
                    "expected": value(d.expected.as_ref()), "actual": value(d.actual.as_ref())})
            })
            .collect();
        Ok(json!({
            "presence": format!("{:?}", o.presence), "settings": value(o.settings.as_ref()),
            "outputs": value(o.outputs.as_ref()), "differences": differences, "warnings": o.warnings,
        }))
    }

    /// Where the logs of `main` are.
    ///
    /// # Errors
    /// The plugin's failure.
    pub fn locate(&self, settings: Value) -> Result<Vec<LogSource>, Failed> {
        let sources = reading(|| self.handler.locate(&self.inquiry(&settings, &Value::Null)))?;
        Ok(sources
            .into_iter()
            .map(|s| LogSource {
                cluster: s.cluster,
                namespace: s.namespace,
                label_selector: s.label_selector,
                container: s.container,
            })
            .collect())
    }

    fn inquiry(&self, settings: &Value, outputs: &Value) -> words::Inquiry {
        let some = |v: &Value| (!v.is_null()).then(|| v.to_string());
        words::Inquiry {
            id: "r-1".into(),
            pair: Self::pair(),
            application: self.application.clone(),
            resources: vec![words::Known {
                resource: "main".into(),
                settings: some(settings),
                outputs: some(outputs),
            }],
            context: "{}".into(),
        }
    }

    /// The pair's settings schema, outputs schema and step names.
    pub fn described(&self) -> (Value, Value, Vec<String>) {
        let d = self.handler.describe();
        let steps = d.steps.into_iter().map(|s| s.name).collect();
        (value(Some(&d.settings_schema)), value(Some(&d.outputs_schema)), steps)
    }
}

fn reading<T>(f: impl FnOnce() -> Result<T, words::Failure>) -> Result<T, Failed> {
    world(|w| w.read_only = true);
    let out = f().map_err(Failed::from);
    world(|w| w.read_only = false);
    out
}
