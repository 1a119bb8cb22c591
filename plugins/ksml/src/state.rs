//! What is there of an application, and how that is told.

use sutler_sdk::helm::{self, Health, Release, ReleaseReference, Status};
use sutler_sdk::prelude::*;

use crate::config::Config;
use crate::health::{self, Phase, Pods};
use crate::secrets::Mounted;
use crate::settings::{RestartPolicy, Settings};
use crate::{claims, secrets, stopped, values};

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    pub release: String,
    pub namespace: String,
    /// 0 where nothing is installed.
    pub revision: u32,
    pub chart: String,
    /// Empty where nothing is installed.
    pub chart_version: String,
    /// As many as are wanted now: none while it is stopped, whatever the settings say of when it runs.
    #[schemars(extend("x-volatile" = true))]
    pub replicas: u32,
    /// Whether everything that the chart made is ready.
    pub ready: bool,
    #[schemars(extend("x-volatile" = true))]
    pub phase: Phase,
    /// Left out where nothing is granted for pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-volatile" = true))]
    pub pods: Option<Pods>,
}

/// What there is of an application.
pub enum Found {
    Release(Box<Release>),
    Stopped(stopped::Record),
}

impl Found {
    /// The Secret that it mounts, or would.
    pub fn mounted(&self) -> Option<Mounted> {
        match self {
            Self::Release(release) => values::mounted(&release.values),
            Self::Stopped(record) => {
                record.secret.clone().map(|name| Mounted { name, version: String::new() })
            }
        }
    }
}

/// # Errors
/// As the capabilities say.
pub fn find(at: &ReleaseReference) -> Result<Option<Found>> {
    Ok(match helm::get(at)? {
        Some(release) => Some(Found::Release(Box::new(release))),
        None => stopped::get(at)?.map(Found::Stopped),
    })
}

impl Outputs {
    /// Of an application that is not there.
    pub fn nothing(config: &Config, at: &ReleaseReference) -> Self {
        Self {
            release: at.name.clone(),
            namespace: at.namespace.clone(),
            revision: 0,
            chart: config.chart_name().to_owned(),
            chart_version: String::new(),
            replicas: 0,
            ready: false,
            phase: Phase::Undeployed,
            pods: None,
        }
    }

    pub fn stopped(config: &Config, at: &ReleaseReference) -> Self {
        Self { phase: Phase::Stopped, ..Self::nothing(config, at) }
    }

    /// Of a release, with its pods.
    ///
    /// # Errors
    /// As the capabilities say.
    pub fn of(
        settings: &Settings,
        at: &ReleaseReference,
        release: &Release,
        health: &Health,
    ) -> Result<Self> {
        Ok(Self::with(settings, release, health, health::pods(at)?.as_deref()))
    }

    fn with(settings: &Settings, release: &Release, health: &Health, pods: Option<&[Value]>) -> Self {
        let job = settings.restart_policy == RestartPolicy::Never;
        Self {
            release: release.name.clone(),
            namespace: release.namespace.clone(),
            revision: release.revision,
            chart: release.chart_name.clone(),
            chart_version: release.chart_version.clone(),
            replicas: settings.replicas,
            ready: matches!(health, Health::Ready),
            phase: Phase::of(release, health, pods, job),
            pods: pods.map(|pods| Pods::of(pods, job)),
        }
    }
}

pub fn is_job(values: &Value) -> bool {
    values.get("deploymentMode").and_then(Value::as_str) == Some("Job")
}

pub const fn word(status: Status) -> &'static str {
    match status {
        Status::Deployed => "deployed",
        Status::Uninstalled => "uninstalled",
        Status::Superseded => "superseded",
        Status::Failed => "failed",
        Status::Uninstalling => "being uninstalled, or that was cut off",
        Status::PendingInstall => "being installed, or that was cut off",
        Status::PendingUpgrade => "being upgraded, or that was cut off",
        Status::PendingRollback => "being rolled back, or that was cut off",
        Status::Unknown => "in an unknown state",
    }
}

/// What the records say, and the live objects where it is `deep`.
///
/// # Errors
/// As the capabilities say; `foreign-release` where somebody else made the release.
pub fn actual(
    of: &Subject<Settings>,
    config: &Config,
    at: &ReleaseReference,
    found: &Found,
    deep: bool,
) -> Result<Actual<Outputs>> {
    let mut recorded = match found {
        Found::Stopped(record) => record.settings.clone(),
        Found::Release(release) => record(at, release)?,
    };
    let settings = Settings::recorded(recorded.clone())?;
    let mounted = found.mounted();
    let mounted = mounted.as_ref().map(|m| m.name.as_str());
    let warnings = tell_secrets(of, at, (&settings, mounted), &mut recorded)?;
    let (outputs, differences) = match found {
        Found::Stopped(_) => (Outputs::stopped(config, at), vec![]),
        Found::Release(release) if deep => {
            let mut differences = drift(at)?;
            differences.extend(claims::drift(at, &settings)?);
            (Outputs::of(&settings, at, release, &helm::readiness(at)?)?, differences)
        }
        Found::Release(release) => (Outputs::with(&settings, release, &Health::Ready, None), vec![]),
    };
    Ok(Actual { settings: recorded, outputs, differences, warnings })
}

fn record(at: &ReleaseReference, release: &Release) -> Result<Value> {
    values::recorded(&release.values).ok_or_else(|| {
        let why = format!(
            "release {}/{} was not made for this application; choose another name or uninstall it",
            at.namespace, at.name
        );
        Error::new("foreign-release", why)
    })
}

/// Puts secrets into what is recorded. They are only compared: told as they were sent where they are the same, as
/// null where they are not.
fn tell_secrets(
    of: &Subject<Settings>,
    at: &ReleaseReference,
    (settings, mounted): (&Settings, Option<&str>),
    recorded: &mut Value,
) -> Result<Vec<String>> {
    let Some(told) = of.settings() else { return Ok(vec![]) };
    let held: Vec<&str> = secrets::of(settings).iter().map(|h| h.pointer).collect();
    if held.is_empty() {
        return Ok(vec![]);
    }
    let mut unknown = false;
    for (pointer, same) in secrets::same(at, told, mounted)? {
        let sent = of.wanted_json.as_ref().or(of.believed_json.as_ref()).and_then(|s| s.pointer(pointer));
        let Some(sent) = sent.filter(|_| held.contains(&pointer)) else { continue };
        unknown |= same.is_none();
        let value = if same == Some(false) { Value::Null } else { sent.clone() };
        let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(security)) = recorded.pointer_mut(parent) {
            security.insert(key.into(), value);
        }
    }
    let why = "whether the secrets are as they were is not known: get on the Secret is not granted";
    Ok(unknown.then(|| why.to_owned()).into_iter().collect())
}

fn drift(at: &ReleaseReference) -> Result<Vec<Difference>> {
    let part =
        |object: &Value, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let found = helm::drift(at)?.into_iter().map(|d| Difference {
        at: format!(
            "/release/{}/{}{}",
            part(&d.object, "kind"),
            part(&d.object, "name"),
            d.field.as_deref().unwrap_or_default()
        ),
        class: d.class(),
        expected: d.expected,
        actual: d.actual,
    });
    Ok(found.collect())
}
