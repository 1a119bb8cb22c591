//! What a platform asks for.

use std::collections::BTreeMap;

use sutler_sdk::prelude::*;

mod extras;
mod security;

pub use extras::{ErrorHandling, Format, Level, Logging, Metrics, NetworkPolicy, OnError, ServiceMonitor};
pub use security::{Kafka, Mechanism, RegistrySecurity, SchemaRegistry, Secret, Security};

use crate::{definitions, room};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// KSML definitions by name: YAML as text, or the definition itself.
    #[schemars(extend("minProperties" = 1, "propertyNames" = { "pattern": "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,98}[A-Za-z0-9])?$" }))]
    pub definitions: BTreeMap<String, Definition>,
    /// Schema files by file name, `Reading.avsc`.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "pattern": "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,98}[A-Za-z0-9])?$" }))]
    pub schemas: BTreeMap<String, String>,
    #[serde(default)]
    #[schemars(extend("x-sutler-quota" = Size::quota()))]
    pub size: Size,
    /// The volume of the state stores, `2Gi`; none where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Mi|Gi|Ti)$"), extend("x-requires-replace" = true))]
    pub store_size: Option<String>,
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64), extend("x-sutler-quota" = "times"))]
    pub replicas: u32,
    /// `false` stops it: the release goes, and what it has stored stays for when it runs again.
    #[serde(default = "yes")]
    #[schemars(extend("x-sutler-quota" = "while"))]
    pub running: bool,
    pub kafka: Kafka,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_registry: Option<SchemaRegistry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_handling: Option<ErrorHandling>,
    /// Only `default`: an application runs in the cluster that its provisioner runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Definition {
    Text(String),
    Object(serde_json::Map<String, Value>),
}

impl Definition {
    /// The file's contents; an object as JSON, which YAML contains.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Object(object) => serde_json::to_string_pretty(object).unwrap_or_default(),
        }
    }
}

/// Cores and memory of each replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Size {
    /// 0.5 cores, 2 GiB
    XS,
    /// 1 core, 4 GiB
    #[default]
    S,
    /// 2 cores, 8 GiB
    M,
    /// 3 cores, 12 GiB
    L,
    /// 4 cores, 16 GiB
    XL,
}

impl Size {
    const ALL: [Self; 5] = [Self::XS, Self::S, Self::M, Self::L, Self::XL];

    /// Of each replica: thousandths of a core, and MiB.
    const fn amounts(self) -> (u32, u32) {
        match self {
            Self::XS => (500, 2048),
            Self::S => (1000, 4096),
            Self::M => (2000, 8192),
            Self::L => (3000, 12288),
            Self::XL => (4000, 16384),
        }
    }

    /// Memory in bytes and CPU in thousandths of a core.
    pub const fn limits(self) -> (u64, u32) {
        let (cpu, memory) = self.amounts();
        ((memory as u64) << 20, cpu)
    }

    /// What quotas are told of each size.
    fn quota() -> Value {
        let one = |size: Self| {
            let (cpu, memory) = size.amounts();
            (format!("{size:?}"), json!({"milliCpus": cpu, "memoryMib": memory}))
        };
        Self::ALL.into_iter().map(one).collect::<serde_json::Map<_, _>>().into()
    }

    /// CPU and memory as Kubernetes quantities.
    pub const fn quantities(self) -> (&'static str, &'static str) {
        match self {
            Self::XS => ("500m", "2Gi"),
            Self::S => ("1", "4Gi"),
            Self::M => ("2", "8Gi"),
            Self::L => ("3", "12Gi"),
            Self::XL => ("4", "16Gi"),
        }
    }
}

/// What happens when the application ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    /// It is started again: a StatefulSet.
    #[default]
    OnExit,
    /// It has run: a Job.
    Never,
}

impl Settings {
    /// From what is recorded of an application, which has no secret in it: an empty one stands for it.
    ///
    /// # Errors
    /// `unreadable-answer` where the record is of another version.
    pub fn recorded(mut record: Value) -> Result<Self> {
        for place in ["/kafka/security", "/schemaRegistry/security"] {
            if let Some(Value::Object(security)) = record.pointer_mut(place) {
                let secret = match security.get("type").and_then(Value::as_str) {
                    Some("pem") => "key",
                    Some("sasl" | "basic") => "password",
                    _ => continue,
                };
                security.insert(secret.into(), "".into());
            }
        }
        Ok(serde_json::from_value(record)?)
    }

    /// What the schema cannot say; warnings about what works and should not be.
    ///
    /// # Errors
    /// `too-large`, `unsupported-settings` and `invalid-definition`, with the place.
    pub fn check(&self) -> Result<Vec<String>> {
        self.check_cluster()?;
        room::check(self)?;
        if self.restart_policy == RestartPolicy::Never && self.replicas > 1 {
            let why = "an application that is never restarted runs as a Job with one replica; leave replicas out, or use restartPolicy on_exit";
            return Err(unsupported(why).at("/replicas"));
        }
        if let Some(metrics) = &self.metrics
            && !metrics.enabled
            && metrics.service_monitor.as_ref().is_some_and(|m| m.enabled)
        {
            let why = "a ServiceMonitor without metrics has nothing to read; enable metrics, or leave the ServiceMonitor out";
            return Err(unsupported(why).at("/metrics/serviceMonitor/enabled"));
        }
        if !self.running {
            // Whatever they say, it can be stopped.
            return Ok(vec![]);
        }
        definitions::check(&self.definitions, self.schemas.keys())
    }

    fn check_cluster(&self) -> Result<()> {
        match self.cluster.as_deref() {
            None | Some("default") => Ok(()),
            Some(other) => {
                let why = format!(
                    "an application runs only in the cluster that its provisioner runs in, and cluster {other:?} is another one; leave cluster out, or call the provisioner of that cluster"
                );
                Err(unsupported(why).at("/cluster"))
            }
        }
    }
}

pub(crate) fn unsupported(why: impl Into<String>) -> Error {
    Error::new("unsupported-settings", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_told_what_pods_ask_for() {
        for size in Size::ALL {
            let (cpu, memory) = size.quantities();
            let milli = cpu.strip_suffix('m').map_or_else(|| format!("{cpu}000"), str::to_owned);
            let mib = memory.strip_suffix("Gi").and_then(|g| g.parse::<u32>().ok()).map(|g| g * 1024);
            let told = (milli.parse().unwrap(), mib.unwrap());
            assert_eq!(told, size.amounts(), "{size:?}");
            let word = serde_json::to_value(size).unwrap();
            assert_eq!(
                Size::quota()[word.as_str().unwrap()],
                json!({"milliCpus": told.0, "memoryMib": told.1})
            );
        }
    }
}
