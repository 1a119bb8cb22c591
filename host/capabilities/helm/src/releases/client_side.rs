//! Objects of releases that were applied client-side, as Helm 3 did and Helm 4 goes on doing with them: what the chart
//! said before, what it says now and what lives are merged here, and the difference is sent. Kubernetes' own kinds are
//! merged as strategic merge patches are (their keys of lists are those of the API's types), others as JSON is.

use serde_json::{Map, Value, json};
use sutler_kubernetes::Error as KubeError;

use super::storage::MANAGER;
use super::target::Target;
use crate::error::Error;
use crate::manifest::Object;

/// Groups whose types Kubernetes itself defines.
const TYPED: [&str; 19] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Creates or patches one object.
///
/// # Errors
/// What the API server refuses, naming the object.
pub(crate) async fn write(
    target: &Target<'_>,
    object: &Object,
    live: Option<&Value>,
    original: Option<&Object>,
) -> Result<(), Error> {
    let failed = |e| Error::kube(&object.shown(), e);
    let modified = target.decorated(object);
    let Some(live) = live else {
        return match target.cluster.create(&modified, MANAGER, false).await {
            Ok(_) => Ok(()),
            // Made by the same call before it was cut off.
            Err(KubeError::AlreadyExists) => match target.get(&object.reference).await? {
                Some(live) => Box::pin(write(target, object, Some(&live), original)).await,
                None => Err(failed(KubeError::NotFound)),
            },
            Err(e) => Err(failed(e)),
        };
    };
    let original = original.map_or(live, |o| &o.value);
    let Some(mut patch) = patch(object, original, &modified, live) else { return Ok(()) };
    if let (Some(uid), Some(p)) = (live.pointer("/metadata/uid"), patch.as_object_mut())
        && let Some(metadata) = p.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
    {
        metadata.insert("uid".into(), uid.clone());
    }
    target.cluster.merge_patch(&object.reference, &patch, MANAGER).await.map(drop).map_err(failed)
}

/// The JSON merge patch that brings what lives to where the three of them lead; nothing where it is there.
fn patch(object: &Object, original: &Value, modified: &Value, live: &Value) -> Option<Value> {
    if !TYPED.contains(&object.reference.group()) {
        return difference(original, modified);
    }
    let merged = three_way(&object.reference.kind, "", original, modified, live);
    difference(live, &merged)
}

