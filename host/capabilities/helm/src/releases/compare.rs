//! What is live against what a manifest wants. The API server is asked what applying would change (dry run), so that
//! its defaults are no differences; where it may not be asked, only the fields that the manifest names are compared.

use serde_json::{Value, json};
use sutler_kubernetes::{Error as KubeError, FieldConflict};
use sutler_model::{FieldChange, field_changes};

use super::target::Target;
use crate::error::Error;
use crate::manifest::Object;

pub(crate) struct Comparison {
    /// `before` is what lives, `after` what the manifest wants.
    pub(crate) changes: Vec<FieldChange>,
    pub(crate) conflicts: Vec<FieldConflict>,
    /// Why applying would fail.
    pub(crate) problem: Option<String>,
}

/// Looks that are taken where somebody else writes between the two answers that are compared.
const LOOKS: usize = 4;

pub(crate) async fn compare(target: &Target<'_>, object: &Object, live: &Value) -> Result<Comparison, Error> {
    let mut live = live.clone();
    for _ in 1..LOOKS {
        let (comparison, of_one_moment) = look(target, object, &live).await?;
        if comparison.changes.is_empty() || of_one_moment {
            return Ok(comparison);
        }
        // A controller has written since the object was read: that is no change of ours.
        match target.get(&object.reference).await? {
            Some(now) => live = now,
            None => return Ok(comparison),
        }
    }
    look(target, object, &live).await.map(|(comparison, _)| comparison)
}

/// The comparison, and whether the API server compared with the very version that lives here.
async fn look(target: &Target<'_>, object: &Object, live: &Value) -> Result<(Comparison, bool), Error> {
    let mut of_one_moment = true;
    let mut conflicts = Vec::new();
    let mut answer = target.try_apply(object, false).await;
    if let Err(KubeError::Conflict(c)) = &answer {
        conflicts.clone_from(c);
        answer = target.try_apply(object, true).await;
    }
    let (changes, problem) = match answer {
        Ok(applied) => {
            let version = "/metadata/resourceVersion";
            of_one_moment = applied.pointer(version) == live.pointer(version);
            (field_changes(Some(&stripped(live)), Some(&stripped(&applied))), None)
        }
        Err(KubeError::TimedOut) => return Err(Error::TimedOut),
        Err(e @ KubeError::Unavailable(_)) => return Err(Error::kube(&object.shown(), e)),
        Err(KubeError::Forbidden(_)) => (structural(&target.decorated(object), live), None),
        Err(e) => (structural(&target.decorated(object), live), Some(e.to_string())),
    };
    Ok((Comparison { changes: hidden(object, changes), conflicts, problem }, of_one_moment))
}

/// Without what every write changes and what controllers report.
fn stripped(value: &Value) -> Value {
    let mut out = value.clone();
    if let Some(o) = out.as_object_mut() {
        o.remove("status");
        if let Some(metadata) = o.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in
                ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"]
            {
                metadata.remove(key);
            }
        }
    }
    out
}

/// The contents of a Secret are told as changed, never shown.
fn hidden(object: &Object, mut changes: Vec<FieldChange>) -> Vec<FieldChange> {
    if object.reference.kind == "Secret" {
        for c in
            changes.iter_mut().filter(|c| c.path.starts_with("/data") || c.path.starts_with("/stringData"))
        {
            c.before = c.before.as_ref().map(|_| json!("(hidden)"));
            c.after = c.after.as_ref().map(|_| json!("(hidden)"));
        }
    }
    changes
}

/// Differences in the fields that `wanted` names; what else lives does not count.
fn structural(wanted: &Value, live: &Value) -> Vec<FieldChange> {
    let mut out = Vec::new();
    subset(&mut String::new(), wanted, Some(live), &mut out);
    // The API server folds these texts into `data`.
    out.retain(|c| !c.path.starts_with("/stringData"));
    out
}

fn empty(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Object(o) => o.is_empty(),
        Value::Array(a) => a.is_empty(),
        _ => false,
    }
}

fn subset(path: &mut String, wanted: &Value, live: Option<&Value>, out: &mut Vec<FieldChange>) {
    let deeper = |path: &mut String, key: &str, w: &Value, l: Option<&Value>, out: &mut Vec<FieldChange>| {
        let len = path.len();
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        subset(path, w, l, out);
        path.truncate(len);
    };
    match (wanted, live) {
        (w, None) if empty(w) => {}
        (w, Some(l)) if w == l || (empty(w) && empty(l)) => {}
        (Value::Object(w), Some(Value::Object(l))) => {
            w.iter().for_each(|(k, w)| deeper(path, k, w, l.get(k), out));
        }
        (Value::Array(w), Some(Value::Array(l))) if w.len() == l.len() => {
            w.iter().zip(l).enumerate().for_each(|(i, (w, l))| deeper(path, &i.to_string(), w, Some(l), out));
        }
        (w, l) => out.push(FieldChange { path: path.clone(), before: l.cloned(), after: Some(w.clone()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_fields_count() {
        let wanted =
            json!({"spec": {"replicas": 2, "list": [{"name": "a"}], "none": {}, "gone": 1, "more": [1, 2]}});
        let live = json!({"spec": {"replicas": 3, "list": [{"name": "a", "default": true}], "extra": 1, "more": [1]}});
        let got: Vec<_> =
            structural(&wanted, &live).into_iter().map(|c| (c.path, c.before, c.after)).collect();
        assert_eq!(
            got,
            [
                ("/spec/gone".to_owned(), None, Some(json!(1))),
                ("/spec/more".to_owned(), Some(json!([1])), Some(json!([1, 2]))),
                ("/spec/replicas".to_owned(), Some(json!(3)), Some(json!(2))),
            ]
        );
    }
}
