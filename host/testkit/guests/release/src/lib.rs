//! Any chart as a release, in one step and without waiting for readiness: as `helm upgrade --install`.
use std::time::Duration;

use serde_json::Value;
use sutler_sdk::helm::{self, ChartReference, Options, Outcome, Release, ReleaseReference};
use sutler_sdk::prelude::*;

pub struct Any;

/// `[plugins.release.config]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// With placeholders.
    namespace: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `oci://registry/path/name`
    chart: String,
    values: Value,
}

#[derive(Serialize, JsonSchema)]
pub struct Outputs {
    release: String,
    revision: u32,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(tag = "step", content = "state", rename_all = "kebab-case")]
pub enum Step {
    #[default]
    Release,
}

impl Steps for Step {
    const ALL: &'static [StepInfo] = &[StepInfo::new("release", "Install, upgrade or uninstall", 120)];
}

impl Pipeline for Any {
    const PAIR: Pair = Pair::new(Kind::Tool, "release");
    const SUMMARY: &'static str = "Any chart as a release";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = Step;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let (Some(settings), Some(release)) = (of.settings(), helm::get(&at(of)?)?) else { return Ok(None) };
        let now = Settings { chart: settings.chart.clone(), values: release.values.clone() };
        Actual::new(now, outputs(&release)).map(Some)
    }

    fn apply(of: &Subject<Settings>, _: At<Step>) -> Result<Progress<Step, Outputs>> {
        let at = at(of)?;
        if of.deletes() {
            return Ok(match helm::uninstall(&at)? {
                Some(Outcome::InProgress(what)) => pause(what),
                _ => Progress::Gone,
            });
        }
        let wanted = of.wanted()?;
        let chart = ChartReference::new(&wanted.chart, Some("1.0.0".into()), None);
        let options = Options { create_namespace: false, ..Options::default() };
        Ok(match helm::upgrade(&chart, &at, &wanted.values, options)? {
            Outcome::Done(release) => Progress::Done(outputs(&release)),
            Outcome::InProgress(what) => pause(what),
        })
    }
}

fn at(of: &Subject<Settings>) -> Result<ReleaseReference> {
    let config: Config = sutler_sdk::config::settings()?;
    Ok(ReleaseReference::new(of.fill(&config.namespace)?, of.name(40)))
}

fn outputs(release: &Release) -> Outputs {
    Outputs { release: release.name.clone(), revision: release.revision }
}

fn pause(what: String) -> Progress<Step, Outputs> {
    Progress::wait(Step::Release, Duration::from_millis(200), what)
}

sutler_sdk::export!(Any);
