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

pub fn reference(of: &ReleaseReference) -> Reference {
    Reference::new("v1", "Secret", format!("{}-kafka", of.name)).within(&of.namespace)
}

fn data(held: &[Held]) -> BTreeMap<&'static str, String> {
    let files = held.iter().flat_map(|h| &h.files);
    files.map(|(name, contents)| (*name, STANDARD.encode(contents))).collect()
}

/// Writes the Secret, or takes away one that is not needed any more. Its version, which changes with its contents.
///
/// # Errors
/// As the capability says.
pub fn apply(to: &ReleaseReference, settings: &Settings) -> Result<Option<String>> {
    let held = of(settings);
    if held.is_empty() {
        return delete(to).map(|()| None);
    }
    let live = write(to, &reference(to), data(&held))?;
    Ok(Some(text(&live, "/metadata/resourceVersion")))
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

/// # Errors
/// As the capability says.
pub fn delete(of: &ReleaseReference) -> Result<()> {
    match kubernetes::delete(&reference(of)) {
        // An operator whose platform sends no secrets grants nothing for them.
        Err(e) if !e.is("not-granted") => Err(e),
        _ => Ok(()),
    }
}

/// The secrets of these settings, each with whether the live Secret holds what follows from it; `None` where that
/// cannot be known.
///
/// # Errors
/// As the capability says.
pub fn same(at: &ReleaseReference, settings: &Settings) -> Result<Vec<(&'static str, Option<bool>)>> {
    let held = of(settings);
    if held.is_empty() {
        return Ok(vec![]);
    }
    let live = match kubernetes::get(&reference(at)) {
        Err(e) if e.is("not-granted") || e.is("forbidden") => {
            return Ok(held.iter().map(|h| (h.pointer, None)).collect());
        }
        other => other?.unwrap_or_default(),
    };
    let equal = |h: &Held| {
        h.files.iter().all(|(name, contents)| {
            live.pointer(&format!("/data/{name}")).and_then(Value::as_str) == Some(&STANDARD.encode(contents))
        })
    };
    Ok(held.iter().map(|h| (h.pointer, Some(equal(h)))).collect())
}
