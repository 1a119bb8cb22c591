//! What a platform asks for.

use std::collections::BTreeMap;

use sutler_sdk::prelude::*;

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
    pub size: Size,
    /// The volume of the state stores, `2Gi`; none where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Mi|Gi|Ti)$"), extend("x-requires-replace" = true))]
    pub store_size: Option<String>,
    #[serde(default)]
    pub restart_policy: RestartPolicy,
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub replicas: u32,
    pub kafka: Kafka,
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

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Kafka {
    /// `host:port`, several with commas.
    #[schemars(length(min = 1))]
    pub bootstrap_servers: String,
    /// Kafka's application id; the application's own where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_id: Option<String>,
    #[serde(default)]
    pub security: Security,
    /// For the patterns below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// `{tenant}-{instance}-{environment}-{topic}`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id_pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactional_id_pattern: Option<String>,
}

/// How the application proves who it is to Kafka.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Security {
    #[default]
    None,
    /// A client certificate, all in PEM.
    Pem {
        certificate: String,
        #[schemars(extend("writeOnly" = true))]
        key: Secret,
        ca: String,
    },
    Sasl {
        username: String,
        #[schemars(extend("writeOnly" = true))]
        password: Secret,
        #[serde(default)]
        mechanism: Mechanism,
        /// PEM of the authority that signed the brokers' certificates; the image's own list where it is left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        ca: Option<String>,
    },
}

/// A text that Debug does not show.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mechanism {
    #[serde(rename = "PLAIN")]
    Plain,
    #[default]
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Mechanism {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
    pub const fn module(self) -> &'static str {
        match self {
            Self::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            _ => "org.apache.kafka.common.security.scram.ScramLoginModule",
        }
    }
}

/// The most that definitions and schemas may hold: a ConfigMap takes 1 MiB, with its own text around it.
const ROOM: usize = 1_000_000;

impl Settings {
    /// From what is recorded of an application, which has no secret in it: an empty one stands for it.
    ///
    /// # Errors
    /// `unreadable-answer` where the record is of another version.
    pub fn recorded(mut record: Value) -> Result<Self> {
        if let Some(Value::Object(security)) = record.pointer_mut("/kafka/security") {
            let secret = match security.get("type").and_then(Value::as_str) {
                Some("pem") => "key",
                _ => "password",
            };
            if security.get("type").is_some_and(|t| t != "none") {
                security.insert(secret.into(), "".into());
            }
        }
        Ok(serde_json::from_value(record)?)
    }

    /// What the schema cannot say.
    ///
    /// # Errors
    /// `too-large` and `unsupported-settings`, with the place.
    pub fn check(&self) -> Result<()> {
        let definitions: usize = self.definitions.iter().map(|(name, d)| name.len() + d.text().len()).sum();
        let schemas: usize = self.schemas.iter().map(|(name, s)| name.len() + s.len()).sum();
        for (at, what, size) in
            [("/definitions", "definitions", definitions), ("/schemas", "schemas", schemas)]
        {
            if size > ROOM {
                let why = format!(
                    "the {what} have {size} bytes, and Kubernetes keeps at most {ROOM} in one ConfigMap; split the application"
                );
                return Err(Error::new("too-large", why).at(at));
            }
        }
        if self.restart_policy == RestartPolicy::Never && self.replicas > 1 {
            let why = "an application that is never restarted runs as a Job with one replica; leave replicas out, or use restartPolicy on_exit";
            return Err(Error::new("unsupported-settings", why).at("/replicas"));
        }
        Ok(())
    }
}
