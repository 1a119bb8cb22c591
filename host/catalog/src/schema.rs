//! A plugin's JSON Schema: checked when the plugin is loaded, run on each call.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

/// A schema's text.
const MAX_BYTES: usize = 64 << 10;
/// How deep references are followed when marks are looked up.
const MAX_DEPTH: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    #[error("it has {0} bytes; at most 65536 are allowed")]
    TooLarge(usize),
    #[error("it is not an object schema; write \"type\": \"object\" at its top")]
    NotObject,
    #[error("it refers to {0:?}; only references within the schema (#/…) are followed")]
    Remote(String),
    #[error("at {at}: {message}")]
    Invalid { at: String, message: String },
}

/// What breaks a schema: a JSON Pointer and words without the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub path: String,
    pub message: String,
}

/// A compiled schema and its marks.
#[derive(Debug)]
pub struct Schema {
    text: Value,
    validator: Validator,
}

impl Schema {
    /// # Errors
    /// `SchemaError` where the text is no schema, too large, or looks outside itself.
    pub fn compile(text: Value) -> Result<Self, SchemaError> {
        let size = text.to_string().len();
        if size > MAX_BYTES {
            return Err(SchemaError::TooLarge(size));
        }
        if text.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError::NotObject);
        }
        local_references(&text)?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex())
            .build(&closed(&text))
            .map_err(|e| SchemaError::Invalid {
                at: e.instance_path().to_string(),
                message: e.to_string(),
            })?;
        Ok(Self { text, validator })
    }

    /// The schema as the plugin wrote it.
    pub const fn text(&self) -> &Value {
        &self.text
    }

    /// # Errors
    /// The first violation, at the deepest place that it names.
    pub fn check(&self, value: &Value) -> Result<(), Violation> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let Some(e) = self.validator.iter_errors(value).next() else { return Ok(()) };
        let mut path = e.instance_path().to_string();
        if let ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } = e.kind()
            && let Some(name) = unexpected.first()
        {
            path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
            return Err(Violation { path, message: format!("{name:?} is not a known field") });
        }
        Err(Violation { path, message: e.masked_with("the value").to_string() })
    }

    /// Whether the field at a JSON Pointer, or something above it, is marked `writeOnly`.
    pub fn sensitive(&self, pointer: &str) -> bool {
        self.marked(pointer, "writeOnly")
    }

    /// Whether the field at a JSON Pointer, or something above it, cannot change in place.
    pub fn requires_replace(&self, pointer: &str) -> bool {
        self.marked(pointer, "x-requires-replace")
    }

    /// The value that the schema gives a field which is left out.
    pub fn default_of(&self, pointer: &str) -> Option<&Value> {
        let mut nodes = vec![&self.text];
        for segment in segments(pointer) {
            nodes = nodes.into_iter().flat_map(|n| self.children(n, &segment)).collect();
        }
        nodes.into_iter().flat_map(|n| self.spread(n, 0)).find_map(|n| n.get("default"))
    }

    /// The value without its sensitive fields: what may be shown.
    #[must_use]
    pub fn public(&self, value: &Value) -> Value {
        let mut out = value.clone();
        self.strip(&mut out, &mut String::new());
        out
    }

    fn strip(&self, value: &mut Value, path: &mut String) {
        let Value::Object(map) = value else { return };
        let keys: Vec<String> = map.keys().cloned().collect();
        for k in keys {
            let len = path.len();
            path.push('/');
            path.push_str(&k.replace('~', "~0").replace('/', "~1"));
            if self.sensitive(path) {
                map.remove(&k);
            } else if let Some(v) = map.get_mut(&k) {
                self.strip(v, path);
            }
            path.truncate(len);
        }
    }

    fn marked(&self, pointer: &str, mark: &str) -> bool {
        let on = |nodes: &[&Value]| {
            nodes
                .iter()
                .any(|n| self.spread(n, 0).iter().any(|n| n.get(mark).and_then(Value::as_bool) == Some(true)))
        };
        let mut nodes = vec![&self.text];
        for segment in segments(pointer) {
            if on(&nodes) {
                return true;
            }
            nodes = nodes.into_iter().flat_map(|n| self.children(n, &segment)).collect();
        }
        on(&nodes)
    }

    /// A node with everything that stands for the same place: local references and combinations.
    fn spread<'a>(&'a self, node: &'a Value, depth: usize) -> Vec<&'a Value> {
        let mut out = vec![node];
        if depth >= MAX_DEPTH {
            return out;
        }
        if let Some(target) = node.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#')) {
            out.extend(self.text.pointer(target).into_iter().flat_map(|n| self.spread(n, depth + 1)));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let branches = node.get(key).and_then(Value::as_array).into_iter().flatten();
            out.extend(branches.flat_map(|n| self.spread(n, depth + 1)));
        }
        out
    }

    fn children<'a>(&'a self, node: &'a Value, segment: &str) -> Vec<&'a Value> {
        let mut out = Vec::new();
        for n in self.spread(node, 0) {
            match n.get("properties").and_then(|p| p.get(segment)) {
                Some(p) => out.push(p),
                None => out.extend(n.get("additionalProperties").filter(|a| a.is_object())),
            }
            if segment.parse::<usize>().is_ok() {
                out.extend(n.get("items").filter(|i| i.is_object()));
            }
        }
        out
    }
}

