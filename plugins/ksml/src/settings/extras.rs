//! What else an application may be given: logging, metrics, a network policy, and what it does about errors. What is
//! left out stays as the operator's values and the chart have it.

use std::collections::BTreeMap;

use serde_json::Map;
use sutler_sdk::prelude::*;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Logging {
    /// Of every logger that is not named below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Levels by logger: `org.apache.kafka`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "pattern": "^[A-Za-z0-9_.$-]{1,200}$" }))]
    pub loggers: BTreeMap<String, Level>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    Text,
    Json,
}

/// Prometheus' endpoint of each replica.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Metrics {
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitor>,
}

/// An object that tells the Prometheus Operator to read the metrics; the cluster has to know the kind.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ServiceMonitor {
    pub enabled: bool,
    /// `30s`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([1-9][0-9]{0,4}(ms|s|m|h))+$"))]
    pub interval: Option<String>,
    /// What the operator's Prometheus selects by: labels as Kubernetes has them, but none that Helm and sutler put there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = label_names(), "additionalProperties" = label_value()))]
    pub labels: BTreeMap<String, String>,
}

/// Who may talk to the application and whom it may talk to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetworkPolicy {
    pub enabled: bool,
    /// Rules as `spec.ingress` of a NetworkPolicy has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("items" = rule("from")))]
    pub ingress: Option<Vec<Map<String, Value>>>,
    /// Rules as `spec.egress` of a NetworkPolicy has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("items" = rule("to")))]
    pub egress: Option<Vec<Map<String, Value>>>,
}

/// A rule of a NetworkPolicy; what stands in its lists is for Kubernetes to judge.
fn rule(peers: &str) -> Value {
    let list = json!({"type": "array", "items": {"type": "object"}});
    json!({"type": "object", "properties": {peers: list, "ports": list}, "additionalProperties": false})
}

fn label_names() -> Value {
    json!({
        "maxLength": 317,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "not": {"pattern": r"^(app\.kubernetes\.io|helm\.sh|sutler\.dev)/"},
    })
}

fn label_value() -> Value {
    json!({"type": "string", "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"})
}

/// What happens about a record that cannot be read, worked on or written.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ErrorHandling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consume: Option<OnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<OnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produce: Option<OnError>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OnError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<bool>,
    /// Also the record itself, which may hold what nobody should read in a log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_payload: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9_.$-]{1,200}$"))]
    pub logger_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_on_error: Option<bool>,
}
