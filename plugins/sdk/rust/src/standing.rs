//! Where the resources of a request stand between two calls: the checkpoint's state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wit::exports::sutler::provisioner::provisioner as wire;
use crate::{Error, Result};

/// Where one resource of a request stands, as the checkpoint stores it.
#[derive(Default, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Standing {
    pub(crate) step: String,
    pub(crate) state: Value,
    /// Set once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outputs: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret_outputs: Option<Value>,
    /// Cancel has taken it back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) undone: bool,
}

/// The whole checkpoint's state.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Standings {
    #[serde(default)]
    pub(crate) resources: BTreeMap<String, Standing>,
}

impl Standings {
    pub(crate) fn read(state: &str) -> Result<Self> {
        serde_json::from_str(state)
            .map_err(|e| Error::new("unreadable-state", format!("the stored checkpoint cannot be read: {e}")))
    }
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".into())
    }
    pub(crate) fn applied(&self) -> Vec<wire::Applied> {
        self.resources
            .iter()
            .filter_map(|(resource, s)| {
                Some(wire::Applied {
                    resource: resource.clone(),
                    outputs: s.outputs.as_ref()?.to_string(),
                    secret_outputs: s.secret_outputs.as_ref().map_or_else(|| "{}".into(), Value::to_string),
                })
            })
            .collect()
    }
    pub(crate) fn stopped(&self, error: Error, resource: Option<&str>) -> wire::Stopped {
        wire::Stopped { failure: error.into_wire(resource), applied: self.applied(), state: self.text() }
    }
}
