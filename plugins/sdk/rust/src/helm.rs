//! Charts and releases. Values and drift are JSON; a missing release is `None`, not an error.

use serde::Deserialize;
use serde_json::Value;

use crate::raw::{helm_changes as changes, helm_charts as charts, helm_releases as releases};
use crate::wit::sutler::helm::changes::Outcome as WireOutcome;
pub use crate::wit::sutler::helm::charts::Rendered;
use crate::wit::sutler::helm::releases::Release as WireRelease;
pub use crate::wit::sutler::helm::releases::{Health, Status};
use crate::wit::sutler::helm::types::Error as WireError;
pub use crate::wit::sutler::helm::types::{ChartReference, Options, ReleaseReference};
use crate::{DifferenceClass, Error, Result};

#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub name: String,
    pub version: String,
    pub app_version: Option<String>,
    /// `sha256:…` of what was pulled.
    pub digest: String,
    pub values: Value,
    pub schema: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
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

/// What an operation on a release came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Done(Release),
    /// What it waits for; repeat the same call.
    InProgress(String),
}

/// A live object that differs from the release's manifest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Drift {
    /// `Kind/name`, or the reference as an object.
    pub object: Value,
    #[serde(default)]
    pub field: Option<String>,
    #[serde(default)]
    pub expected: Option<Value>,
    #[serde(default)]
    pub actual: Option<Value>,
    #[serde(default)]
    pub class: String,
}

impl Drift {
    pub fn class(&self) -> DifferenceClass {
        match self.class.as_str() {
            "normalized" => DifferenceClass::Normalized,
            "missing" => DifferenceClass::Missing,
            "foreign-owner" => DifferenceClass::ForeignOwner,
            _ => DifferenceClass::Drift,
        }
    }
}

impl ChartReference {
    /// `oci://registry/path/name`
    pub fn new(url: impl Into<String>, version: Option<String>, digest: Option<String>) -> Self {
        Self { url: url.into(), version, digest }
    }
}

impl ReleaseReference {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { cluster: None, namespace: namespace.into(), name: name.into() }
    }
}

impl Default for Options {
    /// Makes the namespace, keeps ten revisions; nothing else.
    fn default() -> Self {
        Self {
            create_namespace: true,
            take_ownership: false,
            force_conflicts: false,
            atomic: false,
            wait_for_jobs: false,
            history_max: 10,
        }
    }
}

fn json(text: &str) -> Result<Value> {
    Ok(serde_json::from_str(text)?)
}

fn release(r: WireRelease) -> Result<Release> {
    Ok(Release {
        values: json(&r.values)?,
        name: r.name,
        namespace: r.namespace,
        revision: r.revision,
        status: r.status,
        description: r.description,
        chart_name: r.chart_name,
        chart_version: r.chart_version,
        manifest: r.manifest,
        notes: r.notes,
    })
}

fn present<T>(r: Result<T, WireError>, verb: &str, of: &ReleaseReference) -> Result<Option<T>> {
    match r.map_err(Error::from) {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.is("not-found") => Ok(None),
        Err(e) => Err(e.while_doing(format_args!("{verb} release {}/{}", of.namespace, of.name))),
    }
}

fn outcome(o: WireOutcome) -> Result<Outcome> {
    Ok(match o {
        WireOutcome::Done(r) => Outcome::Done(release(r)?),
        WireOutcome::InProgress(what) => Outcome::InProgress(what),
    })
}

fn doing<T>(r: Result<T, WireError>, what: impl std::fmt::Display) -> Result<T> {
    r.map_err(|e| Error::from(e).while_doing(what))
}

/// # Errors
/// `not-granted`, `registry`, `unavailable`.
pub fn pull(chart: &ChartReference) -> Result<Chart> {
    let c = doing(charts::pull(chart), format_args!("pull chart {}", chart.url))?;
    Ok(Chart {
        values: json(&c.values)?,
        schema: c.schema.as_deref().map(json).transpose()?,
        name: c.name,
        version: c.version,
        app_version: c.app_version,
        digest: c.digest,
    })
}

