//! What must not stand in the chart's values: the client's key and password, in a Secret that the chart mounts.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::{self, Reference, text};
use sutler_sdk::prelude::*;

use crate::settings::{Mechanism, Security};

/// Where the Secret is mounted.
pub const FOLDER: &str = "/ksml-secrets";
pub const KEYSTORE: &str = "keystore.pem";
pub const TRUSTSTORE: &str = "truststore.pem";
pub const PROPERTIES: &str = "kafka.properties";

/// The Secret's files. None where the settings have no secret.
pub fn files(security: &Security) -> BTreeMap<&'static str, String> {
    match security {
        Security::None => BTreeMap::new(),
        Security::Pem { certificate, key, ca } => BTreeMap::from([
            (KEYSTORE, format!("{}\n{}\n", key.0.trim_end(), certificate.trim_end())),
            (TRUSTSTORE, format!("{}\n", ca.trim_end())),
        ]),
        Security::Sasl { username, password, mechanism, ca } => {
            let mut out = BTreeMap::from([(PROPERTIES, properties(username, &password.0, *mechanism))]);
            if let Some(ca) = ca {
                out.insert(TRUSTSTORE, format!("{}\n", ca.trim_end()));
            }
            out
        }
    }
}

/// A properties file with one entry, quoted for JAAS and then for Java's properties.
fn properties(username: &str, password: &str, mechanism: Mechanism) -> String {
    let quote = |s: &str| s.replace('\\', "\\\\").replace('"', "\\\"");
    let login = format!(
        "{} required username=\"{}\" password=\"{}\";",
        mechanism.module(),
        quote(username),
        quote(password)
    );
    let mut out = String::from("sasl.jaas.config=");
    for c in login.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// The JSON Pointer of the secret in the settings.
pub const fn pointer(security: &Security) -> Option<&'static str> {
    match security {
        Security::None => None,
        Security::Pem { .. } => Some("/kafka/security/key"),
        Security::Sasl { .. } => Some("/kafka/security/password"),
    }
}

pub fn reference(of: &ReleaseReference) -> Reference {
    Reference::new("v1", "Secret", format!("{}-kafka", of.name)).within(&of.namespace)
}

fn data(security: &Security) -> BTreeMap<&'static str, String> {
    files(security).into_iter().map(|(name, contents)| (name, STANDARD.encode(contents))).collect()
}

/// Writes the Secret, or takes away one that is not needed any more. Its version, which changes with its contents.
///
/// # Errors
/// As the capability says.
pub fn apply(of: &ReleaseReference, security: &Security) -> Result<Option<String>> {
    let at = reference(of);
    if pointer(security).is_none() {
        return delete(of).map(|()| None);
    }
    let manifest = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": at.name, "namespace": of.namespace, "labels": {"app.kubernetes.io/instance": of.name}},
        "data": data(security),
    });
    let live = match kubernetes::apply(&manifest) {
        // The first application of a tenant: Helm would make the namespace only later.
        Err(e) if e.is("not-found") => {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": of.namespace}});
            kubernetes::create(&namespace)
                .map(|_| ())
                .or_else(|e| if e.is("already-exists") { Ok(()) } else { Err(e) })?;
            kubernetes::apply(&manifest)
        }
        other => other,
    }?;
    Ok(Some(text(&live, "/metadata/resourceVersion")))
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

/// Whether the live Secret is the one that these settings would make; `None` where that cannot be known.
///
/// # Errors
/// As the capability says.
pub fn same(of: &ReleaseReference, security: &Security) -> Result<Option<bool>> {
    if pointer(security).is_none() {
        return Ok(Some(true));
    }
    match kubernetes::get(&reference(of)) {
        Ok(Some(live)) => Ok(Some(live.get("data") == Some(&json!(data(security))))),
        Ok(None) => Ok(Some(false)),
        Err(e) if e.is("not-granted") || e.is("forbidden") => Ok(None),
        Err(e) => Err(e),
    }
}
