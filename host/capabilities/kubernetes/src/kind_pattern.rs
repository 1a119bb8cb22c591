//! Kinds in grants.

use std::str::FromStr;

use serde::Deserialize;

/// `Namespace`, `apps/Deployment`, `apps/*`, `*`. A wildcard never covers Secret of the core group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct KindPattern {
    /// `None` for every group.
    group: Option<String>,
    /// `None` for every kind.
    kind: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind: write Kind for the core group, group/Kind without a version, group/*, or *")]
pub struct InvalidKind(String);

impl FromStr for KindPattern {
    type Err = InvalidKind;
    fn from_str(s: &str) -> Result<Self, InvalidKind> {
        let bad = || InvalidKind(s.chars().take(80).collect());
        let (group, kind) = match s.split_once('/') {
            None if s == "*" => (None, None),
            Some(("*", "*")) => (None, None),
            None => (Some(""), Some(s)),
            Some((group, "*")) => (Some(group), None),
            Some((group, kind)) => (Some(group), Some(kind)),
        };
        let group_ok = |g: &str| {
            g.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
                && !looks_like_version(g)
        };
        let kind_ok = |k: &str| {
            k.starts_with(|c: char| c.is_ascii_uppercase()) && k.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        if !group.is_none_or(group_ok) || !kind.is_none_or(kind_ok) || s.starts_with('/') {
            return Err(bad());
        }
        Ok(Self { group: group.map(Into::into), kind: kind.map(Into::into) })
    }
}

/// `v1`, `v1beta2`: what people write by mistake for the core group.
fn looks_like_version(group: &str) -> bool {
    group.strip_prefix('v').is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()) && !r.contains('.'))
}

impl TryFrom<String> for KindPattern {
    type Error = InvalidKind;
    fn try_from(s: String) -> Result<Self, InvalidKind> {
        s.parse()
    }
}

impl std::fmt::Display for KindPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.as_deref().unwrap_or("*");
        match self.group.as_deref() {
            None | Some("") => f.write_str(kind),
            Some(group) => write!(f, "{group}/{kind}"),
        }
    }
}

impl KindPattern {
    /// The API group; `None` for every one.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// The kind; `None` for every one.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// Whether the pattern covers the kind; `group` is `""` for the core group.
    pub fn matches(&self, group: &str, kind: &str) -> bool {
        let named = self.kind.is_some();
        if !named && group.is_empty() && kind == "Secret" {
            return false;
        }
        self.group.as_deref().is_none_or(|g| g == group) && self.kind.as_deref().is_none_or(|k| k == kind)
    }
}
