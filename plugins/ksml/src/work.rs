//! What apply and cancel do.

use std::time::Duration;

use sutler_sdk::helm::{self, Health, Options, Outcome, ReleaseReference, Status};
use sutler_sdk::prelude::*;

use crate::config::Config;
use crate::secrets::Mounted;
use crate::settings::Settings;
use crate::state::{self, Found, Outputs, is_job};
use crate::{Step, claims, room, secrets, stopped, values};

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
    secrets::clear(at, None)?;
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

/// That nothing is wrong with the wanted settings, and that everything that is written of them has room: warnings, and
/// the chart's values without a Secret.
///
/// # Errors
/// As [`Settings::check`], and `too-large`.
pub(crate) fn check(
    of: &Subject<Settings>,
    config: &Config,
    at: &ReleaseReference,
) -> Result<(Vec<String>, Value)> {
    let wanted = of.wanted()?;
    let warnings = wanted.check()?;
    let values = values::of(&values::Input {
        config,
        release: at,
        application: &of.application.id,
        settings: wanted,
        sent: of.wanted_json.as_ref().unwrap_or(&Value::Null),
    });
    room::check_values(wanted, &values)?;
    Ok((warnings, values))
}

/// A Secret with these settings' secrets that no pod mounts yet, or that holds just them.
fn secret(at: &ReleaseReference, settings: &Settings, found: Option<&Found>) -> Result<Option<Mounted>> {
    let used = || {
        let history = helm::history(at)?;
        Ok(history.iter().rev().filter_map(|r| Some(values::mounted(&r.values)?.name)).collect())
    };
    secrets::apply(at, settings, found.and_then(Found::mounted).as_ref(), used)
}

fn name(secret: Option<&Mounted>) -> Option<&str> {
    secret.map(|mounted| mounted.name.as_str())
}

/// The release goes; the volumes' claims and a Secret stay, and a record of the settings takes its place.
pub(crate) fn stop(of: &Subject<Settings>, config: &Config, at: &ReleaseReference) -> Answer {
    check(of, config, at)?;
    let wanted = of.wanted()?;
    let secret = secret(at, wanted, state::find(at)?.as_ref())?;
    let sent = of.wanted_json.as_ref().unwrap_or(&Value::Null);
    stopped::apply(at, sent, name(secret.as_ref()))?;
    if let Some(wait) = uninstall(at)? {
        return Ok(wait);
    }
    secrets::clear(at, name(secret.as_ref()))?;
    if let Some(wait) = make_way(of, at)? {
        return Ok(wait);
    }
    Ok(Progress::Done(Outputs::stopped(config, at)))
}

/// In a replacement without a release: volumes of another size go.
fn make_way(of: &Subject<Settings>, at: &ReleaseReference) -> Result<Option<Progress<Step, Outputs>>> {
    if of.action != Action::Replace {
        return Ok(None);
    }
    Ok(claims::make_way(at, of.wanted()?)?.map(|what| Progress::wait(Step::Release, PAUSE, what)))
}

