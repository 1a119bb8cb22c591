//! The KSML plugin against a world in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod configuration;
mod definitions;
mod docker;
mod health;
mod lifecycle;
mod names;
mod running;
mod secrets;
mod sizes;
mod values;

use serde_json::{Value, json};
use sutler_sdk::testing::{Session, reset};

const NONE: Value = Value::Null;

fn session() -> Session<ksml::Ksml> {
    reset(
        json!({"chart": "oci://registry.example/charts/ksml", "version": "1.2.3", "image": "registry.example/ksml:9"}),
    );
    Session::new("orders", "prod", Some("acme"))
}

fn settings() -> Value {
    json!({"definitions": {"main": "streams: {}\n"}, "kafka": {"bootstrapServers": "kafka:9092"}})
}

fn with(mut settings: Value, over: Value) -> Value {
    json_merge(&mut settings, over);
    settings
}

fn json_merge(into: &mut Value, over: Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            for (k, v) in over {
                json_merge(into.entry(k).or_insert(Value::Null), v);
            }
        }
        (into, over) => *into = over,
    }
}
