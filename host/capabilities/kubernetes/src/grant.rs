//! What may be asked of a cluster: `[[plugins.NAME.grants.kubernetes]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sutler_model::{Effective, NotGranted, Owner, Pattern};

use crate::KindPattern;

/// What a plugin does with objects. A dry run of apply needs `get` and `apply`, since it shows the whole object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    Get,
    List,
    Apply,
    Create,
    Patch,
    Delete,
}

impl Verb {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Apply => "apply",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One rule; a call is granted when a single rule covers all of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// What the plugin may do.
    pub verbs: Vec<Verb>,
    /// Kinds: `Namespace`, `apps/Deployment`, `apps/*`, `*`. A wildcard never covers Secret: name it.
    #[schemars(with = "Vec<String>")]
    pub kinds: Vec<KindPattern>,
    /// Patterns of namespaces, such as `ksml-{tenant}`. Without any the rule is for cluster-scoped objects only;
    /// with some it is for objects in namespaces only. `*` also covers a list over all namespaces.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub namespaces: Vec<Pattern>,
    /// Patterns of object names. A list is covered by `*` only, or where it asks for one name.
    #[serde(default = "any_name")]
    #[schemars(with = "Vec<String>")]
    pub names: Vec<Pattern>,
    /// Labels that an object has to carry, before and after a change: `{ team = "a" }`. A list is covered where its
    /// label selector asks for them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Names of clusters, or `*`; without any, the default cluster only.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Also change objects that another owner made, or nobody. They never become the plugin's own.
    #[serde(default)]
    pub unowned: bool,
}

fn any_name() -> Vec<Pattern> {
    "*".parse().into_iter().collect()
}

/// The Kubernetes grants of one layer. None means nothing is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Grants(pub Vec<Rule>);

/// Where the objects of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Cluster-scoped objects.
    Cluster,
    Namespace(&'a str),
    /// A list over all namespaces.
    Everywhere,
}

/// The labels of a call's objects.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// Not read yet: a call that no rule covers whatever they are sends nothing.
    Unknown,
    Of(&'a Value),
    /// What a list asks for.
    Selector(&'a str),
}

impl Labels<'_> {
    fn have(self, key: &str, value: &str) -> bool {
        match self {
            Self::Unknown => true,
            Self::Of(object) => {
                let labels = object.get("metadata").and_then(|m| m.get("labels"));
                labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value)
            }
            // Commas inside `in (a,b)` make pieces that equal nothing.
            Self::Selector(text) => text.split(',').any(|piece| {
                let (k, v) = piece.split_once('=').unwrap_or_default();
                k.trim() == key && v.strip_prefix('=').unwrap_or(v).trim() == value
            }),
        }
    }
}

/// One call as grants see it.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub verb: Verb,
    /// `""` for the core group.
    pub group: &'a str,
    pub kind: &'a str,
    pub scope: Scope<'a>,
    /// `None` for a list of all names.
    pub name: Option<&'a str>,
    /// The cluster's name.
    pub cluster: &'a str,
    /// Whether that is the default one.
    pub default_cluster: bool,
    /// Whose call it is: fills the placeholders of patterns.
    pub owner: &'a Owner,
    /// Whether the object to change is not this owner's.
    pub unowned: bool,
    pub labels: Labels<'a>,
}

impl Ask<'_> {
    fn object(&self) -> String {
        let name = self.name.map(|n| format!(" {n}")).unwrap_or_default();
        let place = match self.scope {
            Scope::Cluster => String::new(),
            Scope::Namespace(ns) => format!(" in namespace {ns}"),
            Scope::Everywhere => " in all namespaces".into(),
        };
        let cluster =
            if self.default_cluster { String::new() } else { format!(" of cluster {}", self.cluster) };
        format!("{}{name}{place}{cluster}", self.kind_text())
    }

    fn kind_text(&self) -> String {
        if self.group.is_empty() { self.kind.into() } else { format!("{}/{}", self.group, self.kind) }
    }

    /// `get Secret pw in namespace acme`.
    fn what(&self) -> String {
        if self.unowned {
            let doing = match self.verb {
                Verb::Delete => "deleting",
                _ => "changing",
            };
            return format!("{doing} {}, which another owner made or nobody,", self.object());
        }
        format!("{} {}", self.verb.as_str(), self.object())
    }

    /// A line of TOML that would allow it, as narrow as the call.
    fn add(&self) -> String {
        let list = |s: &str| format!("[{}]", serde_json::Value::from(s));
        let mut out = format!(
            "kubernetes = [{{ verbs = {}, kinds = {}",
            list(self.verb.as_str()),
            list(&self.kind_text())
        );
        match self.scope {
            Scope::Cluster => {}
            Scope::Namespace(ns) => out.push_str(&format!(", namespaces = {}", list(ns))),
            Scope::Everywhere => out.push_str(", namespaces = [\"*\"]"),
        }
        if let Some(name) = self.name {
            out.push_str(&format!(", names = {}", list(name)));
        }
        if !self.default_cluster {
            out.push_str(&format!(", clusters = {}", list(self.cluster)));
        }
        if self.unowned {
            out.push_str(", unowned = true");
        }
        out.push_str(" }]");
        out
    }
}

