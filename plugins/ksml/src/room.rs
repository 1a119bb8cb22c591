//! Whether everything that is written of an application has room where it is kept, asked before the first write.

use sutler_sdk::prelude::*;

use crate::settings::Settings;

/// The most that definitions and schemas may hold together, in bytes: a ConfigMap takes 1 MiB, with its own text
/// around it.
const TEXTS: usize = 1_000_000;
/// The most that the other settings may have as JSON, in bytes. Certificates and keys become base64 in one Secret, and
/// loggers become XML in one ConfigMap; each takes 1 MiB.
const OTHERS: usize = 300_000;
/// The most that a release's values may have once they are packed, in bytes: Helm's record holds them, and nearly all of
/// them again as quoted manifests. It is packed, becomes base64, and has 1 MiB, of which 96 KiB are left to the chart.
const PACKED: usize = 700_000;

/// Deflated (RFC 1951), as well as Helm does it.
pub(crate) fn packed(text: &str) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(text.as_bytes(), 6)
}

/// The settings alone.
///
/// # Errors
/// `too-large`
pub(crate) fn check(settings: &Settings) -> Result<()> {
    let definitions: usize = settings.definitions.iter().map(|(name, d)| name.len() + d.text().len()).sum();
    let schemas: usize = settings.schemas.iter().map(|(name, s)| name.len() + s.len()).sum();
    if definitions + schemas > TEXTS {
        let why = format!(
            "definitions ({definitions} bytes) and schemas ({schemas} bytes) go into one ConfigMap, which keeps at most {TEXTS} bytes; split the application"
        );
        let at = if schemas > definitions { "/schemas" } else { "/definitions" };
        return Err(Error::new("too-large", why).at(at));
    }
    let parts = parts(settings)?;
    let others = || parts.iter().filter(|(name, _)| name != "definitions" && name != "schemas");
    let sum: usize = others().map(|(_, bytes)| bytes).sum();
    let largest = others().max_by_key(|(_, bytes)| bytes).filter(|_| sum > OTHERS);
    largest.map_or(Ok(()), |(name, bytes)| {
        let why = format!(
            "the settings besides definitions and schemas have {sum} bytes, most of them {name} with {bytes}; the most is {OTHERS}"
        );
        Err(Error::new("too-large", why).at(format!("/{name}")))
    })
}

/// Each of the settings with its bytes as JSON.
fn parts(settings: &Settings) -> Result<Vec<(String, usize)>> {
    let Value::Object(all) = serde_json::to_value(settings)? else { return Ok(vec![]) };
    Ok(all.into_iter().map(|(name, part)| (name, part.to_string().len())).collect())
}

/// The values that follow from the settings: the release's record has to hold them.
///
/// # Errors
/// `too-large`
pub(crate) fn check_values(settings: &Settings, values: &Value) -> Result<()> {
    let text = values.to_string();
    // What is small packs into less.
    if text.len() <= PACKED / 2 {
        return Ok(());
    }
    let bytes = packed(&text).len() + packed(&Value::from(text).to_string()).len();
    if bytes <= PACKED {
        return Ok(());
    }
    let largest = parts(settings)?.into_iter().max_by_key(|(_, bytes)| *bytes);
    let (name, part) = largest.unwrap_or_default();
    let why = format!(
        "the chart's values and manifests have {bytes} bytes once they are packed, and a release's record keeps at most {PACKED}; the largest part is {name} with {part} bytes as it was sent: make it smaller, or split the application"
    );
    Err(Error::new("too-large", why).at(format!("/{name}")))
}
