//! The chart's values from the settings.

use serde_json::{Map, Value, json};
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::kubernetes::text;
use sutler_sdk::schema;

mod extras;

use crate::config::Config;
use crate::definitions::{file, namespace};
use crate::secrets::{FOLDER, KEYSTORE, Mounted, PROPERTIES, TRUSTSTORE};
use crate::settings::{RestartPolicy, Security, Settings};

/// Where the settings stand in the values: charts take no notice of `global` keys that they do not know, and Helm
/// lets every chart have them, also under a schema.
const RECORD: &str = "/global/sutler/settings";

const VOLUME: &str = "ksml-secrets";
const VERSION: &str = "sutler.dev/secret-version";

/// Kafka's reader of `${file:PATH:KEY}`.
const FILE_PROVIDER: &str = "org.apache.kafka.common.config.provider.FileConfigProvider";

/// What the values follow from.
pub struct Input<'a> {
    pub config: &'a Config,
    pub release: &'a ReleaseReference,
    /// The application's id.
    pub application: &'a str,
    pub settings: &'a Settings,
    /// The settings as they were sent.
    pub sent: &'a Value,
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
        "global": {"sutler": {"settings": record(input.sent)}},
    });
    if let (RestartPolicy::OnExit, Some(size)) = (settings.restart_policy, &settings.store_size) {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        merge(&mut out, json!({"store": {"spec": spec}}));
    }
    if let Some(image) = &input.config.image {
        merge(&mut out, json!({ "image": parts(image) }));
    }
    out
}

/// Adds the Secret that pods mount.
pub fn mount(values: &mut Value, Mounted { name, version }: &Mounted) {
    let added = json!({
        "podAnnotations": {VERSION: version},
        "volumes": [{"name": VOLUME, "secret": {"secretName": name}}],
        "volumeMounts": [{"name": VOLUME, "mountPath": FOLDER, "readOnly": true}],
    });
    merge(values, added);
}

/// Settings without secrets, and without the texts that stand in the values already: `true` in the place of an object
/// and `false` in that of a text.
fn record(sent: &Value) -> Value {
    let mut out = schema::without_secrets::<Settings>(sent);
    for key in ["definitions", "schemas"] {
        let texts = out.get_mut(key).and_then(Value::as_object_mut);
        texts.into_iter().flatten().for_each(|(_, text)| *text = text.is_object().into());
    }
    out
}

/// The settings as they were sent, without secrets, from a release's values; `None` where the release is not of this
/// plugin. Texts are those that the values have now.
pub fn recorded(values: &Value) -> Option<Value> {
    let mut out = values.pointer(RECORD)?.clone();
    restore(&mut out, "definitions", values.get("ksmlDefinitions"), file);
    restore(&mut out, "schemas", values.get("schemaDefinitions"), str::to_owned);
    Some(out)
}

fn restore(record: &mut Value, key: &str, texts: Option<&Value>, file: impl Fn(&str) -> String) {
    let Some(Value::Object(all)) = record.get_mut(key) else { return };
    all.retain(|name, told| {
        // Releases of before hold the text itself.
        let Value::Bool(object) = *told else { return true };
        let text = texts.and_then(|texts| texts.get(file(name))).and_then(Value::as_str);
        let object = text.filter(|_| object).and_then(|text| serde_json::from_str(text).ok());
        let found = object.or_else(|| text.map(Value::from));
        let there = found.is_some();
        *told = found.unwrap_or_default();
        there
    });
}

/// The Secret that a release of these values mounts.
pub fn mounted(values: &Value) -> Option<Mounted> {
    let volumes = values.get("volumes").and_then(Value::as_array)?;
    let volume = volumes.iter().find(|v| v.get("name").and_then(Value::as_str) == Some(VOLUME))?;
    let version =
        values.get("podAnnotations").map(|all| text(all, &format!("/{}", VERSION.replace('/', "~1"))));
    Some(Mounted { name: text(volume, "/secret/secretName"), version: version.unwrap_or_default() })
}

/// KSML's namespaces with their files.
fn definitions(settings: &Settings) -> Map<String, Value> {
    settings.definitions.keys().map(|name| (namespace(name).to_owned(), file(name).into())).collect()
}

/// What the settings name; else the application's id where a pattern makes groups of it, and without one the release's
/// name, which no other application of any tenant, instance or environment has.
fn application_id<'a>(input: &'a Input<'_>) -> &'a str {
    let kafka = &input.settings.kafka;
    let otherwise = if kafka.group_id_pattern.is_some() { input.application } else { &input.release.name };
    kafka.application_id.as_deref().unwrap_or(otherwise)
}

/// What to say where an update gives an application that is there another name in Kafka.
pub fn another_group(now: &Value, then: &Value) -> Option<String> {
    let id = |values: &Value| {
        Some(text(values, "/ksmlRunnerConfig/kafka/application.id")).filter(|id| !id.is_empty())
    };
    let (now, then) = (id(now)?, id(then)?);
    (now != then).then(|| {
        format!(
            "Kafka's application.id becomes {then}, and {now} with its offsets and state is left behind; write {now} as kafka.applicationId to keep it"
        )
    })
}

fn kafka(input: &Input<'_>) -> Map<String, Value> {
    let (k, prefix) = (&input.settings.kafka, &input.config.pattern_prefix);
    let mut out = Map::new();
    let mut put = |key: &str, value: &str| out.insert(key.to_owned(), value.into());
    put("application.id", application_id(input));
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
