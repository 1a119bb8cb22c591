//! Who the application proves to be, to Kafka and to the schema registry.

use sutler_sdk::prelude::*;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Kafka {
    /// `host:port`, several with commas.
    #[schemars(regex(pattern = "^[!-~]([ -~]*[!-~])?$"))]
    pub bootstrap_servers: String,
    /// Kafka's application id, which names groups and topics. Where it is left out: the application's own with a
    /// `groupIdPattern`, else the release's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9._-]{1,200}$"))]
    pub application_id: Option<String>,
    #[serde(default)]
    pub security: Security,
    /// For the patterns below.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[!-~]{1,200}$"))]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[!-~]{1,200}$"))]
    pub instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[!-~]{1,200}$"))]
    pub environment: Option<String>,
    /// `{tenant}-{instance}-{environment}-{topic}`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[!-~]{1,500}$"))]
    pub topic_pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[!-~]{1,500}$"))]
    pub group_id_pattern: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[!-~]{1,500}$"))]
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
        #[schemars(regex(pattern = r"^[^\x00-\x1f\x7f]+$"))]
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

/// A Confluent schema registry: KSML's `avro` notation uses it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SchemaRegistry {
    /// `https://host:port`, several with commas.
    #[schemars(regex(pattern = "^https?://[ -?A-~]*[!-?A-~]$"))]
    pub url: String,
    #[serde(default)]
    pub security: RegistrySecurity,
}

/// How the application proves who it is to the schema registry.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RegistrySecurity {
    #[default]
    None,
    /// User and password, as HTTP has them.
    Basic {
        #[schemars(regex(pattern = r"^[^:\x00-\x1f\x7f]+$"))]
        username: String,
        #[schemars(extend("writeOnly" = true))]
        password: Secret,
        /// PEM of the authority that signed the registry's certificate; the image's own list where it is left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        ca: Option<String>,
    },
    /// A client certificate, all in PEM.
    Pem {
        certificate: String,
        #[schemars(extend("writeOnly" = true))]
        key: Secret,
        ca: String,
    },
}
