//! The end of what a failed hook wrote, for its failure.

use futures::StreamExt as _;
use serde_json::Value;
use sutler_kubernetes::LogQuery;

use super::target::Target;

const LINES: u64 = 10;
const BYTES: usize = 800;

/// ` (its log ends with: …)`, or nothing where there is none. That it cannot be read never hides the failure.
pub(crate) async fn tail(target: &Target<'_>, hook: &Value) -> String {
    let text = |key: &str| hook.get(key).and_then(Value::as_str).unwrap_or_default();
    let namespace = crate::manifest::objects(text("manifest"))
        .ok()
        .and_then(|o| o.into_iter().next()?.reference.namespace)
        .unwrap_or_else(|| target.namespace.to_owned());
    let pods = match text("kind") {
        "Job" => target.cluster.pods(&namespace, &format!("job-name={}", text("name"))).await,
        "Pod" => target.cluster.pod(&namespace, text("name")).await.map(|p| vec![p]),
        _ => return String::new(),
    };
    let mut out = String::new();
    for pod in pods.unwrap_or_default().iter().rev() {
        for container in &pod.containers {
            out.push_str(&lines(target, &namespace, &pod.name, &container.name).await);
        }
        if !out.trim().is_empty() {
            break;
        }
    }
    let out = out.trim();
    if out.is_empty() {
        return String::new();
    }
    let from = out.char_indices().rev().nth(BYTES).map_or(0, |(i, _)| i);
    format!(" (its log ends with: {})", out.get(from..).unwrap_or(out))
}

async fn lines(target: &Target<'_>, namespace: &str, pod: &str, container: &str) -> String {
    let query =
        LogQuery { container: Some(container.into()), tail_lines: Some(LINES), ..LogQuery::default() };
    let Ok(mut chunks) = target.cluster.log_stream(namespace, pod, &query).await else {
        return String::new();
    };
    let mut bytes = Vec::new();
    while let Some(Ok(chunk)) = chunks.next().await {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > 64 << 10 {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
