//! What apply and cancel do.

use std::time::Duration;

use sutler_sdk::helm::{self, Health, Options, Outcome, ReleaseReference, Status};
use sutler_sdk::prelude::*;

use crate::config::Config;
use crate::settings::Settings;
use crate::state::{Outputs, is_job};
use crate::{Step, claims, secrets, stopped, values};

const PAUSE: Duration = Duration::from_secs(1);

type Answer = Result<Progress<Step, Outputs>>;

/// Uninstalls the release; what there is to wait for, if anything.
fn uninstall(at: &ReleaseReference) -> Result<Option<Progress<Step, Outputs>>> {
    Ok(match helm::uninstall(at)? {
        Some(Outcome::InProgress(what)) => Some(Progress::wait(Step::Release, PAUSE, what)),
        Some(Outcome::Done(_)) | None => None,
    })
}

/// Everything but what the application has stored.
pub(crate) fn take_away(at: &ReleaseReference) -> Answer {
    if let Some(wait) = uninstall(at)? {
        return Ok(wait);
    }
    secrets::delete(at)?;
    stopped::delete(at)?;
    Ok(Progress::Gone)
}

/// Everything.
pub(crate) fn remove(at: &ReleaseReference) -> Answer {
    let progress = take_away(at)?;
    if matches!(progress, Progress::Gone) {
        claims::delete(at)?;
    }
    Ok(progress)
}

/// The release goes; the volumes' claims and the secrets stay, and a record of the settings takes its place.
pub(crate) fn stop(of: &Subject<Settings>, config: &Config, at: &ReleaseReference) -> Answer {
    let wanted = of.wanted()?;
    wanted.check()?;
    secrets::apply(at, wanted)?;
    stopped::apply(at, of.wanted_json.as_ref().unwrap_or(&Value::Null))?;
    Ok(match uninstall(at)? {
        Some(wait) => wait,
        None => Progress::Done(Outputs::stopped(config, at)),
    })
}

pub(crate) fn install(of: &Subject<Settings>, config: &Config, at: &ReleaseReference) -> Answer {
    let wanted = of.wanted()?;
    wanted.check()?;
    let secret_version = secrets::apply(at, wanted)?;
    let values = values::of(&values::Input {
        config,
        release: at,
        application: &of.application.id,
        settings: wanted,
        sent: of.wanted_json.as_ref().unwrap_or(&Value::Null),
        secret_version: secret_version.as_deref(),
    });
    let now = helm::get(at)?;
    let before = now.as_ref().map_or(0, |r| r.revision);
    if now.is_none() {
        // It runs again: that it was stopped must not be told of it once it is gone another time.
        stopped::delete(at)?;
    }
    if let Some(now) = now.filter(|r| r.values != values)
        && (of.action == Action::Replace || (is_job(&now.values) && is_job(&values)))
        && let Some(wait) = uninstall(at)?
    {
        return Ok(wait);
    }
    // What a person changed by hand is taken back, unless the operator would rather hear of it.
    let options = Options { force_conflicts: config.force_conflicts, ..Options::default() };
    match helm::upgrade(&config.chart(), at, &values, options)? {
        Outcome::Done(_) => Ok(Progress::Next(Step::ready(before))),
        Outcome::InProgress(what) => Ok(Progress::wait(Step::Release, PAUSE, what)),
    }
}

pub(crate) fn settle(of: &Subject<Settings>, at: &ReleaseReference, before: u32) -> Answer {
    match helm::readiness(at)? {
        Health::Ready => {
            let release = helm::get(at)?.ok_or_else(|| {
                Error::new(
                    "release-gone",
                    format!("somebody uninstalled release {} meanwhile; apply again", at.name),
                )
                .retryable()
            })?;
            Ok(Progress::Done(Outputs::of(of.wanted()?, at, &release, &Health::Ready)?))
        }
        Health::Progressing(what) => Ok(Progress::wait(Step::ready(before), PAUSE, what)),
        Health::Failed(why) => Err(Error::new(
            "not-ready",
            format!("release {}/{} cannot become ready: {why}", at.namespace, at.name),
        )),
    }
}

/// Takes back a stop that has not begun to take the release away.
pub(crate) fn go_on(at: &ReleaseReference) -> Answer {
    match helm::get(at)? {
        Some(release) if release.status == Status::Deployed => {
            stopped::delete(at)?;
            Ok(Progress::Gone)
        }
        _ => Err(Error::new(
            "cannot-cancel",
            "the application is stopped already; apply the settings of before to start it",
        )),
    }
}

/// Takes back a start.
pub(crate) fn stop_again(of: &Subject<Settings>, at: &ReleaseReference) -> Answer {
    stopped::apply(at, of.believed_json.as_ref().unwrap_or(&Value::Null))?;
    Ok(uninstall(at)?.unwrap_or(Progress::Gone))
}

/// Back to the revision from before, with its values.
pub(crate) fn roll_back(at: &ReleaseReference, step: Step) -> Answer {
    let Some(now) = helm::get(at)? else { return Ok(Progress::Gone) };
    let history = helm::history(at)?;
    let before = match step {
        Step::Ready { before, .. } => before,
        // Cut off in the middle: back to what was deployed last.
        Step::Release => match history.iter().rfind(|r| r.status == Status::Deployed) {
            Some(last) if last.revision != now.revision => last.revision,
            _ => return Ok(Progress::Gone),
        },
    };
    // A rollback is a revision of its own, with the values of the one it goes back to.
    let Some(then) = history.into_iter().find(|r| r.revision == before) else {
        return Err(Error::new(
            "cannot-cancel",
            "the revision from before is not kept any more; apply the settings of before",
        ));
    };
    if (now.status != Status::Deployed || now.values != then.values)
        && let Outcome::InProgress(what) = helm::rollback(at, before, Options::default())?
    {
        return Ok(Progress::wait(step, PAUSE, what));
    }
    Ok(Progress::Gone)
}
