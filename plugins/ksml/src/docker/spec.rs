//! The container of an application: what the chart would mount, as files; what it would limit, as limits.

use serde_json::{Map, Value, json};
use sutler_sdk::containers::{Extras, Mount, MountFile, Restart, Spec, Variable};
use sutler_sdk::helm::ReleaseReference;
use sutler_sdk::prelude::*;
use sutler_sdk::schema;

use crate::config::Config;
use crate::secrets::{self, FOLDER};
use crate::settings::{RestartPolicy, Settings};
use crate::values;

const RUNNER: &str = "/ksml/config/ksml-runner.yaml";
const LOGGING: &str = "/ksml/logging/logback.xml";
/// Folders, where the operator's values name no others.
const DEFINITIONS: &str = "/ksml/definitions";
const SCHEMAS: &str = "/ksml/schemas";
const STORE: &str = "/ksml-store";
/// With `-store` and `-stopped` behind it, a name stays under 63 characters, as names of hosts have to.
const LONGEST: usize = 45;

/// The container's name; no other resource of any owner has it.
pub fn name(of: &Subject<Settings>) -> String {
    of.name(LONGEST)
}

/// The volume of an application's state stores.
pub(super) fn store(name: &str) -> String {
    format!("{name}-store")
}

/// The settings as they are kept beside the container: without secrets.
pub(super) fn record(sent: Option<&Value>) -> String {
    schema::without_secrets::<Settings>(sent.unwrap_or(&Value::Null)).to_string()
}

/// # Errors
/// `invalid-config` without an image.
pub(super) fn of(
    of: &Subject<Settings>,
    config: &Config,
    settings: &Settings,
    sent: Option<&Value>,
) -> Result<(Spec, Extras)> {
    let name = name(of);
    let values = values::of(&values::Input {
        config,
        release: &ReleaseReference::new(String::new(), name.clone()),
        application: &of.application.id,
        settings,
        sent: sent.unwrap_or(&Value::Null),
    });
    let image = config.image.as_deref().unwrap_or_default();
    let (memory_bytes, milli_cpus) = settings.size.limits();
    let files = files(&values, settings);
    let mut env: Vec<Variable> =
        config.env.iter().map(|(k, v)| Variable { name: k.clone(), value: v.clone() }).collect();
    if files.iter().any(|f| f.path == LOGGING) && !config.env.contains_key("LOGBACK_CONFIGURATION_FILE") {
        env.push(Variable { name: "LOGBACK_CONFIGURATION_FILE".into(), value: LOGGING.into() });
    }
    let extras = Extras {
        mounts: vec![Mount { volume: store(&name), path: folder(&values, "storageDirectory", STORE) }],
        note: record(sent),
    };
    let spec = Spec {
        command: vec![RUNNER.into()],
        env,
        files,
        memory_bytes,
        milli_cpus,
        restart: match settings.restart_policy {
            RestartPolicy::OnExit => Restart::UnlessStopped,
            RestartPolicy::Never => Restart::Never,
        },
        network: config.network.clone(),
        ..Spec::new(name, image)
    };
    Ok((spec, extras))
}

fn folder(values: &Value, key: &str, otherwise: &str) -> String {
    let found = values.pointer(&format!("/ksmlRunnerConfig/{key}")).and_then(Value::as_str);
    found.unwrap_or(otherwise).trim_end_matches('/').to_owned()
}

fn files(values: &Value, settings: &Settings) -> Vec<MountFile> {
    let plain = |path: String, text: &str| MountFile { path, contents: text.into(), secret: false };
    let texts = |key: &str| values.get(key).and_then(Value::as_object).into_iter().flatten();
    let mut out =
        vec![plain(RUNNER.into(), &serde_json::to_string_pretty(&runner(values)).unwrap_or_default())];
    for (key, to) in [
        ("ksmlDefinitions", folder(values, "definitionDirectory", DEFINITIONS)),
        ("schemaDefinitions", folder(values, "schemaDirectory", SCHEMAS)),
    ] {
        let all = texts(key).filter_map(|(file, text)| Some(plain(format!("{to}/{file}"), text.as_str()?)));
        out.extend(all);
    }
    if let Some(logging) = values.get("logging").filter(|l| l.as_object().is_some_and(|l| !l.is_empty())) {
        out.push(plain(LOGGING.into(), &logback(logging)));
    }
    for (file, contents) in secrets::of(settings).into_iter().flat_map(|held| held.files) {
        out.push(MountFile { path: format!("{FOLDER}/{file}"), contents: contents.into(), secret: true });
    }
    out
}

