//! A plugin's JSON Schema: checked when the plugin is loaded, run on each call.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::marks::Marks;
use crate::violation::{self, Violation};

/// A schema's text.
const MAX_BYTES: usize = 64 << 10;

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

/// A compiled schema and its marks.
#[derive(Debug)]
pub struct Schema {
    text: Value,
    validator: Validator,
    /// Whether anything in it is marked at all: most schemas need no look-ups.
    secrets: bool,
    replaces: bool,
    volatile: bool,
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
        let has = |mark: &str| mentions(&text, mark);
        Ok(Self {
            secrets: has("writeOnly"),
            replaces: has("x-requires-replace"),
            volatile: has("x-volatile"),
            text,
            validator,
        })
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
        self.validator.iter_errors(value).next().map_or(Ok(()), |e| Err(violation::of(&e)))
    }

    /// The marks that stand anywhere in the schema.
    pub fn marks(&self) -> Vec<&'static str> {
        let all = [(self.secrets, "writeOnly"), (self.replaces, "x-requires-replace")];
        all.into_iter().filter_map(|(there, mark)| there.then_some(mark)).collect()
    }

    /// Whether the field at a JSON Pointer, or something above it, is marked `writeOnly`.
    pub fn sensitive(&self, pointer: &str) -> bool {
        self.secrets && self.marked(pointer, "writeOnly")
    }

    /// Whether the field at a JSON Pointer, or something above it, cannot change in place.
    pub fn requires_replace(&self, pointer: &str) -> bool {
        self.replaces && self.marked(pointer, "x-requires-replace")
    }

    /// Whether the field at a JSON Pointer, or something above it, tells of a moment: another value is no drift.
    pub fn volatile(&self, pointer: &str) -> bool {
        self.volatile && self.marked(pointer, "x-volatile")
    }

    /// The value that the schema gives a field which is left out.
    pub fn default_of(&self, pointer: &str) -> Option<&Value> {
        let marks = Marks::new(&self.text);
        self.at(pointer).into_iter().flat_map(|n| marks.spread(n)).find_map(|n| n.get("default"))
    }

    /// The value without its sensitive fields: what may be shown.
    #[must_use]
    pub fn public(&self, value: &Value) -> Value {
        self.shown("", value).unwrap_or(Value::Null)
    }

    /// What may be shown of a value at a JSON Pointer: without its sensitive fields, `None` where all of it is one,
    /// or where it has another shape than the schema's so that nobody knows what in it is a secret.
    pub fn shown(&self, pointer: &str, value: &Value) -> Option<Value> {
        if !self.secrets {
            return Some(value.clone());
        }
        if self.sensitive(pointer) {
            return None;
        }
        Marks::new(&self.text).shown(&self.at(pointer), value)
    }

    fn at(&self, pointer: &str) -> Vec<&Value> {
        let marks = Marks::new(&self.text);
        segments(pointer).iter().fold(vec![&self.text], |nodes, s| marks.children(&nodes, s))
    }

    fn marked(&self, pointer: &str, mark: &str) -> bool {
        let marks = Marks::new(&self.text);
        let mut nodes = vec![&self.text];
        for segment in segments(pointer) {
            if marks.on(&nodes, mark) {
                return true;
            }
            nodes = marks.children(&nodes, &segment);
        }
        marks.on(&nodes, mark)
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

/// Whether a mark is set anywhere.
fn mentions(node: &Value, mark: &str) -> bool {
    match node {
        Value::Object(m) => {
            m.get(mark).and_then(Value::as_bool) == Some(true) || m.values().any(|v| mentions(v, mark))
        }
        Value::Array(a) => a.iter().any(|v| mentions(v, mark)),
        _ => false,
    }
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
                "phase": {"type": "object", "x-volatile": true},
                "kafka": {"$ref": "#/$defs/kafka"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"key": {"writeOnly": true}, "n": {}}}}
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
        assert!(s.volatile("/phase") && s.volatile("/phase/word") && !s.volatile("/size"));
        assert_eq!(s.default_of("/size"), Some(&json!(3)));
        assert_eq!(s.public(&json!({"list": [{"key": "x", "n": 1}]})), json!({"list": [{"n": 1}]}));
        // Another shape than the schema's hides all of it.
        for (at, value) in [
            ("/kafka", json!([{"password": "x"}])),
            ("/kafka", json!("x")),
            ("/list", json!({"a": {"key": "x"}})),
            ("", json!(["x"])),
            ("/kafka/password", json!("x")),
        ] {
            assert_eq!(s.shown(at, &value), None, "{at} {value}");
        }
        assert_eq!(s.shown("/size", &json!([1])), Some(json!([1])));
        assert_eq!(s.shown("/kafka", &json!({"user": "u", "password": "x"})), Some(json!({"user": "u"})));
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
