//! What breaks a schema, in words for who wrote the value: the innermost place, and what may stand there.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;
use sutler_model::pointer_part;

/// A JSON Pointer and words without the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub path: String,
    pub message: String,
}

/// Choices within choices that are gone into.
const DEEPEST: usize = 16;
/// Words that are listed.
const LISTED: usize = 24;
/// A value that is longer, in bytes, is compared with no word.
const COMPARED: usize = 64;

/// The errors of one branch of `oneOf` or `anyOf`.
type Branch<'a> = &'a [ValidationError<'static>];

pub(crate) fn of(error: &ValidationError<'_>) -> Violation {
    tell(error, DEEPEST)
}

fn tell(e: &ValidationError<'_>, depth: usize) -> Violation {
    let path = e.instance_path().to_string();
    let message = match e.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected }
            if !unexpected.is_empty() =>
        {
            let name = unexpected.first().map(String::as_str).unwrap_or_default();
            let path = format!("{path}/{}", pointer_part(name));
            return Violation { path, message: format!("{name:?} is not a known field") };
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } if depth > 0 => {
            return among(e, context, depth - 1);
        }
        Kind::Enum { .. } | Kind::Constant { .. } => one_of(&words(e), e.instance()),
        Kind::Type { kind: TypeKind::Multiple(types) } => {
            let types = types.iter().filter(|t| *t != JsonType::Null).map(|t| format!("{:?}", t.as_str()));
            format!("the value is not of type {}", types.collect::<Vec<_>>().join(" or "))
        }
        _ => e.masked_with("the value").to_string(),
    };
    Violation { path, message }
}

/// The branch that the value was meant for, and what is wrong with it there.
fn among(e: &ValidationError<'_>, context: &[Vec<ValidationError<'static>>], depth: usize) -> Violation {
    let here = e.instance_path().to_string();
    let mut branches: Vec<Branch<'_>> = context.iter().map(Vec::as_slice).collect();
    // For whoever leaves the field out: null is no choice that somebody meant.
    keep(&mut branches, |b| !matches!(type_at(b, &here), Some(TypeKind::Single(JsonType::Null))));
    // Words, and nothing else.
    if let Some(choice) = choice(&branches, &here) {
        return choice;
    }
    keep(&mut branches, |b| type_at(b, &here).is_none());
    // The tag tells which branch was meant; where it fits none, it is what is wrong.
    let tag = branches.iter().flat_map(|b| b.iter()).find(|e| is_word(e) && is_child(e, &here));
    if let Some(tag) = tag.map(|e| e.instance_path().to_string()) {
        if let Some(choice) = choice(&branches, &tag) {
            return choice;
        }
        keep(&mut branches, |b| !b.iter().any(|e| is_word(e) && e.instance_path().as_str() == tag));
    }
    let nearest = branches.iter().min_by_key(|b| {
        let own = b.iter().filter(|e| e.instance_path().as_str() == here).count();
        (own, b.len())
    });
    let first = nearest.and_then(|b| b.iter().find(|e| !is_closing(e)).or_else(|| b.first()));
    match first {
        Some(inner) => tell(inner, depth),
        None => Violation { path: here, message: e.masked_with("the value").to_string() },
    }
}

/// Drops the branches that do not fit, unless none would be left.
fn keep<'a>(branches: &mut Vec<Branch<'a>>, fits: impl Fn(&Branch<'a>) -> bool) {
    if branches.iter().any(&fits) {
        branches.retain(fits);
    }
}

