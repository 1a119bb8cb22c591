//! JSON read strictly: no key twice, at any depth; errors with the JSON Pointer of their place; suggestions.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::{Path, Segment};
use sutler_model::pointer_part;

use crate::refusal::Refusal;

/// A JSON value in which no object has a key twice: two readers of such a text may see different values.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

/// For fields that may be null or left out.
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let Strict(value) = Strict::deserialize(deserializer)?;
    Ok(Some(value).filter(|v| !v.is_null()))
}

/// A struct that is written as a JSON object. Without it serde takes a list of the fields' values as well.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }
    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| E::custom("a number that JSON cannot express"))
    }
    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(Strict(v)) = seq.next_element()? {
            out.push(v);
        }
        Ok(Value::Array(out))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if out.contains_key(&key) {
                return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
            }
            let Strict(value) = map.next_value()?;
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

/// Reads a body whose depth was measured before.
///
/// # Errors
/// 400 with the place and what is wrong there.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    if let Ok(value) = T::deserialize(&mut reader)
        && reader.end().is_ok()
    {
        return Ok(value);
    }
    // Only a body that failed is read again, with its places tracked.
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    let value: T = serde_path_to_error::deserialize(&mut reader).map_err(|e| explain(e.path(), e.inner()))?;
    reader.end().map_err(|e| Refusal::bad_body(format!("the body is not one JSON value: {e}")))?;
    Ok(value)
}

/// Like [`parse`], from a value that was read already.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(value).map_err(|e| explain(e.path(), e.inner()))
}

fn explain(path: &Path, error: &serde_json::Error) -> Refusal {
    if !error.is_data() {
        return Refusal::bad_body(format!("the body is not JSON: {error}"));
    }
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(t, _)| t);
    let at = pointer(path);
    if let Some(rest) = text.strip_prefix("missing field ") {
        let field = ticked(rest).next().unwrap_or_default();
        return Refusal::invalid(format!("{at}/{}", pointer_part(field)), format!("{field} is missing"));
    }
    if let Some(rest) = text.strip_prefix("duplicate field ") {
        let field = rest.trim_matches('`');
        let at = if at.rsplit('/').next() == Some(&*pointer_part(field)) {
            at
        } else {
            format!("{at}/{}", pointer_part(field))
        };
        return Refusal::invalid(at, format!("{} is there twice; keep one", shorten(field)));
    }
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let mut names = ticked(rest);
        let field = names.next().unwrap_or_default();
        let known: Vec<&str> = names.collect();
        return Refusal::invalid(
            at,
            format!("{} is not a field here; {}", shorten(field), suggestion(field, &known)),
        );
    }
    if let Some((found, expected)) =
        text.strip_prefix("invalid type: ").and_then(|t| t.split_once(", expected "))
    {
        return Refusal::invalid(
            at,
            shorten(&format!("{} is expected here, not {}", json_word(expected), json_word(found))),
        );
    }
    Refusal::invalid(at, shorten(text))
}

/// What JSON calls what serde calls otherwise.
fn json_word(word: &str) -> &str {
    match word {
        "map" => "an object",
        "sequence" | "a sequence" => "a list",
        other => other,
    }
}

/// The texts between back ticks: how serde names fields.
fn ticked(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn pointer(path: &Path) -> String {
    path.iter().fold(String::new(), |mut out, segment| {
        match segment {
            Segment::Seq { index } => out.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                out.push('/');
                out.push_str(&pointer_part(key));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
        out
    })
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((i, _)) => format!("{}…", text.get(..i).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// "did you mean …" where one is near, otherwise all that are known.
pub(crate) fn suggestion(found: &str, known: &[&str]) -> String {
    let found = found.to_ascii_lowercase();
    let near = known
        .iter()
        .map(|k| {
            (
                strsim::damerau_levenshtein(
                    &found.chars().take(64).collect::<String>(),
                    &k.to_ascii_lowercase(),
                ),
                *k,
            )
        })
        .filter(|(distance, k)| *distance <= 1.max(k.len() / 3))
        .min();
    match near {
        Some((_, k)) => format!("did you mean {k}?"),
        None => format!("known are {}", known.join(", ")),
    }
}
