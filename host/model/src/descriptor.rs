//! What a plugin says of itself.

use serde_json::Value;

use crate::Pair;

#[derive(Debug, Clone, PartialEq)]
pub struct Descriptor {
    pub name: String,
    pub version: String,
    pub summary: String,
    pub pairs: Vec<PairDescriptor>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PairDescriptor {
    pub pair: Pair,
    pub summary: String,
    /// JSON Schema 2020-12.
    pub settings_schema: Value,
    pub outputs_schema: Value,
    /// Every step that apply or cancel may name, in order.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub title: String,
    /// The longest that one call of this step may take, in seconds.
    pub timeout_seconds: u32,
}
