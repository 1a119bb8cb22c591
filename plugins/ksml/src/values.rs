//! The chart's values from the settings.

use serde_json::{Map, Value, json};
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::schema;

mod extras;

use crate::config::Config;
use crate::definitions::{file, namespace};
use crate::secrets::{FOLDER, KEYSTORE, PROPERTIES, TRUSTSTORE};
use crate::settings::{RestartPolicy, Security, Settings};

/// Where the settings stand in the values: charts take no notice of `global` keys that they do not know, and Helm
/// lets every chart have them, also under a schema.
pub const RECORD: &str = "/global/sutler/settings";

/// Kafka's reader of `${file:PATH:KEY}`.
const FILE_PROVIDER: &str = "org.apache.kafka.common.config.provider.FileConfigProvider";

/// What the values follow from.
pub struct Input<'a> {
    pub config: &'a Config,
    pub release: &'a ReleaseReference,
    /// The application's id, for Kafka's where the settings name none.
    pub application: &'a str,
    pub settings: &'a Settings,
    /// The settings as they were sent.
    pub sent: &'a Value,
    /// The version of the mounted Secret: pods start anew when it changes.
    pub secret_version: Option<&'a str>,
}

/// The operator's values, of the file and then of the table, with those of the settings over them. Below all of them
/// are the chart's own, which Helm adds.
pub fn of(input: &Input<'_>) -> Value {
    let mut out = Value::Object(input.config.values_file.clone());
    merge(&mut out, Value::Object(input.config.values.clone()));
    merge(&mut out, generated(input));
    merge(&mut out, extras::of(input.settings));
    out
}

fn generated(input: &Input<'_>) -> Value {
    let Input { settings, release, .. } = input;
    let (cpu, memory) = settings.size.quantities();
    let quantities = json!({"cpu": cpu, "memory": memory});
    let files = settings.definitions.iter().map(|(name, d)| (file(name), Value::from(d.text())));
    let mut out = json!({
        "deploymentMode": match settings.restart_policy {
            RestartPolicy::OnExit => "StatefulSet",
            RestartPolicy::Never => "Job",
        },
        "fullnameOverride": release.name,
        "replicaCount": settings.replicas,
        "ksmlRunnerConfig": {"definitions": definitions(settings), "kafka": kafka(input)},
        "ksmlDefinitions": files.collect::<Map<_, _>>(),
        "schemaDefinitions": settings.schemas,
        "resources": {"requests": quantities, "limits": quantities},
        "applicationServer": {"enabled": true, "port": "8080"},
        "global": {"sutler": {"settings": schema::without_secrets::<Settings>(input.sent)}},
    });
    if let (RestartPolicy::OnExit, Some(size)) = (settings.restart_policy, &settings.store_size) {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        merge(&mut out, json!({"store": {"spec": spec}}));
    }
    if let Some(image) = &input.config.image {
        merge(&mut out, json!({ "image": parts(image) }));
    }
    if let Some(version) = input.secret_version {
        merge(
            &mut out,
            json!({
                "podAnnotations": {"sutler.dev/secret-version": version},
                "volumes": [{"name": "ksml-secrets", "secret": {"secretName": format!("{}-kafka", release.name)}}],
                "volumeMounts": [{"name": "ksml-secrets", "mountPath": FOLDER, "readOnly": true}],
            }),
        );
    }
    out
}

/// KSML's namespaces with their files.
fn definitions(settings: &Settings) -> Map<String, Value> {
    settings.definitions.keys().map(|name| (namespace(name).to_owned(), file(name).into())).collect()
}

fn kafka(input: &Input<'_>) -> Map<String, Value> {
    let (k, prefix) = (&input.settings.kafka, &input.config.pattern_prefix);
    let mut out = Map::new();
    let mut put = |key: &str, value: &str| out.insert(key.to_owned(), value.into());
    put("application.id", k.application_id.as_deref().unwrap_or(input.application));
    put("bootstrap.servers", &k.bootstrap_servers);
    for (key, value) in [("tenant", &k.tenant), ("instance", &k.instance), ("environment", &k.environment)] {
        if let Some(value) = value {
            put(key, value);
        }
    }
    for (key, value) in [
        ("topic.pattern", &k.topic_pattern),
        ("group.id.pattern", &k.group_id_pattern),
        ("transactional.id.pattern", &k.transactional_id_pattern),
    ] {
        if let Some(value) = value {
            put(&format!("{prefix}{key}"), value);
        }
    }
    let trust = |put: &mut dyn FnMut(&str, &str)| {
        put("ssl.truststore.type", "PEM");
        put("ssl.truststore.location", &format!("{FOLDER}/{TRUSTSTORE}"));
    };
    let mut put = |key: &str, value: &str| {
        put(key, value);
    };
    match &k.security {
        Security::None => {}
        Security::Pem { .. } => {
            put("security.protocol", "SSL");
            put("ssl.keystore.type", "PEM");
            put("ssl.keystore.location", &format!("{FOLDER}/{KEYSTORE}"));
            trust(&mut put);
        }
        Security::Sasl { mechanism, ca, .. } => {
            put("security.protocol", "SASL_SSL");
            put("sasl.mechanism", mechanism.as_str());
            // Kafka reads the login from the mounted file, so that it stands in no ConfigMap. KSML's chart has `env`
            // for the id of each replica: what is said here takes its place.
            put("config.providers", "env,file");
            put("config.providers.env.class", "org.apache.kafka.common.config.provider.EnvVarConfigProvider");
            put("config.providers.file.class", FILE_PROVIDER);
            put("sasl.jaas.config", &format!("${{file:{FOLDER}/{PROPERTIES}:sasl.jaas.config}}"));
            if ca.is_some() {
                trust(&mut put);
            }
        }
    }
    out
}

/// `repository:tag`, or `repository@sha256:hex` in the two halves that a chart joins with a colon.
fn parts(image: &str) -> Value {
    let after_host = image.rfind('/').map_or(0, |i| i + 1);
    let colon = image.get(after_host..).and_then(|rest| rest.rfind(':')).map(|i| after_host + i);
    match colon.and_then(|i| Some((image.get(..i)?, image.get(i + 1..)?))) {
        Some((repository, tag)) => json!({"repository": repository, "tag": tag}),
        None => json!({ "repository": image }),
    }
}

/// `over` wins; objects are merged key by key.
fn merge(into: &mut Value, over: Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            for (key, value) in over {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, over) => *into = over,
    }
}
