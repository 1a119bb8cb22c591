//! Helm's own release record: a Secret `sh.helm.release.v1.NAME.vN` (Helm 4, storage driver "secret").

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::operation::Operation;
use crate::engine::Labels;
use crate::error::Error;
use sutler_kubernetes::RELEASE_SECRET;

/// What the API server takes in one Secret.
const SECRET_LIMIT: usize = 1 << 20;
/// Room for a longer description when the release fails.
const ROOM: usize = 8 << 10;
/// What a record may unpack to: far beyond what compresses into a Secret, but not a bomb.
const UNPACKED_LIMIT: u64 = 64 << 20;
const SYSTEM_LABELS: [&str; 6] = ["name", "owner", "status", "version", "createdAt", "modifiedAt"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum Status {
    /// Also one that a later Helm invents.
    Unknown,
    Deployed,
    Uninstalled,
    Superseded,
    Failed,
    Uninstalling,
    PendingInstall,
    PendingUpgrade,
    PendingRollback,
}

impl Status {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

impl From<String> for Status {
    fn from(s: String) -> Self {
        let all = [
            Self::Deployed,
            Self::Uninstalled,
            Self::Superseded,
            Self::Failed,
            Self::Uninstalling,
            Self::PendingInstall,
            Self::PendingUpgrade,
            Self::PendingRollback,
        ];
        all.into_iter().find(|x| x.as_str() == s).unwrap_or(Self::Unknown)
    }
}

impl From<Status> for &'static str {
    fn from(s: Status) -> Self {
        s.as_str()
    }
}

/// The JSON of a release. What this crate does not know is kept as it is (`rest`).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) info: Info,
    #[serde(default)]
    pub(crate) chart: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<Value>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) manifest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hooks: Option<Vec<Value>>,
    pub(crate) version: u32,
    #[serde(default)]
    pub(crate) namespace: String,
    /// `ssa`, `csa`, or nothing for csa.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) apply_method: String,
    #[serde(flatten)]
    rest: Map<String, Value>,
    /// Of the Secret, without Helm's own; not part of the JSON.
    #[serde(skip)]
    pub(crate) labels: Labels,
    /// Of the Secret: Unix seconds.
    #[serde(skip)]
    created_at: Option<String>,
    /// Of the Secret: which of our operations this is, and how far it came.
    #[serde(skip)]
    pub(crate) operation: Option<Operation>,
    /// Of the Secret as it was read or written last: what an update builds on.
    #[serde(skip)]
    pub(crate) resource_version: Option<String>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Info {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_deployed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_deployed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deleted: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) description: String,
    pub(crate) status: Status,
    /// The revision that a rollback goes back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rollback_revision: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) notes: String,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values and manifest may hold passwords.
        f.debug_struct("Record")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("status", &self.info.status)
            .finish_non_exhaustive()
    }
}

/// What a new revision is made of.
pub(crate) struct Fresh {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) version: u32,
    pub(crate) status: Status,
    pub(crate) description: String,
    pub(crate) chart: Value,
    pub(crate) config: Value,
    pub(crate) manifest: String,
    pub(crate) hooks: Vec<Value>,
    pub(crate) notes: String,
    pub(crate) labels: Labels,
    pub(crate) first_deployed: Option<String>,
    pub(crate) rollback_revision: Option<u32>,
    pub(crate) server_side: bool,
    pub(crate) operation: Option<Operation>,
}

pub(crate) fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true)
}

impl Record {
    pub(crate) fn new(f: Fresh) -> Self {
        let now = now();
        Self {
            name: f.name,
            info: Info {
                first_deployed: Some(f.first_deployed.unwrap_or_else(|| now.clone())),
                last_deployed: Some(now),
                deleted: None,
                description: f.description,
                status: f.status,
                rollback_revision: f.rollback_revision,
                notes: f.notes,
                rest: Map::new(),
            },
            chart: f.chart,
            config: f.config.as_object().is_some_and(|c| !c.is_empty()).then_some(f.config),
            manifest: f.manifest,
            hooks: (!f.hooks.is_empty()).then_some(f.hooks),
            version: f.version,
            namespace: f.namespace,
            apply_method: if f.server_side { "ssa" } else { "csa" }.into(),
            rest: Map::new(),
            labels: f.labels,
            created_at: None,
            operation: f.operation,
            resource_version: None,
        }
    }

    /// `sh.helm.release.v1.NAME.vN`.
    pub(crate) fn key(&self) -> String {
        format!("sh.helm.release.v1.{}.v{}", self.name, self.version)
    }

    pub(crate) fn hooks(&self) -> &[Value] {
        self.hooks.as_deref().unwrap_or_default()
    }

    /// Whether its objects are applied on the server; Helm 3 wrote no method and applied by itself.
    pub(crate) fn server_side(&self) -> bool {
        self.apply_method == "ssa"
    }

    pub(crate) fn config(&self) -> Value {
        self.config.clone().filter(|c| !c.is_null()).unwrap_or_else(|| json!({}))
    }

