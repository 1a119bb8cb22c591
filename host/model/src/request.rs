//! What a caller asks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Identifier, Pair, RequestId};

/// For whom a call is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Application {
    pub id: Identifier,
    pub environment: Identifier,
    pub tenant: Option<Identifier>,
    pub instance: Option<Identifier>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Create,
    Update,
    Replace,
    Delete,
    NoOp,
}

impl Action {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::NoOp => "no-op",
        }
    }
}

/// What the caller wants of one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub resource: Identifier,
    pub action: Action,
    /// `None` for a delete.
    pub settings: Option<Value>,
    /// What the caller believes was applied before: hints, never authority.
    pub previous_settings: Option<Value>,
    pub previous_outputs: Option<Value>,
}

/// A plan or an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: RequestId,
    pub pair: Pair,
    pub application: Application,
    pub changes: Vec<Change>,
}

/// A question about resources as the caller knows them.
#[derive(Debug, Clone, PartialEq)]
pub struct Inquiry {
    pub id: RequestId,
    pub pair: Pair,
    pub application: Application,
    pub resources: Vec<Known>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub resource: Identifier,
    pub settings: Option<Value>,
    pub outputs: Option<Value>,
}

/// Where an apply stands between two calls of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Empty before the first step.
    pub step: String,
    /// A JSON object of the plugin's own, as text, at most 1 MiB.
    pub state: String,
    /// 1 for the first try of this step.
    pub attempt: u32,
    /// The version of the plugin that wrote the state; empty before the first step.
    pub written_by: String,
}

impl Checkpoint {
    /// Before the first step.
    pub fn start() -> Self {
        Self { step: String::new(), state: "{}".into(), attempt: 1, written_by: String::new() }
    }
}