/// ksml-runner.yaml; JSON, which YAML contains.
fn runner(values: &Value) -> Value {
    let empty = Map::new();
    let of = |key: &str| values.get(key).and_then(Value::as_object).unwrap_or(&empty);
    let config = of("ksmlRunnerConfig");
    let mut ksml = Map::from_iter([
        ("configDirectory".to_owned(), json!(folder(values, "definitionDirectory", DEFINITIONS))),
        ("storageDirectory".to_owned(), json!(folder(values, "storageDirectory", STORE))),
        ("applicationServer".to_owned(), server(of("applicationServer"), 8080)),
    ]);
    if !of("schemaDefinitions").is_empty() {
        ksml.insert("schemaDirectory".into(), json!(folder(values, "schemaDirectory", SCHEMAS)));
    }
    if of("prometheus").get("enabled") == Some(&Value::Bool(true)) {
        ksml.insert("prometheus".into(), server(of("prometheus"), 9999));
    }
    for (key, from) in [
        ("definitions", "definitions"),
        ("schemaRegistries", "schemaRegistries"),
        ("notations", "notations"),
        ("enableProducers", "enableProducers"),
        ("enablePipelines", "enablePipelines"),
    ] {
        ksml.extend(config.get(from).map(|value| (key.to_owned(), value.clone())));
    }
    if let Some(Value::Object(on_error)) = config.get("errorHandling") {
        let each = on_error.iter().map(|(at, what)| (at.clone(), handling(what)));
        ksml.insert("errorHandling".into(), each.collect::<Map<_, _>>().into());
    }
    json!({"ksml": ksml, "kafka": config.get("kafka")})
}

/// Ports are texts in the chart's values and numbers in KSML's configuration.
fn server(of: &Map<String, Value>, otherwise: u16) -> Value {
    let port = of.get("port").and_then(|p| p.as_u64().or_else(|| p.as_str()?.parse().ok()));
    let enabled = of.get("enabled") == Some(&Value::Bool(true));
    json!({"enabled": enabled, "host": "0.0.0.0", "port": port.unwrap_or(otherwise.into())})
}

/// KSML's own word for what the chart calls `stopOnError`.
fn handling(what: &Value) -> Value {
    let mut out = what.as_object().cloned().unwrap_or_default();
    if let Some(stop) = out.remove("stopOnError").and_then(|stop| stop.as_bool()) {
        out.insert("handler".into(), json!(if stop { "stopOnFail" } else { "continueOnFail" }));
    }
    out.into()
}

fn logback(logging: &Value) -> String {
    let encoder = match logging.get("jsonEnabled") == Some(&Value::Bool(true)) {
        true => "<encoder class=\"net.logstash.logback.encoder.LogstashEncoder\"/>",
        false => "<encoder><pattern>%date{ISO8601} %-5level %logger{36} - %msg%n</pattern></encoder>",
    };
    let text = |key: &str| logging.get(key).and_then(Value::as_str);
    // The names and levels are of a few characters each, none of which XML minds; the operator's are his own.
    let plain = |s: &str| s.replace(['<', '>', '&', '"'], "");
    let mut loggers = String::new();
    for (name, level) in logging.get("loggers").and_then(Value::as_object).into_iter().flatten() {
        let level = plain(level.as_str().unwrap_or_default());
        loggers.push_str(&format!("  <logger name=\"{}\" level=\"{level}\"/>\n", plain(name)));
    }
    format!(
        "<configuration>\n  <appender name=\"console\" class=\"ch.qos.logback.core.ConsoleAppender\">{encoder}</appender>\n\
         {loggers}  <root level=\"{}\"><appender-ref ref=\"console\"/></root>\n</configuration>\n",
        plain(text("rootLogLevel").unwrap_or("INFO"))
    )
}
