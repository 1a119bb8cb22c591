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
