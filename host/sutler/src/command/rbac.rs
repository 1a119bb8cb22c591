//! `sutler rbac print`: the roles that the host's account needs for what plugins are granted.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde_json::{Value, json};
use sutler_catalog::PluginConfig;
use sutler_kubernetes::{PolicyRule, covers_cluster, policy_rules};
use sutler_model::Pattern;

use super::{ConfigFile, say};
use crate::config::Config;

pub(super) const HELP: &str = "\
A namespace pattern such as ksml-{tenant} names no namespace: its rules become a ClusterRole, and --namespace binds it \
in each namespace that you name and that the pattern may mean.
  sutler rbac print --namespace ksml-acme --service-account platform/sutler | kubectl apply -f -

Resources are named after their kinds as kubectl does it without asking a cluster. RBAC cannot leave out Secrets from a \
wildcard: name kinds in grants where the account shall not read them.";

#[derive(Debug, clap::Args)]
pub(crate) struct Print {
    /// Only what this plugin needs
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
    /// A namespace that exists or will exist; may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// The account that the host runs as
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "sutler/sutler")]
    service_account: String,
    /// The cluster that the roles are for; without it the default one
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
}

/// Where rules hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Objects outside namespaces, or all namespaces.
    Cluster,
    Namespace(String),
    /// Every namespace that may be meant.
    Pattern(String),
}

/// What one plugin needs, by place.
pub(super) type Needs = BTreeMap<Place, BTreeSet<PolicyRule>>;

/// What the grants of one plugin need in a cluster.
pub(super) fn needs(plugin: &PluginConfig, cluster: &str, is_default: bool) -> Needs {
    let mut out = Needs::new();
    let mut add = |patterns: &[Pattern], rules: &[PolicyRule]| {
        for place in places(patterns) {
            out.entry(place).or_default().extend(rules.iter().cloned());
        }
    };
    let grants = &plugin.grants;
    for rule in grants.kubernetes.iter().flat_map(|g| &g.0) {
        if covers_cluster(&rule.clusters, cluster, is_default) {
            add(&rule.namespaces, &policy_rules(rule));
        }
    }
    if let Some(helm) = grants.helm.as_ref().filter(|h| is_default || h.clusters.iter().any(|c| c == cluster))
    {
        for (patterns, rules) in helm.policy_rules() {
            add(&patterns, &rules);
        }
    }
    if let Some(logs) = grants.logs.as_ref().filter(|l| covers_cluster(&l.clusters, cluster, is_default)) {
        add(&logs.namespaces, &logs.policy_rules());
    }
    out
}

pub(super) fn places(patterns: &[Pattern]) -> Vec<Place> {
    if patterns.is_empty() || patterns.iter().any(Pattern::is_any) {
        return vec![Place::Cluster];
    }
    let place = |p: &Pattern| match p.literal() {
        Some(name) => Place::Namespace(name.into()),
        None => Place::Pattern(p.to_string()),
    };
    patterns.iter().map(place).collect()
}

impl Print {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.load()?;
        let Some((of, account)) = self.service_account.split_once('/') else {
            anyhow::bail!("--service-account {:?}: write NAMESPACE/NAME", self.service_account);
        };
        if let Some(name) = &self.plugin
            && !config.plugins.contains_key(name)
        {
            let known: Vec<&str> = config.plugins.keys().map(String::as_str).collect();
            anyhow::bail!("there is no [plugins.{name}]; known are {}", known.join(", "));
        }
        let documents =
            self.documents(&config, &json!([{"kind": "ServiceAccount", "namespace": of, "name": account}]))?;
        anyhow::ensure!(!documents.is_empty(), "no plugin is granted anything in this cluster");
        for document in documents {
            say(format!("---\n{}", serde_saphyr::to_string(&document)?.trim_end()));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn documents(&self, config: &Config, subjects: &Value) -> anyhow::Result<Vec<Value>> {
        let default = config.kubernetes.as_ref().map_or("default", |k| &k.default);
        let cluster = self.cluster.as_deref().unwrap_or(default);
        let mut out = Vec::new();
        let chosen = config.plugins.iter().filter(|(n, _)| self.plugin.as_ref().is_none_or(|p| p == *n));
        for (plugin, of) in chosen {
            let name = format!("sutler-{plugin}");
            for (place, rules) in needs(of, cluster, cluster == default) {
                let rules: Vec<&PolicyRule> =
                    rules.iter().filter(|r| !rules.iter().any(|o| o.includes(r))).collect();
                match place {
                    Place::Cluster => {
                        out.push(role("ClusterRole", &name, None, &rules));
                        out.push(binding("ClusterRole", &name, None, subjects));
                    }
                    Place::Namespace(ns) => {
                        out.push(role("Role", &name, Some(&ns), &rules));
                        out.push(binding("Role", &name, Some(&ns), subjects));
                    }
                    Place::Pattern(text) => {
                        let pattern: Pattern = text.parse()?;
                        let role_name = format!("{name}-{}", slug(&text));
                        let mut role = role("ClusterRole", &role_name, None, &rules);
                        if let Some(metadata) = role.get_mut("metadata").and_then(Value::as_object_mut) {
                            let text = format!("bind it in each namespace {text}");
                            metadata.insert("annotations".into(), json!({"sutler.dev/namespaces": text}));
                        }
                        out.push(role);
                        for ns in self.namespace.iter().filter(|n| pattern.may_match(n)) {
                            out.push(binding("ClusterRole", &role_name, Some(ns), subjects));
                        }
                    }
                }
            }
        }
        Ok(out)
    }
}

/// A pattern as a part of a name.
fn slug(pattern: &str) -> String {
    pattern.replace(['{', '}'], "").replace('*', "any")
}

fn role(kind: &str, name: &str, namespace: Option<&str>, rules: &[&PolicyRule]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": metadata(name, namespace), "rules": rules,
    })
}

/// Under the role's own name.
fn binding(role_kind: &str, role: &str, namespace: Option<&str>, subjects: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" },
        "metadata": metadata(role, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects,
    })
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let labels = json!({"app.kubernetes.io/managed-by": "sutler"});
    match namespace {
        Some(namespace) => json!({"name": name, "namespace": namespace, "labels": labels}),
        None => json!({"name": name, "labels": labels}),
    }
}
