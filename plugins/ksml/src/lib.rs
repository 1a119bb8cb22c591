//! KSML applications: their Helm chart, pulled from a registry, as one release for each application; or a container on
//! the Docker daemon for each. It never puts a secret into the chart's values, and never touches Kafka.

pub mod claims;
pub mod config;
pub mod definitions;
pub mod docker;
pub mod health;
mod room;
pub mod secrets;
pub mod settings;
pub mod state;
pub mod stopped;
pub mod values;
mod work;

use sutler_sdk::helm::{self, Status};
use sutler_sdk::prelude::*;

use config::{Config, Target};
use settings::{RestartPolicy, Settings};
use state::{Found, Outputs};

pub struct Ksml;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(tag = "step", content = "state", rename_all = "kebab-case")]
pub enum Step {
    #[default]
    Release,
    Ready {
        /// The revision before this work, 0 for none: what cancel goes back to.
        before: u32,
        /// On Docker.
        #[serde(default)]
        settling: docker::Settling,
    },
}

impl Step {
    /// Of a release that was at this revision before.
    pub fn ready(before: u32) -> Self {
        Self::Ready { before, settling: docker::Settling::default() }
    }
}

impl Steps for Step {
    const ALL: &'static [StepInfo] = &[
        StepInfo::new("release", "Install, upgrade or take away the release", 120),
        StepInfo::new("ready", "Wait until it is ready", 60),
    ];
}

impl Pipeline for Ksml {
    const PAIR: Pair = Pair::new(Kind::Deployment, "ksml");
    const SUMMARY: &'static str = "A KSML application, deployed with its Helm chart";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = Step;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let config = Config::read()?;
        if config.target == Target::Docker {
            return docker::read(of, &config);
        }
        let at = config.release(of)?;
        state::find(&at)?.map(|found| state::actual(of, &config, &at, &found, false)).transpose()
    }

    fn plan(of: &Subject<Settings>) -> Result<Planned> {
        let config = Config::read()?;
        if config.target == Target::Docker {
            return docker::plan(of, &config);
        }
        let at = config.release(of)?;
        let checked = of.wanted.is_some().then(|| work::check(of, &config, &at)).transpose()?;
        let (mut warnings, values) = checked.unwrap_or_default();
        let found = state::find(&at)?;
        if of.wanted.as_ref().is_some_and(|wanted| wanted.running) {
            helm::pull(&config.chart())?;
        }
        let now = found.as_ref().map(|f| state::actual(of, &config, &at, f, false)).transpose()?;
        let mut planned = sutler_sdk::compare::<Self>(of, now);
        if let Some(Found::Release(release)) = &found {
            if of.wanted.is_some() && release.status != Status::Deployed {
                // The last work on it was cut off or failed: equal settings do not mean that there is nothing to do.
                if planned.action == Action::NoOp {
                    planned.action = Action::Update;
                }
                warnings.push(format!("release {} is {}", at.name, state::word(release.status)));
            }
            if planned.action != Action::NoOp {
                warnings.extend(values::another_group(&release.values, &values));
            }
            let job =
                of.wanted.as_ref().is_some_and(|w| w.running && w.restart_policy == RestartPolicy::Never);
            if job && planned.action != Action::NoOp && state::is_job(&release.values) {
                warnings.push("a Job cannot change in place: it is deleted and runs again".into());
            }
        }
        if let Some(wanted) = of.wanted.as_ref().filter(|_| planned.action == Action::Replace) {
            let resized = !planned.replace_because.is_empty();
            warnings.extend(claims::replacement(&at, wanted, resized)?);
        }
        if of.deletes() {
            let has_store = planned.before.as_ref().is_some_and(|b| b.get("storeSize").is_some());
            warnings.extend(claims::warning(&at, has_store)?);
        }
        planned.warnings.extend(warnings);
        Ok(planned)
    }

    fn apply(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        let config = Config::read()?;
        if config.target == Target::Docker {
            return docker::apply(of, &config, at.step);
        }
        let release = config.release(of)?;
        match at.step {
            Step::Release if of.deletes() => work::remove(&release),
            Step::Release if !of.wanted()?.running => work::stop(of, &config, &release),
            Step::Release => work::install(of, &config, &release),
            Step::Ready { before, .. } => work::settle(of, &release, before),
        }
    }

    fn cancel(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        let config = Config::read()?;
        if config.target == Target::Docker {
            return docker::cancel(of, &config);
        }
        let release = config.release(of)?;
        let stops = |settings: Option<&Settings>| settings.is_some_and(|s| !s.running);
        match of.action {
            Action::Create => work::take_away(&release),
            _ if stops(of.wanted.as_ref()) => work::go_on(&release),
            _ if stops(of.believed.as_ref()) => work::stop_again(of, &release),
            _ => work::roll_back(of, &release, at.step),
        }
    }

    fn inspect(of: &Subject<Settings>) -> Result<Observed> {
        let config = Config::read()?;
        if config.target == Target::Docker {
            return docker::inspect(of, &config);
        }
        let at = config.release(of)?;
        match state::find(&at)? {
            Some(found) => sutler_sdk::observe::<Self>(of, state::actual(of, &config, &at, &found, true)?),
            None => {
                let outputs = Some(serde_json::to_value(Outputs::nothing(&config, &at))?);
                Ok(Observed { outputs, ..Observed::absent() })
            }
        }
    }

    fn steps(of: &Subject<Settings>, planned: &Planned) -> Vec<&'static str> {
        match planned.action {
            Action::NoOp => vec![],
            _ if of.wanted.as_ref().is_none_or(|wanted| !wanted.running) => vec!["release"],
            _ => vec!["release", "ready"],
        }
    }

    fn locate(of: &Subject<Settings>) -> Result<Vec<LogSource>> {
        let config = Config::read()?;
        if config.target == Target::Docker {
            return Ok(vec![LogSource::on_docker(docker::name(of))]);
        }
        let at = config.release(of)?;
        Ok(vec![LogSource {
            cluster: None,
            namespace: at.namespace,
            label_selector: format!("app.kubernetes.io/instance={}", at.name),
            container: Some("ksml".into()),
        }])
    }
}

sutler_sdk::export_with_logs!(Ksml);
