//! One call of one plugin, as the capabilities see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::{Application, Digest, Fence, Identifier, Kind, Pair, PluginName, hex};

/// What the plugin is being asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    Describe,
    Plan,
    Inspect,
    Locate,
    Apply,
    Cancel,
}

impl Mode {
    /// Whether a capability may change the world.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Apply | Self::Cancel)
    }
    /// The name of the plugin's export.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Describe => "describe",
            Self::Plan => "plan",
            Self::Inspect => "inspect",
            Self::Locate => "locate",
            Self::Apply => "apply",
            Self::Cancel => "cancel",
        }
    }
}

/// Whose things the call touches: everything it makes carries these as labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    pub application: Application,
    pub pair: Pair,
}

impl Owner {
    /// The label whose value is [`Owner::hash`].
    pub const LABEL: &'static str = "sutler.dev/owner";

    /// The owner of a call that is made for nobody: describe.
    pub fn nobody() -> Self {
        let none = || Identifier::constant("none");
        let application = Application { id: none(), environment: none(), tenant: None, instance: None };
        Self { application, pair: Pair::new(Kind::Tool, none()) }
    }

    /// 16 hex digits that no two owners share in practice: of the length-prefixed parts, so that
    /// `a-b` + `c` and `a` + `b-c` differ.
    pub fn hash(&self) -> String {
        let a = &self.application;
        let mut text = String::with_capacity(128);
        let mut part = |i: Option<&Identifier>, end: char| {
            use std::fmt::Write as _;
            let _ = match i {
                Some(i) => write!(text, "{}:{i}{end}", i.as_str().len()),
                None => write!(text, "-{end}"),
            };
        };
        part(a.instance.as_ref(), '/');
        part(a.tenant.as_ref(), '/');
        part(Some(&a.environment), '/');
        part(Some(&a.id), '/');
        text.push_str(self.pair.kind.as_str());
        text.push('/');
        text.push_str(self.pair.type_name.as_str());
        let digest = Digest::of(text.as_bytes());
        hex(digest.as_bytes().get(..8).unwrap_or_default())
    }

    /// Kubernetes labels (key, value) for everything the owner's calls write.
    pub fn labels(&self, plugin: &PluginName) -> BTreeMap<String, String> {
        let a = &self.application;
        let mut out = BTreeMap::from([
            (Self::LABEL.to_owned(), self.hash()),
            ("sutler.dev/plugin".to_owned(), plugin.to_string()),
            ("sutler.dev/application".to_owned(), a.id.to_string()),
            ("sutler.dev/environment".to_owned(), a.environment.to_string()),
            ("sutler.dev/kind".to_owned(), self.pair.kind.to_string()),
            ("sutler.dev/type".to_owned(), self.pair.type_name.to_string()),
        ]);
        if let Some(t) = &a.tenant {
            out.insert("sutler.dev/tenant".to_owned(), t.to_string());
        }
        if let Some(i) = &a.instance {
            out.insert("sutler.dev/instance".to_owned(), i.to_string());
        }
        out
    }
}

/// One call of one plugin.
#[derive(Debug, Clone)]
pub struct Call {
    pub plugin: PluginName,
    pub owner: Owner,
    pub mode: Mode,
    pub request_id: String,
    /// The id of the job (an operation of the provisioner API) that the call is a step of; `None` outside of jobs.
    pub job: Option<Arc<str>>,
    /// When the call's wall time ends; a capability's own time-out never goes beyond it.
    pub deadline: Instant,
    /// The lease that the call runs under.
    pub fence: Fence,
}

impl Call {
    /// The time left, zero when it is over or when the lease is lost: no request to the outside takes longer.
    pub fn left(&self) -> std::time::Duration {
        let now = Instant::now();
        self.deadline.saturating_duration_since(now).min(self.fence.left_at(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Names that run into each other are tried most: a, aa, a-a.
        #[test]
        fn no_two_owners_share_a_hash(
            a in proptest::collection::vec("a(-?a)?", 2),
            b in proptest::collection::vec("a(-?a)?", 2),
            instances in proptest::collection::vec(proptest::option::of("a(-?a)?"), 2),
            tenants in proptest::collection::vec(proptest::option::of("a(-?a)?"), 2),
        ) {
            let id = |s: &String| Identifier::parse(s).unwrap();
            let owner = |n: usize| Owner {
                application: Application {
                    id: id(&a[n]),
                    environment: id(&b[n]),
                    tenant: tenants[n].as_ref().map(id),
                    instance: instances[n].as_ref().map(id),
                },
                pair: Pair::new(Kind::Tool, Identifier::constant("x")),
            };
            let (one, two) = (owner(0), owner(1));
            proptest::prop_assert_eq!(one == two, one.hash() == two.hash());
        }
    }
}
