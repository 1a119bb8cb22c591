//! What a call names.

use serde_json::Value;

use crate::Error;

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// `None` for the default cluster.
    pub cluster: Option<String>,
    /// As in a manifest: `v1`, `apps/v1`.
    pub api_version: String,
    pub kind: String,
    /// `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    pub name: String,
}

impl Reference {
    /// The object that a manifest describes, in the default cluster.
    ///
    /// # Errors
    /// `Invalid` where apiVersion, kind or metadata.name is missing or not a text.
    pub fn of_manifest(manifest: &Value) -> Result<Self, Error> {
        let text =
            |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).filter(|s| !s.is_empty());
        let need = |pointer: &str| {
            text(pointer).map(str::to_owned).ok_or_else(|| {
                let field = pointer.trim_start_matches('/').replace('/', ".");
                Error::Invalid(format!("the manifest lacks {field}; write it as a text"))
            })
        };
        Ok(Self {
            cluster: None,
            api_version: need("/apiVersion")?,
            kind: need("/kind")?,
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: need("/metadata/name")?,
        })
    }

    /// `""` for the core group.
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(ns) => write!(f, "{} {ns}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The group of an apiVersion; `""` for `v1`.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Some objects of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    pub cluster: Option<String>,
    pub api_version: String,
    pub kind: String,
    /// `None` for a cluster-scoped kind, or for every namespace.
    pub namespace: Option<String>,
    /// A label selector; empty for all.
    pub labels: String,
    /// A field selector; empty for all.
    pub fields: String,
    /// 0 for the default of 500.
    pub limit: u32,
    pub continue_token: Option<String>,
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub items: Vec<Value>,
    /// Set where more follows.
    pub continue_token: Option<String>,
}

/// What happens to the objects that a deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

impl Propagation {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}
