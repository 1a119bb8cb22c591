//! `sutler doctor`: looks at what the host stands on, and says what to do about what is wrong.

use std::collections::BTreeSet;
use std::process::ExitCode;

use futures::StreamExt as _;
use serde::Serialize;
use sutler_kubernetes::{Cluster, Clusters, Right};
use sutler_model::Pattern;

use super::rbac::{Place, needs};
use super::{ConfigFile, say};
use crate::config::Config;

pub(super) const HELP: &str = "\
It changes nothing. Exit code 1 where something is wrong, 0 with warnings.
  sutler doctor --config sutler.toml
  sutler doctor --namespace ksml-acme         also the rights in a namespace that does not exist yet
  sutler doctor --output json | jq '.[] | select(.level != \"ok\")'";

/// Questions to the API server at once.
const AT_ONCE: usize = 16;
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
    /// `config`, `cluster`, `rights`, `ledger`, `releases`.
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
        let Some(clusters) = &config.kubernetes else {
            report.ok("cluster", "none is configured; plugins have no Kubernetes, Helm or logs");
            return;
        };
        let clusters = match Clusters::new(clusters) {
            Ok(clusters) => clusters,
            // Said among the mistakes.
            Err(_) => return,
        };
        for name in clusters.names() {
            match clusters.get(Some(name)).await {
                Ok(cluster) => self.cluster(config, &cluster, clusters.is_default(Some(name)), report).await,
                Err(e) => report.wrong("cluster", format!("{name}: {e}"), "mend [kubernetes.clusters]"),
            }
        }
    }

    async fn cluster(&self, config: &Config, cluster: &Cluster, is_default: bool, report: &mut Report) {
        let name = cluster.name();
        match cluster.version().await {
            Ok(version) => report.ok("cluster", format!("{name}: Kubernetes {version} answers")),
            Err(e) => {
                report.wrong("cluster", format!("{name}: {e}"), "check address, network and credentials");
                return;
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
        for (plugin, table) in &config.plugins {
            for (place, rules) in needs(table, name, is_default) {
                let (places, text) = self.places(&place, &namespaces);
                if places.is_empty() {
                    report.warn(
                        "rights",
                        format!("{plugin}: no namespace is like {text} yet"),
                        format!("sutler doctor --namespace NAME, and sutler rbac print --plugin {plugin} --namespace NAME"),
                    );
                }
                for namespace in places {
                    let lacking = lacking(cluster, &rules, namespace.as_deref()).await;
                    tell(report, plugin, namespace.as_deref(), lacking);
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

/// What the account may not do of what the rules say: how many rights were asked about, and `patch
/// deployments.apps`.
async fn lacking(
    cluster: &Cluster,
    rules: &BTreeSet<sutler_kubernetes::PolicyRule>,
    namespace: Option<&str>,
) -> Result<(usize, Vec<String>), sutler_kubernetes::Error> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for (group, resource) in
            rule.api_groups.iter().flat_map(|g| rule.resources.iter().map(move |r| (g, r)))
        {
            for verb in &rule.verbs {
                let names = rule.resource_names.iter().map(String::as_str);
                let any = rule.resource_names.is_empty().then_some("");
                rights.extend(names.chain(any).map(|name| Right { verb, group, resource, namespace, name }));
            }
        }
    }
    let asked = rights.len();
    let answers = futures::stream::iter(rights)
        .map(|right| async move { cluster.allowed(&right).await.map(|yes| (!yes).then(|| shown(&right))) })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let lacking = answers.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok((asked, lacking))
}

fn shown(r: &Right<'_>) -> String {
    let group = if r.group.is_empty() { String::new() } else { format!(".{}", r.group) };
    let name = if r.name.is_empty() { String::new() } else { format!(" {}", r.name) };
    format!("{} {}{group}{name}", r.verb, r.resource)
}

fn tell(
    report: &mut Report,
    plugin: &str,
    namespace: Option<&str>,
    lacking: Result<(usize, Vec<String>), sutler_kubernetes::Error>,
) {
    let place = namespace.map_or_else(|| "in the cluster".to_owned(), |ns| format!("in namespace {ns}"));
    match lacking {
        Ok((asked, lacking)) if lacking.is_empty() => {
            report.ok("rights", format!("{plugin} {place}: all {asked} rights that its grants need"));
        }
        Ok((_, lacking)) => {
            let ns = namespace.map(|ns| format!(" --namespace {ns}")).unwrap_or_default();
            report.wrong(
                "rights",
                format!("{plugin} {place}: the host's account lacks {}", lacking.join(", ")),
                format!("sutler rbac print --plugin {plugin}{ns} | kubectl apply -f -"),
            );
        }
        Err(e) => report.wrong("rights", format!("{plugin} {place}: {e}"), "try again"),
    }
}
