//! Grants as the API server's RBAC has to allow them to the host's own account.

use serde::Serialize;
use sutler_model::Pattern;

use crate::{KindPattern, Rule, Verb};

/// One entry of a Role's `rules`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    pub verbs: Vec<&'static str>,
}

impl PolicyRule {
    /// Whether another rule says nothing that this one does not.
    pub fn includes(&self, other: &Self) -> bool {
        self != other
            && self.api_groups == other.api_groups
            && self.resources == other.resources
            && (self.resource_names.is_empty() || self.resource_names == other.resource_names)
            && other.verbs.iter().all(|v| self.verbs.contains(v))
    }

    pub fn new(group: &str, resources: &[&str], verbs: &[&'static str]) -> Self {
        let own = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect();
        let (api_groups, resources) = (vec![group.to_owned()], own(resources));
        Self { api_groups, resources, resource_names: vec![], verbs: verbs.to_vec() }
    }

    /// For the kinds that a grant names.
    pub fn of_kind(kind: &KindPattern, verbs: &[&'static str]) -> Self {
        let resource = kind.kind().map_or_else(|| "*".to_owned(), resource_name);
        Self::new(kind.group().unwrap_or("*"), &[&resource], verbs)
    }
}

/// How the API server calls a kind in URLs and in RBAC, by the rule that kubectl goes by where it cannot ask.
pub fn resource_name(kind: &str) -> String {
    let lower = kind.to_ascii_lowercase();
    match lower.as_str() {
        "endpoints" => lower,
        l if l.ends_with('s') => lower + "es",
        l => match l.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => lower + "s",
        },
    }
}

/// The least rules under which everything that a grant covers can be done.
pub fn policy_rules(rule: &Rule) -> Vec<PolicyRule> {
    let names: Option<Vec<String>> =
        rule.names.iter().map(|n: &Pattern| n.literal().map(str::to_owned)).collect();
    // RBAC knows the name of an object only where it is there already.
    let (mut named, mut unnamed) = (Vec::new(), Vec::new());
    for verb in &rule.verbs {
        let (on_one, on_all): (&[&str], &[&str]) = match verb {
            Verb::Get => (&["get"], &[]),
            Verb::List => (&[], &["list"]),
            Verb::Create => (&[], &["create"]),
            // An apply makes what is not there; each write looks first whose object it is.
            Verb::Apply => (&["get", "patch"], &["create"]),
            Verb::Patch => (&["get", "patch"], &[]),
            Verb::Delete => (&["get", "delete"], &[]),
        };
        named.extend_from_slice(on_one);
        unnamed.extend_from_slice(on_all);
    }
    let names = names.unwrap_or_default();
    if names.is_empty() {
        named.append(&mut unnamed);
    }
    let mut out = Vec::new();
    for (verbs, names) in [(named, names), (unnamed, vec![])] {
        let verbs = in_order(verbs);
        if !verbs.is_empty() {
            out.extend(
                rule.kinds
                    .iter()
                    .map(|k| PolicyRule { resource_names: names.clone(), ..PolicyRule::of_kind(k, &verbs) }),
            );
        }
    }
    out
}

/// Each verb once, as people write them.
fn in_order(verbs: Vec<&'static str>) -> Vec<&'static str> {
    const ORDER: [&str; 5] = ["get", "list", "create", "patch", "delete"];
    ORDER.into_iter().filter(|o| verbs.contains(o)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rules(rule: Value) -> Value {
        let rule: Rule = serde_json::from_value(rule).unwrap();
        serde_json::to_value(policy_rules(&rule)).unwrap()
    }

    #[test]
    fn kinds_become_resources() {
        for (kind, resource) in [
            ("Deployment", "deployments"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
            ("Endpoints", "endpoints"),
            ("StorageClass", "storageclasses"),
            ("ServiceMonitor", "servicemonitors"),
        ] {
            assert_eq!(resource_name(kind), resource);
        }
    }

    #[test]
    fn the_least_rules_of_a_grant() {
        assert_eq!(
            rules(json!({"verbs": ["get", "apply", "delete"], "kinds": ["apps/Deployment"]})),
            json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "create", "patch", "delete"]}])
        );
        assert_eq!(
            rules(json!({"verbs": ["apply"], "kinds": ["Secret"], "names": ["a", "b"]})),
            json!([
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get", "patch"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
            ])
        );
        assert_eq!(
            rules(json!({"verbs": ["list"], "kinds": ["apps/*", "*"], "names": ["*"]})),
            json!([
                {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["list"]},
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]},
            ])
        );
        assert_eq!(
            rules(json!({"verbs": ["get"], "kinds": ["Pod"], "names": ["x-{tenant}"]})),
            json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
        );
    }
}
