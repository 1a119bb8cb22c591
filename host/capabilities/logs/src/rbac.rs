//! What RBAC has to allow for the logs that are granted.

use sutler_kubernetes::PolicyRule;
use sutler_model::Pattern;

use crate::Grants;

impl Grants {
    /// In each of the granted namespaces. Nothing here writes.
    pub fn policy_rules(&self) -> Vec<PolicyRule> {
        let mut rules = vec![
            PolicyRule::new("", &["pods"], &["get", "list", "watch"]),
            PolicyRule::new("", &["pods/log"], &["get"]),
        ];
        if !self.any_owner && !self.namespaces.iter().all(Pattern::per_tenant) {
            // Whose a release's pod is follows from what made it and from the release's records.
            rules.extend([
                PolicyRule::new(
                    "apps",
                    &["daemonsets", "deployments", "replicasets", "statefulsets"],
                    &["get"],
                ),
                PolicyRule::new("batch", &["cronjobs", "jobs"], &["get"]),
                PolicyRule::new("", &["secrets"], &["list"]),
            ]);
        }
        rules
    }
}