/// RFC 7386, from `a` to `b`.
fn difference(a: &Value, b: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (a, b) else {
        return (a != b).then(|| b.clone());
    };
    let mut out = Map::new();
    for (key, value) in new {
        let change = match old.get(key) {
            Some(before) => difference(before, value),
            None if value.is_null() => None,
            None => Some(value.clone()),
        };
        out.extend(change.map(|c| (key.clone(), c)));
    }
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        out.insert(key.clone(), Value::Null);
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// How a list is merged.
enum List {
    /// As a whole.
    Atomic,
    /// Items of the same key are the same item.
    Keyed(&'static str),
    /// A set of texts.
    Set,
}

/// The patch strategies of the API's types (`patchMergeKey`), by the field's name.
fn list(kind: &str, field: &str) -> List {
    List::Keyed(match field {
        "finalizers" => return List::Set,
        "ports" if kind == "Service" => "port",
        "ports" => "containerPort",
        "ownerReferences" => "uid",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "taints" => "key",
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "resourceClaims"
        | "schedulingGates"
        | "webhooks" => "name",
        "secrets" if kind == "ServiceAccount" => "name",
        _ => return List::Atomic,
    })
}

/// Whether a changed map loses what the chart does not name (`retainKeys`).
fn retains(kind: &str, field: &str) -> bool {
    matches!(field, "volumes" | "resourceClaims") || (field == "strategy" && kind == "Deployment")
}

fn three_way(kind: &str, field: &str, original: &Value, modified: &Value, live: &Value) -> Value {
    match (modified, live) {
        (Value::Object(m), Value::Object(l)) => {
            let none = Map::new();
            let o = original.as_object().unwrap_or(&none);
            let out = map(kind, o, m, l);
            if retains(kind, field) && out != *l {
                return Value::Object(out.into_iter().filter(|(k, _)| m.contains_key(k)).collect());
            }
            Value::Object(out)
        }
        (Value::Array(m), Value::Array(l)) => {
            let none = Vec::new();
            let o = original.as_array().unwrap_or(&none);
            match list(kind, field) {
                List::Atomic => modified.clone(),
                List::Keyed(key) => Value::Array(keyed(kind, field, key, o, m, l)),
                List::Set => {
                    let kept = l.iter().filter(|v| !m.contains(v) && !o.contains(v));
                    Value::Array(m.iter().chain(kept).cloned().collect())
                }
            }
        }
        _ => modified.clone(),
    }
}

fn map(
    kind: &str,
    original: &Map<String, Value>,
    modified: &Map<String, Value>,
    live: &Map<String, Value>,
) -> Map<String, Value> {
    let mut out = live.clone();
    for key in original.keys().filter(|k| modified.get(*k).is_none_or(Value::is_null)) {
        out.remove(key);
    }
    for (key, value) in modified {
        if value.is_null() {
            out.remove(key);
            continue;
        }
        let merged = match live.get(key) {
            Some(l) => three_way(kind, key, original.get(key).unwrap_or(&Value::Null), value, l),
            None => value.clone(),
        };
        out.insert(key.clone(), merged);
    }
    out
}

fn find<'a>(items: &'a [Value], key: &str, like: &Value) -> Option<(usize, &'a Value)> {
    let wanted = like.get(key)?;
    items.iter().enumerate().find(|(_, i)| i.get(key) == Some(wanted))
}

/// Items in the chart's order; those that only live keep their place among those that lived before.
fn keyed(
    kind: &str,
    field: &str,
    key: &str,
    original: &[Value],
    modified: &[Value],
    live: &[Value],
) -> Vec<Value> {
    let right = modified.iter().map(|item| {
        let before = find(original, key, item).map_or(&Value::Null, |(_, v)| v);
        find(live, key, item)
            .map_or_else(|| (None, item.clone()), |(i, l)| (Some(i), three_way(kind, field, before, item, l)))
    });
    let only_live =
        |item: &&Value| find(modified, key, item).is_none() && find(original, key, item).is_none();
    let mut left = live.iter().enumerate().filter(|(_, v)| only_live(v)).peekable();
    let mut out = Vec::new();
    for (place, item) in right {
        while let (Some(place), Some((i, kept))) = (place, left.peek()) {
            if *i > place {
                break;
            }
            out.push((*kept).clone());
            left.next();
        }
        out.push(item);
    }
    out.extend(left.map(|(_, v)| v.clone()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(kind: &str, original: Value, modified: Value, live: Value) -> Value {
        three_way(kind, "", &original, &modified, &live)
    }

    #[test]
    fn maps() {
        let got = merged(
            "ConfigMap",
            json!({"data": {"dropped": "1", "changed": "1", "edited": "1"}}),
            json!({"data": {"changed": "2", "edited": "1", "new": "1"}}),
            json!({"data": {"dropped": "1", "changed": "1", "edited": "x", "theirs": "1"}, "kind": "ConfigMap"}),
        );
        let want =
            json!({"data": {"changed": "2", "edited": "1", "new": "1", "theirs": "1"}, "kind": "ConfigMap"});
        assert_eq!(got, want);
    }

    #[test]
    fn lists_by_their_keys() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let got = merged(
            "Pod",
            pod(json!([{"name": "a", "args": ["1"]}, {"name": "gone"}])),
            pod(json!([{"name": "new"}, {"name": "a", "args": ["2"]}])),
            pod(json!([{"name": "sidecar"}, {"name": "a", "args": ["1"], "default": 1}, {"name": "gone"}])),
        );
        let want =
            pod(json!([{"name": "new"}, {"name": "sidecar"}, {"name": "a", "args": ["2"], "default": 1}]));
        assert_eq!(got, want);
        let ports = |kind: &str| match list(kind, "ports") {
            List::Keyed(k) => k,
            _ => "",
        };
        assert_eq!((ports("Service"), ports("Deployment")), ("port", "containerPort"));
    }

    #[test]
    fn volumes_and_strategies_change_their_kind() {
        let volume = |v: Value| json!({"volumes": [v]});
        let got = merged(
            "Pod",
            volume(json!({"name": "v", "emptyDir": {}})),
            volume(json!({"name": "v", "configMap": {"name": "c"}})),
            volume(json!({"name": "v", "emptyDir": {}, "default": 1})),
        );
        assert_eq!(got, volume(json!({"name": "v", "configMap": {"name": "c"}})));
        let strategy = |v: Value| json!({"strategy": v});
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
        let got = merged(
            "Deployment",
            strategy(json!({"type": "RollingUpdate"})),
            strategy(json!({"type": "Recreate"})),
            strategy(rolling),
        );
        assert_eq!(got, strategy(json!({"type": "Recreate"})));
    }

    #[test]
    fn differences() {
        let live = json!({"a": 1, "b": {"c": 1, "d": 1}});
        assert_eq!(difference(&live, &live), None);
        let new = json!({"a": 1, "b": {"c": 2}, "e": [1]});
        assert_eq!(difference(&live, &new), Some(json!({"b": {"c": 2, "d": null}, "e": [1]})));
    }
}
