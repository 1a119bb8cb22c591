//! Any chart as a release, in one step and without waiting for readiness: as `helm upgrade --install`, or
//! `helm rollback`.
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
    /// The release's; without it a name of its own.
    #[serde(default)]
    name: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// `oci://registry/path/name`
    chart: String,
    values: Value,
    /// A revision to go back to, instead of chart and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollback_to: Option<u32>,
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
        let (chart, values) = (settings.chart.clone(), release.values.clone());
        let now = Settings { chart, values, rollback_to: None };
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
        let came = match wanted.rollback_to {
            Some(revision) => helm::rollback(&at, revision, options)?,
            None => helm::upgrade(&chart, &at, &wanted.values, options)?,
        };
        Ok(match came {
            Outcome::Done(release) => Progress::Done(outputs(&release)),
            Outcome::InProgress(what) => pause(what),
        })
    }

    /// The container `c` of pods labelled `app`.
    fn locate(of: &Subject<Settings>) -> Result<Vec<LogSource>> {
        let namespace = at(of)?.namespace;
        Ok(vec![LogSource {
            cluster: None,
            namespace,
            label_selector: "app".into(),
            container: Some("c".into()),
        }])
    }
}

fn at(of: &Subject<Settings>) -> Result<ReleaseReference> {
    let config: Config = sutler_sdk::config::settings()?;
    Ok(ReleaseReference::new(of.fill(&config.namespace)?, config.name.unwrap_or_else(|| of.name(40))))
}

fn outputs(release: &Release) -> Outputs {
    Outputs { release: release.name.clone(), revision: release.revision }
}

fn pause(what: String) -> Progress<Step, Outputs> {
    Progress::wait(Step::Release, Duration::from_millis(200), what)
}

sutler_sdk::export_with_logs!(Any);
