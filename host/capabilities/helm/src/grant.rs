//! What an operator allows a plugin to do with Helm: `[plugins.NAME.grants.helm]`. Pure decisions, no I/O.

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_kubernetes::KindPattern;
use sutler_model::{Effective, NotGranted, Owner, Pattern};

use crate::oci::ChartUrl;

/// The grants of one layer. Everything not named is refused.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Grants {
    /// Charts that may be pulled, rendered and installed: `oci://HOST[:PORT]/PATH`, `*` in the path for any run of
    /// characters, placeholders such as `{tenant}` allowed. The host is exact.
    pub charts: Vec<ChartPattern>,
    /// Namespaces in which releases may be read and changed.
    #[schemars(with = "Vec<String>")]
    pub namespaces: Vec<Pattern>,
    /// Names of releases; every name when left out.
    #[schemars(with = "Option<Vec<String>>")]
    pub names: Option<Vec<Pattern>>,
    /// Named clusters besides the default one.
    pub clusters: Vec<String>,
    /// Releases and objects without the caller's owner label may be read, changed and adopted as well.
    pub unowned: bool,
    /// Kinds of objects in namespaces that a chart may contain: `Service`, `apps/Deployment`, `apps/*`; every kind
    /// when left out. A wildcard does not cover Secret: name it.
    #[schemars(with = "Option<Vec<String>>")]
    pub kinds: Option<Vec<KindPattern>>,
    /// Kinds of objects outside any namespace that a chart may contain, for example `ClusterRole`.
    /// `Namespace` allows `create-namespace`, `CustomResourceDefinition` a chart's `crds/`.
    pub cluster_scoped_kinds: Vec<String>,
    /// Namespaces besides the release's own into which a chart may put objects.
    #[schemars(with = "Vec<String>")]
    pub other_namespaces: Vec<Pattern>,
}

/// An exact host and a pattern of the path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct ChartPattern {
    host: String,
    path: Pattern,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "chart pattern {found:?} is not valid: {rule}; write oci://HOST/PATH, for example oci://registry.example/charts/*"
)]
pub struct BadChartPattern {
    found: String,
    rule: String,
}

impl TryFrom<String> for ChartPattern {
    type Error = BadChartPattern;
    fn try_from(s: String) -> Result<Self, BadChartPattern> {
        // What stands before an @ may be a password.
        let found = || if s.contains('@') { "the address".into() } else { s.chars().take(200).collect() };
        let bad = |rule: &str| BadChartPattern { found: found(), rule: rule.into() };
        let rest = s.strip_prefix("oci://").ok_or_else(|| bad("it does not begin with oci://"))?;
        let (host, path) = rest.split_once('/').ok_or_else(|| bad("it has no path after the host"))?;
        if host.is_empty() || host.contains(['*', '{', '@']) {
            return Err(bad("the host must be exact"));
        }
        let path = path.parse::<Pattern>().map_err(|e| bad(&e.to_string()))?;
        Ok(Self { host: host.to_ascii_lowercase(), path })
    }
}

impl ChartPattern {
    fn matches(&self, url: &ChartUrl, owner: &Owner) -> bool {
        self.host == url.host() && self.path.matches(url.repository(), owner)
    }
}

impl std::fmt::Display for ChartPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "oci://{}/{}", self.host, self.path)
    }
}

type Refusal = (String, String);

/// The TOML line with what is there already and what is missing.
fn line<T: ToString>(key: &str, have: &[T], missing: &str) -> String {
    let all: Vec<String> =
        have.iter().map(ToString::to_string).chain([missing.to_owned()]).map(|s| format!("{s:?}")).collect();
    format!("helm.{key} = [{}]", all.join(", "))
}

