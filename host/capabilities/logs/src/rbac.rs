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
        // With a wildcard a tenant's pattern also fits another one's namespace.
        let alone = |p: &Pattern| p.per_tenant() && !p.to_string().contains('*');
        if !self.any_owner && !self.namespaces.iter().all(alone) {
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