/// # Errors
/// `not-granted`, `registry`, `unavailable`.
pub fn tags(url: &str) -> Result<Vec<String>> {
    doing(charts::tags(url), format_args!("list the versions of chart {url}"))
}

/// # Errors
/// As [`pull`], and `render`.
pub fn render(chart: &ChartReference, of: &ReleaseReference, values: &Value) -> Result<Rendered> {
    doing(charts::render(chart, of, &values.to_string()), format_args!("render chart {}", chart.url))
}

/// # Errors
/// `not-granted`, `unavailable`.
pub fn get(of: &ReleaseReference) -> Result<Option<Release>> {
    present(releases::get(of), "read", of)?.map(release).transpose()
}

/// Every revision kept, oldest first as Helm has them.
///
/// # Errors
/// `not-granted`, `unavailable`.
pub fn history(of: &ReleaseReference) -> Result<Vec<Release>> {
    present(releases::history(of), "read", of)?.unwrap_or_default().into_iter().map(release).collect()
}

/// # Errors
/// `not-granted`, `unavailable`.
pub fn list(namespace: &str) -> Result<Vec<Release>> {
    doing(releases::list(None, namespace), format_args!("list the releases of {namespace}"))?
        .into_iter()
        .map(release)
        .collect()
}

/// Whether the release's objects are ready now; never waits.
///
/// # Errors
/// `not-granted`, `not-found`, `unavailable`.
pub fn readiness(of: &ReleaseReference) -> Result<Health> {
    doing(releases::readiness(of), format_args!("watch release {}/{}", of.namespace, of.name))
}

/// The live objects that differ from the manifest.
///
/// # Errors
/// `not-granted`, `not-found`, `unavailable`.
pub fn drift(of: &ReleaseReference) -> Result<Vec<Drift>> {
    let text = doing(releases::drift(of), format_args!("compare release {}/{}", of.namespace, of.name))?;
    Ok(serde_json::from_str(&text)?)
}

/// What an upgrade would change, by object and field; changes nothing.
///
/// # Errors
/// As [`upgrade`].
pub fn preview(
    chart: &ChartReference,
    of: &ReleaseReference,
    values: &Value,
    options: Options,
) -> Result<Value> {
    json(&doing(
        releases::preview(chart, of, &values.to_string(), options),
        format_args!("preview release {}/{}", of.namespace, of.name),
    )?)
}

/// Installs or upgrades. With nothing to change the release stays as it is.
///
/// # Errors
/// `not-granted`, `read-only-call`, `registry`, `render`, `pending`, `not-owned`, `too-large`, `unavailable`.
pub fn upgrade(
    chart: &ChartReference,
    of: &ReleaseReference,
    values: &Value,
    options: Options,
) -> Result<Outcome> {
    outcome(doing(
        changes::upgrade(chart, of, &values.to_string(), options),
        format_args!("upgrade release {}/{}", of.namespace, of.name),
    )?)
}

/// # Errors
/// As [`upgrade`], and `not-found`.
pub fn rollback(of: &ReleaseReference, revision: u32, options: Options) -> Result<Outcome> {
    outcome(doing(
        changes::rollback(of, revision, options),
        format_args!("roll back release {}/{}", of.namespace, of.name),
    )?)
}

/// `None` where there was no release.
///
/// # Errors
/// `not-granted`, `read-only-call`, `pending`, `unavailable`.
pub fn uninstall(of: &ReleaseReference) -> Result<Option<Outcome>> {
    present(changes::uninstall(of, false), "uninstall", of)?.map(outcome).transpose()
}

/// Runs the chart's test hooks.
///
/// # Errors
/// `not-granted`, `read-only-call`, `not-found`, `unavailable`.
pub fn test(of: &ReleaseReference) -> Result<Outcome> {
    outcome(doing(changes::test(of), format_args!("test release {}/{}", of.namespace, of.name))?)
}
