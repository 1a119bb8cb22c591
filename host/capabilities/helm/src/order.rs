//! In which order kinds are installed and removed (Helm 4, `kind_sorter`).

/// What is applied first to last.
pub const INSTALL: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// What is deleted first to last: not the reverse of the other list.
pub const UNINSTALL: [&str; 38] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "Ingress",
    "IngressClass",
    "Service",
    "CronJob",
    "Job",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DaemonSet",
    "RoleBindingList",
    "RoleBinding",
    "RoleList",
    "Role",
    "ClusterRoleBindingList",
    "ClusterRoleBinding",
    "ClusterRoleList",
    "ClusterRole",
    "CustomResourceDefinition",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ConfigMap",
    "SecretList",
    "Secret",
    "ServiceAccount",
    "PodDisruptionBudget",
    "PodSecurityPolicy",
    "LimitRange",
    "ResourceQuota",
    "NetworkPolicy",
    "Namespace",
    "PriorityClass",
];

/// Sorts by a list, stably; kinds that are not in it go last, by name.
pub fn sort_by_kind<T>(items: &mut [T], order: &[&str], kind: impl Fn(&T) -> &str) {
    let place = |k: &str| order.iter().position(|o| *o == k).unwrap_or(order.len());
    items.sort_by(|a, b| {
        let (a, b) = (kind(a), kind(b));
        let (x, y) = (place(a), place(b));
        x.cmp(&y).then_with(|| if x == order.len() { a.cmp(b) } else { std::cmp::Ordering::Equal })
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders() {
        let sorted = |order: &[&str], kinds: &[&str]| {
            let mut v: Vec<(usize, String)> =
                kinds.iter().enumerate().map(|(i, k)| (i, (*k).to_owned())).collect();
            sort_by_kind(&mut v, order, |(_, k)| k.as_str());
            v.into_iter().map(|(i, k)| format!("{k}{i}")).collect::<Vec<_>>().join(" ")
        };
        let kinds =
            ["Zebra", "Deployment", "ConfigMap", "Alpaca", "Service", "ConfigMap", "Namespace", "Ingress"];
        assert_eq!(
            sorted(&INSTALL, &kinds),
            "Namespace6 ConfigMap2 ConfigMap5 Service4 Deployment1 Ingress7 Alpaca3 Zebra0"
        );
        assert_eq!(
            sorted(&UNINSTALL, &kinds),
            "Ingress7 Service4 Deployment1 ConfigMap2 ConfigMap5 Namespace6 Alpaca3 Zebra0"
        );
        let mut a: Vec<&str> = INSTALL.to_vec();
        let mut b: Vec<&str> = UNINSTALL.to_vec();
        a.sort_unstable();
        b.sort_unstable();
        assert_eq!(a, b, "both lists name the same kinds");
    }
}
