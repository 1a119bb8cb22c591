//! What can be wrong with the configuration, and why a call is refused.

use std::net::SocketAddr;

use sutler_model::{Identifier, InvalidName};

/// The access configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("{at}: the name {name:?} is used twice; give each caller and each operator its own name")]
    NameTwice { at: String, name: String },
    #[error("{at}: the name {name:?} is not valid; use 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.'")]
    BadName { at: String, name: String },
    #[error("{at}: the instance's name cannot be used: {why}")]
    BadInstance { at: String, why: InvalidName },
    #[error("{at}: no token-hash; make a token with `sutler token new` and put its hash there")]
    NoHash { at: String },
    #[error(
        "{at}: token-hash {position} is not sha256: and 64 lower-case hex digits; make one with `sutler token new`"
    )]
    BadHash { at: String, position: usize },
    #[error(
        "{at}: token-hash {position} belongs to {other} as well; a token has one owner, so make another one"
    )]
    HashTwice { at: String, position: usize, other: String },
    #[error("{at}: {key} has {found:?}: {rule}, or \"*\" for all")]
    BadScope { at: String, key: &'static str, found: String, rule: &'static str },
    #[error(
        "{what} would listen on {address} without any token, where other machines can reach it; add [[access.{table}]] \
         with a token (sutler token new makes one), or listen on 127.0.0.1"
    )]
    OpenToOthers { what: &'static str, table: &'static str, address: SocketAddr },
    #[error("the operating system gave no random bytes for a token: {0}")]
    NoRandom(String),
}

/// Why it is not known who calls, or why this one may not call here at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// 401
    #[error("there is no Authorization header; send Authorization: Bearer TOKEN")]
    Missing,
    /// 401
    #[error("the Authorization header is not of the form: Bearer TOKEN")]
    Malformed,
    /// 401
    #[error("the token is not known here; it may have been replaced")]
    Unknown,
    /// 403: an operator's token on the provisioner API.
    #[error("this is an operator's token; the provisioner API takes a caller's ([[access.callers]])")]
    NotACaller,
    /// 403: a caller's token on the admin API.
    #[error("this is a caller's token; the admin API takes an operator's ([[access.operators]])")]
    NotAnOperator,
    /// 403: an instance's own token on a route that is not the instance's.
    #[error(
        "this is the token of instance \"{0}\"; it takes the routes under that instance's base path alone"
    )]
    OnlyInInstance(Identifier),
    /// 403: without tokens, only for names of this machine.
    #[error(
        "without configured tokens this host answers only to localhost, 127.0.0.1 and [::1], not to the Host {0:?}; \
         call it by one of these, or configure tokens"
    )]
    ForeignHost(String),
    /// 403: without tokens, never for a browser.
    #[error("without configured tokens this host refuses calls of browser pages ({0}); configure tokens")]
    Browser(&'static str),
}

impl Denied {
    /// Whether a token would help (401); otherwise it would not (403).
    pub const fn wants_token(&self) -> bool {
        matches!(self, Self::Missing | Self::Malformed | Self::Unknown)
    }
}

/// Why a caller that is known may not act for an application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// 403
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// 404: this host has instances, and none of that name.
    #[error(
        "there is no instance \"{0}\" here: this host serves the instances that its operator configured as \
         [instances.NAME]; check the name"
    )]
    UnknownInstance(Identifier),
}

impl Refused {
    /// JSON Pointer of the field in a request's body.
    pub const fn path(&self) -> &'static str {
        match self {
            Self::Forbidden(forbidden) => forbidden.path,
            Self::UnknownInstance(_) => "/application/instance",
        }
    }
}

/// 403: the caller is known, but this is not its business.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("caller {caller} may not act for {what}; its token is for {allowed}")]
pub struct Forbidden {
    pub caller: String,
    /// `tenant "other"`, `no tenant`, `instance "x"`.
    pub what: String,
    pub allowed: String,
    /// JSON Pointer of the field in a request's body.
    pub path: &'static str,
}

/// 403: reading the audit is a right of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} may not read the audit: that is granted by audit = true in {table}")]
pub struct NoAudit {
    pub name: String,
    pub table: &'static str,
}
