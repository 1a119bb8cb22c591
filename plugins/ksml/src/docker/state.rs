//! What is there of an application on Docker, and how that is told.

use sutler_sdk::containers::{self, Status};
use sutler_sdk::prelude::*;

use super::spec;
use crate::config::Config;
use crate::health::{Phase, Pods, Probes, Termination};
use crate::secrets;
use crate::settings::{RestartPolicy, Settings};
use crate::state::Outputs;

/// What there is of an application.
pub(super) enum Found {
    Container(Box<Status>),
    /// It is stopped; its settings as they were sent, without secrets.
    Stopped(Value),
}

/// The volume that says that an application is stopped, and with which settings: its container is gone.
pub(super) fn stopped(name: &str) -> String {
    format!("{name}-stopped")
}

/// # Errors
/// As the capability says; `unreadable-answer` where the record is of somebody else.
pub(super) fn find(name: &str) -> Result<Option<Found>> {
    if let Some(status) = containers::status(name)? {
        return Ok(Some(Found::Container(Box::new(status))));
    }
    let note = containers::volume(&stopped(name))?;
    note.map(|note| readable(name, &note).map(Found::Stopped)).transpose()
}

fn readable(name: &str, note: &str) -> Result<Value> {
    serde_json::from_str(note).map_err(|e| {
        let why =
            format!("what is recorded beside container {name} cannot be read: {e}; apply the settings again");
        Error::new("unreadable-answer", why)
    })
}

/// Of an application that is not there.
pub(super) fn nothing(config: &Config, name: &str) -> Outputs {
    let (image, tag) = image(config.image.as_deref().unwrap_or_default());
    Outputs {
        release: name.to_owned(),
        namespace: String::new(),
        revision: 0,
        chart: image.to_owned(),
        chart_version: tag.to_owned(),
        replicas: 0,
        ready: false,
        phase: Phase::Undeployed,
        pods: None,
    }
}

pub(super) fn of_stopped(config: &Config, name: &str) -> Outputs {
    Outputs { phase: Phase::Stopped, ..nothing(config, name) }
}

/// The name and what is behind it, a tag or a digest.
fn image(text: &str) -> (&str, &str) {
    let name = text.rfind('/').map_or(0, |i| i + 1);
    let at = text.get(name..).and_then(|rest| rest.find(['@', ':'])).map(|i| name + i);
    at.and_then(|i| Some((text.get(..i)?, text.get(i + 1..)?))).unwrap_or((text, ""))
}

/// Whether its own health check, where it has one, is content.
pub(super) fn is_ready(status: &Status) -> bool {
    status.state.running && status.state.health.as_deref().is_none_or(|health| health == "healthy")
}

/// Of a container.
pub(super) fn outputs(settings: &Settings, status: &Status) -> Outputs {
    let job = settings.restart_policy == RestartPolicy::Never;
    let s = &status.state;
    let ready = is_ready(status) || (job && s.exit_code == Some(0));
    let (image, tag) = image(&s.image);
    let phase = match s.exit_code {
        _ if is_ready(status) => Phase::Running,
        _ if s.running && s.health.as_deref() == Some("unhealthy") => Phase::Failed,
        _ if s.running => Phase::Deploying,
        _ if status.restarting && status.restarts < super::work::LOOPS => Phase::Deploying,
        Some(0) if job => Phase::Completed,
        Some(_) => Phase::Failed,
        None => Phase::Deploying,
    };
    let ended = s.exit_code.map(|code| Termination {
        pod: s.name.clone(),
        reason: match code {
            _ if status.out_of_memory => "OOMKilled".into(),
            0 => "Completed".into(),
            _ => "Error".into(),
        },
        exit_code: code.into(),
        finished_at: status.finished_at.clone().unwrap_or_default(),
    });
    let probes = Probes { startup: status.started_at.is_some(), ready: is_ready(status), live: s.running };
    Outputs {
        release: s.name.clone(),
        namespace: String::new(),
        revision: 1,
        chart: image.to_owned(),
        chart_version: tag.to_owned(),
        replicas: 1,
        ready,
        phase,
        pods: Some(Pods {
            ready: is_ready(status).into(),
            restarts: status.restarts,
            last_termination: ended,
            probes: (!job).then_some(probes),
        }),
    }
}

/// # Errors
/// As the capability says; `unreadable-answer` where somebody else's record is there.
pub(super) fn actual(of: &Subject<Settings>, config: &Config, found: &Found) -> Result<Actual<Outputs>> {
    let name = spec::name(of);
    match found {
        Found::Stopped(record) => {
            let mut settings = record.clone();
            // Secrets went with the container: nothing is there that could differ.
            tell_secrets(of, &mut settings, true);
            Ok(Actual { settings, outputs: of_stopped(config, &name), differences: vec![], warnings: vec![] })
        }
        Found::Container(status) => {
            let mut settings = readable(&name, &status.note)?;
            let recorded = Settings::recorded(settings.clone())?;
            let same = same_secrets(of, config, &settings)?;
            tell_secrets(of, &mut settings, same);
            let still = !status.state.running && !status.restarting;
            let differs = (still && recorded.restart_policy == RestartPolicy::OnExit).then(|| Difference {
                at: "/container/running".into(),
                class: DifferenceClass::Drift,
                expected: Some(true.into()),
                actual: Some(false.into()),
            });
            let outputs = outputs(&recorded, status);
            Ok(Actual { settings, outputs, differences: differs.into_iter().collect(), warnings: vec![] })
        }
    }
}

/// The recorded settings with the secrets that the caller told.
fn with_secrets(of: &Subject<Settings>, recorded: &Value) -> Value {
    let mut out = recorded.clone();
    tell_secrets(of, &mut out, true);
    out
}

/// Whether the container holds the secrets that the caller told: it was made with them exactly where it is as the
/// record with them would be. Without secrets there is nothing to ask.
fn same_secrets(of: &Subject<Settings>, config: &Config, recorded: &Value) -> Result<bool> {
    let whole = with_secrets(of, recorded);
    if &whole == recorded {
        return Ok(true);
    }
    let settings: Settings = serde_json::from_value(whole)?;
    let (spec, extras) = spec::of(of, config, &settings, Some(recorded))?;
    containers::same(&spec, &extras)
}

/// Puts secrets into what is recorded: as they were sent where they are the same, null where they are not.
fn tell_secrets(of: &Subject<Settings>, recorded: &mut Value, same: bool) {
    let Ok(settings) = Settings::recorded(recorded.clone()) else { return };
    let sent = of.wanted_json.as_ref().or(of.believed_json.as_ref());
    for held in secrets::of(&settings) {
        let Some(secret) = sent.and_then(|s| s.pointer(held.pointer)).filter(|s| !s.is_null()) else {
            continue;
        };
        let (parent, key) = held.pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(security)) = recorded.pointer_mut(parent) {
            security.insert(key.into(), if same { secret.clone() } else { Value::Null });
        }
    }
}
