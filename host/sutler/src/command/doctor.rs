//! `sutler doctor`: looks at what the host stands on, and says what to do about what is wrong.

mod containers;
mod ledger;
mod registries;
mod releases;
mod rights;

use std::collections::BTreeSet;
use std::process::ExitCode;

use serde::Serialize;
use sutler_kubernetes::{Cluster, Clusters};
use sutler_model::Pattern;

use super::rbac::{Place, needs, places};
use super::{ConfigFile, say};
use crate::config::Config;

pub(super) const HELP: &str = "\
It changes nothing that stays. Exit code 1 where something is wrong, 0 with warnings.
  sutler doctor --config sutler.toml
  sutler doctor --namespace ksml-acme         also the rights in a namespace that does not exist yet
  sutler doctor --output json | jq '.[] | select(.level != \"ok\")'";

/// Namespaces of one pattern that are asked about.
const MAX_NAMESPACES: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// A namespace that grants may mean, although it does not exist yet; may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// `text` for people, `json` for programs: a list of findings
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Ok,
    Warning,
    Wrong,
}

#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    /// `config`, `ledger`, `registry`, `docker`, `cluster`, `rights`, `releases`.
    area: &'static str,
    what: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
}

/// Gathers findings, and tells each as it comes.
struct Report {
    output: Output,
    findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, level: Level, area: &'static str, what: impl Into<String>, todo: Option<String>) {
        let finding = Finding { level, area, what: what.into(), todo };
        if self.output == Output::Text {
            let mark = match level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Wrong => "WRONG  ",
            };
            say(format!("{mark}  {:<8}  {}", finding.area, finding.what));
            if let Some(todo) = &finding.todo {
                say(format!("                     → {todo}"));
            }
        }
        self.findings.push(finding);
    }
    fn ok(&mut self, area: &'static str, what: impl Into<String>) {
        self.add(Level::Ok, area, what, None);
    }
    fn wrong(&mut self, area: &'static str, what: impl Into<String>, todo: impl Into<String>) {
        self.add(Level::Wrong, area, what, Some(todo.into()));
    }
    fn warn(&mut self, area: &'static str, what: impl Into<String>, todo: impl Into<String>) {
        self.add(Level::Warning, area, what, Some(todo.into()));
    }
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.load()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut report = Report { output: self.output, findings: Vec::new() };
        runtime.block_on(self.look(&config, &mut report));
        if self.output == Output::Json {
            say(serde_json::to_string_pretty(&report.findings)?);
        }
        let wrong = report.findings.iter().any(|f| f.level == Level::Wrong);
        Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    async fn look(&self, config: &Config, report: &mut Report) {
        let mistakes = super::config::mistakes(config).await;
        for mistake in &mistakes {
            report.wrong("config", mistake.clone(), "mend it; `sutler config check` looks at the file alone");
        }
        if mistakes.is_empty() {
            report.ok("config", "sutler.toml has no mistakes");
        }
        let ledger = ledger::look(&config.ledger, report).await;
        registries::look(config, report).await;
        if let Some(of) = &config.containers {
            containers::look(of, config, ledger.as_deref(), report).await;
        }
        let Some(clusters) = &config.kubernetes else {
            report
                .ok("cluster", "none is configured; plugins have no Kubernetes, no Helm and no logs of pods");
            return;
        };
        let clusters = match Clusters::new(clusters) {
            Ok(clusters) => clusters,
            // Said among the mistakes.
            Err(_) => return,
        };
        for name in clusters.names() {
            match clusters.get(Some(name)).await {
                Ok(cluster) => {
                    let is_default = clusters.is_default(Some(name));
                    let Some(there) = self.reachable(&cluster, report).await else { continue };
                    self.rights(config, &cluster, is_default, &there, report).await;
                    let granted = self.granted(config, name, is_default, &there);
                    releases::look(&cluster, granted, ledger.as_deref(), report).await;
                }
                Err(e) => report.wrong("cluster", format!("{name}: {e}"), "mend [kubernetes.clusters]"),
            }
        }
    }

    /// The namespaces that there are, or are going to be; `None` where the cluster does not answer.
    async fn reachable(&self, cluster: &Cluster, report: &mut Report) -> Option<BTreeSet<String>> {
        let name = cluster.name();
        match cluster.version().await {
            Ok(version) => report.ok("cluster", format!("{name}: Kubernetes {version} answers")),
            Err(e) => {
                report.wrong("cluster", format!("{name}: {e}"), "check address, network and credentials");
                return None;
            }
        }
        let mut namespaces: BTreeSet<String> = self.namespace.iter().cloned().collect();
        match cluster.namespaces().await {
            Ok(there) => namespaces.extend(there),
            Err(e) => report.warn(
                "cluster",
                format!("{name}: namespaces cannot be listed ({e}), so patterns of grants mean none here"),
                "name those that matter by --namespace; the host itself needs no such right",
            ),
        }
        Some(namespaces)
    }

    /// The namespaces where plugins may have releases; `None` among them is every one.
    fn granted(
        &self,
        config: &Config,
        cluster: &str,
        is_default: bool,
        there: &BTreeSet<String>,
    ) -> BTreeSet<Option<String>> {
        let helm = config.plugins.values().filter_map(|p| p.grants.helm.as_ref());
        let here = helm.filter(|h| is_default || h.clusters.iter().any(|c| c == cluster));
        // Without namespaces a grant allows no release.
        let places = here.filter(|h| !h.namespaces.is_empty()).flat_map(|h| places(&h.namespaces));
        places.flat_map(|place| self.places(&place, there).0).collect()
    }

    async fn rights(
        &self,
        config: &Config,
        cluster: &Cluster,
        is_default: bool,
        there: &BTreeSet<String>,
        report: &mut Report,
    ) {
        for (plugin, table) in &config.plugins {
            for (place, rules) in needs(table, cluster.name(), is_default) {
                let (places, text) = self.places(&place, there);
                if places.is_empty() {
                    report.warn(
                        "rights",
                        format!("{plugin}: no namespace is like {text} yet"),
                        format!("sutler doctor --namespace NAME, and sutler rbac print --plugin {plugin} --namespace NAME"),
                    );
                }
                for namespace in places {
                    let lacking = rights::lacking(cluster, &rules, namespace.as_deref()).await;
                    rights::tell(report, plugin, namespace.as_deref(), lacking);
                }
            }
        }
    }

    /// The namespaces that a place means, and the place in words.
    fn places(&self, place: &Place, there: &BTreeSet<String>) -> (Vec<Option<String>>, String) {
        match place {
            Place::Cluster => (vec![None], "the cluster".into()),
            Place::Namespace(ns) => (vec![Some(ns.clone())], ns.clone()),
            Place::Pattern(text) => {
                let pattern = text.parse::<Pattern>().ok();
                let fits = |ns: &&String| pattern.as_ref().is_some_and(|p| p.may_match(ns));
                (there.iter().filter(fits).take(MAX_NAMESPACES).cloned().map(Some).collect(), text.clone())
            }
        }
    }
}
