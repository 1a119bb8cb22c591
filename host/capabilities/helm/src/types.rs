//! What plugins say and hear: the records of `sutler:helm`.

use serde_json::Value;
use sutler_model::Digest;

use crate::releases::{Record, Status, chart_of};

/// `sutler:helm/types.chart-reference`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartReference {
    /// `oci://registry/path/name`.
    pub url: String,
    /// A version or a range; with a digest the digest wins.
    pub version: Option<String>,
    pub digest: Option<String>,
}

/// `sutler:helm/types.release-reference`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseReference {
    pub cluster: Option<String>,
    pub namespace: String,
    pub name: String,
}

/// `sutler:helm/types.options`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    pub create_namespace: bool,
    pub take_ownership: bool,
    pub force_conflicts: bool,
    /// Wait until everything is ready; after a failure take the install or upgrade back.
    pub atomic: bool,
    /// With `atomic`, also wait until Jobs have ended.
    pub wait_for_jobs: bool,
    /// Revisions to keep; 0 for Helm's default of 10.
    pub history_max: u32,
}

/// `sutler:helm/charts.chart`.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub name: String,
    pub version: String,
    pub app_version: Option<String>,
    /// Of the OCI manifest: with it, the same chart is pulled again.
    pub digest: Digest,
    pub values: Value,
    pub schema: Option<Value>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Rendered {
    pub manifest: String,
    pub notes: String,
}

impl std::fmt::Debug for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rendered").field("manifest_bytes", &self.manifest.len()).finish_non_exhaustive()
    }
}

/// `sutler:helm/releases.release`.
#[derive(Clone, PartialEq)]
pub struct Release {
    pub name: String,
    pub namespace: String,
    pub revision: u32,
    pub status: Status,
    pub description: String,
    pub chart_name: String,
    pub chart_version: String,
    pub values: Value,
    pub manifest: String,
    pub notes: String,
}

impl std::fmt::Debug for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values and manifest may hold passwords.
        f.debug_struct("Release")
            .field("name", &self.name)
            .field("revision", &self.revision)
            .field("status", &self.status)
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

impl From<Record> for Release {
    fn from(r: Record) -> Self {
        let (chart_name, chart_version) = chart_of(&r);
        let values = r.config();
        Self {
            name: r.name,
            namespace: r.namespace,
            revision: r.version,
            status: r.info.status,
            description: r.info.description,
            chart_name,
            chart_version,
            values,
            manifest: r.manifest,
            notes: r.info.notes,
        }
    }
}

/// `sutler:helm/changes.outcome`.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<T = Release> {
    Done(T),
    /// What it waits for; repeat the same call.
    InProgress(String),
}

impl Outcome<Record> {
    pub(crate) fn public(self) -> Outcome {
        match self {
            Self::Done(r) => Outcome::Done(r.into()),
            Self::InProgress(why) => Outcome::InProgress(why),
        }
    }
}
