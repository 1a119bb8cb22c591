//! What is live against what a manifest wants. The API server is asked what applying would change (dry run), so that
//! its defaults are no differences; where it may not be asked, only the fields that the manifest names are compared.

use serde_json::{Value, json};
use sutler_kubernetes::{Error as KubeError, FieldConflict, FixedField};
use sutler_model::{FieldChange, field_changes, pointer_part};

use super::storage::MANAGER;
use super::target::Target;
use crate::error::Error;
use crate::manifest::Object;

pub(crate) struct Comparison {
    /// `before` is what lives, `after` what the manifest wants.
    pub(crate) changes: Vec<FieldChange>,
    pub(crate) conflicts: Vec<FieldConflict>,
    /// Why applying would fail.
    pub(crate) problem: Option<String>,
    /// Why the comparison may not be the API server's own.
    pub(crate) warning: Option<String>,
    /// Fields that cannot change, as JSON pointers: the object would have to be replaced.
    pub(crate) fixed: Vec<String>,
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
        // What Helm applied client-side before is moved first, and is no conflict with itself.
        conflicts.extend(c.iter().filter(|c| c.manager != MANAGER).cloned());
        answer = target.try_apply(object, true).await;
    }
    let mut out = match answer {
        Ok(applied) => {
            let version = "/metadata/resourceVersion";
            of_one_moment = applied.pointer(version) == live.pointer(version);
            let changes = field_changes(Some(&stripped(live)), Some(&stripped(&applied)));
            Comparison { changes, conflicts, problem: None, warning: None, fixed: Vec::new() }
        }
        Err(KubeError::TimedOut) => return Err(Error::TimedOut),
        Err(e @ KubeError::Unavailable(_)) => return Err(Error::kube(&object.shown(), e)),
        Err(e) => refused(structural(&target.decorated(object), live), conflicts, e),
    };
    out.changes = hidden(object, out.changes);
    Ok((out, of_one_moment))
}

/// Why the API server could not try an object out; `None` where it did.
pub(crate) fn untried(e: &KubeError) -> Option<String> {
    match e {
        KubeError::Other { code: "no-dry-run", message } => {
            Some(format!("{message} (its sideEffects are neither None nor NoneOnDryRun)"))
        }
        e if e.lacks_right() => Some(format!("the host's account may not try it out ({e})")),
        _ => None,
    }
}

/// What can be told where the API server does not say what applying would do.
fn refused(changes: Vec<FieldChange>, conflicts: Vec<FieldConflict>, e: KubeError) -> Comparison {
    let alone =
        "what lives was compared with the chart instead, without what the API server would add or refuse";
    let (mut problem, mut fixed) = (None, Vec::new());
    let warning = untried(&e).map(|why| format!("{why}: {alone}"));
    match e {
        _ if warning.is_some() => {}
        KubeError::Immutable { message, fields } => {
            fixed = fields.iter().flat_map(|f| pointers(f, &changes)).collect();
            fixed.dedup();
            problem = Some(message);
        }
        e => problem = Some(e.to_string()),
    }
    Comparison { changes, conflicts, problem, warning, fixed }
}

/// Where a field is that cannot change. The API server names only what is above it of some kinds (`spec`): then those
/// right below that differ.
fn pointers(fixed: &FixedField, changes: &[FieldChange]) -> Vec<String> {
    let at = pointer(&fixed.field);
    if at.matches('/').count() > 1 || at.is_empty() {
        return vec![at];
    }
    let mut below: Vec<String> = changes
        .iter()
        .filter_map(|c| c.path.strip_prefix(&at)?.strip_prefix('/')?.split('/').next())
        .filter(|field| !fixed.except.iter().any(|e| e == field))
        .map(|field| format!("{at}/{field}"))
        .collect();
    below.dedup();
    if below.is_empty() { vec![at] } else { below }
}

/// `spec.ports[0].port` and `metadata.labels[a.b/c]` as JSON pointers (RFC 6901).
fn pointer(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while !rest.is_empty() {
        let part;
        (part, rest) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        rest = rest.strip_prefix('.').unwrap_or(rest);
        out.push('/');
        out.push_str(&pointer_part(part));
    }
    out
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
        path.push_str(&pointer_part(key));
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
    fn places_of_fields() {
        for (field, expected) in [
            ("spec.selector", "/spec/selector"),
            ("spec.clusterIPs[0]", "/spec/clusterIPs/0"),
            ("metadata.labels[a.b/c]", "/metadata/labels/a.b~1c"),
            ("spec.template.spec.containers[1].name", "/spec/template/spec/containers/1/name"),
            ("roleRef", "/roleRef"),
            ("", ""),
        ] {
            assert_eq!(pointer(field), expected);
        }
        let change = |path: &str| FieldChange { path: path.into(), before: None, after: None };
        let changes = [change("/spec/replicas"), change("/spec/claims/0/a"), change("/spec/claims/0/b")];
        let fixed = |field: &str, except: &[&str]| FixedField {
            field: field.into(),
            except: except.iter().map(|e| (*e).to_owned()).collect(),
        };
        assert_eq!(pointers(&fixed("spec", &["replicas"]), &changes), ["/spec/claims"]);
        assert_eq!(pointers(&fixed("spec", &["replicas", "claims"]), &changes), ["/spec"]);
        assert_eq!(pointers(&fixed("type", &[]), &changes), ["/type"]);
    }

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
