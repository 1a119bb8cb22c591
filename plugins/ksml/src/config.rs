//! What the operator says: the chart and where applications go.

use std::collections::BTreeMap;

use sutler_sdk::helm::{ChartReference, ReleaseReference};
use sutler_sdk::prelude::*;

use crate::settings::Settings;

/// Where applications run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// As a release of the chart, in the cluster that the host runs in.
    #[default]
    Kubernetes,
    /// As a container each, on the Docker daemon of the host's machine.
    Docker,
}

/// `[plugins.ksml.config]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    #[serde(default)]
    pub target: Target,
    /// `oci://registry/path/ksml`; not used for Docker.
    #[serde(default)]
    pub chart: String,
    pub version: Option<String>,
    pub digest: Option<String>,
    /// The namespace of an application, with placeholders.
    #[serde(default = "per_tenant")]
    pub namespace: String,
    /// Values of the chart from a file, under those of `values`: the host reads it, named in `config-files`.
    #[serde(default)]
    pub values_file: serde_json::Map<String, Value>,
    /// Values of the chart under those that the settings decide.
    #[serde(default)]
    pub values: serde_json::Map<String, Value>,
    /// `repository:tag` or `repository@sha256:…`; the chart's own where it is left out. Docker needs one.
    pub image: Option<String>,
    /// Whether an apply takes back fields that somebody else changed meanwhile; otherwise it fails with `conflict`.
    #[serde(default = "yes")]
    pub force_conflicts: bool,
    /// Before `topic.pattern` and its like: `axual.` for charts that want it.
    #[serde(default)]
    pub pattern_prefix: String,
    /// The Docker network that leads to Kafka; Docker's `bridge` where it is left out.
    pub network: Option<String>,
    /// Variables of every container on Docker: `JAVA_TOOL_OPTIONS`. No secrets.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How long a container on Docker gets to end, in seconds.
    pub grace_seconds: Option<u32>,
    /// Refused: applications go into the cluster that the host runs in.
    #[serde(default)]
    cluster: Option<String>,
}

const fn yes() -> bool {
    true
}

fn per_tenant() -> String {
    "ksml-{tenant}".into()
}

/// A StatefulSet's name and what Kubernetes appends stay under 63 characters.
const LONGEST: usize = 45;

impl Config {
    /// # Errors
    /// `invalid-config`
    pub fn read() -> Result<Self> {
        let config: Self = sutler_sdk::config::settings()?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
        if let Some(cluster) = &self.cluster {
            let why = format!(
                "cluster = {cluster:?} in [plugins.ksml.config]: applications go only into the cluster that the host runs in; remove it, and run a host in that cluster for its applications"
            );
            return Err(Error::new("invalid-config", why));
        }
        self.check_docker()?;
        if self.target == Target::Docker || self.chart.starts_with("oci://") {
            return Ok(());
        }
        // An address may hold a password.
        let shown = if self.chart.contains('@') { "the address" } else { self.chart.as_str() };
        let why = format!(
            "chart in [plugins.ksml.config], {shown}, is not one of an OCI registry: repositories with an index.yaml, as Nexus has them, are not supported; push the chart with `helm push CHART.tgz oci://REGISTRY/PATH` and write chart = \"oci://REGISTRY/PATH/NAME\""
        );
        Err(Error::new("invalid-config", why))
    }

    fn check_docker(&self) -> Result<()> {
        let why = match self.target {
            Target::Docker if self.image.is_none() => {
                "target = \"docker\" in [plugins.ksml.config] needs image, since no chart names one"
            }
            Target::Kubernetes
                if self.network.is_some() || !self.env.is_empty() || self.grace_seconds.is_some() =>
            {
                "network, env and grace-seconds in [plugins.ksml.config] are for target = \"docker\"; remove them, or write values for the chart"
            }
            _ => return Ok(()),
        };
        Err(Error::new("invalid-config", why))
    }

    /// The chart's name, by its address.
    pub fn chart_name(&self) -> &str {
        self.chart.rsplit('/').next().unwrap_or_default()
    }
    pub fn chart(&self) -> ChartReference {
        ChartReference::new(&self.chart, self.version.clone(), self.digest.clone())
    }
    /// # Errors
    /// `tenant-required` and its like, where the pattern needs what the call does not name.
    pub fn release(&self, of: &Subject<Settings>) -> Result<ReleaseReference> {
        Ok(ReleaseReference::new(of.fill(&self.namespace)?, of.name(LONGEST)))
    }
}
