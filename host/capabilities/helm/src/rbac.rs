//! What RBAC has to allow for the releases that are granted.

use sutler_kubernetes::{PolicyRule, resource_name};
use sutler_model::Pattern;

use crate::Grants;

/// What is done with a release's objects.
const OBJECTS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

impl Grants {
    /// Rules by the namespaces that they hold in; without any, in the cluster.
    pub fn policy_rules(&self) -> Vec<(Vec<Pattern>, Vec<PolicyRule>)> {
        let mut out = vec![];
        if !self.namespaces.is_empty() {
            let records = PolicyRule::new("", &["secrets"], &OBJECTS);
            // What a hook wrote is told where it failed.
            let output = PolicyRule::new("", &["pods", "pods/log"], &["get", "list"]);
            let mut rules = self.objects();
            rules.extend([records, output]);
            out.push((self.namespaces.clone(), rules));
        }
        if !self.other_namespaces.is_empty() {
            out.push((self.other_namespaces.clone(), self.objects()));
        }
        let kinds = self.cluster_scoped_kinds.iter();
        let outside: Vec<PolicyRule> =
            kinds.map(|kind| PolicyRule::new("*", &[&resource_name(kind)], &OBJECTS)).collect();
        if !outside.is_empty() {
            out.push((vec![], outside));
        }
        out
    }

    /// The objects that charts may have.
    fn objects(&self) -> Vec<PolicyRule> {
        match &self.kinds {
            None => vec![PolicyRule::new("*", &["*"], &OBJECTS)],
            Some(kinds) => kinds.iter().map(|k| PolicyRule::of_kind(k, &OBJECTS)).collect(),
        }
    }
}