impl Grants {
    /// # Errors
    /// What was asked, and the line of TOML that would allow it.
    pub fn chart(&self, url: &ChartUrl, owner: &Owner) -> Result<(), Refusal> {
        if self.charts.iter().any(|p| p.matches(url, owner)) {
            return Ok(());
        }
        Err((format!("chart {url}"), line("charts", &self.charts, &url.to_string())))
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn cluster(&self, cluster: Option<&str>) -> Result<(), Refusal> {
        match cluster {
            Some(name) if !self.clusters.iter().any(|c| c == name) => {
                Err((format!("Helm on cluster {name}"), line("clusters", &self.clusters, name)))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn namespace(&self, namespace: &str, owner: &Owner) -> Result<(), Refusal> {
        if self.namespaces.iter().any(|p| p.matches(namespace, owner)) {
            return Ok(());
        }
        Err((format!("Helm in namespace {namespace}"), line("namespaces", &self.namespaces, namespace)))
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn name(&self, name: &str, owner: &Owner) -> Result<(), Refusal> {
        match &self.names {
            Some(names) if !names.iter().any(|p| p.matches(name, owner)) => {
                Err((format!("Helm release {name}"), line("names", names, name)))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn kind(&self, group: &str, kind: &str, name: &str) -> Result<(), Refusal> {
        match &self.kinds {
            Some(kinds) if !kinds.iter().any(|k| k.matches(group, kind)) => {
                let full = if group.is_empty() { kind.to_owned() } else { format!("{group}/{kind}") };
                Err((format!("{full} {name} from a chart"), line("kinds", kinds, &full)))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn take_ownership(&self) -> Result<(), Refusal> {
        if self.unowned {
            return Ok(());
        }
        Err(("taking over objects that this application does not own".into(), "helm.unowned = true".into()))
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn cluster_scoped(&self, kind: &str, name: &str) -> Result<(), Refusal> {
        if self.cluster_scoped_kinds.iter().any(|k| k == kind) {
            return Ok(());
        }
        Err((
            format!("{kind} {name} outside any namespace, from a chart"),
            line("cluster-scoped-kinds", &self.cluster_scoped_kinds, kind),
        ))
    }

    /// # Errors
    /// As [`Grants::chart`].
    pub fn other_namespace(
        &self,
        kind: &str,
        name: &str,
        namespace: &str,
        owner: &Owner,
    ) -> Result<(), Refusal> {
        if self.other_namespaces.iter().any(|p| p.matches(namespace, owner)) {
            return Ok(());
        }
        Err((
            format!("{kind} {name} in namespace {namespace}, which is not the release's,"),
            line("other-namespaces", &self.other_namespaces, namespace),
        ))
    }
}

/// Whether the call may see and change this release.
///
/// # Errors
/// `NotGranted` naming the layer and the line that would allow it.
pub(crate) fn release(
    grants: &Effective<Grants>,
    owner: &Owner,
    cluster: Option<&str>,
    namespace: &str,
    name: Option<&str>,
) -> Result<(), NotGranted> {
    grants.check(|g| {
        g.cluster(cluster)?;
        g.namespace(namespace, owner)?;
        name.map_or(Ok(()), |n| g.name(n, owner))
    })?;
    grants.namespace(Some(namespace), owner)
}

/// Whether a chart may have this object outside any namespace.
///
/// # Errors
/// As [`release`].
pub(crate) fn cluster_scoped(
    grants: &Effective<Grants>,
    owner: &Owner,
    kind: &str,
    name: &str,
) -> Result<(), NotGranted> {
    grants.check(|g| g.cluster_scoped(kind, name))?;
    if kind == "Namespace" { grants.namespace(Some(name), owner) } else { Ok(()) }
}

/// Whether a chart may have this object in a namespace that is not the release's.
///
/// # Errors
/// As [`release`].
pub(crate) fn other_namespace(
    grants: &Effective<Grants>,
    owner: &Owner,
    (kind, name): (&str, &str),
    namespace: &str,
) -> Result<(), NotGranted> {
    grants.check(|g| g.other_namespace(kind, name, namespace, owner))?;
    grants.namespace(Some(namespace), owner)
}

/// Whether releases and objects of other owners are within reach.
pub(crate) fn unowned(grants: &Effective<Grants>) -> bool {
    // No layer at all grants nothing.
    grants.layers().next().is_some() && grants.layers().all(|g| g.unowned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sutler_model::{Application, Identifier, Layer};

    fn owner(tenant: Option<&str>) -> Owner {
        let id = |s: &str| Identifier::parse(s).unwrap();
        Owner {
            application: Application {
                id: id("orders"),
                environment: id("prod"),
                tenant: tenant.map(id),
                instance: None,
            },
            pair: "deployment/ksml".parse().unwrap(),
        }
    }
    fn grants(json: serde_json::Value) -> Grants {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn charts_by_host_and_path() {
        let g = grants(
            serde_json::json!({"charts": ["oci://registry.example/ksml/*", "oci://r.example:5000/{tenant}/app"]}),
        );
        for (url, allowed) in [
            ("oci://registry.example/ksml/ksml", true),
            ("oci://REGISTRY.example/ksml/a/b", true),
            ("oci://registry.example/other/ksml", false),
            ("oci://registry.example/ksml2/x", false),
            ("oci://registry.example:5000/ksml/x", false),
            ("oci://evil.example/ksml/x", false),
            ("oci://r.example:5000/acme/app", true),
            ("oci://r.example:5000/other/app", false),
        ] {
            assert_eq!(g.chart(&url.parse().unwrap(), &owner(Some("acme"))).is_ok(), allowed, "{url}");
        }
        assert!(g.chart(&"oci://r.example:5000/acme/app".parse().unwrap(), &owner(None)).is_err());
    }

    #[test]
    fn patterns_that_are_refused() {
        for bad in [
            "https://r.example/x",
            "oci://r.example",
            "oci://*.example/x",
            "oci://u:hunter2@r.example/x",
            "oci://r/{no}",
        ] {
            let e = ChartPattern::try_from(bad.to_owned()).unwrap_err().to_string();
            assert!(!e.contains("hunter2"), "{e}");
        }
        assert!(serde_json::from_value::<Grants>(serde_json::json!({"chart": []})).is_err(), "unknown key");
    }

    #[test]
    fn releases() {
        let plugin = grants(serde_json::json!({"namespaces": ["ns-{tenant}"], "clusters": ["east"]}));
        let tenant =
            grants(serde_json::json!({"namespaces": ["*"], "names": ["app-*"], "clusters": ["east"]}));
        let both = Effective::new(vec![
            (Layer::Plugin("ksml".into()), plugin.into()),
            (Layer::Tenant("acme".into()), tenant.into()),
        ]);
        let o = owner(Some("acme"));
        for (cluster, namespace, name, refused) in [
            (None, "ns-acme", "app-1", None),
            (Some("east"), "ns-acme", "app-1", None),
            (Some("west"), "ns-acme", "app-1", Some("clusters = [\"east\", \"west\"]")),
            (
                None,
                "ns-other",
                "app-1",
                Some(
                    "add to [plugins.ksml.grants] in sutler.toml: helm.namespaces = [\"ns-{tenant}\", \"ns-other\"]",
                ),
            ),
            (
                None,
                "ns-acme",
                "db",
                Some("add to [tenants.acme.grants] in sutler.toml: helm.names = [\"app-*\", \"db\"]"),
            ),
        ] {
            let got = release(&both, &o, cluster, namespace, Some(name)).map_err(|e| e.to_string());
            match refused {
                None => assert_eq!(got, Ok(())),
                Some(text) => assert!(got.clone().unwrap_err().contains(text), "{got:?}"),
            }
        }
        assert!(!unowned(&both));
        assert!(!unowned(&Effective::new(vec![])));
    }

    #[test]
    fn kinds_that_a_chart_may_have() {
        let g = grants(serde_json::json!({"kinds": ["apps/*", "Service"]}));
        assert!(g.kind("apps", "Deployment", "d").is_ok() && g.kind("", "Service", "s").is_ok());
        let (what, add) = g.kind("", "Secret", "s").unwrap_err();
        assert_eq!(
            (what.as_str(), add.as_str()),
            ("Secret s from a chart", r#"helm.kinds = ["apps/*", "Service", "Secret"]"#)
        );
        assert!(g.kind("batch", "Job", "j").is_err());
        assert!(Grants::default().kind("batch", "Job", "j").is_ok(), "every kind when left out");
    }

    #[test]
    fn objects_outside_the_namespace() {
        let g = grants(
            serde_json::json!({"cluster-scoped-kinds": ["ClusterRole"], "other-namespaces": ["monitoring"]}),
        );
        assert!(g.cluster_scoped("ClusterRole", "x").is_ok());
        assert_eq!(
            g.cluster_scoped("Namespace", "x").unwrap_err().1,
            "helm.cluster-scoped-kinds = [\"ClusterRole\", \"Namespace\"]"
        );
        assert!(g.other_namespace("ServiceMonitor", "m", "monitoring", &owner(None)).is_ok());
        assert!(g.other_namespace("Secret", "m", "kube-system", &owner(None)).is_err());
        assert!(g.take_ownership().is_err());
    }
}
