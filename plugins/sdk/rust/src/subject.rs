//! What one resource's functions get and give.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::names::{self, Pair};
use crate::wit::exports::sutler::provisioner::provisioner as wire;
pub use crate::wit::exports::sutler::provisioner::provisioner::{DifferenceClass, Presence};
pub use crate::wit::sutler::provisioner::types::{Action, Application, Kind};
use crate::{Error, Result};

/// The resource that a call is about.
#[derive(Debug)]
pub struct Subject<S> {
    pub application: Application,
    pub pair: Pair,
    pub resource: String,
    pub action: Action,
    /// What the caller wants; `None` for a delete and in inspect.
    pub wanted: Option<S>,
    /// What the caller believes was applied before. A hint, never authority: it may be missing or out of date.
    pub believed: Option<S>,
    /// `wanted` as it was sent, with nothing filled in.
    pub wanted_json: Option<Value>,
    /// `believed` as it was sent.
    pub believed_json: Option<Value>,
    /// The outputs of before, a hint as well.
    pub believed_outputs: Option<Value>,
    /// Whether the settings' schema marks anything `writeOnly` or `x-requires-replace`; where the host says that it
    /// does not, the schema is not made again in each call.
    pub marked: bool,
}

impl<S> Subject<S> {
    /// A name of at most `max` characters that no other resource of any owner has:
    /// `<application>-<environment>-<hash>`.
    pub fn name(&self, max: usize) -> String {
        names::name(&self.application, self.pair, &self.resource, max)
    }
    /// Fills `{tenant}`, `{instance}`, `{environment}`, `{application}` and `{hash}`, as the host's grants do.
    ///
    /// # Errors
    /// `invalid-config` for a bad pattern, `tenant-required` or `instance-required` where the call lacks it.
    pub fn fill(&self, pattern: &str) -> Result<String> {
        names::fill(pattern, &self.application, self.pair)
    }
    /// What is wanted, or else what is believed.
    pub fn settings(&self) -> Option<&S> {
        self.wanted.as_ref().or(self.believed.as_ref())
    }
    /// What is wanted; an apply that is not a delete has it.
    ///
    /// # Errors
    /// `settings-required` where there is none.
    pub fn wanted(&self) -> Result<&S> {
        self.wanted
            .as_ref()
            .ok_or_else(|| Error::new("settings-required", "the change has no settings; send some"))
    }
    /// The keys of the object at a JSON Pointer of the settings, wanted and believed.
    pub fn keys(&self, pointer: &str) -> BTreeSet<String> {
        [&self.wanted_json, &self.believed_json]
            .into_iter()
            .filter_map(|s| s.as_ref()?.pointer(pointer)?.as_object())
            .flat_map(|o| o.keys().cloned())
            .collect()
    }
    pub fn deletes(&self) -> bool {
        self.action == Action::Delete
    }
}

/// What is really there.
#[derive(Debug, Clone, PartialEq)]
pub struct Actual<O> {
    /// In the form of the settings. Secrets may stand in it: the SDK compares them and takes them out.
    pub settings: Value,
    pub outputs: O,
    /// Beyond what the comparison of settings and outputs tells.
    pub differences: Vec<Difference>,
    pub warnings: Vec<String>,
}

impl<O> Actual<O> {
    /// # Errors
    /// `unreadable-answer` when the settings cannot be written as JSON.
    pub fn new(settings: impl Serialize, outputs: O) -> Result<Self> {
        Ok(Self { settings: serde_json::to_value(settings)?, outputs, differences: vec![], warnings: vec![] })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// A JSON Pointer, into the settings or to a thing of the plugin's own naming.
    pub at: String,
    pub class: DifferenceClass,
    pub expected: Option<Value>,
    pub actual: Option<Value>,
}

impl Difference {
    pub(crate) fn into_wire(self) -> wire::Difference {
        wire::Difference {
            at: self.at,
            class: self.class,
            expected: self.expected.map(|v| v.to_string()),
            actual: self.actual.map(|v| v.to_string()),
        }
    }
}

/// What a plan says of one resource. [`crate::Pipeline::plan`] makes one by comparison; change it where you know more.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub action: Action,
    pub before: Option<Value>,
    pub after: Option<Value>,
    /// JSON Pointers into `after` known only once applied.
    pub unknown: Vec<String>,
    pub replace_because: Vec<String>,
    pub warnings: Vec<String>,
}

