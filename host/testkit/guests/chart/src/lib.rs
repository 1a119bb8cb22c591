//! One Helm release an application, `app` in the tenant's namespace: the chart and the values that the settings name, or
//! the revision to go back to.
use std::time::Duration;

use serde_json::Map;
use sutler_sdk::helm::{self, ChartReference, Options, Outcome, ReleaseReference};
use sutler_sdk::prelude::*;

pub struct Chart;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// `oci://registry/path/name`
    chart: String,
    #[serde(default)]
    values: Map<String, Value>,
    /// Instead of chart and values.
    #[serde(default)]
    rollback_to: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub struct Outputs {
    revision: u32,
}

const PAUSE: Duration = Duration::from_millis(250);

fn release(of: &Subject<Settings>) -> Result<ReleaseReference> {
    Ok(ReleaseReference::new(of.fill("{tenant}")?, "app"))
}

/// `None` where there is nothing to delete.
fn work(of: &Subject<Settings>) -> Result<Option<Outcome>> {
    let at = release(of)?;
    if of.deletes() {
        return helm::uninstall(&at);
    }
    let wanted = of.wanted()?;
    let options = Options { create_namespace: false, ..Options::default() };
    if let Some(revision) = wanted.rollback_to {
        return helm::rollback(&at, revision, options).map(Some);
    }
    let chart = ChartReference::new(&wanted.chart, None, None);
    helm::upgrade(&chart, &at, &Value::Object(wanted.values.clone()), options).map(Some)
}

impl Pipeline for Chart {
    const PAIR: Pair = Pair::new(Kind::Tool, "chart");
    const SUMMARY: &'static str = "A Helm release";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = ();

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let Some(live) = helm::get(&release(of)?)? else { return Ok(None) };
        Actual::new(json!({ "values": live.values }), Outputs { revision: live.revision }).map(Some)
    }

    fn apply(of: &Subject<Settings>, _: At<()>) -> Result<Progress<(), Outputs>> {
        Ok(match work(of)? {
            Some(Outcome::InProgress(what)) => Progress::wait((), PAUSE, what),
            Some(Outcome::Done(live)) if !of.deletes() => Progress::Done(Outputs { revision: live.revision }),
            _ => Progress::Gone,
        })
    }

    /// The container `c` of pods labelled `app`.
    fn locate(of: &Subject<Settings>) -> Result<Vec<LogSource>> {
        Ok(vec![LogSource {
            cluster: None,
            namespace: release(of)?.namespace,
            label_selector: "app".into(),
            container: Some("c".into()),
        }])
    }
}

sutler_sdk::export_with_logs!(Chart);
