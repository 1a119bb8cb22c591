//! What holds at a capability call: plugin ∩ instance ∩ tenant.

use std::sync::Arc;

use crate::{Owner, Pattern};

/// Whose configuration a grant stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer {
    Plugin(String),
    Instance(String),
    Tenant(String),
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plugin(n) => write!(f, "plugins.{n}"),
            Self::Instance(n) => write!(f, "instances.{n}"),
            Self::Tenant(n) => write!(f, "tenants.{n}"),
        }
    }
}

/// A call that no grant covers. Its text names the grant that would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not granted; to allow it, add to [{at}] in sutler.toml: {add}")]
pub struct NotGranted {
    /// The layer that lacks it, and the table: `plugins.ksml.grants`.
    pub at: String,
    /// What was asked: `get Secret in namespace acme`.
    pub what: String,
    /// A line of TOML that would allow it.
    pub add: String,
}

/// The grants of every layer that applies to one call. All of them must allow.
#[derive(Debug, Clone)]
pub struct Effective<G> {
    layers: Vec<(Layer, Arc<G>)>,
    /// What a layer says of namespaces alone, whatever is done in them.
    namespaces: Vec<(Layer, Arc<[Pattern]>)>,
}

impl<G> Effective<G> {
    pub const fn new(layers: Vec<(Layer, Arc<G>)>) -> Self {
        Self { layers, namespaces: Vec::new() }
    }

    /// With layers that name the only namespaces in which anything may be done, or made.
    #[must_use]
    pub fn within(mut self, namespaces: Vec<(Layer, Arc<[Pattern]>)>) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Whether every layer that names namespaces names this one; `None` is all namespaces at once.
    ///
    /// # Errors
    /// `NotGranted` naming the layer that refused.
    pub fn namespace(&self, namespace: Option<&str>, owner: &Owner) -> Result<(), NotGranted> {
        let covers = |p: &Pattern| namespace.map_or_else(|| p.is_any(), |n| p.matches(n, owner));
        for (layer, patterns) in &self.namespaces {
            if !patterns.iter().any(covers) {
                let what = namespace.map_or_else(|| "all namespaces".into(), |n| format!("namespace {n}"));
                let missing = namespace.unwrap_or("*").to_owned();
                let all: Vec<String> = patterns.iter().map(ToString::to_string).chain([missing]).collect();
                return Err(NotGranted { at: layer.to_string(), what, add: format!("namespaces = {all:?}") });
            }
        }
        Ok(())
    }

    /// The namespaces of each layer that names some.
    pub fn namespaces(&self) -> impl Iterator<Item = &[Pattern]> {
        self.namespaces.iter().map(|(_, n)| n.as_ref())
    }

    /// Runs `check` on each layer; the first that refuses decides. `check` answers (what, add) when it refuses.
    /// No layer at all refuses nothing and grants nothing, so callers always pass the plugin's.
    ///
    /// # Errors
    /// `NotGranted` naming the layer that refused.
    pub fn check(&self, mut check: impl FnMut(&G) -> Result<(), (String, String)>) -> Result<(), NotGranted> {
        for (layer, grants) in &self.layers {
            check(grants).map_err(|(what, add)| NotGranted { at: format!("{layer}.grants"), what, add })?;
        }
        Ok(())
    }

    /// The grants of each layer, the plugin's first.
    pub fn layers(&self) -> impl Iterator<Item = &G> {
        self.layers.iter().map(|(_, g)| g.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Application, Identifier};

    #[test]
    fn namespaces_of_each_layer_have_to_allow() {
        let id = |s: &str| Identifier::parse(s).unwrap();
        let owner = Owner {
            application: Application {
                id: id("orders"),
                environment: id("prod"),
                tenant: Some(id("acme")),
                instance: Some(id("emea")),
            },
            pair: "deployment/ksml".parse().unwrap(),
        };
        let layer = |layer, patterns: &[&str]| {
            (layer, patterns.iter().map(|p| p.parse().unwrap()).collect::<Vec<Pattern>>().into())
        };
        let plain = Effective::new(vec![(Layer::Plugin("ksml".into()), Arc::new(()))]);
        assert_eq!(plain.namespace(Some("any"), &owner), Ok(()));
        let both = plain.clone().within(vec![
            layer(Layer::Instance("emea".into()), &["emea-{tenant}", "shared"]),
            layer(Layer::Tenant("acme".into()), &["*-acme"]),
        ]);
        assert_eq!(both.namespace(Some("emea-acme"), &owner), Ok(()));
        for (namespace, at, add) in [
            (
                Some("emea-globex"),
                "instances.emea",
                r#"namespaces = ["emea-{tenant}", "shared", "emea-globex"]"#,
            ),
            (Some("shared"), "tenants.acme", r#"namespaces = ["*-acme", "shared"]"#),
            (None, "instances.emea", r#"namespaces = ["emea-{tenant}", "shared", "*"]"#),
        ] {
            let refused = both.namespace(namespace, &owner).unwrap_err();
            assert_eq!((refused.at.as_str(), refused.add.as_str()), (at, add));
        }
        let all = plain.within(vec![layer(Layer::Instance("emea".into()), &["*"])]);
        assert_eq!(all.namespace(None, &owner), Ok(()));
    }
}