/// The violation where every branch wants certain words at a place.
fn choice(branches: &[Branch<'_>], at: &str) -> Option<Violation> {
    let mut all = Vec::new();
    let mut value = None;
    for branch in branches {
        let e = branch.iter().find(|e| is_word(e) && e.instance_path().as_str() == at)?;
        all.extend(words(e));
        value = Some(e.instance());
    }
    Some(Violation { path: at.to_owned(), message: one_of(&all, value?) })
}

fn is_word(e: &ValidationError<'_>) -> bool {
    matches!(e.kind(), Kind::Constant { .. } | Kind::Enum { .. })
}

/// Told of every other field where only one is wrong.
fn is_closing(e: &ValidationError<'_>) -> bool {
    matches!(e.kind(), Kind::UnevaluatedProperties { .. } | Kind::UnevaluatedItems { .. })
}

fn is_child(e: &ValidationError<'_>, of: &str) -> bool {
    let under = e.instance_path().as_str().strip_prefix(of).and_then(|rest| rest.strip_prefix('/'));
    under.is_some_and(|name| !name.contains('/'))
}

fn type_at<'a>(branch: Branch<'a>, at: &str) -> Option<&'a TypeKind> {
    branch.iter().find_map(|e| match e.kind() {
        Kind::Type { kind } if e.instance_path().as_str() == at => Some(kind),
        _ => None,
    })
}

/// What the schema lists, `null` aside.
fn words<'a>(e: &'a ValidationError<'_>) -> Vec<&'a Value> {
    let all: Vec<&Value> = match e.kind() {
        Kind::Enum { options } => options.as_array().into_iter().flatten().collect(),
        Kind::Constant { expected_value } => vec![expected_value.as_ref()],
        _ => vec![],
    };
    all.into_iter().filter(|w| !w.is_null()).collect()
}

fn one_of(words: &[&Value], value: &Value) -> String {
    let listed: Vec<String> = words.iter().take(LISTED).map(ToString::to_string).collect();
    let mut out = match words.len() {
        0 => "the value is not what the schema names".to_owned(),
        1 => format!("the value is not {}", listed.concat()),
        _ => format!("the value is not one of {}", listed.join(", ")),
    };
    if words.len() > LISTED {
        out.push_str(&format!(" and {} more", words.len() - LISTED));
    }
    if let Some(near) = value.as_str().and_then(|v| nearest(words, v)) {
        out.push_str(&format!(" (did you mean {near:?}?)"));
    }
    out
}