pub(crate) fn install(of: &Subject<Settings>, config: &Config, at: &ReleaseReference) -> Answer {
    let (_, mut values) = check(of, config, at)?;
    let found = state::find(at)?;
    if let Some(secret) = secret(at, of.wanted()?, found.as_ref())? {
        values::mount(&mut values, &secret);
    }
    let mut before = 0;
    if let Some(Found::Release(now)) = &found {
        before = now.revision;
        if now.values != values && (of.action == Action::Replace || (is_job(&now.values) && is_job(&values)))
        {
            if let Some(wait) = uninstall(at)? {
                return Ok(wait);
            }
            before = 0;
        }
    }
    if before == 0
        && let Some(wait) = make_way(of, at)?
    {
        return Ok(wait);
    }
    // What a person changed by hand is taken back, unless the operator would rather hear of it.
    let options = Options { force_conflicts: config.force_conflicts, ..Options::default() };
    match helm::upgrade(&config.chart(), at, &values, options)? {
        Outcome::Done(release) => {
            // It runs again: that it was stopped must not be told of it once it is gone another time.
            if release.revision == 1 {
                stopped::delete(at)?;
            }
            Ok(Progress::Next(Step::ready(before)))
        }
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
            // No revision is gone back to any more.
            secrets::clear(at, name(values::mounted(&release.values).as_ref()))?;
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
            secrets::clear(at, name(values::mounted(&release.values).as_ref()))?;
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
    let found = state::find(at)?;
    let secret = match &of.believed {
        Some(before) => secret(at, before, found.as_ref())?,
        None => found.as_ref().and_then(Found::mounted),
    };
    let sent = of.believed_json.as_ref().unwrap_or(&Value::Null);
    stopped::apply(at, sent, name(secret.as_ref()))?;
    if let Some(wait) = uninstall(at)? {
        return Ok(wait);
    }
    secrets::clear(at, name(secret.as_ref()))?;
    Ok(Progress::Gone)
}

/// Back to the revision from before, with its values.
pub(crate) fn roll_back(of: &Subject<Settings>, at: &ReleaseReference, step: Step) -> Answer {
    let Some(now) = helm::get(at)? else { return Ok(Progress::Gone) };
    let mounted = values::mounted(&now.values);
    let history = helm::history(at)?;
    let before = match step {
        Step::Ready { before, .. } => before,
        // Cut off in the middle: back to what was deployed last.
        Step::Release => match history.iter().rfind(|r| r.status == Status::Deployed) {
            Some(last) if last.revision != now.revision => last.revision,
            _ => {
                secrets::clear(at, name(mounted.as_ref()))?;
                return Ok(Progress::Gone);
            }
        },
    };
    // A rollback is a revision of its own, with the values of the one it goes back to.
    let Some(then) = history.into_iter().find(|r| r.revision == before) else {
        return Err(Error::new(
            "cannot-cancel",
            "the revision from before is not kept any more; apply the settings of before",
        ));
    };
    let earlier = values::mounted(&then.values);
    restore(of, at, mounted.as_ref(), earlier.as_ref())?;
    if (now.status != Status::Deployed || now.values != then.values)
        && let Outcome::InProgress(what) = helm::rollback(at, before, Options::default())?
    {
        return Ok(Progress::wait(step, PAUSE, what));
    }
    secrets::clear(at, name(earlier.as_ref()))?;
    Ok(Progress::Gone)
}

/// Makes sure that the Secret is there which the revision of before mounts: with the secrets that the caller believes,
/// or else as it is.
fn restore(
    of: &Subject<Settings>,
    at: &ReleaseReference,
    now: Option<&Mounted>,
    then: Option<&Mounted>,
) -> Result<()> {
    let Some(then) = then.map(|then| then.name.as_str()) else { return Ok(()) };
    let there = secrets::exists(at, then)?;
    if there && name(now) == Some(then) {
        return Ok(());
    }
    let told = of.believed.as_ref().map_or(Ok(false), |before| secrets::restore(at, before, then))?;
    if told || there {
        return Ok(());
    }
    let why = format!(
        "the keys and passwords of before are not known any more: Secret {then} is gone, and the previous settings do not hold them; apply the settings of before"
    );
    Err(Error::new("cannot-cancel", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sutler_sdk::Application;
    use sutler_sdk::testing::{reset, world};

    fn subject(key: Option<&str>) -> Subject<Settings> {
        let security = json!({"type": "pem", "certificate": "C", "key": key, "ca": "A"});
        let kafka = json!({"bootstrapServers": "kafka:9092", "security": security});
        let settings = json!({"definitions": {"main": "streams: {}"}, "kafka": kafka});
        Subject {
            application: Application {
                id: "orders".into(),
                environment: "prod".into(),
                tenant: None,
                instance: None,
            },
            pair: Pair::new(Kind::Deployment, "ksml"),
            resource: "main".into(),
            action: Action::Update,
            wanted: None,
            believed: serde_json::from_value(settings.clone()).ok(),
            wanted_json: None,
            believed_json: Some(settings),
            believed_outputs: None,
            marked: true,
        }
    }

    #[test]
    fn what_is_gone_back_to_has_its_secret() {
        let at = ReleaseReference::new("ksml-acme", "orders");
        let of = |name: &str| Mounted { name: name.into(), version: "1".into() };
        let (now, then) = (of("orders-kafka-2"), of("orders-kafka"));
        let data = || world(|w| Some(w.objects.get("Secret ksml-acme/orders-kafka")?["data"].clone()));
        reset(json!({}));
        // It is gone: what the caller believes is in it again, and without that nothing is gone back to.
        let e = restore(&subject(None), &at, Some(&now), Some(&then));
        assert!(e.is_err_and(|e| e.is("cannot-cancel") && e.reason.contains("orders-kafka")));
        assert_eq!(data(), None);
        restore(&subject(Some("one")), &at, Some(&now), Some(&then)).unwrap();
        let told = data().unwrap();
        assert!(told["keystore.pem"].is_string(), "{told}");
        // It is there.
        restore(&subject(None), &at, Some(&now), Some(&then)).unwrap();
        // Both revisions mount it: what runs is never written to.
        restore(&subject(Some("two")), &at, Some(&then), Some(&then)).unwrap();
        assert_eq!(data(), Some(told));
        // The revision of before mounts none.
        restore(&subject(None), &at, Some(&now), None).unwrap();
    }
}
