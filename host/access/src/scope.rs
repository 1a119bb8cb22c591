//! Which tenants or instances.

use sutler_model::Identifier;

use crate::AccessError;

/// Tenants or instances of one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every one, and none at all.
    All,
    /// These. Empty: only calls that name none.
    Only(Vec<Identifier>),
}

impl Scope {
    pub(crate) fn parse(at: &str, key: &'static str, texts: &[String]) -> Result<Self, AccessError> {
        if texts.iter().any(|t| t == "*") {
            return Ok(Self::All);
        }
        let one = |t: &String| {
            Identifier::parse(t).map_err(|e| AccessError::BadScope {
                at: at.into(),
                key,
                found: e.found,
                rule: e.rule,
            })
        };
        Ok(Self::Only(texts.iter().map(one).collect::<Result<_, _>>()?))
    }

    /// What both allow; `None`: nothing.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let both: Vec<Identifier> = match (self, other) {
            (Self::All, scope) | (scope, Self::All) => return Some(scope.clone()),
            (Self::Only(a), Self::Only(b)) if a.is_empty() && b.is_empty() => return Some(self.clone()),
            (Self::Only(a), Self::Only(b)) => a.iter().filter(|n| b.contains(n)).cloned().collect(),
        };
        (!both.is_empty()).then_some(Self::Only(both))
    }

    pub(crate) fn allows(&self, name: Option<&Identifier>) -> bool {
        match (self, name) {
            (Self::All, _) => true,
            (Self::Only(names), Some(n)) => names.contains(n),
            (Self::Only(names), None) => names.is_empty(),
        }
    }

    pub(crate) fn words(&self, what: &str) -> String {
        match self {
            Self::All => format!("every {what}"),
            Self::Only(names) if names.is_empty() => {
                format!("calls without {what} (add {what}s = [\"…\"] to it)")
            }
            Self::Only(names) => {
                let names: Vec<_> = names.iter().map(|n| format!("\"{n}\"")).collect();
                format!("{what} {}", names.join(", "))
            }
        }
    }
}
