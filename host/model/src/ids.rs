//! Names that can only be made right.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A name that does not have the form it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: {rule}")]
pub struct InvalidName {
    pub what: &'static str,
    pub found: String,
    pub rule: &'static str,
}

const IDENTIFIER_RULE: &str = "use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit";

fn shorten(s: &str) -> String {
    s.chars().take(80).collect()
}

fn is_identifier(s: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let b = s.as_bytes();
    b.len() <= 63
        && edge(b.first())
        && edge(b.last())
        && b.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);
        impl $name {
            /// # Errors
            /// `InvalidName` when the text breaks the rule of identifiers.
            pub fn parse(s: &str) -> Result<Self, InvalidName> {
                if is_identifier(s) { Ok(Self(s.into())) } else {
                    Err(InvalidName { what: $what, found: shorten(s), rule: IDENTIFIER_RULE })
                }
            }
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(s: &str) -> Result<Self, InvalidName> { Self::parse(s) }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(s: String) -> Result<Self, InvalidName> { Self::parse(&s) }
        }
        impl From<$name> for String {
            fn from(n: $name) -> String { n.0.as_ref().into() }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{:?}", &self.0) }
        }
    };
}

name!(
    /// `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`: application, environment, tenant, instance, type, resource.
    Identifier, "identifier");
name!(
    /// What the operator calls a plugin: the stem of its file.
    PluginName, "plugin name");

impl Identifier {
    /// For the few names that stand in the code; `text` is an identifier.
    pub(crate) fn constant(text: &'static str) -> Self {
        debug_assert!(is_identifier(text));
        Self(text.into())
    }
}

/// The caller's name for one call; equal for a repeat. 1 to 128 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// # Errors
    /// `InvalidName` when empty, over 128 bytes, or not visible ASCII.
    pub fn parse(s: &str) -> Result<Self, InvalidName> {
        if (1..=128).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(s.into()))
        } else {
            Err(InvalidName {
                what: "requestId",
                found: shorten(s),
                rule: "use 1 to 128 visible ASCII characters without spaces",
            })
        }
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The category of a pair. An artifact has no provisioner (seed A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Target,
    Tool,
    Deployment,
    ManagedResource,
    ConsumedResource,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Target, Self::Tool, Self::Deployment, Self::ManagedResource, Self::ConsumedResource];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Tool => "tool",
            Self::Deployment => "deployment",
            Self::ManagedResource => "managed-resource",
            Self::ConsumedResource => "consumed-resource",
        }
    }
}

impl FromStr for Kind {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        Self::ALL.into_iter().find(|k| k.as_str() == s).ok_or_else(|| InvalidName {
            what: "kind",
            found: shorten(s),
            rule: "use target, tool, deployment, managed-resource or consumed-resource",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a plugin handles and a call names. Shown as `kind/type`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    pub kind: Kind,
    pub type_name: Identifier,
}

impl Pair {
    pub const fn new(kind: Kind, type_name: Identifier) -> Self {
        Self { kind, type_name }
    }
}

impl FromStr for Pair {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        let (kind, type_name) = s.split_once('/').ok_or_else(|| InvalidName {
            what: "pair",
            found: shorten(s),
            rule: "write KIND/TYPE, for example deployment/ksml",
        })?;
        Ok(Self { kind: kind.parse()?, type_name: type_name.parse()? })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.type_name)
    }
}
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// SHA-256 of some bytes, shown as `sha256:<64 hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
    /// 64 lower-case hex digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// Lower-case hex digits, two a byte.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(if n < 10 { b'0' + n } else { b'a' + n - 10 });
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

impl FromStr for Digest {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        let bad = || InvalidName {
            what: "digest",
            found: shorten(s),
            rule: "write sha256: and 64 lower-case hex digits",
        };
        let hex = s.strip_prefix("sha256:").filter(|h| h.len() == 64).ok_or_else(bad)?;
        let mut out = [0; 32];
        for (i, o) in out.iter_mut().enumerate() {
            let two = hex.get(2 * i..2 * i + 2).ok_or_else(bad)?;
            if two.bytes().any(|b| !b.is_ascii_digit() && !(b'a'..=b'f').contains(&b)) {
                return Err(bad());
            }
            *o = u8::from_str_radix(two, 16).map_err(|_| bad())?;
        }
        Ok(Self(out))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
