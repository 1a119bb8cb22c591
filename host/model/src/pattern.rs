//! Patterns of grants: `*` for any run of characters, and placeholders filled from the call.

use std::str::FromStr;

use serde::Deserialize;

use crate::Owner;

/// A name pattern such as `ksml-{tenant}` or `acme-*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Any,
    Tenant,
    Instance,
    Environment,
    Application,
    Hash,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("pattern {0:?} is empty; write a name, or * for all")]
    Empty(String),
    #[error(
        "pattern {0:?} has the unknown placeholder {{{1}}}; use {{tenant}}, {{instance}}, {{environment}}, {{application}} or {{hash}}"
    )]
    Unknown(String, String),
    #[error("pattern {0:?} has a brace that is not closed")]
    Open(String),
    #[error(
        "pattern {0:?} has two placeholders without {{hash}}: \"a-b\" and \"c\" would give the same name as \"a\" and \"b-c\"; add {{hash}}"
    )]
    Ambiguous(String),
}

impl FromStr for Pattern {
    type Err = PatternError;
    fn from_str(s: &str) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        let mut rest = s;
        while let Some(i) = rest.find(['*', '{']) {
            let (before, from) = rest.split_at(i);
            if !before.is_empty() {
                parts.push(Part::Text(before.into()));
            }
            if let Some(after) = from.strip_prefix('*') {
                parts.push(Part::Any);
                rest = after;
                continue;
            }
            let end = from.find('}').ok_or_else(|| PatternError::Open(s.into()))?;
            let name = from.get(1..end).unwrap_or_default();
            parts.push(match name {
                "tenant" => Part::Tenant,
                "instance" => Part::Instance,
                "environment" => Part::Environment,
                "application" => Part::Application,
                "hash" => Part::Hash,
                _ => return Err(PatternError::Unknown(s.into(), name.into())),
            });
            rest = from.get(end + 1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.into()));
        }
        if parts.is_empty() {
            return Err(PatternError::Empty(s.into()));
        }
        let placeholders =
            parts.iter().filter(|p| !matches!(p, Part::Text(_) | Part::Any | Part::Hash)).count();
        if placeholders > 1 && !parts.contains(&Part::Hash) {
            return Err(PatternError::Ambiguous(s.into()));
        }
        Ok(Self { text: s.into(), parts })
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;
    fn try_from(s: String) -> Result<Self, PatternError> {
        s.parse()
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Pattern {
    /// Whether every name passes.
    pub fn is_any(&self) -> bool {
        self.parts == [Part::Any]
    }

    /// Whether names follow from the tenant, so that two tenants never share one.
    pub fn per_tenant(&self) -> bool {
        self.parts.iter().any(|p| matches!(p, Part::Tenant | Part::Hash))
    }

    /// Whether names follow from the instance, so that two instances never share one.
    pub fn per_instance(&self) -> bool {
        self.parts.iter().any(|p| matches!(p, Part::Instance | Part::Hash))
    }

    /// Whether a name that `other` makes for some owner may fit this pattern for the same owner. `false` is certain.
    pub fn may_cover(&self, other: &Self) -> bool {
        if let Some(name) = other.literal() {
            return self.may_match(name);
        }
        if let Some(name) = self.literal() {
            return other.may_match(name);
        }
        let text = |p: Option<&Part>| match p {
            Some(Part::Text(t)) => t.clone(),
            _ => String::new(),
        };
        let (begins, ends) = (text(self.parts.first()), text(self.parts.last()));
        let (begun, ended) = (text(other.parts.first()), text(other.parts.last()));
        (begins.starts_with(&begun) || begun.starts_with(&begins))
            && (ends.ends_with(&ended) || ended.ends_with(&ends))
            && self.length().zip(other.length()).is_none_or(|(a, b)| a.0 != b.0 || a.1 == b.1)
    }

    /// The placeholders, and how many bytes stand around them: of two patterns with the same placeholders the one with
    /// more makes longer names. `None` with a wildcard.
    fn length(&self) -> Option<(Vec<&Part>, usize)> {
        if self.parts.contains(&Part::Any) {
            return None;
        }
        let texts = |p: &Part| if let Part::Text(t) = p { t.len() } else { 0 };
        let placeholders = self.parts.iter().filter(|p| !matches!(p, Part::Text(_))).collect();
        Some((placeholders, self.parts.iter().map(texts).sum()))
    }

    /// The one name that fits whoever calls; `None` with a wildcard or a placeholder.
    pub fn literal(&self) -> Option<&str> {
        self.parts.iter().all(|p| matches!(p, Part::Text(_))).then_some(self.text.as_str())
    }

    /// Whether `name` fits for some owner.
    pub fn may_match(&self, name: &str) -> bool {
        let open = |p: &Part| match p {
            Part::Text(t) => Some(t.clone()),
            _ => None,
        };
        fits(&self.parts.iter().map(open).collect::<Vec<_>>(), name)
    }

    /// The literal texts and wildcards for one owner; `None` where the owner lacks what a placeholder needs.
    fn expand(&self, owner: &Owner) -> Option<Vec<Option<String>>> {
        let a = &owner.application;
        self.parts
            .iter()
            .map(|p| {
                Some(match p {
                    Part::Any => None,
                    Part::Text(t) => Some(t.clone()),
                    Part::Tenant => Some(a.tenant.as_ref()?.to_string()),
                    Part::Instance => Some(a.instance.as_ref()?.to_string()),
                    Part::Environment => Some(a.environment.to_string()),
                    Part::Application => Some(a.id.to_string()),
                    Part::Hash => Some(owner.hash().chars().take(8).collect()),
                })
            })
            .collect()
    }

    /// Whether `name` fits the pattern for this owner. A placeholder that the owner cannot fill fits nothing.
    pub fn matches(&self, name: &str, owner: &Owner) -> bool {
        self.expand(owner).is_some_and(|parts| fits(&parts, name))
    }

    /// The name the pattern makes for this owner; `None` with a wildcard or a missing part.
    pub fn fill(&self, owner: &Owner) -> Option<String> {
        self.expand(owner)?.into_iter().collect::<Option<Vec<_>>>().map(|p| p.concat())
    }
}

/// Literal parts (`Some`) and wildcards (`None`) against a name, without backtracking beyond the last wildcard.
fn fits(parts: &[Option<String>], name: &str) -> bool {
    let mut rest = name;
    let mut free = false;
    let merged = merge(parts);
    for (i, part) in merged.iter().enumerate() {
        let last = i + 1 == merged.len();
        match part {
            None => free = true,
            Some(t) if free && last => return rest.ends_with(t.as_str()),
            Some(t) if free => match rest.find(t.as_str()) {
                Some(at) => {
                    rest = rest.get(at + t.len()..).unwrap_or_default();
                    free = false;
                }
                None => return false,
            },
            Some(t) => match rest.strip_prefix(t.as_str()) {
                Some(r) => rest = r,
                None => return false,
            },
        }
    }
    free || rest.is_empty()
}

fn merge(parts: &[Option<String>]) -> Vec<Option<String>> {
    let mut out: Vec<Option<String>> = Vec::new();
    for p in parts {
        match (out.last_mut(), p) {
            (Some(Some(before)), Some(t)) => before.push_str(t),
            (Some(None), None) => {}
            _ => out.push(p.clone()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Application, Identifier, Pair};

    fn owner(tenant: Option<&str>) -> Owner {
        let id = |s: &str| Identifier::parse(s).unwrap();
        Owner {
            application: Application {
                id: id("orders"),
                environment: id("prod"),
                tenant: tenant.map(id),
                instance: None,
            },
            pair: "deployment/ksml".parse::<Pair>().unwrap(),
        }
    }

    #[test]
    fn names_for_whoever_calls() {
        for (pattern, literal, fits, other) in [
            ("monitoring", Some("monitoring"), "monitoring", "monitoring-2"),
            ("ksml-{tenant}", None, "ksml-acme", "ksm-acme"),
            ("{hash}-x", None, "12345678-x", "12345678-y"),
        ] {
            let p: Pattern = pattern.parse().unwrap();
            assert_eq!(p.literal(), literal);
            assert!(p.may_match(fits) && !p.may_match(other), "{pattern}");
        }
    }

    #[test]
    fn names_against_patterns() {
        let acme = owner(Some("acme"));
        for (pattern, name, fits) in [
            ("*", "x", true),
            ("acme", "acme", true),
            ("acme", "acme2", false),
            ("acme-*", "acme-1", true),
            ("acme-*", "bacme-1", false),
            ("*-prod", "a-prod", true),
            ("*-prod", "a-prod-b", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("ksml-{tenant}", "ksml-acme", true),
            ("ksml-{tenant}", "ksml-other", false),
            ("{tenant}-*", "acme-x", true),
            ("{instance}-x", "-x", false),
        ] {
            assert_eq!(pattern.parse::<Pattern>().unwrap().matches(name, &acme), fits, "{pattern} {name}");
        }
        assert!(!"ksml-{tenant}".parse::<Pattern>().unwrap().matches("ksml-", &owner(None)));
    }

    #[test]
    fn patterns_that_never_meet() {
        for (pattern, made, may) in [
            ("emea-{tenant}", "emea-{tenant}", true),
            ("emea-{tenant}", "apac-{tenant}", false),
            ("emea-{tenant}", "{tenant}", false),
            ("emea-{tenant}", "emea-x-{tenant}", false),
            ("{tenant}-emea", "{tenant}-apac", false),
            ("emea-*", "emea-{tenant}", true),
            ("emea-*", "apac-{tenant}", false),
            ("*", "apac-{tenant}", true),
            ("*-acme", "emea-{tenant}", true),
            ("emea-acme", "emea-{tenant}", true),
            ("emea-acme", "apac-{tenant}", false),
            ("emea-{tenant}", "emea-acme", true),
            ("emea-{tenant}", "shared", false),
            ("{instance}-x", "{tenant}-x", true),
            ("x-{environment}", "{tenant}", true),
        ] {
            let parse = |p: &str| p.parse::<Pattern>().unwrap();
            assert_eq!(parse(pattern).may_cover(&parse(made)), may, "{pattern} {made}");
        }
        assert!("{instance}-{tenant}-{hash}".parse::<Pattern>().unwrap().per_instance());
        assert!(!"x-{tenant}".parse::<Pattern>().unwrap().per_instance());
    }

    #[test]
    fn two_placeholders_need_the_hash() {
        assert_eq!(
            "{tenant}-{environment}".parse::<Pattern>(),
            Err(PatternError::Ambiguous("{tenant}-{environment}".into()))
        );
        let p: Pattern = "{tenant}-{environment}-{hash}".parse().unwrap();
        let a = owner(Some("acme"));
        assert_eq!(p.fill(&a).unwrap(), format!("acme-prod-{}", &a.hash()[..8]));
        assert_eq!(
            "x-{nope}".parse::<Pattern>(),
            Err(PatternError::Unknown("x-{nope}".into(), "nope".into()))
        );
    }
}
