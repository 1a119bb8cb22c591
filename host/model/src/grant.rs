//! What holds at a capability call: plugin ∩ instance ∩ tenant.

use std::sync::Arc;

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
}

impl<G> Effective<G> {
    pub const fn new(layers: Vec<(Layer, Arc<G>)>) -> Self {
        Self { layers }
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
