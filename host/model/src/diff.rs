//! Differences between two JSON texts, field by field, by JSON Pointer (RFC 6901).

use std::borrow::Cow;

use serde_json::Value;

/// One leaf that differs. `None` where the field is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// JSON Pointer; `""` is the whole.
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// The leaves that differ between two values, in the order of their pointers. Objects are compared by key,
/// arrays of equal length by position, everything else as a whole.
pub fn field_changes(before: Option<&Value>, after: Option<&Value>) -> Vec<FieldChange> {
    let mut out = Vec::new();
    walk(&mut String::new(), before, after, &mut out);
    out
}

/// The same changes told by the members of the two values that hold them, each as a whole, in the order of the changes.
pub fn by_member(changes: &[FieldChange], before: Option<&Value>, after: Option<&Value>) -> Vec<FieldChange> {
    let mut out: Vec<FieldChange> = Vec::new();
    for member in changes.iter().map(|c| member(&c.path)) {
        // Changes of one member stand together.
        if out.last().is_none_or(|last| last.path != member) {
            let side = |v: Option<&Value>| v.and_then(|v| v.pointer(member)).cloned();
            out.push(FieldChange { path: member.to_owned(), before: side(before), after: side(after) });
        }
    }
    out
}

/// A key as it stands in a JSON Pointer (RFC 6901 section 3).
pub fn pointer_part(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) { key.replace('~', "~0").replace('/', "~1").into() } else { key.into() }
}

/// The first part of a JSON Pointer.
pub fn member(pointer: &str) -> &str {
    let end = pointer.bytes().skip(1).position(|b| b == b'/').map_or(pointer.len(), |at| at + 1);
    pointer.get(..end).unwrap_or(pointer)
}

fn walk(path: &mut String, before: Option<&Value>, after: Option<&Value>, out: &mut Vec<FieldChange>) {
    match (before, after) {
        (b, a) if b == a => {}
        (Some(Value::Object(b)), Some(Value::Object(a))) => {
            let mut keys: Vec<&String> = b.keys().chain(a.keys().filter(|k| !b.contains_key(*k))).collect();
            keys.sort_unstable();
            for k in keys {
                let (b, a) = (b.get(k), a.get(k));
                if b != a {
                    step(path, k, |p| walk(p, b, a, out));
                }
            }
        }
        (Some(Value::Array(b)), Some(Value::Array(a))) if a.len() == b.len() => {
            for (i, (b, a)) in b.iter().zip(a).enumerate() {
                step(path, &i.to_string(), |p| walk(p, Some(b), Some(a), out));
            }
        }
        // An object that comes or goes is told field by field.
        (None, Some(Value::Object(a))) if !a.is_empty() => {
            for (k, v) in a {
                step(path, k, |p| walk(p, None, Some(v), out));
            }
        }
        (Some(Value::Object(b)), None) if !b.is_empty() => {
            for (k, v) in b {
                step(path, k, |p| walk(p, Some(v), None, out));
            }
        }
        (b, a) => out.push(FieldChange { path: path.clone(), before: b.cloned(), after: a.cloned() }),
    }
}

fn step(path: &mut String, key: &str, f: impl FnOnce(&mut String)) {
    let len = path.len();
    path.push('/');
    path.push_str(&pointer_part(key));
    f(path);
    path.truncate(len);
}

/// Canonical JSON: keys sorted, no white space. Equal values give equal texts.
pub fn canonical(value: &Value) -> String {
    let mut out = Vec::with_capacity(256);
    canonical_into(value, &mut out);
    // serde_json writes UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// [`canonical`], after what is there already.
pub fn canonical_into(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(m) => {
            out.push(b'{');
            let mut first = true;
            let mut field = |(k, v): (&String, &Value)| {
                if !std::mem::take(&mut first) {
                    out.push(b',');
                }
                leaf(k, out);
                out.push(b':');
                canonical_into(v, out);
            };
            // serde_json's maps are sorted, unless some crate asked it to keep the order.
            if m.keys().is_sorted() {
                m.iter().for_each(field);
            } else {
                let mut fields: Vec<_> = m.iter().collect();
                fields.sort_by_key(|(k, _)| *k);
                fields.into_iter().for_each(&mut field);
            }
            out.push(b'}');
        }
        Value::Array(a) => {
            out.push(b'[');
            for (i, v) in a.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                canonical_into(v, out);
            }
            out.push(b']');
        }
        v => leaf(v, out),
    }
}

/// Writing into memory cannot fail.
fn leaf(v: &impl serde::Serialize, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, v);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn leaves_that_differ() {
        let b = json!({"a": 1, "b": {"c": [1, 2], "d/e": "x"}, "gone": {"k": true}});
        let a = json!({"a": 1, "b": {"c": [1, 3], "d/e": "y"}, "new": [1]});
        let got: Vec<_> =
            field_changes(Some(&b), Some(&a)).into_iter().map(|c| (c.path, c.before, c.after)).collect();
        assert_eq!(
            got,
            vec![
                ("/b/c/1".into(), Some(json!(2)), Some(json!(3))),
                ("/b/d~1e".into(), Some(json!("x")), Some(json!("y"))),
                ("/gone/k".into(), Some(json!(true)), None),
                ("/new".into(), None, Some(json!([1]))),
            ]
        );
        assert_eq!(field_changes(None, Some(&json!({"a": 1}))).len(), 1);
        assert!(field_changes(Some(&a), Some(&a)).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn canonical_text_reads_back(n in -1000i64..1000, s in ".{0,20}", k in "[a-z]{1,5}") {
            let v = json!({k: {"n": n, "s": s, "l": [n, null, true]}});
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(&canonical(&v)).unwrap(), v);
        }
    }
}
