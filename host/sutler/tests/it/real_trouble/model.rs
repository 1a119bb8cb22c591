//! What is done to one namespace, and what must be there afterwards, asked of the API server itself.

use serde_json::{Value, json};
use sutler_testkit::Dice;
use sutler_testkit::http::SampleRequest;

use super::site::{CHARTS, Revision, Site};

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    /// Of this chart with this value.
    Install(String, String),
    Upgrade(String, String),
    /// To this revision, which has this chart and value.
    Rollback(u64, String, String),
    Uninstall,
    /// A ConfigMap of a plugin that applies objects itself.
    Configure(String),
    Unconfigure,
}

/// What should be in a namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Standing {
    /// The release's chart and value.
    pub(crate) release: Option<(String, String)>,
    pub(crate) configured: Option<String>,
}

impl Deed {
    /// Chance among what can be done now. `step` makes values that were not there before.
    pub(crate) fn next(dice: &mut Dice, standing: &Standing, revisions: &[Revision], step: usize) -> Self {
        let x = format!("v{step}");
        if dice.roll(5) == 0 {
            return match standing.configured {
                Some(_) if dice.roll(3) == 0 => Self::Unconfigure,
                _ => Self::Configure(x),
            };
        }
        let chart = CHARTS[dice.roll(2) as usize].to_owned();
        if standing.release.is_none() {
            return Self::Install(chart, x);
        }
        // The oldest may be pruned before it is gone back to.
        let good = |r: &&Revision| matches!(r.status.as_str(), "superseded" | "deployed");
        let kept: Vec<&Revision> = revisions.iter().rev().take(6).filter(good).take(4).collect();
        match dice.roll(10) {
            0..5 => Self::Upgrade(chart, x),
            5..8 => {
                let to = kept[dice.roll(kept.len() as u64) as usize];
                Self::Rollback(to.number, to.chart.clone(), to.x.clone())
            }
            _ => Self::Uninstall,
        }
    }

    pub(crate) fn done(&self, before: &Standing) -> Standing {
        let mut after = before.clone();
        match self {
            Self::Install(chart, x) | Self::Upgrade(chart, x) | Self::Rollback(_, chart, x) => {
                after.release = Some((chart.clone(), x.clone()));
            }
            Self::Uninstall => after.release = None,
            Self::Configure(x) => after.configured = Some(x.clone()),
            Self::Unconfigure => after.configured = None,
        }
        after
    }

    /// The body of its apply, as a call of its own.
    pub(crate) fn body(&self, site: &Site, ns: &str) -> Value {
        let of = |pair: &str| SampleRequest::new(pair).application("tenant", ns);
        let settings = |chart: &str, x: &str| json!({"chart": site.chart(chart), "values": {"x": x}});
        match self {
            Self::Install(chart, x) | Self::Upgrade(chart, x) => {
                of("tool/release").create(settings(chart, x)).body()
            }
            Self::Rollback(to, chart, x) => {
                let mut settings = settings(chart, x);
                settings["rollbackTo"] = json!(to);
                of("tool/release").create(settings).body()
            }
            Self::Uninstall => of("tool/release").delete(settings(CHARTS[0], "")).body(),
            Self::Configure(x) => {
                of("managed-resource/features").create(json!({"features": {"x": x}})).body()
            }
            Self::Unconfigure => of("managed-resource/features").delete(json!({"features": {}})).body(),
        }
    }
}

impl Standing {
    /// Compares with what is there.
    pub(crate) async fn check(&self, site: &Site, ns: &str) -> Result<(), String> {
        let path = |what: &str| format!("/api/v1/namespaces/{ns}/configmaps{what}");
        let revisions = site.revisions(ns).await;
        let told = || format!("{self:?}, but there is {revisions:?}");
        let live = site.live(&path("/app-a")).await.map(|o| o["data"]["x"].clone());
        match &self.release {
            None if !revisions.is_empty() => return Err(told()),
            None => {}
            Some((chart, x)) => {
                let last = revisions.last().ok_or_else(told)?;
                let deployed = revisions.iter().filter(|r| r.status == "deployed").count();
                if (&last.chart, &last.x, last.status.as_str(), deployed) != (chart, x, "deployed", 1) {
                    return Err(told());
                }
            }
        }
        if let Some(cut) = revisions.iter().find(|r| r.under_way()) {
            return Err(format!("left under way: {cut:?}"));
        }
        if live != self.release.as_ref().map(|(_, x)| json!(x)) {
            return Err(format!("{self:?}, but the object has {live:?}"));
        }
        let ours = site.live(&path("?labelSelector=sutler.dev%2Fowner")).await.unwrap_or_default();
        let ours: Vec<Value> =
            ours["items"].as_array().into_iter().flatten().map(|o| o["data"]["x"].clone()).collect();
        if ours != self.configured.iter().map(|x| json!(x)).collect::<Vec<_>>() {
            return Err(format!("{self:?}, but the ConfigMaps have {ours:?}"));
        }
        Ok(())
    }
}