    pub(crate) fn set(&mut self, status: Status, description: impl Into<String>) {
        self.info.status = status;
        self.info.description = description.into();
    }

    /// The Secret that stores it. Labels and JSON say the same status.
    ///
    /// # Errors
    /// `TooLarge` where the API server would refuse it.
    pub(crate) fn secret(&self, modified: bool) -> Result<Value, Error> {
        let encoded = encode(self)?;
        // What is said later of a record that was written once still has to fit.
        let limit = if modified { SECRET_LIMIT } else { SECRET_LIMIT - ROOM };
        if encoded.len() > limit {
            return Err(Error::TooLarge(format!(
                "release {} in namespace {} takes {} bytes as a record, and a Secret holds {}; make the chart's files or the values smaller",
                self.name,
                self.namespace,
                encoded.len(),
                limit
            )));
        }
        let seconds = chrono::Utc::now().timestamp().to_string();
        let mut labels: Map<String, Value> =
            self.labels.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
        labels.insert("name".into(), self.name.clone().into());
        labels.insert("owner".into(), "helm".into());
        labels.insert("status".into(), self.info.status.as_str().into());
        labels.insert("version".into(), self.version.to_string().into());
        labels.insert("createdAt".into(), self.created_at.clone().unwrap_or_else(|| seconds.clone()).into());
        if modified {
            labels.insert("modifiedAt".into(), seconds.into());
        }
        let mut metadata = json!({"name": self.key(), "namespace": self.namespace, "labels": labels});
        if let (Some(operation), Some(m)) = (&self.operation, metadata.as_object_mut()) {
            m.insert("annotations".into(), json!({Operation::ANNOTATION: operation.to_text()}));
        }
        if let (true, Some(version), Some(m)) = (modified, &self.resource_version, metadata.as_object_mut()) {
            m.insert("resourceVersion".into(), version.clone().into());
        }
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": RELEASE_SECRET,
            "metadata": metadata,
            "data": {"release": STANDARD.encode(encoded)},
        }))
    }

    /// Takes note of which version of the Secret this is.
    pub(crate) fn see(&mut self, secret: &Value) {
        let version = secret.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        self.resource_version = version.map(str::to_owned);
    }

    /// Reads the Secret of a release.
    ///
    /// # Errors
    /// `Other` with code `broken-record`.
    pub(crate) fn of_secret(secret: &Value) -> Result<Self, Error> {
        let name = secret.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("?");
        let broken = |why: &str| {
            Error::other(
                "broken-record",
                format!("the release record in Secret {name} cannot be read: {why}"),
            )
        };
        let data = secret
            .pointer("/data/release")
            .and_then(Value::as_str)
            .ok_or_else(|| broken("it has no key release"))?;
        let outer = STANDARD.decode(data).map_err(|_| broken("its data is not base64"))?;
        let mut record = decode(&outer).map_err(broken)?;
        let labels = secret.pointer("/metadata/labels").and_then(Value::as_object);
        for (k, v) in labels.into_iter().flatten() {
            let Some(v) = v.as_str() else { continue };
            if k == "createdAt" {
                record.created_at = Some(v.to_owned());
            } else if !SYSTEM_LABELS.contains(&k.as_str()) {
                record.labels.insert(k.clone(), v.to_owned());
            }
        }
        let annotation = secret.pointer("/metadata/annotations").and_then(|a| a.get(Operation::ANNOTATION));
        record.operation = annotation.and_then(Value::as_str).and_then(Operation::of_text);
        record.see(secret);
        if record.namespace.is_empty() {
            record.namespace =
                secret.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
        }
        let place = secret.pointer("/metadata/namespace").and_then(Value::as_str);
        if record.key() != name || place.is_some_and(|p| p != record.namespace) {
            return Err(broken("it tells of another release than its name says"));
        }
        Ok(record)
    }
}

/// base64(gzip(JSON)): what Helm keeps under the key `release`, before Kubernetes' own base64.
fn encode(record: &Record) -> Result<String, Error> {
    use std::io::Write as _;
    let failed = |e: &dyn std::fmt::Display| {
        Error::other("broken-record", format!("the release cannot be written as a record: {e}"))
    };
    let json = serde_json::to_vec(record).map_err(|e| failed(&e))?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&json).map_err(|e| failed(&e))?;
    Ok(STANDARD.encode(gzip.finish().map_err(|e| failed(&e))?))
}

fn decode(text: &[u8]) -> Result<Record, &'static str> {
    let bytes = STANDARD.decode(text).map_err(|_| "its release is not base64")?;
    let json = if bytes.starts_with(&[0x1f, 0x8b, 0x08]) {
        let mut out = Vec::new();
        let read =
            flate2::read::GzDecoder::new(bytes.as_slice()).take(UNPACKED_LIMIT + 1).read_to_end(&mut out);
        if read.map_err(|_| "its release is not gzip")? as u64 > UNPACKED_LIMIT {
            return Err("it unpacks to more than 64 MiB");
        }
        out
    } else {
        bytes
    };
    serde_json::from_slice(&json).map_err(|_| "it is not the JSON of a release")
}

#[cfg(test)]
mod tests;
