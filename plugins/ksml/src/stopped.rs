//! What is known of an application that is stopped: its settings without secrets, in a Secret of its own, for the
//! release that held them is gone.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::{self, Reference};
use sutler_sdk::prelude::*;
use sutler_sdk::schema;

use crate::secrets;
use crate::settings::Settings;

const FILE: &str = "settings.json";

fn reference(of: &ReleaseReference) -> Reference {
    Reference::new("v1", "Secret", format!("{}-stopped", of.name)).within(&of.namespace)
}

/// Records that the application is stopped, with these settings as they were sent.
///
/// # Errors
/// As the capability says.
pub fn apply(at: &ReleaseReference, sent: &Value) -> Result<()> {
    let record = schema::without_secrets::<Settings>(sent).to_string();
    secrets::write(at, &reference(at), BTreeMap::from([(FILE, STANDARD.encode(record))])).map(|_| ())
}

/// The settings of a stopped application; `None` where it is not stopped, or where nothing is granted for Secrets.
///
/// # Errors
/// As the capability says; `unreadable-answer` where somebody wrote something else into it.
pub fn get(at: &ReleaseReference) -> Result<Option<Value>> {
    let live = match kubernetes::get(&reference(at)) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => None,
        other => other?,
    };
    let Some(live) = live else { return Ok(None) };
    let file = live.pointer(&format!("/data/{FILE}")).and_then(Value::as_str);
    let text = file.and_then(|f| STANDARD.decode(f).ok()).unwrap_or_default();
    let settings = serde_json::from_slice(&text).map_err(|e| {
        let name = reference(at).name;
        Error::new(
            "unreadable-answer",
            format!(
                "what Secret {}/{name} records cannot be read: {e}; apply the settings again",
                at.namespace
            ),
        )
    })?;
    Ok(Some(settings))
}

/// Forgets it, where it is there.
///
/// # Errors
/// As the capability says.
pub fn delete(at: &ReleaseReference) -> Result<()> {
    let there = match kubernetes::get(&reference(at)) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => None,
        other => other?,
    };
    if there.is_some() {
        kubernetes::delete(&reference(at))?;
    }
    Ok(())
}
