//! The values of what an application may be given besides: nothing for what is left out.

use serde_json::{Map, Value, json};

use super::FILE_PROVIDER;
use crate::secrets::{FOLDER, REGISTRY_KEYSTORE, REGISTRY_PROPERTIES, REGISTRY_TRUSTSTORE};
use crate::settings::{Format, Logging, Metrics, RegistrySecurity, SchemaRegistry, Settings};

/// What the registry and the notation that uses it are called in KSML's configuration.
const REGISTRY: &str = "confluent";

pub(super) fn of(settings: &Settings) -> Value {
    let mut out = Map::new();
    let mut runner = Map::new();
    if let Some(registry) = &settings.schema_registry {
        runner.insert("schemaRegistries".into(), json!({ REGISTRY: {"config": config(registry)} }));
        runner.insert(
            "notations".into(),
            json!({"avro": {"type": "confluent_avro", "schemaRegistry": REGISTRY}}),
        );
    }
    // Settings and values have the same names here.
    runner.extend(settings.error_handling.as_ref().map(|e| ("errorHandling".to_owned(), json!(e))));
    if !runner.is_empty() {
        out.insert("ksmlRunnerConfig".into(), runner.into());
    }
    if let Some(l) = &settings.logging {
        out.insert("logging".into(), logging(l));
    }
    if let Some(m) = &settings.metrics {
        metrics(m, &mut out);
    }
    out.extend(settings.network_policy.as_ref().map(|policy| ("networkPolicy".to_owned(), json!(policy))));
    Value::Object(out)
}

/// The registry's client reads the password from the mounted file, so that it stands in no ConfigMap.
fn config(registry: &SchemaRegistry) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |key: &str, value: &str| {
        out.insert(key.to_owned(), value.into());
    };
    put("schema.registry.url", &registry.url);
    let store = |put: &mut dyn FnMut(&str, &str), which: &str, file: &str| {
        put(&format!("schema.registry.ssl.{which}.type"), "PEM");
        put(&format!("schema.registry.ssl.{which}.location"), &format!("{FOLDER}/{file}"));
    };
    match &registry.security {
        RegistrySecurity::None => {}
        RegistrySecurity::Basic { ca, .. } => {
            put("config.providers", "file");
            put("config.providers.file.class", FILE_PROVIDER);
            put("basic.auth.credentials.source", "USER_INFO");
            let file = format!("${{file:{FOLDER}/{REGISTRY_PROPERTIES}:basic.auth.user.info}}");
            put("basic.auth.user.info", &file);
            if ca.is_some() {
                store(&mut put, "truststore", REGISTRY_TRUSTSTORE);
            }
        }
        RegistrySecurity::Pem { .. } => {
            store(&mut put, "keystore", REGISTRY_KEYSTORE);
            store(&mut put, "truststore", REGISTRY_TRUSTSTORE);
        }
    }
    out
}

fn logging(l: &Logging) -> Value {
    let mut out = Map::new();
    out.extend(l.level.map(|level| ("rootLogLevel".to_owned(), json!(level))));
    if !l.loggers.is_empty() {
        out.insert("loggers".into(), json!(l.loggers));
    }
    out.extend(l.format.map(|f| ("jsonEnabled".to_owned(), json!(f == Format::Json))));
    Value::Object(out)
}

fn metrics(m: &Metrics, out: &mut Map<String, Value>) {
    let mut prometheus = Map::from_iter([("enabled".to_owned(), json!(m.enabled))]);
    // The chart's schema wants a text.
    prometheus.extend(m.port.map(|port| ("port".to_owned(), json!(port.to_string()))));
    out.insert("prometheus".into(), prometheus.into());
    out.extend(m.service_monitor.as_ref().map(|monitor| ("serviceMonitor".to_owned(), json!(monitor))));
}
