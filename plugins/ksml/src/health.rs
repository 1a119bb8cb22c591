//! How an application fares, from its release and its pods.

use sutler_sdk::helm::{Health, Release, ReleaseReference, Status};
use sutler_sdk::kubernetes::{self, Selector, text};
use sutler_sdk::prelude::*;

/// What an application is doing, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Phase {
    /// There is nothing of it.
    #[default]
    Undeployed,
    /// Work on it goes on, or not every replica is ready.
    Deploying,
    Running,
    /// It was told to stop; its state is kept.
    Stopped,
    /// The last work on it failed, or it cannot stay up.
    Failed,
    /// A Job that has ended well.
    Completed,
}

/// How a container ended last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    pub pod: String,
    /// Kubernetes' word: `OOMKilled`, `Error`, `Completed`.
    pub reason: String,
    pub exit_code: i64,
    /// RFC 3339
    #[serde(skip_serializing_if = "String::is_empty")]
    pub finished_at: String,
}

/// What the probes found, of all replicas together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Probes {
    /// Every container has started.
    pub startup: bool,
    /// Every container is ready.
    pub ready: bool,
    /// Every container runs: one whose liveness probe failed is ended and started again.
    pub live: bool,
}

/// What the pods tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    pub ready: u32,
    /// Of all pods together, since they were made.
    pub restarts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_termination: Option<Termination>,
    /// Left out for a Job, which has none, and without pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
}

/// The pods of a release; `None` where nothing is granted for them.
///
/// # Errors
/// As the capability says.
pub fn pods(of: &ReleaseReference) -> Result<Option<Vec<Value>>> {
    let mut selector = Selector::new("v1", "Pod", &of.namespace);
    selector.labels = format!("app.kubernetes.io/instance={}", of.name);
    match kubernetes::list(&selector) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => Ok(None),
        other => other.map(Some),
    }
}

/// What each container of the pods reports.
fn statuses(pods: &[Value]) -> impl Iterator<Item = (&Value, &Value)> {
    pods.iter().flat_map(|pod| {
        let all = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
        all.into_iter().flatten().map(move |status| (pod, status))
    })
}

fn holds(status: &Value, key: &str) -> bool {
    status.get(key) == Some(&Value::Bool(true))
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
}

impl Pods {
    pub fn of(pods: &[Value], job: bool) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let restarts = statuses(pods).filter_map(|(_, s)| s.get("restartCount")?.as_u64()).sum::<u64>();
        let all = |of: &dyn Fn(&Value) -> bool| statuses(pods).all(|(_, status)| of(status));
        Self {
            ready: count(pods.iter().filter(|pod| is_ready(pod)).count()),
            restarts: u32::try_from(restarts).unwrap_or(u32::MAX),
            last_termination: last_termination(pods),
            probes: (!job && statuses(pods).next().is_some()).then(|| Probes {
                startup: all(&|s| holds(s, "started")),
                ready: all(&|s| holds(s, "ready")),
                live: all(&|s| s.pointer("/state/running").is_some()),
            }),
        }
    }
}

fn last_termination(pods: &[Value]) -> Option<Termination> {
    let ended = statuses(pods).flat_map(|(pod, status)| {
        let each = ["/state/terminated", "/lastState/terminated"];
        each.into_iter().filter_map(|at| status.pointer(at)).map(move |ended| Termination {
            pod: text(pod, "/metadata/name"),
            reason: text(ended, "/reason"),
            exit_code: ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default(),
            finished_at: text(ended, "/finishedAt"),
        })
    });
    // Kubernetes writes all of them in UTC and to the second: their order is that of the texts.
    ended.max_by(|a, b| a.finished_at.cmp(&b.finished_at))
}

impl Phase {
    /// Of a release that is there. Without pods a Job that has ended is told as running.
    pub fn of(release: &Release, health: &Health, pods: Option<&[Value]>, job: bool) -> Self {
        match (release.status, health) {
            (Status::Failed, _) | (Status::Deployed, Health::Failed(_)) => Self::Failed,
            (Status::Deployed, Health::Ready) if job && ended_well(pods) => Self::Completed,
            (Status::Deployed, Health::Ready) => Self::Running,
            _ if pods.is_some_and(|pods| statuses(pods).any(|(_, s)| loops(s))) => Self::Failed,
            _ => Self::Deploying,
        }
    }
}

fn ended_well(pods: Option<&[Value]>) -> bool {
    let phases: Vec<String> = pods.into_iter().flatten().map(|pod| text(pod, "/status/phase")).collect();
    phases.iter().any(|p| p == "Succeeded") && !phases.iter().any(|p| p == "Running" || p == "Pending")
}

/// Whether a container ends again and again.
fn loops(status: &Value) -> bool {
    text(status, "/state/waiting/reason") == "CrashLoopBackOff"
}
