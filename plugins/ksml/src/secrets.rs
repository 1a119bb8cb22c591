//! What must not stand in the chart's values: keys and passwords, in a Secret that the chart mounts.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::{self, Reference, text};
use sutler_sdk::prelude::*;

use crate::settings::{Mechanism, RegistrySecurity, Security, Settings};

/// Where the Secret is mounted.
pub const FOLDER: &str = "/ksml-secrets";
pub const KEYSTORE: &str = "keystore.pem";
pub const TRUSTSTORE: &str = "truststore.pem";
pub const PROPERTIES: &str = "kafka.properties";
pub const REGISTRY_KEYSTORE: &str = "registry-keystore.pem";
pub const REGISTRY_TRUSTSTORE: &str = "registry-truststore.pem";
pub const REGISTRY_PROPERTIES: &str = "registry.properties";

/// File names with their contents.
pub type Files = BTreeMap<&'static str, String>;

/// One of the settings' secrets, and the files that follow from it and what stands beside it.
pub struct Held {
    /// The JSON Pointer of the secret in the settings.
    pub pointer: &'static str,
    pub files: Files,
}

/// Every secret of the settings.
pub fn of(settings: &Settings) -> Vec<Held> {
    let registry = settings.schema_registry.as_ref().and_then(|r| registry(&r.security));
    kafka(&settings.kafka.security).into_iter().chain(registry).collect()
}

fn kafka(security: &Security) -> Option<Held> {
    match security {
        Security::None => None,
        Security::Pem { certificate, key, ca } => Some(Held {
            pointer: "/kafka/security/key",
            files: Files::from([(KEYSTORE, keystore(&key.0, certificate)), (TRUSTSTORE, lines(ca))]),
        }),
        Security::Sasl { username, password, mechanism, ca } => {
            let login = login(username, &password.0, *mechanism);
            let mut files = Files::from([(PROPERTIES, property("sasl.jaas.config", &login))]);
            files.extend(ca.as_ref().map(|ca| (TRUSTSTORE, lines(ca))));
            Some(Held { pointer: "/kafka/security/password", files })
        }
    }
}

fn registry(security: &RegistrySecurity) -> Option<Held> {
    match security {
        RegistrySecurity::None => None,
        RegistrySecurity::Basic { username, password, ca } => {
            let user = format!("{username}:{}", password.0);
            let mut files = Files::from([(REGISTRY_PROPERTIES, property("basic.auth.user.info", &user))]);
            files.extend(ca.as_ref().map(|ca| (REGISTRY_TRUSTSTORE, lines(ca))));
            Some(Held { pointer: "/schemaRegistry/security/password", files })
        }
        RegistrySecurity::Pem { certificate, key, ca } => Some(Held {
            pointer: "/schemaRegistry/security/key",
            files: Files::from([
                (REGISTRY_KEYSTORE, keystore(&key.0, certificate)),
                (REGISTRY_TRUSTSTORE, lines(ca)),
            ]),
        }),
    }
}

fn keystore(key: &str, certificate: &str) -> String {
    format!("{}\n{}\n", key.trim_end(), certificate.trim_end())
}

fn lines(pem: &str) -> String {
    format!("{}\n", pem.trim_end())
}

/// A login module's line, quoted for JAAS.
fn login(username: &str, password: &str, mechanism: Mechanism) -> String {
    let quote = |s: &str| s.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "{} required username=\"{}\" password=\"{}\";",
        mechanism.module(),
        quote(username),
        quote(password)
    )
}

/// A properties file with one entry, quoted as Java reads it; a blank at the value's beginning as well.
fn property(key: &str, value: &str) -> String {
    let mut out = format!("{key}=");
    for (i, c) in value.chars().enumerate() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' if i == 0 => out.push_str("\\ "),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// What the names of an application's Secrets end in: one is mounted, one may be that of the last revision that became
/// ready, and one is free for what comes. What is mounted is never written to.
const ENDS: [&str; 3] = ["kafka", "kafka-2", "kafka-3"];

fn names(of: &ReleaseReference) -> impl Iterator<Item = String> {
    ENDS.into_iter().map(|end| format!("{}-{end}", of.name))
}

/// The name of the first one, which was the only one once.
pub fn first(of: &ReleaseReference) -> String {
    names(of).next().unwrap_or_default()
}

fn reference(of: &ReleaseReference, name: &str) -> Reference {
    Reference::new("v1", "Secret", name).within(&of.namespace)
}

/// The Secret that pods mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    pub name: String,
    /// Another one where the contents are others: pods start anew when it changes.
    pub version: String,
}

fn data(held: &[Held]) -> BTreeMap<&'static str, String> {
    let files = held.iter().flat_map(|h| &h.files);
    files.map(|(name, contents)| (*name, STANDARD.encode(contents))).collect()
}

/// A Secret with the settings' secrets: one that holds exactly them already, or a free one that is written. `now` is
/// mounted and stays as it is; `used` tells, where none is free otherwise, which ones revisions mount, newest first.
///
/// # Errors
/// As the capability says.
pub fn apply(
    to: &ReleaseReference,
    settings: &Settings,
    now: Option<&Mounted>,
    used: impl FnOnce() -> Result<Vec<String>>,
) -> Result<Option<Mounted>> {
    let held = of(settings);
    if held.is_empty() {
        return Ok(None);
    }
    let wanted = data(&held);
    let mut all = Vec::new();
    for name in names(to) {
        let live = kubernetes::get(&reference(to, &name))?;
        all.push((name, live));
    }
    let mounted = now.map(|now| now.name.as_str());
    all.sort_by_key(|(name, _)| Some(name.as_str()) != mounted);
    let told = json!(wanted);
    let equal = all.iter().find_map(|(name, live)| {
        live.as_ref().filter(|live| live.get("data") == Some(&told)).map(|live| (name, live))
    });
    if let Some((name, live)) = equal {
        // One that was written again by a cancelled update has another version, and the pods' own is as good.
        let version = now.filter(|now| now.name == *name && !now.version.is_empty());
        let version = version.map_or_else(|| text(live, "/metadata/resourceVersion"), |n| n.version.clone());
        return Ok(Some(Mounted { name: name.clone(), version }));
    }
    let absent = all.iter().find(|(name, live)| live.is_none() && Some(name.as_str()) != mounted);
    let name = match absent {
        Some((name, _)) => name.clone(),
        None => free(to, mounted, &used()?),
    };
    let live = write(to, &reference(to, &name), wanted)?;
    Ok(Some(Mounted { name, version: text(&live, "/metadata/resourceVersion") }))
}

