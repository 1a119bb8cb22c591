//! What the server says of itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::status::Refusal;
use super::store::State;

/// The version that tells the emulator from a cluster.
pub(crate) const VERSION: &str = "v1.37.2-sutler-emulator";

pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none: an emulator", "compiler": "rustc", "platform": "emulator",
    })
}

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn group_versions(state: &State) -> BTreeSet<(&str, &str)> {
    let kinds = state.kinds.iter().map(|k| (k.group.as_str(), k.version.as_str()));
    kinds.chain([("authorization.k8s.io", "v1")]).filter(|(g, _)| !g.is_empty()).collect()
}

fn group(state: &State, name: &str) -> Value {
    let versions: Vec<Value> = group_versions(state)
        .into_iter()
        .filter(|(g, _)| *g == name)
        .map(|(g, v)| json!({"groupVersion": format!("{g}/{v}"), "version": v}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

pub(crate) fn groups(state: &State) -> Value {
    let names: BTreeSet<&str> = group_versions(state).into_iter().map(|(g, _)| g).collect();
    let groups: Vec<Value> = names.into_iter().map(|g| group(state, g)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn one_group(state: &State, name: &str) -> Result<Value, Refusal> {
    let mut found = group(state, name);
    if found["versions"].as_array().is_none_or(Vec::is_empty) {
        return Err(Refusal::no_route());
    }
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Ok(found)
}

pub(crate) fn resources(state: &State, group: &str, version: &str) -> Result<Value, Refusal> {
    let mut all: Vec<Value> = Vec::new();
    for kind in state.kinds.iter().filter(|k| k.group == group && k.version == version) {
        all.push(kind.listed());
        let mut sub = |name: &str, verbs: &[&str]| {
            let mut entry = kind.listed();
            entry["name"] = format!("{}/{name}", kind.plural).into();
            entry["verbs"] = verbs.iter().copied().collect();
            all.push(entry);
        };
        if kind.has_status() {
            sub("status", &["get", "patch", "update"]);
        }
        if kind.is("", "Pod") {
            sub("log", &["get"]);
        }
    }
    if (group, version) == ("authorization.k8s.io", "v1") {
        all.push(json!({
            "name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": false,
            "kind": "SelfSubjectAccessReview", "verbs": ["create"],
        }));
    }
    if all.is_empty() {
        return Err(Refusal::no_route());
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": all}))
}
