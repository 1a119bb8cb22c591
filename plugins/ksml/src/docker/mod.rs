//! KSML applications as containers on the Docker daemon of the host's machine, one each.

mod spec;
mod state;
mod work;

use sutler_sdk::containers;
use sutler_sdk::prelude::*;

pub use spec::name;
pub use work::Settling;
pub(crate) use work::{apply, cancel};

use crate::Ksml;
use crate::config::Config;
use crate::settings::{RestartPolicy, Settings};
use crate::state::Outputs;
use state::Found;

pub(crate) fn read(of: &Subject<Settings>, config: &Config) -> Result<Option<Actual<Outputs>>> {
    state::find(&name(of))?.map(|found| state::actual(of, config, &found)).transpose()
}

pub(crate) fn plan(of: &Subject<Settings>, config: &Config) -> Result<Planned> {
    let mut warnings = of.wanted.as_ref().map(check).transpose()?.unwrap_or_default();
    let found = state::find(&name(of))?;
    let now = found.as_ref().map(|found| state::actual(of, config, found)).transpose()?;
    let mut planned = sutler_sdk::compare::<Ksml>(of, now);
    if let (Some(wanted), Some(Found::Container(_))) = (of.wanted.as_ref().filter(|w| w.running), &found) {
        let (spec, extras) = spec::of(of, config, wanted, of.wanted_json.as_ref())?;
        // Equal settings do not mean that the container is as they and the operator want it.
        if planned.action == Action::NoOp && !containers::same(&spec, &extras)? {
            planned.action = Action::Update;
            warnings.push(format!(
                "container {} does not run, or is not as the plugin's configuration has it: it is started or made anew",
                spec.name
            ));
        }
        if planned.action != Action::NoOp && wanted.restart_policy == RestartPolicy::Never {
            warnings.push(
                "a container that runs once cannot change in place: it is deleted and runs again".into(),
            );
        }
    }
    if of.deletes() && found.is_some() {
        warnings
            .push(format!("what the application has stored is deleted with it: {}", spec::store(&name(of))));
    }
    planned.warnings.extend(warnings);
    Ok(planned)
}

pub(crate) fn inspect(of: &Subject<Settings>, config: &Config) -> Result<Observed> {
    let name = name(of);
    match state::find(&name)? {
        Some(found) => sutler_sdk::observe::<Ksml>(of, state::actual(of, config, &found)?),
        None => {
            let outputs = Some(serde_json::to_value(state::nothing(config, &name))?);
            Ok(Observed { outputs, ..Observed::absent() })
        }
    }
}

/// What the settings say that Docker cannot do; warnings about what it does not do.
///
/// # Errors
/// As [`Settings::check`], and `unsupported-settings` where an application would not be what was asked for.
fn check(settings: &Settings) -> Result<Vec<String>> {
    let mut warnings = settings.check()?;
    let refused = crate::settings::unsupported;
    if settings.replicas > 1 {
        let why =
            "on Docker an application is one container; leave replicas out, or run several applications";
        return Err(refused(why).at("/replicas"));
    }
    if settings.network_policy.as_ref().is_some_and(|policy| policy.enabled) {
        let why = "Docker has no network policies; leave networkPolicy out, and let the operator choose the network";
        return Err(refused(why).at("/networkPolicy/enabled"));
    }
    let monitor = settings.metrics.as_ref().and_then(|m| m.service_monitor.as_ref());
    if monitor.is_some_and(|monitor| monitor.enabled) {
        let why = "Docker has no ServiceMonitors; leave it out, and let Prometheus read the container over its network";
        return Err(refused(why).at("/metrics/serviceMonitor/enabled"));
    }
    if settings.store_size.is_some() {
        warnings.push("a volume on Docker has no size: storeSize is not enforced".into());
    }
    Ok(warnings)
}
