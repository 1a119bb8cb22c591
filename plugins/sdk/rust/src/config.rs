//! What the operator wrote for this plugin.

use serde::de::DeserializeOwned;

use crate::{Error, Result, raw};

/// The table `[plugins.NAME.config]` of the host's configuration.
///
/// # Errors
/// `invalid-config` naming what is wrong in it.
pub fn settings<T: DeserializeOwned>() -> Result<T> {
    serde_json::from_str(&raw::config::settings()).map_err(|e| {
        Error::new("invalid-config", format!("the plugin's configuration cannot be used: {e}; ask the operator to correct [plugins.NAME.config]"))
    })
}

/// A secret that the operator granted by name.
///
/// # Errors
/// `not-granted` where there is none.
pub fn secret(name: &str) -> Result<String> {
    raw::config::secret(name).ok_or_else(|| {
        Error::new(
            "not-granted",
            format!("the secret {name:?} is not granted; ask the operator to add it to the plugin's secrets"),
        )
    })
}
