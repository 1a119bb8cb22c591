//! What is known of an application that is stopped: its settings without secrets, packed into a Secret of its own, for
//! the release that held them is gone.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::{self, Reference};
use sutler_sdk::prelude::*;
use sutler_sdk::schema;

use crate::settings::Settings;
use crate::{room, secrets};

/// The settings' JSON, deflated (RFC 1951): what fits into a release's record fits here.
const FILE: &str = "settings.deflate";
/// As it was written before, not packed.
const PLAIN: &str = "settings.json";
/// The name of the Secret with what is secret of them.
const SECRET: &str = "secret";
/// What a record may unpack to, in bytes: far more than settings have.
const UNPACKED: usize = 8 << 20;

/// What is recorded.
#[derive(Debug, Clone)]
pub struct Record {
    /// As they were sent, without secrets.
    pub settings: Value,
    /// The Secret with what is secret of them, where anything is.
    pub secret: Option<String>,
}

fn reference(of: &ReleaseReference) -> Reference {
    Reference::new("v1", "Secret", format!("{}-stopped", of.name)).within(&of.namespace)
}

/// Records that the application is stopped, with these settings as they were sent and the name of their Secret.
///
/// # Errors
/// As the capability says.
pub fn apply(at: &ReleaseReference, sent: &Value, secret: Option<&str>) -> Result<()> {
    let packed = room::packed(&schema::without_secrets::<Settings>(sent).to_string());
    let data = BTreeMap::from([
        (FILE, STANDARD.encode(packed)),
        (SECRET, STANDARD.encode(secret.unwrap_or_default())),
    ]);
    secrets::write(at, &reference(at), data).map(|_| ())
}

/// The record of a stopped application; `None` where it is not stopped, or where nothing is granted for Secrets.
///
/// # Errors
/// As the capability says; `unreadable-answer` where somebody wrote something else into it.
pub fn get(at: &ReleaseReference) -> Result<Option<Record>> {
    let live = match kubernetes::get(&reference(at)) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => None,
        other => other?,
    };
    let Some(live) = live else { return Ok(None) };
    let file = |name: &str| {
        let text = live.pointer(&format!("/data/{name}")).and_then(Value::as_str);
        text.and_then(|text| STANDARD.decode(text).ok())
    };
    let text = match file(FILE) {
        Some(packed) => decompress_to_vec_with_limit(&packed, UNPACKED).unwrap_or_default(),
        None => file(PLAIN).unwrap_or_default(),
    };
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
    let secret = file(SECRET).and_then(|name| String::from_utf8(name).ok());
    let secret = Some(secret.unwrap_or_else(|| secrets::first(at))).filter(|name| !name.is_empty());
    Ok(Some(Record { settings, secret }))
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
