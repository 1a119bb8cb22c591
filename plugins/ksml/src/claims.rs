//! The claims of the state volumes: a StatefulSet's controller makes them, and Helm leaves them where they are.

use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::{self, Reference, Selector, text};
use sutler_sdk::prelude::*;

use crate::settings::{RestartPolicy, Settings};

/// A claim of a release.
struct Claim {
    name: String,
    /// What it asks for, as Kubernetes writes it: `2Gi`.
    size: String,
}

/// The release's claims; `None` where nothing is granted for them.
fn list(of: &ReleaseReference) -> Result<Option<Vec<Claim>>> {
    let mut selector = Selector::new("v1", "PersistentVolumeClaim", &of.namespace);
    // The controller gives them the labels that the StatefulSet selects by.
    selector.labels = format!("app.kubernetes.io/instance={}", of.name);
    let found = match kubernetes::list(&selector) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => return Ok(None),
        other => other?,
    };
    let claims = found.iter().map(|claim| Claim {
        name: text(claim, "/metadata/name"),
        size: text(claim, "/spec/resources/requests/storage"),
    });
    Ok(Some(claims.filter(|claim| is_of(&claim.name, &of.name)).collect()))
}

/// Whether a name is `<template>-<statefulset>-<number>`: a label alone proves nothing.
fn is_of(claim: &str, set: &str) -> bool {
    claim.rsplit_once('-').is_some_and(|(head, number)| {
        head.ends_with(&format!("-{set}")) && number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty()
    })
}

/// MiB of `2Gi`; Kubernetes may write another unit than was asked for.
fn mebibytes(size: &str) -> Option<u64> {
    let units = [("Mi", 1), ("Gi", 1 << 10), ("Ti", 1 << 20)];
    let (number, unit) = units.into_iter().find_map(|(unit, n)| Some((size.strip_suffix(unit)?, n)))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The size of the volumes that the application makes, if it makes any.
fn wanted(settings: &Settings) -> Option<&str> {
    settings.store_size.as_deref().filter(|_| settings.restart_policy == RestartPolicy::OnExit)
}

fn delete_these(of: &ReleaseReference, claims: &[Claim]) -> Result<()> {
    for claim in claims {
        let at = Reference::new("v1", "PersistentVolumeClaim", &claim.name).within(&of.namespace);
        kubernetes::delete(&at)?;
    }
    Ok(())
}

/// Deletes them. Each goes once no pod uses it any more.
///
/// # Errors
/// As the capability says.
pub fn delete(of: &ReleaseReference) -> Result<()> {
    delete_these(of, &list(of)?.unwrap_or_default())
}

/// Those that are not of the size that is wanted; `None` where nothing is granted for them.
fn of_another_size(of: &ReleaseReference, settings: &Settings) -> Result<Option<Vec<Claim>>> {
    let size = wanted(settings).and_then(mebibytes);
    let other = |claim: &Claim| size.is_none() || mebibytes(&claim.size) != size;
    Ok(list(of)?.map(|all| all.into_iter().filter(other).collect()))
}

/// Deletes, in a replacement whose release is gone, the claims of another size: by their names the new StatefulSet would
/// take them. What there is to wait for, if anything.
///
/// # Errors
/// As the capability says.
pub fn make_way(of: &ReleaseReference, settings: &Settings) -> Result<Option<String>> {
    match delete_these(of, &of_another_size(of, settings)?.unwrap_or_default()) {
        // The release is gone already: an application with its old volumes is better than none.
        Err(e) if e.is("not-granted") || e.is("forbidden") => return Ok(None),
        other => other?,
    }
    let left = of_another_size(of, settings)?.unwrap_or_default();
    Ok((!left.is_empty()).then(|| format!("claim {} goes once its pod has ended", names(&left))))
}

/// A claim of another size than the settings record.
///
/// # Errors
/// As the capability says.
pub fn drift(of: &ReleaseReference, settings: &Settings) -> Result<Option<Difference>> {
    let Some(size) = wanted(settings) else { return Ok(None) };
    let other = of_another_size(of, settings)?.unwrap_or_default();
    Ok(other.into_iter().find(|claim| mebibytes(&claim.size).is_some()).map(|claim| Difference {
        at: "/storeSize".into(),
        class: DifferenceClass::Drift,
        expected: Some(size.into()),
        actual: Some(claim.size.into()),
    }))
}

fn names(claims: &[Claim]) -> String {
    claims.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// What to say before an application is deleted.
///
/// # Errors
/// As the capability says.
pub fn warning(of: &ReleaseReference, has_store: bool) -> Result<Option<String>> {
    Ok(match list(of)? {
        Some(claims) if claims.is_empty() => None,
        Some(claims) => {
            Some(format!("what the application has stored is deleted with it: {}", names(&claims)))
        }
        None if has_store => Some(
            "the claims of the state volumes stay: list and delete of PersistentVolumeClaim are not granted"
                .into(),
        ),
        None => None,
    })
}

/// What to say before a replacement; `resized` where it is one of the volumes' size.
///
/// # Errors
/// As the capability says.
pub fn replacement(of: &ReleaseReference, settings: &Settings, resized: bool) -> Result<Option<String>> {
    Ok(match of_another_size(of, settings)? {
        Some(claims) if claims.is_empty() => None,
        Some(claims) => Some(format!(
            "what the application has stored is deleted with its old volumes: {}",
            names(&claims)
        )),
        None if resized => Some(
            "the old volumes stay and the application gets them again, with their size: list and delete of PersistentVolumeClaim are not granted"
                .into(),
        ),
        None => None,
    })
}