/// Where all of them are there, updates failed one after the other. One that no revision mounts is free, or else the
/// one that is neither mounted nor the longest unused: that one is of the last revision that became ready.
fn free(of: &ReleaseReference, mounted: Option<&str>, used: &[String]) -> String {
    let mut order: Vec<&String> = Vec::new();
    for name in used {
        if !order.contains(&name) {
            order.push(name);
        }
    }
    let unused = names(of).find(|name| !order.contains(&name) && Some(name.as_str()) != mounted);
    unused.or_else(|| order.get(1).map(|name| (*name).clone())).unwrap_or_else(|| first(of))
}

/// Writes these settings' secrets into the Secret of that name, whatever is in it. Whether there were any.
///
/// # Errors
/// As the capability says.
pub fn restore(to: &ReleaseReference, settings: &Settings, name: &str) -> Result<bool> {
    let held = of(settings);
    if !held.is_empty() {
        write(to, &reference(to, name), data(&held))?;
    }
    Ok(!held.is_empty())
}

/// Whether the Secret of that name is there.
///
/// # Errors
/// As the capability says.
pub fn exists(of: &ReleaseReference, name: &str) -> Result<bool> {
    Ok(kubernetes::get(&reference(of, name))?.is_some())
}

/// Applies a Secret of an application, and makes the namespace where it is the tenant's first one.
///
/// # Errors
/// As the capability says.
pub(crate) fn write(
    to: &ReleaseReference,
    at: &Reference,
    data: BTreeMap<&'static str, String>,
) -> Result<Value> {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": at.name, "namespace": to.namespace, "labels": {"app.kubernetes.io/instance": to.name}},
        "data": data,
    });
    match kubernetes::apply(&manifest) {
        // Helm would make the namespace only later.
        Err(e) if e.is("not-found") => {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": to.namespace}});
            kubernetes::create(&namespace)
                .map(|_| ())
                .or_else(|e| if e.is("already-exists") { Ok(()) } else { Err(e) })?;
            kubernetes::apply(&manifest)
        }
        other => other,
    }
}

/// Takes the application's Secrets away, but not the one of that name.
///
/// # Errors
/// As the capability says.
pub fn clear(of: &ReleaseReference, but: Option<&str>) -> Result<()> {
    for name in names(of).filter(|name| Some(name.as_str()) != but) {
        let at = reference(of, &name);
        match kubernetes::get(&at).and_then(|live| live.map_or(Ok(false), |_| kubernetes::delete(&at))) {
            // An operator whose platform sends no secrets grants nothing for them.
            Err(e) if !e.is("not-granted") => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// The secrets of these settings, each with whether the Secret that is mounted holds what follows from it; `None` where
/// that cannot be known.
///
/// # Errors
/// As the capability says.
pub fn same(
    at: &ReleaseReference,
    settings: &Settings,
    mounted: Option<&str>,
) -> Result<Vec<(&'static str, Option<bool>)>> {
    let held = of(settings);
    if held.is_empty() {
        return Ok(vec![]);
    }
    let live = match mounted.map(|name| kubernetes::get(&reference(at, name))).transpose() {
        Err(e) if e.is("not-granted") || e.is("forbidden") => {
            return Ok(held.iter().map(|h| (h.pointer, None)).collect());
        }
        other => other?.flatten().unwrap_or_default(),
    };
    let equal = |h: &Held| {
        h.files.iter().all(|(name, contents)| {
            live.pointer(&format!("/data/{name}")).and_then(Value::as_str) == Some(&STANDARD.encode(contents))
        })
    };
    Ok(held.iter().map(|h| (h.pointer, Some(equal(h)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_that_was_well_is_never_written_to() {
        let at = ReleaseReference::new("ksml-acme", "orders");
        let of = |used: &[&str], mounted: Option<&str>| {
            let used: Vec<String> = used.iter().map(|end| format!("orders-{end}")).collect();
            free(&at, mounted.map(|end| format!("orders-{end}")).as_deref(), &used)
        };
        for (used, mounted, expected) in [
            // Newest first: the last is of what was ready.
            (&["kafka-3", "kafka-2", "kafka"][..], Some("kafka-3"), "orders-kafka-2"),
            (&["kafka-2", "kafka-3", "kafka-2", "kafka"], Some("kafka-2"), "orders-kafka-3"),
            (&["kafka", "kafka", "kafka-3", "kafka-2"], Some("kafka"), "orders-kafka-3"),
            // One that no revision mounts was written for an update that never began.
            (&["kafka-2", "kafka"], Some("kafka-2"), "orders-kafka-3"),
            (&["kafka-2"], Some("kafka-2"), "orders-kafka"),
            (&[], Some("kafka"), "orders-kafka-2"),
            (&[], None, "orders-kafka"),
        ] {
            assert_eq!(of(used, mounted), expected, "{used:?} {mounted:?}");
        }
    }
}
