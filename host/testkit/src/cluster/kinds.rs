//! The kinds that the emulator serves.

use std::sync::Arc;

use serde_json::{Value, json};

/// One kind in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KindInfo {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
}

impl KindInfo {
    fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Arc<Self> {
        Arc::new(Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            namespaced,
        })
    }

    /// As in a manifest: `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// As in messages: `configmaps`, `deployments.apps`.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Whether `status` is written through its own subresource only.
    pub(crate) fn has_status(&self) -> bool {
        !matches!(
            self.kind.as_str(),
            "ConfigMap"
                | "Secret"
                | "ServiceAccount"
                | "Event"
                | "Role"
                | "RoleBinding"
                | "ClusterRole"
                | "ClusterRoleBinding"
        )
    }

    /// The kind's line in an APIResourceList.
    pub(crate) fn listed(&self) -> Value {
        json!({
            "name": self.plural, "singularName": self.kind.to_lowercase(), "namespaced": self.namespaced,
            "kind": self.kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        })
    }

    /// What a CustomResourceDefinition defines, by its stored version.
    pub(crate) fn of_definition(definition: &Value) -> Option<Arc<Self>> {
        let text = |at: &str| definition.pointer(at).and_then(Value::as_str);
        let versions = definition.pointer("/spec/versions")?.as_array()?;
        let stored = versions.iter().find(|v| v["storage"] == true).or_else(|| versions.first())?;
        Some(Self::new(
            text("/spec/group")?,
            stored["name"].as_str()?,
            text("/spec/names/plural")?,
            text("/spec/names/kind")?,
            text("/spec/scope") == Some("Namespaced"),
        ))
    }
}

/// What is served from the start.
pub(crate) fn common() -> Vec<Arc<KindInfo>> {
    [
        ("", "v1", "namespaces", "Namespace", false),
        ("", "v1", "configmaps", "ConfigMap", true),
        ("", "v1", "secrets", "Secret", true),
        ("", "v1", "services", "Service", true),
        ("", "v1", "serviceaccounts", "ServiceAccount", true),
        ("", "v1", "pods", "Pod", true),
        ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
        ("", "v1", "events", "Event", true),
        ("apps", "v1", "deployments", "Deployment", true),
        ("apps", "v1", "statefulsets", "StatefulSet", true),
        ("apps", "v1", "daemonsets", "DaemonSet", true),
        ("apps", "v1", "replicasets", "ReplicaSet", true),
        ("batch", "v1", "jobs", "Job", true),
        ("batch", "v1", "cronjobs", "CronJob", true),
        ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
        ("networking.k8s.io", "v1", "ingresses", "Ingress", true),
        ("rbac.authorization.k8s.io", "v1", "roles", "Role", true),
        ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true),
        ("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false),
        ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false),
        ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true),
        ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
        ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
        ("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor", true),
    ]
    .into_iter()
    .map(|(group, version, plural, kind, namespaced)| KindInfo::new(group, version, plural, kind, namespaced))
    .collect()
}
