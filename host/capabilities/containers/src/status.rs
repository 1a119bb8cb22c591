//! How a container is, as Docker tells it.

use std::collections::HashMap;

use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum, RestartPolicyNameEnum};
use sutler_model::{Call, Owner};

use crate::{Error, Restart};

/// The labels beside the owner's.
pub(crate) const SPEC_LABEL: &str = "sutler.dev/spec";
pub(crate) const NOTE_LABEL: &str = "sutler.dev/note";

/// Whose a container or volume is, and the plugin's note on it.
pub(crate) fn labels(call: &Call, note: &str) -> HashMap<String, String> {
    let mut out: HashMap<String, String> = call.owner.labels(&call.plugin).into_iter().collect();
    if !note.is_empty() {
        out.insert(NOTE_LABEL.into(), note.to_owned());
    }
    out
}

/// What is told of a container. Times are RFC 3339.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub image: String,
    pub running: bool,
    /// It ended, and Docker is about to start it again.
    pub restarting: bool,
    /// How often Docker started it again.
    pub restarts: u32,
    /// Of its last end; `None` while it runs and before its first start.
    pub exit_code: Option<i32>,
    pub out_of_memory: bool,
    /// `starting`, `healthy`, `unhealthy`; `None` for an image without a health check.
    pub health: Option<String>,
    pub started_at: Option<String>,
    pub finished_at: Option<String>,
    pub spec_hash: String,
    pub note: String,
}

/// A container of the call's owner.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) status: Status,
    /// It was made and not started yet.
    pub(crate) created: bool,
}

/// Docker's time of what has not happened is the year 1.
fn time(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.is_empty() && !t.starts_with("0001-"))
}

impl Found {
    /// `Ok(None)` for another owner's.
    pub(crate) fn of(answer: ContainerInspectResponse, owner: &Owner) -> Result<Option<Self>, Error> {
        let unexpected =
            || Error::Other { code: "daemon", message: "Docker's answer lacks the container's state".into() };
        let config = answer.config.ok_or_else(unexpected)?;
        let state = answer.state.ok_or_else(unexpected)?;
        let mut labels = config.labels.unwrap_or_default();
        if labels.get(Owner::LABEL) != Some(&owner.hash()) {
            return Ok(None);
        }
        let created = state.status == Some(ContainerStateStatusEnum::CREATED);
        // A container that is about to start again is told as running, too.
        let restarting = state.restarting == Some(true);
        let running = state.running == Some(true) && !restarting;
        let health = state.health.and_then(|h| h.status).map(|s| s.to_string());
        let status = Status {
            name: answer.name.unwrap_or_default().trim_start_matches('/').to_owned(),
            image: config.image.unwrap_or_default(),
            running,
            restarting,
            restarts: answer.restart_count.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            exit_code: state.exit_code.filter(|_| !running && !created).and_then(|c| i32::try_from(c).ok()),
            out_of_memory: state.oom_killed == Some(true),
            health: health.filter(|h| !h.is_empty() && h != "none"),
            started_at: time(state.started_at),
            finished_at: time(state.finished_at),
            spec_hash: labels.remove(SPEC_LABEL).unwrap_or_default(),
            note: labels.remove(NOTE_LABEL).unwrap_or_default(),
        };
        Ok(Some(Self { id: answer.id.unwrap_or_default(), status, created }))
    }
}

impl Restart {
    pub(crate) const fn policy(self) -> RestartPolicyNameEnum {
        match self {
            Self::Never => RestartPolicyNameEnum::NO,
            Self::OnFailure => RestartPolicyNameEnum::ON_FAILURE,
            Self::UnlessStopped => RestartPolicyNameEnum::UNLESS_STOPPED,
        }
    }
}
