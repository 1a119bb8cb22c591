//! Fields of objects by path, as server-side apply sees them.
//!
//! Lists are atomic, but for the few below whose items merge by a key. Kubernetes takes this from its schemas;
//! the emulator, which has none, takes it from the list's name.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// One step of a path. An item is named by its key, a JSON object as in `k:{"name":"web"}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Field(String),
    Item(String),
}

pub(crate) type Path = Vec<Step>;
pub(crate) type Paths = BTreeSet<Path>;

/// The key of an item of a list that merges by key; `None` for other lists.
pub(crate) fn item_key(list: &str, item: &Value) -> Option<String> {
    let item = item.as_object()?;
    let one = |field: &str| Some(json!({field: item.get(field)?}).to_string());
    match list {
        "containers" | "initContainers" | "ephemeralContainers" | "env" | "volumes" | "imagePullSecrets" => {
            one("name")
        }
        "volumeMounts" => one("mountPath"),
        "ownerReferences" => one("uid"),
        "ports" => {
            let field = ["containerPort", "port"].into_iter().find(|f| item.contains_key(*f))?;
            let protocol = item.get("protocol").cloned().unwrap_or_else(|| "TCP".into());
            Some(json!({field: item.get(field)?, "protocol": protocol}).to_string())
        }
        _ => None,
    }
}

/// The items' keys where the list merges by key: all have one, and no two are equal.
pub(crate) fn keys(list: &str, items: &[Value]) -> Option<Vec<String>> {
    let keys: Vec<String> = items.iter().map(|i| item_key(list, i)).collect::<Option<_>>()?;
    let distinct: BTreeSet<&String> = keys.iter().collect();
    (!keys.is_empty() && distinct.len() == keys.len()).then_some(keys)
}

/// Fields that no manager owns: the system's, and the object's identity.
fn unowned(path: &[Step]) -> bool {
    let names: Vec<&str> =
        path.iter().map(|s| if let Step::Field(f) = s { f.as_str() } else { "" }).collect();
    match names.as_slice() {
        ["apiVersion" | "kind" | "status", ..] => true,
        ["metadata", field, ..] => matches!(
            *field,
            "name"
                | "namespace"
                | "generateName"
                | "uid"
                | "resourceVersion"
                | "generation"
                | "creationTimestamp"
                | "deletionTimestamp"
                | "deletionGracePeriodSeconds"
                | "managedFields"
                | "selfLink"
        ),
        _ => false,
    }
}

/// Every field that can have an owner: scalars, atomic lists, empty objects, and the items of keyed lists.
pub(crate) fn leaves(object: &Value) -> Paths {
    let mut out = Paths::new();
    walk(object, "", &mut vec![], &mut out);
    out
}

fn walk(value: &Value, name: &str, path: &mut Path, out: &mut Paths) {
    if unowned(path) {
        return;
    }
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (field, value) in fields {
                path.push(Step::Field(field.clone()));
                walk(value, field, path, out);
                path.pop();
            }
        }
        Value::Array(items) => match keys(name, items) {
            None => drop(out.insert(path.clone())),
            Some(keys) => {
                for (key, item) in keys.into_iter().zip(items) {
                    path.push(Step::Item(key));
                    out.insert(path.clone());
                    walk(item, "", path, out);
                    path.pop();
                }
            }
        },
        _ if path.is_empty() => {}
        _ => drop(out.insert(path.clone())),
    }
}

/// The value at a path.
pub(crate) fn get<'a>(object: &'a Value, path: &[Step]) -> Option<&'a Value> {
    let mut at = object;
    let mut list = "";
    for step in path {
        match step {
            Step::Field(field) => {
                at = at.as_object()?.get(field)?;
                list = field;
            }
            Step::Item(key) => {
                at = at.as_array()?.iter().find(|i| item_key(list, i).as_ref() == Some(key))?;
                list = "";
            }
        }
    }
    Some(at)
}

/// Takes the value at a path away, and the objects and lists that this leaves empty.
pub(crate) fn remove(object: &mut Value, path: &[Step]) {
    take(object, "", path);
}

fn take(at: &mut Value, list: &str, path: &[Step]) {
    match (path, at) {
        ([Step::Field(field)], Value::Object(fields)) => drop(fields.remove(field)),
        ([Step::Field(field), rest @ ..], Value::Object(fields)) => {
            let Some(inner) = fields.get_mut(field) else { return };
            take(inner, field, rest);
            if is_empty(inner) {
                fields.remove(field);
            }
        }
        ([Step::Item(key), rest @ ..], Value::Array(items)) => {
            let Some(index) = items.iter().position(|i| item_key(list, i).as_ref() == Some(key)) else {
                return;
            };
            if rest.is_empty() {
                items.remove(index);
            } else if let Some(item) = items.get_mut(index) {
                take(item, "", rest);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Lays `patch` over `live`: objects and keyed lists merge, everything else is replaced.
pub(crate) fn merge(live: &mut Value, patch: &Value) {
    merge_at(live, patch, "");
}

fn merge_at(live: &mut Value, patch: &Value, list: &str) {
    match (live, patch) {
        (Value::Object(live), Value::Object(patch)) => {
            for (field, value) in patch {
                merge_at(live.entry(field.clone()).or_insert(Value::Null), value, field);
            }
        }
        (Value::Array(live), Value::Array(patch))
            if keys(list, live).is_some() && keys(list, patch).is_some() =>
        {
            for item in patch {
                let key = item_key(list, item);
                match live.iter_mut().find(|i| item_key(list, i) == key) {
                    Some(found) => merge_at(found, item, ""),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, patch) => *live = patch.clone(),
    }
}

/// `.spec.template.spec.containers[name="web"].image`
pub(crate) fn display(path: &[Step]) -> String {
    path.iter()
        .map(|step| match step {
            Step::Field(f) => format!(".{f}"),
            Step::Item(key) => {
                let fields: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                format!("[{}]", fields.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","))
            }
        })
        .collect()
}

/// Nulls mean nothing in an applied configuration.
pub(crate) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, v| !v.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}
