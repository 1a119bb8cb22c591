//! The pods that are workers.

use sutler_sdk::kubernetes::{self, Selector, text};
use sutler_sdk::prelude::*;

use crate::config::Places;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    pub namespace: String,
    pub pod: String,
    /// Kubernetes' word: `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: String,
    pub ready: bool,
    /// Of all its containers together.
    pub restarts: u32,
}

/// Every worker of these places, in the order of namespaces and names.
///
/// # Errors
/// `not-granted` before anything is asked of the cluster; `forbidden`, `unavailable`.
pub fn find(places: &Places) -> Result<Vec<Worker>> {
    let mut out = Vec::new();
    for namespace in &places.namespaces {
        let mut selector = Selector::new("v1", "Pod", namespace);
        selector.labels.clone_from(&places.selector);
        out.extend(kubernetes::list(&selector)?.iter().map(|pod| worker(namespace, pod)));
    }
    out.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
    Ok(out)
}

fn worker(namespace: &str, pod: &Value) -> Worker {
    let list = |at: &str| pod.pointer(at).and_then(Value::as_array).into_iter().flatten();
    let ready = |c: &Value| text(c, "/type") == "Ready" && text(c, "/status") == "True";
    let restarts: u64 =
        list("/status/containerStatuses").filter_map(|s| s.get("restartCount")?.as_u64()).sum();
    Worker {
        namespace: namespace.to_owned(),
        pod: text(pod, "/metadata/name"),
        phase: text(pod, "/status/phase"),
        ready: list("/status/conditions").any(ready),
        restarts: u32::try_from(restarts).unwrap_or(u32::MAX),
    }
}