impl Rule {
    /// Whether the rule covers all of the call.
    pub fn covers(&self, ask: &Ask<'_>) -> bool {
        self.verbs.contains(&ask.verb)
            && self.kinds.iter().any(|k| k.matches(ask.group, ask.kind))
            && match ask.scope {
                Scope::Cluster => self.namespaces.is_empty(),
                Scope::Namespace(ns) => self.namespaces.iter().any(|p| p.matches(ns, ask.owner)),
                Scope::Everywhere => self.namespaces.iter().any(Pattern::is_any),
            }
            && match ask.name {
                Some(name) => self.names.iter().any(|p| p.matches(name, ask.owner)),
                None => self.names.iter().any(Pattern::is_any),
            }
            && covers_cluster(&self.clusters, ask.cluster, ask.default_cluster)
            && (self.unowned || !ask.unowned)
            && self.labels.iter().all(|(k, v)| ask.labels.have(k, v))
    }
}

/// Whether a grant's list of clusters covers one; without any it is the default cluster's.
pub fn covers_cluster(granted: &[String], cluster: &str, default_cluster: bool) -> bool {
    if granted.is_empty() { default_cluster } else { granted.iter().any(|c| c == "*" || c == cluster) }
}

impl Grants {
    /// Whether a rule covers the call; if not, what it was and the line that would allow it. For `Effective::check`.
    ///
    /// # Errors
    /// (what, add) of `NotGranted`.
    pub fn check(&self, ask: &Ask<'_>) -> Result<(), (String, String)> {
        if self.0.iter().any(|r| r.covers(ask)) { Ok(()) } else { Err((ask.what(), ask.add())) }
    }
}

/// Whether every layer covers the call, and names its namespace where it names some: also the one that a Namespace is.
pub(crate) fn check(grants: &Effective<Grants>, ask: &Ask<'_>) -> Result<(), NotGranted> {
    grants.check(|g| g.check(ask))?;
    match ask.scope {
        Scope::Namespace(ns) => grants.namespace(Some(ns), ask.owner),
        Scope::Everywhere => grants.namespace(None, ask.owner),
        Scope::Cluster if ask.group.is_empty() && ask.kind == "Namespace" => {
            grants.namespace(ask.name, ask.owner)
        }
        Scope::Cluster => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sutler_model::Layer;

    #[test]
    fn what_is_limited_to_namespaces_makes_no_other_one() {
        let all = serde_json::json!([
            {"verbs": ["get", "list", "create"], "kinds": ["*"], "namespaces": ["*"]},
            {"verbs": ["list", "create"], "kinds": ["*"]},
        ]);
        let all: Grants = serde_json::from_value(all).unwrap_or_default();
        let fence: Vec<Pattern> = "emea-*".parse().into_iter().collect();
        let grants = Effective::new(vec![(Layer::Plugin("p".into()), all.into())])
            .within(vec![(Layer::Instance("emea".into()), fence.into())]);
        let owner = Owner::nobody();
        for (verb, kind, scope, name, allowed) in [
            (Verb::Get, "Pod", Scope::Namespace("emea-a"), Some("x"), true),
            (Verb::Get, "Pod", Scope::Namespace("apac-a"), Some("x"), false),
            (Verb::List, "Pod", Scope::Everywhere, None, false),
            (Verb::Create, "Namespace", Scope::Cluster, Some("emea-a"), true),
            (Verb::Create, "Namespace", Scope::Cluster, Some("apac-a"), false),
            (Verb::List, "Namespace", Scope::Cluster, None, false),
            (Verb::Create, "ClusterRole", Scope::Cluster, Some("apac-a"), true),
        ] {
            let group = if kind == "ClusterRole" { "rbac.authorization.k8s.io" } else { "" };
            let ask = Ask {
                verb,
                group,
                kind,
                scope,
                name,
                cluster: "default",
                default_cluster: true,
                owner: &owner,
                unowned: false,
                labels: Labels::Unknown,
            };
            let got = check(&grants, &ask);
            assert_eq!(got.is_ok(), allowed, "{verb:?} {kind} {scope:?} {name:?}");
            assert!(allowed || got.is_err_and(|e| e.at == "instances.emea"));
        }
    }
}
