//! A chart that passed the checks: its metadata and default values, and the archive for the engine.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use sutler_model::Digest;

use crate::archive::{ArchiveError, Budget, Files, unpack};
use crate::yaml;

/// What `Chart.yaml` says, as far as the host needs it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub version: String,
    pub app_version: Option<String>,
    #[serde(default)]
    pub api_version: String,
    /// `application` or `library`.
    #[serde(rename = "type")]
    pub chart_type: Option<String>,
    /// A range of Kubernetes versions; the engine checks it.
    pub kube_version: Option<String>,
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Dependency {
    pub name: String,
    #[serde(default)]
    pub version: String,
}

#[derive(Debug, Clone)]
pub struct Chart {
    pub metadata: Metadata,
    /// Of the OCI manifest.
    pub digest: Digest,
    /// `values.yaml` of the chart itself.
    pub values: Value,
    /// `values.schema.json`.
    pub schema: Option<Value>,
    /// The archive as it was pulled.
    pub archive: Bytes,
    size: usize,
}

impl Chart {
    /// Checks an archive and reads what the host needs of it. Blocking: it unpacks.
    ///
    /// # Errors
    /// Why it is not a chart that can be installed.
    pub fn read(archive: Bytes, digest: Digest) -> Result<Self, ArchiveError> {
        let mut budget = Budget::default();
        let files = unpack(&archive, &mut budget)?;
        let metadata = metadata(&files)?;
        check_dependencies(&metadata, &files, &mut budget)?;
        let values = match files.get("values.yaml") {
            Some(bytes) => Some(parse("values.yaml", bytes)?).filter(|v| !v.is_null()),
            None => None,
        };
        let values = values.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        if !values.is_object() {
            return Err(ArchiveError::Yaml { file: "values.yaml".into(), why: "it is not a mapping".into() });
        }
        let schema = files
            .get("values.schema.json")
            .map(|bytes| {
                serde_json::from_slice(bytes)
                    .map_err(|e| ArchiveError::Yaml { file: "values.schema.json".into(), why: e.to_string() })
            })
            .transpose()?;
        let size = archive.len() + files.get("values.yaml").map_or(0, |v| v.len() * 4) + 1024;
        Ok(Self { metadata, digest, values, schema, archive, size })
    }

    /// What it holds in memory, roughly.
    pub(crate) const fn bytes(&self) -> usize {
        self.size
    }
}

fn text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, ArchiveError> {
    std::str::from_utf8(bytes)
        .map_err(|_| ArchiveError::Yaml { file: file.into(), why: "it is not UTF-8".into() })
}

fn parse(file: &str, bytes: &[u8]) -> Result<Value, ArchiveError> {
    yaml::parse(text(file, bytes)?).map_err(|why| ArchiveError::Yaml { file: file.into(), why })
}

fn metadata(files: &Files) -> Result<Metadata, ArchiveError> {
    let bytes = files.get("Chart.yaml").ok_or(ArchiveError::Missing("Chart.yaml"))?;
    // Numbers where texts are meant (`appVersion: 1.10`) keep their spelling, as in Helm.
    let mut out: Metadata =
        serde_saphyr::from_str(text("Chart.yaml", bytes)?).map_err(|_| ArchiveError::Yaml {
            file: "Chart.yaml".into(),
            why: "name or version is missing, or it is not YAML".into(),
        })?;
    // apiVersion v1 charts list their dependencies in a file of their own.
    if let Some(bytes) = files.get("requirements.yaml") {
        #[derive(Deserialize)]
        struct Requirements {
            #[serde(default)]
            dependencies: Vec<Dependency>,
        }
        let more: Requirements =
            serde_saphyr::from_str(text("requirements.yaml", bytes)?).map_err(|_| ArchiveError::Yaml {
                file: "requirements.yaml".into(),
                why: "it is not a list of dependencies".into(),
            })?;
        out.dependencies.extend(more.dependencies);
    }
    let name_ok =
        !out.name.is_empty() && !out.name.contains(['/', '\\']) && out.name != "." && out.name != "..";
    if !name_ok {
        return Err(ArchiveError::Metadata(format!("Chart.yaml: name {:?} is not valid", out.name)));
    }
    if semver::Version::parse(out.version.trim_start_matches('v')).is_err()
        && out.version.split('.').count() > 3
        || out.version.is_empty()
    {
        return Err(ArchiveError::Metadata(format!(
            "Chart.yaml: version {:?} is not a semantic version",
            out.version
        )));
    }
    if out.chart_type.as_deref() == Some("library") {
        return Err(ArchiveError::Metadata("library charts are not installable".into()));
    }
    Ok(out)
}

/// Helm refuses a chart whose declared dependencies are absent, outside of its engine: so here. Unpacks the
/// archives of subcharts as well, under the same budget.
fn check_dependencies(metadata: &Metadata, files: &Files, budget: &mut Budget) -> Result<(), ArchiveError> {
    let present = subcharts(files, budget)?;
    let missing: Vec<&str> = metadata
        .dependencies
        .iter()
        .map(|d| d.name.as_str())
        .filter(|n| !present.iter().any(|p| p == n))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ArchiveError::Metadata(format!(
        "found in Chart.yaml, but missing in charts/ directory: {}",
        missing.join(", ")
    )))
}

/// The names of the charts directly under `charts/`.
fn subcharts(files: &Files, budget: &mut Budget) -> Result<Vec<String>, ArchiveError> {
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    let name = |bytes: &[u8]| -> Option<String> {
        serde_saphyr::from_str::<Name>(std::str::from_utf8(bytes).ok()?).ok().map(|n| n.name)
    };
    let mut out = Vec::new();
    for (path, bytes) in files {
        let Some(rest) = path.strip_prefix("charts/") else { continue };
        if rest.starts_with(['_', '.']) {
            continue;
        }
        match rest.split_once('/') {
            Some((_, "Chart.yaml")) => out.extend(name(bytes)),
            None if rest.ends_with(".tgz") => {
                let inner = budget.deeper(|budget| {
                    let inner = unpack(bytes, budget)?;
                    subcharts(&inner, budget)?;
                    Ok(inner)
                })?;
                out.extend(inner.get("Chart.yaml").and_then(|b| name(b)));
            }
            _ => {}
        }
    }
    Ok(out)
}
