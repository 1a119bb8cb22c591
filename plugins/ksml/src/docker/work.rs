//! What apply and cancel do on Docker.

use std::time::Duration;

use sutler_sdk::containers::{self, Spec};
use sutler_sdk::prelude::*;

use super::{check, spec, state};
use crate::Step;
use crate::config::Config;
use crate::settings::{RestartPolicy, Settings};
use crate::state::Outputs;

const PAUSE: Duration = Duration::from_secs(1);
/// A container that is still up after so many looks stays up.
const LOOKS: u32 = 3;
/// One that ended so often in the meantime does not.
pub(super) const LOOPS: u32 = 3;
const GRACE_SECONDS: u32 = 30;

type Answer = Result<Progress<Step, Outputs>>;

/// How far the waiting for a container came.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settling {
    /// Looks in a row at which it was up.
    looks: u32,
    /// Its restarts at the first look.
    first: Option<u32>,
    /// Its restarts at the last one.
    last: u32,
}

fn grace(config: &Config) -> u32 {
    config.grace_seconds.unwrap_or(GRACE_SECONDS)
}

pub(crate) fn apply(of: &Subject<Settings>, config: &Config, step: Step) -> Answer {
    match step {
        Step::Ready { settling, .. } => settle(of, settling),
        Step::Release if of.deletes() => {
            end(config, &spec::name(of))?;
            containers::remove_volume(&spec::store(&spec::name(of)))?;
            containers::remove_volume(&state::stopped(&spec::name(of)))?;
            Ok(Progress::Gone)
        }
        Step::Release if !of.wanted()?.running => stop(of, config),
        Step::Release => run(of, config, of.wanted()?, of.wanted_json.as_ref()),
    }
}

fn run(of: &Subject<Settings>, config: &Config, settings: &Settings, sent: Option<&Value>) -> Answer {
    check(settings)?;
    let (spec, extras) = spec::of(of, config, settings, sent)?;
    if containers::inspect(&spec.name)?.is_some() {
        // That a volume is somebody else's is told before the container goes that is there.
        for mount in &extras.mounts {
            containers::make_volume(&mount.volume, "")?;
        }
    }
    match containers::run_with(&spec, &extras, grace(config)) {
        Err(e) if e.is("pulling") => return Ok(Progress::wait(Step::Release, PAUSE * 2, e.reason)),
        other => other.map_err(|e| explained(e, &spec))?,
    }
    // It runs again: that it was stopped must not be told of it once it is gone another time.
    containers::remove_volume(&state::stopped(&spec.name))?;
    Ok(Progress::Next(Step::ready(0)))
}

/// What Docker does not find where a container starts is its network, or an image that went in this moment.
fn explained(e: Error, spec: &Spec) -> Error {
    if !e.is("not-found") {
        return e;
    }
    let network = spec.network.as_deref().unwrap_or("bridge");
    let why = format!(
        "container {} cannot start: Docker has no network {network}, or image {} went; make the network, or name another one as network in [plugins.ksml.config], and apply again",
        spec.name, spec.image
    );
    Error::new("not-found", why)
}

/// Ends the container and takes it away, where there is one.
fn end(config: &Config, name: &str) -> Result<()> {
    if containers::stop(name, grace(config))? {
        containers::remove(name)?;
    }
    Ok(())
}

/// The container goes, with its secrets; the state stays, and a record of the settings.
fn stop(of: &Subject<Settings>, config: &Config) -> Answer {
    check(of.wanted()?)?;
    let name = spec::name(of);
    containers::make_volume(&state::stopped(&name), &spec::record(of.wanted_json.as_ref()))?;
    end(config, &name)?;
    Ok(Progress::Done(state::of_stopped(config, &name)))
}

fn settle(of: &Subject<Settings>, mut at: Settling) -> Answer {
    let settings = of.wanted()?;
    let name = spec::name(of);
    let Some(status) = containers::status(&name)? else {
        let why = format!("somebody removed container {name} meanwhile; apply again");
        return Err(Error::new("release-gone", why).retryable());
    };
    let failed = |why: String| {
        let why = format!("container {name} cannot stay up: {why}; its log says more");
        Err(Error::new("not-ready", why))
    };
    let s = &status.state;
    if settings.restart_policy == RestartPolicy::Never {
        return match s.exit_code {
            Some(code) if code != 0 => failed(format!("it ended with exit code {code}")),
            _ => Ok(Progress::Done(state::outputs(settings, &status))),
        };
    }
    let first = *at.first.get_or_insert(status.restarts);
    let code = s.exit_code.map_or_else(String::new, |code| format!(", the last time with exit code {code}"));
    if status.restarts.saturating_sub(first) >= LOOPS {
        return failed(format!("it ended {} times{code}", status.restarts - first));
    }
    if s.health.as_deref() == Some("unhealthy") {
        return failed("its health check fails".into());
    }
    if !s.running && !status.restarting {
        return failed(format!("it ended{code}"));
    }
    let up = state::is_ready(&status) && status.restarts == at.last.max(first);
    at = Settling { looks: if up { at.looks + 1 } else { 0 }, last: status.restarts, ..at };
    if at.looks >= LOOKS {
        return Ok(Progress::Done(state::outputs(settings, &status)));
    }
    let message = if up { "it is up; whether it stays so is being looked at" } else { "it is not up yet" };
    Ok(Progress::wait(Step::Ready { before: 0, settling: at }, PAUSE, message))
}

/// Cancelling never deletes what is stored.
pub(crate) fn cancel(of: &Subject<Settings>, config: &Config) -> Answer {
    let name = spec::name(of);
    let stops = |settings: Option<&Settings>| settings.is_some_and(|s| !s.running);
    if of.action == Action::Create {
        end(config, &name)?;
        containers::remove_volume(&state::stopped(&name))?;
        return Ok(Progress::Gone);
    }
    if stops(of.wanted.as_ref()) {
        return match containers::status(&name)? {
            Some(status) if status.state.running => {
                containers::remove_volume(&state::stopped(&name))?;
                Ok(Progress::Gone)
            }
            _ => Err(cannot("the application is stopped already; apply the settings of before to start it")),
        };
    }
    if stops(of.believed.as_ref()) {
        containers::make_volume(&state::stopped(&name), &spec::record(of.believed_json.as_ref()))?;
        end(config, &name)?;
        return Ok(Progress::Gone);
    }
    match &of.believed {
        Some(before) => match run(of, config, before, of.believed_json.as_ref())? {
            wait @ Progress::Wait(..) => Ok(wait),
            _ => Ok(Progress::Gone),
        },
        None => Err(cannot("what the container was before is not known; apply the settings of before")),
    }
}

fn cannot(why: &str) -> Error {
    Error::new("cannot-cancel", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_found_is_named() {
        let spec = Spec { network: Some("kafka".into()), ..Spec::new("orders", "registry.example/ksml:9") };
        let e = explained(Error::new("not-found", "there is no such container"), &spec);
        assert!(e.is("not-found") && e.reason.contains("no network kafka"), "{e}");
        let other = Error::new("conflict", "somebody has it");
        assert_eq!(explained(other.clone(), &spec), other);
    }
}