fn segments(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|s| s.replace("~1", "/").replace("~0", "~")).collect()
}

/// The top of a schema that says nothing of other fields refuses them: an undeclared setting is an error.
fn closed(text: &Value) -> Value {
    let mut text = text.clone();
    if let Value::Object(m) = &mut text
        && !m.contains_key("additionalProperties")
        && !m.contains_key("unevaluatedProperties")
    {
        m.insert("unevaluatedProperties".into(), Value::Bool(false));
    }
    text
}

fn local_references(node: &Value) -> Result<(), SchemaError> {
    match node {
        Value::Object(m) => {
            for key in ["$ref", "$dynamicRef"] {
                if let Some(r) = m.get(key).and_then(Value::as_str)
                    && !r.starts_with('#')
                {
                    return Err(SchemaError::Remote(r.chars().take(200).collect()));
                }
            }
            m.values().try_for_each(local_references)
        }
        Value::Array(a) => a.iter().try_for_each(local_references),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::compile(json!({
            "type": "object", "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "zone": {"type": "string", "x-requires-replace": true},
                "kafka": {"$ref": "#/$defs/kafka"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"key": {"writeOnly": true}}}}
            },
            "$defs": {"kafka": {"type": "object", "properties": {
                "password": {"anyOf": [{"type": "string", "writeOnly": true}, {"type": "null"}]}
            }}}
        }))
        .unwrap()
    }

    #[test]
    fn violations_have_places_and_no_values() {
        for (value, path, message) in [
            (json!({"size": 0}), "/size", "the value is less than the minimum of 1"),
            (json!({"size": "hunter2"}), "/size", "the value is not of type \"integer\""),
            (json!({"size": 1, "colour": "red"}), "/colour", "\"colour\" is not a known field"),
            (json!({}), "", "\"size\" is a required property"),
        ] {
            let v = schema().check(&value).unwrap_err();
            assert_eq!((v.path.as_str(), v.message.as_str()), (path, message));
        }
        assert_eq!(schema().check(&json!({"size": 2, "zone": "a"})), Ok(()));
    }

    #[test]
    fn marks_are_found_through_references() {
        let s = schema();
        assert!(s.sensitive("/kafka/password") && s.sensitive("/list/0/key"));
        assert!(!s.sensitive("/kafka") && !s.sensitive("/size"));
        assert!(s.requires_replace("/zone") && !s.requires_replace("/size"));
        assert_eq!(s.default_of("/size"), Some(&json!(3)));
        let shown = s.public(&json!({"size": 1, "kafka": {"password": "x", "user": "u"}}));
        assert_eq!(shown, json!({"size": 1, "kafka": {"user": "u"}}));
    }

    #[test]
    fn schemas_that_are_none() {
        let refused = |v| Schema::compile(v).unwrap_err();
        assert_eq!(refused(json!({"type": "string"})), SchemaError::NotObject);
        assert_eq!(
            refused(json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}})),
            SchemaError::Remote("https://example.com/x".into())
        );
        assert!(matches!(
            refused(json!({"type": "object", "properties": {"a": {"type": 7}}})),
            SchemaError::Invalid { .. }
        ));
        assert!(matches!(
            refused(json!({"type": "object", "description": "x".repeat(70_000)})),
            SchemaError::TooLarge(_)
        ));
        // A pattern that needs backtracking is not linear.
        assert!(matches!(
            refused(json!({"type": "object", "properties": {"a": {"pattern": "(a)\\1"}}})),
            SchemaError::Invalid { .. }
        ));
    }
}
