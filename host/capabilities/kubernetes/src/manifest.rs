//! Manifests as plugins write them.

use serde_json::{Map, Value};

use crate::Error;

/// The largest manifest or patch that a plugin may send. etcd itself takes 1.5 MiB.
pub const MAX_MANIFEST_BYTES: usize = 1 << 20;

/// Reads a JSON object.
pub(crate) fn parse(text: &str, what: &str) -> Result<Value, Error> {
    if text.len() > MAX_MANIFEST_BYTES {
        return Err(Error::Invalid(format!(
            "the {what} has {} bytes; the most is {MAX_MANIFEST_BYTES}",
            text.len()
        )));
    }
    let value: Value = serde_json::from_str(text).map_err(|e| {
        Error::Invalid(format!("the {what} is not JSON (line {}, column {})", e.line(), e.column()))
    })?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Error::Invalid(format!("the {what} is not a JSON object")))
    }
}

/// The object's metadata, made where it is missing.
pub(crate) fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, Error> {
    member(object.as_object_mut(), "metadata")
}

/// A member that is an object, made where it is missing or null.
pub(crate) fn member<'a>(
    of: Option<&'a mut Map<String, Value>>,
    key: &str,
) -> Result<&'a mut Map<String, Value>, Error> {
    let not = || Error::Invalid(format!("{key} is not an object"));
    let value = of.ok_or_else(not)?.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or_else(not)
}

/// What a plugin gets to see: managedFields are the API server's bookkeeping, and often most of the object.
pub(crate) fn shown(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}

/// An object that has only labels: those that a merge patch (RFC 7386) leaves.
pub(crate) fn with_labels(existing: &Value, patch: &Value) -> Value {
    let labels = |of: &Value| of.get("metadata").and_then(|m| m.get("labels")).cloned();
    let mut now = labels(existing).unwrap_or_default();
    match (patch.get("metadata"), labels(patch)) {
        (Some(Value::Null), _) | (_, Some(Value::Null)) => now = Value::Null,
        (_, Some(Value::Object(changed))) => {
            for (key, value) in changed {
                match now.as_object_mut() {
                    Some(now) if value.is_null() => drop(now.remove(&key)),
                    Some(now) => drop(now.insert(key, value)),
                    None => now = Value::from(Map::from_iter([(key, value)])),
                }
            }
        }
        _ => {}
    }
    serde_json::json!({ "metadata": { "labels": now } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_after_a_patch() {
        let existing = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        for (patch, labels) in [
            (json!({}), json!({"a": "1", "b": "2"})),
            (json!({"metadata": {"labels": {"a": null}}}), json!({"b": "2"})),
            (json!({"metadata": {"labels": {"a": "3", "c": "4"}}}), json!({"a": "3", "b": "2", "c": "4"})),
            (json!({"metadata": {"labels": null}}), Value::Null),
            (json!({"metadata": null}), Value::Null),
        ] {
            assert_eq!(with_labels(&existing, &patch)["metadata"]["labels"], labels, "{patch}");
        }
        let bare = with_labels(&json!({}), &json!({"metadata": {"labels": {"a": "1"}}}));
        assert_eq!(bare["metadata"]["labels"], json!({"a": "1"}));
    }
}
