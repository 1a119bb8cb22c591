//! JSON Schemas from Rust types, and the marks in them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// The JSON Schema 2020-12 of a type, without remote references.
pub fn of<T: JsonSchema>() -> Value {
    let generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    generator.into_root_schema_for::<T>().to_value()
}

/// Hides the value from every answer: `#[schemars(extend("writeOnly" = true))]`.
pub(crate) const WRITE_ONLY: &str = "writeOnly";
/// A setting that cannot change in place: `#[schemars(extend("x-requires-replace" = true))]`.
pub(crate) const REQUIRES_REPLACE: &str = "x-requires-replace";

/// The JSON Pointers into `value` whose schema carries `mark: true`, the outermost ones only.
pub fn marked(schema: &Value, value: &Value, mark: &str) -> Vec<String> {
    let mut out = Vec::new();
    walk(&Walk { root: schema, mark }, schema, value, &mut String::new(), &mut out, 0);
    out.sort();
    out.dedup();
    out
}

struct Walk<'a> {
    root: &'a Value,
    mark: &'a str,
}

fn walk(w: &Walk<'_>, schema: &Value, value: &Value, path: &mut String, out: &mut Vec<String>, depth: usize) {
    // A schema that refers to itself ends with the value; references alone could go round for ever.
    let Some(schema) = schema.as_object().filter(|_| depth < 128) else { return };
    if schema.get(w.mark) == Some(&Value::Bool(true)) {
        out.push(path.clone());
        return;
    }
    if let Some(to) = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'))
        && let Some(to) = w.root.pointer(to)
    {
        walk(w, to, value, path, out, depth + 1);
    }
    for several in ["allOf", "anyOf", "oneOf"] {
        for one in schema.get(several).and_then(Value::as_array).into_iter().flatten() {
            walk(w, one, value, path, out, depth + 1);
        }
    }
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let of = properties.get(key).or_else(|| schema.get("additionalProperties"));
                if let Some(of) = of {
                    below(path, key, |path| walk(w, of, field, path, out, depth + 1));
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                if let Some(of) = schema.get("items") {
                    below(path, &i.to_string(), |path| walk(w, of, item, path, out, depth + 1));
                }
            }
        }
        _ => {}
    }
}

fn below(path: &mut String, key: &str, run: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
    run(path);
    path.truncate(length);
}

/// Takes the value at a JSON Pointer out of its object.
pub(crate) fn remove(value: &mut Value, pointer: &str) {
    if let Some((parent, key)) = pointer.rsplit_once('/')
        && let Some(Value::Object(fields)) = value.pointer_mut(parent)
    {
        fields.remove(&key.replace("~1", "/").replace("~0", "~"));
    }
}

/// Settings without what their schema marks `writeOnly`: fit to be stored where others read.
pub fn without_secrets<T: JsonSchema>(settings: &Value) -> Value {
    let mut out = settings.clone();
    for secret in marked(&of::<T>(), settings, WRITE_ONLY) {
        remove(&mut out, &secret);
    }
    out
}

/// `actual` in the spelling of `told`: a field that `told` left out is left out where it has the value that
/// `filled` (told with its defaults) gives it.
pub(crate) fn spelled_like(actual: Value, told: &Value, filled: &Value) -> Value {
    match (actual, told, filled) {
        (Value::Object(actual), Value::Object(told), Value::Object(filled)) => Value::Object(
            actual
                .into_iter()
                .filter_map(|(key, value)| match (told.get(&key), filled.get(&key)) {
                    (None, Some(default)) if *default == value => None,
                    (Some(told), Some(filled)) => {
                        let value = spelled_like(value, told, filled);
                        Some((key, value))
                    }
                    _ => Some((key, value)),
                })
                .collect(),
        ),
        (actual, told, filled) => {
            if actual == *filled {
                told.clone()
            } else {
                actual
            }
        }
    }
}
