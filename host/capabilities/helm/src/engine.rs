//! What renders templates. The runtime implements it with Helm's own engine in a sandbox; nothing here renders.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a template looks up in the cluster; without a name a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Lookup {
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The host's answer; none where there is no such object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// Why the cluster cannot be asked that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// One rendering.
#[derive(Clone)]
pub struct RenderRequest {
    /// The release.
    pub name: String,
    pub namespace: String,
    pub revision: u32,
    pub upgrade: bool,
    /// The archive, as it was pulled.
    pub chart: Bytes,
    /// A JSON object.
    pub values: Value,
    /// `v1.37.2`; empty for the engine's own default.
    pub kube_version: String,
    pub api_versions: Vec<String>,
    /// What is known of the cluster.
    pub lookups: Vec<Lookup>,
    /// Keys the sandbox's random numbers, so that equal plans are equal. Not sent to the engine.
    pub seed: [u8; 32],
    /// The sandbox's clock, in milliseconds since 1970. Not sent to the engine.
    pub now_millis: u64,
}

impl std::fmt::Debug for RenderRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may hold passwords.
        f.debug_struct("RenderRequest")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    name: &'a str,
    namespace: &'a str,
    revision: u32,
    upgrade: bool,
    chart: String,
    values: &'a Value,
    kube_version: &'a str,
    #[serde(rename = "apiVersions")]
    api_versions: &'a [String],
    #[serde(skip_serializing_if = "<[Lookup]>::is_empty")]
    lookups: &'a [Lookup],
}

impl RenderRequest {
    /// The engine's input.
    pub fn to_json(&self) -> Vec<u8> {
        let input = Input {
            name: &self.name,
            namespace: &self.namespace,
            revision: self.revision,
            upgrade: self.upgrade,
            chart: STANDARD.encode(&self.chart),
            values: &self.values,
            kube_version: &self.kube_version,
            api_versions: &self.api_versions,
            lookups: &self.lookups,
        };
        // Texts, numbers and values that came from JSON: nothing here can fail.
        serde_json::to_vec(&input).unwrap_or_default()
    }
}

/// What the engine answers.
#[derive(Clone, Default, Deserialize)]
pub struct RenderAnswer {
    #[serde(default)]
    pub manifest: String,
    /// As Helm stores them in a release.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub hooks: Vec<Value>,
    /// The files under `crds/`, which are not rendered.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub crds: Vec<String>,
    #[serde(default)]
    pub notes: String,
    /// The chart as Helm stores it in a release: metadata, lock, templates, values, schema, files.
    #[serde(default)]
    pub chart: Value,
    /// What templates asked of the cluster and the request did not tell: with any, nothing else is to be used.
    #[serde(default, deserialize_with = "null_as_empty")]
    pub lookups: Vec<Lookup>,
}

fn null_as_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(d)?.unwrap_or_default())
}

impl std::fmt::Debug for RenderAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RenderAnswer").field("manifest_bytes", &self.manifest.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The templates or the values are wrong: Helm's own words.
    #[error("{0}")]
    Template(String),
    /// CPU, memory, time or a trap.
    #[error("the chart's templates ran over a limit of the engine: {0}")]
    Limit(String),
    /// No sandbox free, or the host is stopping.
    #[error("{0}")]
    Unavailable(String),
    #[error("the engine's answer cannot be read: {0}")]
    Answer(String),
}

impl RenderAnswer {
    /// Reads the engine's output.
    ///
    /// # Errors
    /// `Template` with Helm's text; `Answer` where it is not the agreed JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Self, EngineError> {
        #[derive(Deserialize)]
        struct Output {
            #[serde(default)]
            error: String,
            #[serde(flatten)]
            answer: RenderAnswer,
        }
        let output: Output = serde_json::from_slice(bytes).map_err(|e| EngineError::Answer(e.to_string()))?;
        if output.error.is_empty() { Ok(output.answer) } else { Err(EngineError::Template(output.error)) }
    }
}

/// Renders charts.
pub trait TemplateEngine: Send + Sync + 'static {
    fn render(&self, request: RenderRequest) -> BoxFuture<'_, Result<RenderAnswer, EngineError>>;
}

/// Labels of owners by their keys.
pub(crate) type Labels = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_agreed_json() {
        let request = RenderRequest {
            name: "app".into(),
            namespace: "ns".into(),
            revision: 2,
            upgrade: true,
            chart: Bytes::from_static(b"\x1f\x8b"),
            values: json!({"a": 1}),
            kube_version: "v1.37.2".into(),
            api_versions: vec!["v1".into()],
            lookups: Vec::new(),
            seed: [0; 32],
            now_millis: 0,
        };
        assert_eq!(
            serde_json::from_slice::<Value>(&request.to_json()).unwrap(),
            json!({"name": "app", "namespace": "ns", "revision": 2, "upgrade": true, "chart": "H4s=", "values": {"a": 1},
                   "kubeVersion": "v1.37.2", "apiVersions": ["v1"]})
        );
        let answer =
            RenderAnswer::from_json(br#"{"manifest":"m","hooks":null,"chart":{"metadata":{}}}"#).unwrap();
        assert_eq!((answer.manifest.as_str(), answer.hooks.len()), ("m", 0));
        assert_eq!(
            RenderAnswer::from_json(br#"{"error":"nil pointer"}"#).unwrap_err(),
            EngineError::Template("nil pointer".into())
        );
        assert!(matches!(RenderAnswer::from_json(b"nope"), Err(EngineError::Answer(_))));
    }
}
