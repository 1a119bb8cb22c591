//! From client-side to server-side apply: Helm 3 owned its fields as `helm`/Update. Without moving them to
//! `helm`/Apply, fields that a chart drops would stay for ever and each change would be a conflict with oneself.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use sutler_kubernetes::Error as KubeError;

use super::storage::MANAGER;
use super::target::Target;
use crate::error::Error;
use crate::manifest::Object;

/// Looks that are taken where somebody else writes the object meanwhile.
const LOOKS: usize = 8;

/// Moves the fields of one live object, where there are any to move. The owners of fields are written as a whole, so
/// only over those that were read.
///
/// # Errors
/// `Unavailable` where somebody else writes the object again and again; `NotOwned` where another one took its place.
pub(crate) async fn migrate(target: &Target<'_>, object: &Object, live: &Value) -> Result<(), Error> {
    let mut now = Cow::Borrowed(live);
    for _ in 0..LOOKS {
        let fields = now.pointer("/metadata/managedFields").and_then(Value::as_array);
        let Some(entries) = fields.and_then(|e| moved(e)) else { return Ok(()) };
        let version = now.pointer("/metadata/resourceVersion").cloned().unwrap_or(Value::Null);
        let patch = json!({"metadata": {"managedFields": entries, "resourceVersion": version}});
        match target.cluster.merge_patch(&object.reference, &patch, MANAGER).await {
            Ok(_) => return Ok(()),
            Err(KubeError::Conflict(_) | KubeError::NotFound) => {}
            Err(e) => return Err(Error::kube(&format!("field owners of {}", object.shown()), e)),
        }
        // Gone, it has no fields to move; the apply makes it anew.
        let Some(found) = target.get(&object.reference).await? else { return Ok(()) };
        if found.pointer("/metadata/uid") != live.pointer("/metadata/uid") {
            return Err(Error::NotOwned(format!(
                "{} was deleted and made again by somebody else meanwhile; try again",
                object.shown()
            )));
        }
        now = Cow::Owned(found);
    }
    Err(Error::Unavailable(format!(
        "somebody else writes {} again and again, so that the owners of its fields cannot be written; try again",
        object.shown()
    )))
}

fn is(entry: &Value, operation: &str) -> bool {
    let text = |k: &str| entry.get(k).and_then(Value::as_str).unwrap_or_default();
    text("manager") == MANAGER && text("operation") == operation && text("subresource").is_empty()
}

/// The entries with `helm`/Update merged into `helm`/Apply; `None` where there is nothing to move.
fn moved(entries: &[Value]) -> Option<Vec<Value>> {
    let updates: Vec<&Value> = entries.iter().filter(|e| is(e, "Update")).collect();
    let mut apply = entries.iter().find(|e| is(e, "Apply")).or(updates.first().copied())?.clone();
    let mut fields = apply.get("fieldsV1").and_then(Value::as_object).cloned().unwrap_or_default();
    if updates.is_empty() {
        return None;
    }
    for update in updates {
        if let Some(more) = update.get("fieldsV1").and_then(Value::as_object) {
            union(&mut fields, more);
        }
    }
    if let Some(entry) = apply.as_object_mut() {
        entry.insert("operation".into(), "Apply".into());
        entry.insert("fieldsV1".into(), Value::Object(fields));
    }
    let others = entries.iter().filter(|e| !is(e, "Update") && !is(e, "Apply")).cloned();
    Some(std::iter::once(apply).chain(others).collect())
}

fn union(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, value) in more {
        match (into.get_mut(key), value) {
            (Some(Value::Object(a)), Value::Object(b)) => union(a, b),
            (Some(_), _) => {}
            (None, v) => {
                into.insert(key.clone(), v.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_move_to_apply() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let update = entry("helm", "Update", json!({"f:data": {"f:a": {}}}));
        let other = entry("kubectl-edit", "Update", json!({"f:data": {"f:b": {}}}));
        assert_eq!(moved(std::slice::from_ref(&other)), None);
        assert_eq!(
            moved(&[other.clone(), update.clone()]).unwrap(),
            [entry("helm", "Apply", json!({"f:data": {"f:a": {}}})), other.clone()]
        );
        let apply = entry("helm", "Apply", json!({"f:data": {"f:c": {}}}));
        assert_eq!(
            moved(&[apply.clone(), update]).unwrap(),
            [entry("helm", "Apply", json!({"f:data": {"f:a": {}, "f:c": {}}}))]
        );
        assert_eq!(moved(&[apply]), None);
    }
}
