//! What the operator says: the chart and where applications go.

use sutler_sdk::helm::{ChartReference, ReleaseReference};
use sutler_sdk::prelude::*;

use crate::settings::Settings;

/// `[plugins.ksml.config]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// `oci://registry/path/ksml`
    pub chart: String,
    pub version: Option<String>,
    pub digest: Option<String>,
    /// The namespace of an application, with placeholders.
    #[serde(default = "per_tenant")]
    pub namespace: String,
    /// Values of the chart under those that the settings decide.
    #[serde(default)]
    pub values: serde_json::Map<String, Value>,
    /// `repository:tag` or `repository@sha256:…`; the chart's own where it is left out.
    pub image: Option<String>,
    /// Whether an apply takes back fields that somebody else changed meanwhile; otherwise it fails with `conflict`.
    #[serde(default = "yes")]
    pub force_conflicts: bool,
    /// Before `topic.pattern` and its like: `axual.` for charts that want it.
    #[serde(default)]
    pub pattern_prefix: String,
}

const fn yes() -> bool {
    true
}

fn per_tenant() -> String {
    "ksml-{tenant}".into()
}

/// A StatefulSet's name and what Kubernetes appends stay under 63 characters.
const LONGEST: usize = 45;

impl Config {
    /// # Errors
    /// `invalid-config`
    pub fn read() -> Result<Self> {
        sutler_sdk::config::settings()
    }
    pub fn chart(&self) -> ChartReference {
        ChartReference::new(&self.chart, self.version.clone(), self.digest.clone())
    }
    /// # Errors
    /// `tenant-required` and its like, where the pattern needs what the call does not name.
    pub fn release(&self, of: &Subject<Settings>) -> Result<ReleaseReference> {
        Ok(ReleaseReference::new(of.fill(&self.namespace)?, of.name(LONGEST)))
    }
}