/// What inspect says of one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub presence: Presence,
    pub settings: Option<Value>,
    pub outputs: Option<Value>,
    pub differences: Vec<Difference>,
    pub warnings: Vec<String>,
}

impl Observed {
    pub const fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            settings: None,
            outputs: None,
            differences: vec![],
            warnings: vec![],
        }
    }
}

/// Where the logs of a resource are; the host reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSource {
    /// `None` for the default cluster.
    pub cluster: Option<String>,
    pub namespace: String,
    pub label_selector: String,
    pub container: Option<String>,
}

impl LogSource {
    /// A container on the local Docker daemon.
    pub fn on_docker(container: impl Into<String>) -> Self {
        Self {
            cluster: Some("docker:".into()),
            namespace: String::new(),
            label_selector: String::new(),
            container: Some(container.into()),
        }
    }
}

/// Where a pipeline stands when it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct At<S> {
    pub step: S,
    /// 1 for the first try of this step.
    pub attempt: u32,
    /// The version of the plugin that wrote the state; empty before the first step.
    pub written_by: String,
}

/// What one call of a pipeline achieved for its resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress<S, O> {
    /// Everything is done.
    Done(O),
    /// Everything is done, with outputs that only those with the right see.
    DoneWithSecrets(O, Value),
    /// Everything is done and the resource is gone.
    Gone,
    /// The step is done; go on with this one.
    Next(S),
    /// Store the step's state (an intent, an id just made) and call again at once.
    Save(S),
    /// Nothing to do yet: call again after the pause.
    Wait(S, Duration, String),
}

impl<S, O> Progress<S, O> {
    pub fn wait(step: S, pause: Duration, message: impl Into<String>) -> Self {
        Self::Wait(step, pause, message.into())
    }
}

/// The steps of a pipeline with the state that each carries: an enum with serde's adjacent tagging.
///
/// ```
/// # use sutler_sdk::prelude::*;
/// #[derive(Default, Serialize, Deserialize)]
/// #[serde(tag = "step", content = "state", rename_all = "kebab-case")]
/// enum Step { #[default] Create, Settle { id: String } }
/// impl Steps for Step {
///     const ALL: &'static [StepInfo] =
///         &[StepInfo::new("create", "Create it", 60), StepInfo::new("settle", "Let it settle", 30)];
/// }
/// ```
/// The default is the first step.
pub trait Steps: Serialize + DeserializeOwned + Default {
    /// Every step in order: its name in kebab-case, its title, and the longest that one call may take, in seconds.
    const ALL: &'static [StepInfo];
}

/// No steps: apply answers at once.
impl Steps for () {
    const ALL: &'static [StepInfo] = &[];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepInfo {
    pub name: &'static str,
    pub title: &'static str,
    pub timeout_seconds: u32,
}

impl StepInfo {
    pub const fn new(name: &'static str, title: &'static str, timeout_seconds: u32) -> Self {
        Self { name, title, timeout_seconds }
    }
}

/// (name, state) of a step.
pub(crate) fn step_to_wire<S: Steps>(step: &S) -> Result<(String, Value)> {
    if S::ALL.is_empty() {
        return Ok((String::new(), json!({})));
    }
    let mut value = serde_json::to_value(step)?;
    let name = value.get("step").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !S::ALL.iter().any(|s| s.name == name) {
        return Err(unknown_step(&name));
    }
    Ok((name, value.get_mut("state").map_or_else(|| json!({}), Value::take)))
}

pub(crate) fn step_from_wire<S: Steps>(name: &str, state: &Value) -> Result<S> {
    if name.is_empty() {
        return Ok(S::default());
    }
    if !S::ALL.iter().any(|s| s.name == name) {
        return Err(unknown_step(name));
    }
    serde_json::from_value(json!({ "step": name, "state": state }))
        // A step without state.
        .or_else(|e| serde_json::from_value(json!({ "step": name })).map_err(|_| e))
        .map_err(|e| {
            Error::new("unreadable-state", format!("the stored state of step {name} cannot be read: {e}"))
        })
}

fn unknown_step(name: &str) -> Error {
    Error::new(
        "unknown-step",
        format!(
            "this version of the plugin has no step {name:?}; cancel the work, or bring back the version that has it"
        ),
    )
}