/// The word that differs in case, or in a letter out of three.
fn nearest<'a>(words: &[&'a Value], value: &str) -> Option<&'a str> {
    if value.len() > COMPARED {
        return None;
    }
    let value = value.to_lowercase();
    let texts = words.iter().filter_map(|w| w.as_str()).filter(|w| w.len() <= COMPARED);
    let near = texts.map(|w| (strsim::damerau_levenshtein(&value, &w.to_lowercase()), w));
    near.filter(|(distance, w)| *distance <= w.len() / 3).min_by_key(|(d, _)| *d).map(|(_, w)| w)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Schema;

    /// As schemars writes enums, optional structs and tagged enums.
    fn schema() -> Schema {
        let size = |s: &str| json!({"const": s, "type": "string", "description": s});
        let secured = |tag: &str, field: &str| {
            json!({"type": "object", "required": ["type", field], "additionalProperties": false,
                "properties": {"type": {"const": tag, "type": "string"}, field: {"type": "string", "minLength": 2}}})
        };
        let outside = |name: &str| {
            json!({"type": "object", "required": [name], "additionalProperties": false,
                "properties": {name: {"type": "object", "properties": {"port": {"type": "integer"}}}}})
        };
        let or_null = |of: &str| json!({"anyOf": [{"$ref": format!("#/$defs/{of}")}, {"type": "null"}]});
        Schema::compile(json!({
            "type": "object",
            "properties": {
                "size": {"$ref": "#/$defs/size"},
                "maybe": or_null("size"),
                "mode": {"enum": ["fast", "thorough", null]},
                "metrics": or_null("metrics"),
                "kafka": {"type": "object", "properties": {"security": or_null("security")}},
                "outside": {"oneOf": [outside("http"), outside("grpc")]},
                "port": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[a-z]+$"}]},
                "either": {"type": ["integer", "string", "null"]},
                "deep": {"$ref": "#/$defs/deep"}
            },
            "$defs": {
                "size": {"oneOf": [size("XS"), size("S"), size("M"), size("L"), size("XL")]},
                "metrics": {"type": "object", "additionalProperties": false,
                    "properties": {"enabled": {"type": "boolean"}, "serviceMonitor": or_null("monitor")}},
                "monitor": {"type": "object", "properties": {"interval": {"type": "string", "pattern": "^[0-9]+s$"}}},
                "security": {"oneOf": [secured("plain", "password"), secured("token", "secret")]},
                "deep": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"in": {"$ref": "#/$defs/deep"}}}]}
            }
        }))
        .unwrap()
    }

    #[test]
    fn the_innermost_place_is_told_and_what_may_stand_there() {
        let sizes = r#"the value is not one of "XS", "S", "M", "L", "XL""#;
        for (value, path, message) in [
            (json!({"size": "xs"}), "/size", format!("{sizes} (did you mean \"XS\"?)")),
            (json!({"size": "hunter2"}), "/size", sizes.into()),
            (json!({"size": 3}), "/size", sizes.into()),
            (json!({"maybe": "xl"}), "/maybe", format!("{sizes} (did you mean \"XL\"?)")),
            (
                json!({"mode": "thoroughs"}),
                "/mode",
                "the value is not one of \"fast\", \"thorough\" (did you mean \"thorough\"?)".into(),
            ),
            (
                json!({"metrics": {"enabled": true, "serviceMonitor": {"interval": "hunter2"}}}),
                "/metrics/serviceMonitor/interval",
                "the value does not match \"^[0-9]+s$\"".into(),
            ),
            (
                json!({"metrics": {"serviceMonitor": {"interval": 5}}}),
                "/metrics/serviceMonitor/interval",
                "the value is not of type \"string\"".into(),
            ),
            (
                json!({"metrics": {"enabld": true}}),
                "/metrics/enabld",
                "\"enabld\" is not a known field".into(),
            ),
            (json!({"metrics": "on"}), "/metrics", "the value is not of type \"object\"".into()),
            (
                json!({"kafka": {"security": {"type": "plain", "password": "x"}}}),
                "/kafka/security/password",
                "the value is shorter than 2 characters".into(),
            ),
            (
                json!({"kafka": {"security": {"type": "token"}}}),
                "/kafka/security",
                "\"secret\" is a required property".into(),
            ),
            (
                json!({"kafka": {"security": {"type": "token", "secret": "xx", "x": 1}}}),
                "/kafka/security/x",
                "\"x\" is not a known field".into(),
            ),
            (
                json!({"kafka": {"security": {"type": "Plain", "password": "hunter2"}}}),
                "/kafka/security/type",
                "the value is not one of \"plain\", \"token\" (did you mean \"plain\"?)".into(),
            ),
            (
                json!({"outside": {"grpc": {"port": "x"}}}),
                "/outside/grpc/port",
                "the value is not of type \"integer\"".into(),
            ),
            (json!({"either": true}), "/either", "the value is not of type \"integer\" or \"string\"".into()),
            (json!({"port": 0}), "/port", "the value is less than the minimum of 1".into()),
            (json!({"port": "A"}), "/port", "the value does not match \"^[a-z]+$\"".into()),
        ] {
            let v = schema().check(&value).unwrap_err();
            assert_eq!((v.path.as_str(), v.message.as_str()), (path, message.as_str()), "{value}");
        }
    }

    #[test]
    fn the_way_down_ends() {
        let mut value = json!("no object");
        for _ in 0..100 {
            value = json!({ "in": value });
        }
        let v = schema().check(&json!({ "deep": value })).unwrap_err();
        assert_eq!(v.path.matches("/in").count(), super::DEEPEST, "{v:?}");
    }
}
