//! YAML as Kubernetes and Helm read it: YAML 1.1 scalars (`yes`, `0644`), the last of two equal keys wins.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses one document, such as a file of values.
///
/// # Errors
/// What is wrong and where, without a piece of the text: it may hold secrets.
pub fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        strict_booleans: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let Json(mut value) = serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string())?;
    whole_numbers(&mut value);
    Ok(value)
}

/// A document as JSON.
struct Json(Value);

/// A key of a mapping as JSON: an unquoted `on` is the text `true`, as values are.
struct Key(String);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Any).map(Self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self(match d.deserialize_any(Any)? {
            Value::String(s) => s,
            other => other.to_string(),
        }))
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i128<E>(self, v: i128) -> Result<Value, E> {
        Ok((v as f64).into())
    }
    fn visit_u128<E>(self, v: u128) -> Result<Value, E> {
        Ok((v as f64).into())
    }
    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(Json(item)) = items.next_element()? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some((Key(key), Json(value))) = entries.next_entry()? {
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Go writes the float 1.0 as `1`; the API server refuses `1.0` where it wants an integer.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(n) if n.is_f64() => {
            if let Some(f) = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15) {
                *value = Value::from(f as i64);
            }
        }
        Value::Array(a) => a.iter_mut().for_each(whole_numbers),
        Value::Object(o) => o.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("a: yes\nb: off\nc: \"yes\"", json!({"a": true, "b": false, "c": "yes"})),
            ("mode: 0644\nother: 0x10", json!({"mode": 420, "other": 16})),
            ("f: 1.0\ng: 1.5\nh: 1e3", json!({"f": 1, "g": 1.5, "h": 1000})),
            ("a: 1\na: 2", json!({"a": 2})),
            ("1: x\n2.5: z", json!({"1": "x", "2.5": "z"})),
            ("x: y\nz: n", json!({"x": true, "z": false})),
            ("on: a\n\"off\": b\nno: c", json!({"true": "a", "off": "b", "false": "c"})),
            (
                "d: 2024-01-02\nt: 2024-01-02T03:04:05Z",
                json!({"d": "2024-01-02", "t": "2024-01-02T03:04:05Z"}),
            ),
            ("a: ~\nm:\nk: null", json!({"a": null, "m": null, "k": null})),
            ("base: &b {k: 1}\nc:\n  <<: *b\n  l: 2", json!({"base": {"k": 1}, "c": {"k": 1, "l": 2}})),
            ("s: |\n  a\n  b\n", json!({"s": "a\nb\n"})),
            ("port: \"8080\"\nv: 1.10", json!({"port": "8080", "v": 1.1})),
            ("", json!(null)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        assert!(parse("a: [").is_err());
        let e = parse("password: hunter2\n\tx: [").unwrap_err();
        assert!(!e.contains("hunter2"), "{e}");
    }
}
