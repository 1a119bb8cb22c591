//! Reading and writing the metadata of objects.

use serde_json::{Map, Value, json};

/// A text of the metadata; empty where there is none.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The metadata, made if there is none.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    let parent = fields(object);
    fields(parent.entry("metadata").or_insert_with(|| json!({})))
}

/// The fields of an object; what is no object becomes an empty one.
pub(crate) fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("made an object above"),
    }
}

pub(crate) fn finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
}

/// The UIDs of the object's owners.
pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten().filter_map(|o| o["uid"].as_str())
}

/// All but metadata and status: what a generation counts.
pub(crate) fn substance(object: &Value) -> Map<String, Value> {
    let mut all = object.as_object().cloned().unwrap_or_default();
    all.remove("metadata");
    all.remove("status");
    all
}

/// RFC 3339 in whole seconds, as metadata has it.
pub(crate) fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
