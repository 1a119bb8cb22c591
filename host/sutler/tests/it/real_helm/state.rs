//! What a namespace holds, without what differs by itself: times, ids, addresses.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::rig::Rig;

const KINDS: &str = "configmaps,secrets,services,serviceaccounts,deployments,statefulsets,daemonsets,jobs,cronjobs,\
    roles,rolebindings,poddisruptionbudgets,networkpolicies,ingresses,horizontalpodautoscalers,limitranges,\
    persistentvolumeclaims,pods";

/// Every object and record, sorted, the namespace's name as `NS`.
pub(crate) fn state(rig: &Rig, ns: &str) -> Vec<Value> {
    let get = |what: &[&str]| -> Vec<Value> {
        let arguments =
            [&["get"], what, &["-o", "json", "--show-managed-fields", "--ignore-not-found"]].concat();
        let text = rig.kubectl(&arguments);
        if text.trim().is_empty() {
            return Vec::new();
        }
        let mut list: Value = serde_json::from_str(&text).unwrap();
        match list["items"].take() {
            Value::Array(items) => items,
            _ => vec![list],
        }
    };
    let mut all = get(&[KINDS, "-n", ns]);
    all.extend(get(&["clusterrole", &format!("{ns}-role")]));
    let mut out: Vec<Value> = all.into_iter().filter(counts).map(|o| plain(o, ns)).collect();
    out.sort_by_key(|o| format!("{} {}", o["kind"], o["metadata"]["name"]));
    out
}

fn counts(o: &Value) -> bool {
    let name = o["metadata"]["name"].as_str().unwrap_or_default();
    let own = o["metadata"].get("ownerReferences").is_some();
    let builtin = (o["kind"] == "ConfigMap" && name == "kube-root-ca.crt")
        || (o["kind"] == "ServiceAccount" && name == "default");
    !own && !builtin && o["metadata"].get("deletionTimestamp").is_none()
}

fn plain(o: Value, ns: &str) -> Value {
    let o = if o["type"] == "helm.sh/release.v1" { record(&o) } else { object(o) };
    serde_json::from_str(&o.to_string().replace(ns, "NS")).unwrap()
}

fn keep(of: &mut Value, wanted: impl Fn(&str) -> bool) {
    if let Some(o) = of.as_object_mut() {
        o.retain(|k, _| wanted(k));
    }
}

fn object(mut o: Value) -> Value {
    keep(&mut o, |k| k != "status");
    keep(&mut o["metadata"], |k| {
        !matches!(k, "uid" | "resourceVersion" | "creationTimestamp" | "generation" | "selfLink")
    });
    if let Some(fields) = o["metadata"]["managedFields"].as_array_mut() {
        fields.retain(|f| f["manager"] == "helm");
        fields.iter_mut().for_each(|f| keep(f, |k| k != "time"));
        fields.sort_by_key(|f| f["operation"].to_string());
    }
    keep(&mut o["metadata"]["annotations"], |k| k != "deployment.kubernetes.io/revision");
    if o["kind"] == "Job" {
        keep(&mut o["spec"], |k| k != "selector");
    }
    if o["kind"] == "Service" {
        keep(&mut o["spec"], |k| !k.starts_with("clusterIP"));
    }
    if o["kind"] == "Pod" {
        keep(&mut o["spec"], |k| !matches!(k, "volumes" | "containers" | "nodeName"));
    }
    without(&mut o, "controller-uid");
    o
}

fn without(v: &mut Value, part: &str) {
    match v {
        Value::Object(o) => {
            o.retain(|k, _| !k.contains(part));
            o.values_mut().for_each(|v| without(v, part));
        }
        Value::Array(a) => a.iter_mut().for_each(|v| without(v, part)),
        _ => {}
    }
}

fn record(secret: &Value) -> Value {
    let mut release: Value =
        serde_json::from_slice(&decode(secret["data"]["release"].as_str().unwrap())).unwrap();
    keep(&mut release["info"], |k| !matches!(k, "first_deployed" | "last_deployed" | "deleted"));
    if release["info"]["status"] == "failed" {
        release["info"]["description"] = json!("failed");
    }
    for hook in release["hooks"].as_array_mut().into_iter().flatten() {
        keep(&mut hook["last_run"], |k| k == "phase");
    }
    let labels: Map<String, Value> = secret["metadata"]["labels"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(k, _)| !k.starts_with("sutler.dev/") && !k.ends_with("At"))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    json!({"kind": "Record", "metadata": {"name": secret["metadata"]["name"], "labels": labels}, "release": release})
}

/// base64(base64(gzip(bytes))).
fn decode(text: &str) -> Vec<u8> {
    let packed = STANDARD.decode(STANDARD.decode(text).unwrap()).unwrap();
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut out).unwrap();
    out
}

/// Fails with the first difference.
pub(crate) fn assert_same(a: &[Value], b: &[Value], what: &str) {
    let names = |s: &[Value]| -> Vec<String> {
        s.iter().map(|o| format!("{} {}", o["kind"], o["metadata"]["name"])).collect()
    };
    assert_eq!(names(a), names(b), "{what}: objects");
    for (x, y) in a.iter().zip(b) {
        assert!(x == y, "{what}: {} {}\n{x}\n{y}", x["kind"], x["metadata"]["name"]);
    }
}
