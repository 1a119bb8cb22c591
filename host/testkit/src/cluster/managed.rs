//! Who owns which field, and its form in `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::{Path, Paths, Step, get, leaves};
use super::resource::fields;

/// How a manager came by its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owned {
    pub(crate) fields: Paths,
    pub(crate) api_version: String,
    pub(crate) time: String,
}

/// The owners of one object's fields.
pub(crate) type Owners = BTreeMap<(String, Operation), Owned>;

/// Gives the fields that a create, replace or patch changed to its manager; fields that are gone have no owner.
pub(crate) fn track_update(owners: &mut Owners, before: &Value, after: &Value, manager: &str, owned: Owned) {
    let changed: Paths = leaves(after).into_iter().filter(|p| get(before, p) != get(after, p)).collect();
    for other in owners.values_mut() {
        other.fields.retain(|p| get(after, p).is_some() && !changed.contains(p));
    }
    if !changed.is_empty() {
        let mine = owners
            .entry((manager.into(), Operation::Update))
            .or_insert_with(|| Owned { fields: Paths::new(), ..owned.clone() });
        mine.time = owned.time;
        mine.api_version = owned.api_version;
        mine.fields.extend(changed);
    }
    owners.retain(|_, o| !o.fields.is_empty());
}

/// `metadata.managedFields`
pub(crate) fn render(owners: &Owners) -> Value {
    owners
        .iter()
        .map(|((manager, operation), owned)| {
            json!({
                "manager": manager, "operation": operation.as_str(), "apiVersion": owned.api_version,
                "time": owned.time, "fieldsType": "FieldsV1", "fieldsV1": tree(&owned.fields),
            })
        })
        .collect()
}

fn tree(paths: &Paths) -> Value {
    let mut root = Map::new();
    for path in paths {
        plant(&mut root, path);
    }
    Value::Object(root)
}

fn plant(at: &mut Map<String, Value>, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else { return };
    let name = match step {
        Step::Field(f) => format!("f:{f}"),
        Step::Item(k) => format!("k:{k}"),
    };
    let next = fields(at.entry(name).or_insert(Value::Null));
    if rest.is_empty() && matches!(step, Step::Item(_)) {
        next.insert(".".into(), json!({}));
    }
    plant(next, rest);
}

/// Reads what a client wrote into `metadata.managedFields`.
pub(crate) fn parse(entries: &[Value]) -> Owners {
    entries
        .iter()
        .filter_map(|entry| {
            let operation = if entry["operation"] == "Apply" { Operation::Apply } else { Operation::Update };
            let mut fields = Paths::new();
            collect(&entry["fieldsV1"], &mut vec![], &mut fields);
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let owned = Owned { fields, api_version: text("apiVersion"), time: text("time") };
            Some(((entry["manager"].as_str()?.to_owned(), operation), owned))
        })
        .filter(|(_, owned)| !owned.fields.is_empty())
        .collect()
}

fn collect(node: &Value, path: &mut Path, out: &mut Paths) {
    let Some(inside) = node.as_object() else { return };
    if inside.is_empty() && !path.is_empty() {
        out.insert(path.clone());
    }
    for (name, inner) in inside {
        let step = match name.split_once(':') {
            Some(("f", field)) => Step::Field(field.into()),
            Some(("k", key)) => Step::Item(canonical(key)),
            // An item owned as such. A field's own "." adds nothing to the fields below it.
            _ if name == "." && matches!(path.last(), Some(Step::Item(_))) => {
                out.insert(path.clone());
                continue;
            }
            _ => continue,
        };
        path.push(step);
        collect(inner, path, out);
        path.pop();
    }
}

fn canonical(key: &str) -> String {
    serde_json::from_str::<Value>(key).map_or_else(|_| key.into(), |v| v.to_string())
}
