//! Whose pods may be read: `[plugins.NAME.grants.logs]`.

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_kubernetes::{Pod, covers_cluster};
use sutler_model::{Effective, NotGranted, Owner, Pattern};

/// The logs grant of one layer. Without namespaces nothing is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Grants {
    /// Patterns of namespaces, such as `ksml-{tenant}`. In a namespace that does not follow from the tenant alone
    /// only the call's owner's pods are seen: those with its label `sutler.dev/owner`, and those of its Helm releases.
    #[schemars(with = "Vec<String>")]
    pub namespaces: Vec<Pattern>,
    /// Names of clusters, or `*`; without any, the default cluster only.
    pub clusters: Vec<String>,
    /// Also see other pods: for namespaces that hold nothing of another tenant.
    pub any_owner: bool,
}

/// Which pods of a granted namespace a call sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    All,
    /// Those that carry the owner's label or come from one of its releases.
    Owned,
}

/// Whether the pod itself tells that it is seen or not; a pod without an owner's label does not.
pub(crate) fn sees(reach: Reach, pod: &Pod, owner: &Owner) -> Option<bool> {
    match (reach, pod.labels.get(Owner::LABEL)) {
        (Reach::All, _) => Some(true),
        (Reach::Owned, Some(found)) => Some(*found == owner.hash()),
        (Reach::Owned, None) => None,
    }
}

/// A namespace as grants see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) default_cluster: bool,
    pub(crate) namespace: &'a str,
    pub(crate) owner: &'a Owner,
}

impl Grants {
    fn check(&self, ask: &Ask<'_>) -> Result<(), (String, String)> {
        let granted = covers_cluster(&self.clusters, ask.cluster, ask.default_cluster)
            && self.namespaces.iter().any(|p| p.matches(ask.namespace, ask.owner));
        if granted {
            return Ok(());
        }
        let text = serde_json::Value::from;
        let (mut place, mut add) =
            (String::new(), format!("logs = {{ namespaces = [{}]", text(ask.namespace)));
        if !ask.default_cluster {
            place = format!(" of cluster {}", ask.cluster);
            add.push_str(&format!(", clusters = [{}]", text(ask.cluster)));
        }
        add.push_str(" }");
        Err((format!("reading logs in namespace {}{place}", ask.namespace), add))
    }
}

/// Whether the namespace is this tenant's alone. With a wildcard beside the placeholder it is not: `{tenant}-*` of
/// tenant `a` also fits a namespace of tenant `a-b`.
fn isolates(namespaces: &[Pattern], ask: &Ask<'_>) -> bool {
    namespaces.iter().any(|p| p.per_tenant() && p.fill(ask.owner).as_deref() == Some(ask.namespace))
}

/// What every layer together allows. One layer that isolates is enough, since all must allow the namespace.
pub(crate) fn reach(grants: &Effective<Grants>, ask: &Ask<'_>) -> Result<Reach, NotGranted> {
    grants.check(|g| g.check(ask))?;
    grants.namespace(Some(ask.namespace), ask.owner)?;
    let alone =
        grants.layers().map(|g| g.namespaces.as_slice()).chain(grants.namespaces()).any(|n| isolates(n, ask));
    let all = alone || grants.layers().all(|g| g.any_owner);
    Ok(if all { Reach::All } else { Reach::Owned })
}
