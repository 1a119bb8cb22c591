//! The claims of the state volumes: a StatefulSet's controller makes them, and Helm leaves them where they are.

use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::{self, Reference, Selector, text};
use sutler_sdk::prelude::*;

/// The names of the release's claims; `None` where nothing is granted for them.
///
/// # Errors
/// As the capability says.
pub fn list(of: &ReleaseReference) -> Result<Option<Vec<String>>> {
    let mut selector = Selector::new("v1", "PersistentVolumeClaim", &of.namespace);
    // The controller gives them the labels that the StatefulSet selects by.
    selector.labels = format!("app.kubernetes.io/instance={}", of.name);
    let found = match kubernetes::list(&selector) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => return Ok(None),
        other => other?,
    };
    let names = found.iter().map(|claim| text(claim, "/metadata/name"));
    Ok(Some(names.filter(|name| is_of(name, &of.name)).collect()))
}

/// Whether a name is `<template>-<statefulset>-<number>`: a label alone proves nothing.
fn is_of(claim: &str, set: &str) -> bool {
    claim.rsplit_once('-').is_some_and(|(head, number)| {
        head.ends_with(&format!("-{set}")) && number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty()
    })
}

/// Deletes them. Each goes once no pod uses it any more.
///
/// # Errors
/// As the capability says.
pub fn delete(of: &ReleaseReference) -> Result<()> {
    for name in list(of)?.unwrap_or_default() {
        kubernetes::delete(&Reference::new("v1", "PersistentVolumeClaim", name).within(&of.namespace))?;
    }
    Ok(())
}

/// What to say before an application is deleted.
///
/// # Errors
/// As the capability says.
pub fn warning(of: &ReleaseReference, has_store: bool) -> Result<Option<String>> {
    Ok(match list(of)? {
        Some(names) if names.is_empty() => None,
        Some(names) => {
            Some(format!("what the application has stored is deleted with it: {}", names.join(", ")))
        }
        None if has_store => Some(
            "the claims of the state volumes stay: list and delete of PersistentVolumeClaim are not granted"
                .into(),
        ),
        None => None,
    })
}
