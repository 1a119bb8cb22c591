//! The few rules of the API server that callers of this project meet.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::kinds::KindInfo;
use super::resource::{fields, meta};
use super::status::Refusal;

/// The total size of a ConfigMap's or Secret's data.
const DATA_LIMIT: usize = 1 << 20;

/// Completes and checks an object before it is stored.
///
/// # Errors
/// 422 with the causes.
pub(crate) fn admit(kind: &KindInfo, object: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
    let name = meta(object, "name").to_owned();
    let mut causes: Vec<(&str, &str, String)> = Vec::new();
    if !valid_name(kind, &name) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        causes.push(("FieldValueInvalid", "metadata.name", format!("Invalid value: {name:?}: {rule}")));
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Secret") => secret(object),
        ("", "Service") => service(object, old),
        ("", "Namespace") => {
            let labels = super::resource::metadata(object).entry("labels").or_insert_with(|| json!({}));
            fields(labels).insert("kubernetes.io/metadata.name".into(), name.clone().into());
        }
        _ => {}
    }
    if matches!(kind.kind.as_str(), "ConfigMap" | "Secret") && data_size(object) > DATA_LIMIT {
        causes.push((
            "FieldValueTooLong",
            "data",
            format!("Too long: may not be more than {DATA_LIMIT} bytes"),
        ));
    }
    if matches!(kind.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        && !selects(object)
    {
        let message = "Invalid value: `selector` does not match template `labels`".to_owned();
        causes.push(("FieldValueInvalid", "spec.template.metadata.labels", message));
    }
    if let Some(old) = old {
        causes.extend(immutable(kind, old, object));
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind, &name, &causes)) }
}

fn valid_name(kind: &KindInfo, name: &str) -> bool {
    if kind.group == "rbac.authorization.k8s.io" {
        return !name.is_empty() && !name.contains(['/', '%']);
    }
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
}

/// `stringData` is a way to write `data`, and is never read back.
fn secret(object: &mut Value) {
    let all = fields(object);
    if let Some(Value::Object(text)) = all.remove("stringData") {
        let data = fields(all.entry("data").or_insert_with(|| json!({})));
        for (key, value) in text {
            let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
            data.insert(key, encoded.into());
        }
    }
    all.entry("type").or_insert_with(|| "Opaque".into());
}

fn service(object: &mut Value, old: Option<&Value>) {
    let before = old.and_then(|o| o["spec"]["clusterIP"].as_str()).map(str::to_owned);
    let name = meta(object, "name").bytes().fold(0_u16, |n, b| n.wrapping_mul(31).wrapping_add(b.into()));
    let spec = fields(fields(object).entry("spec").or_insert_with(|| json!({})));
    spec.entry("type").or_insert_with(|| "ClusterIP".into());
    if spec.get("type").is_none_or(|t| t != "ExternalName") {
        let made = || format!("10.96.{}.{}", name >> 8, (name & 0xff).max(1));
        spec.entry("clusterIP").or_insert_with(|| before.unwrap_or_else(made).into());
    }
}

fn data_size(object: &Value) -> usize {
    ["data", "binaryData"]
        .into_iter()
        .filter_map(|f| object[f].as_object())
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, |v| decoded_length(object, v)))
        .sum()
}

fn decoded_length(object: &Value, value: &str) -> usize {
    if object["kind"] == "Secret" {
        STANDARD.decode(value).map_or(value.len(), |d| d.len())
    } else {
        value.len()
    }
}

fn selects(object: &Value) -> bool {
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    let Some(wanted) = object["spec"]["selector"]["matchLabels"].as_object() else {
        return object["spec"]["selector"].is_object();
    };
    wanted.iter().all(|(k, v)| labels[k] == *v)
}

/// Of these the API server names only what they all lie in.
fn stateful_set(old: &Value, new: &Value) -> Option<(&'static str, &'static str, String)> {
    let fixed = ["selector", "serviceName", "volumeClaimTemplates", "podManagementPolicy"];
    let message = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
    let changed = fixed.iter().any(|f| old["spec"][f] != new["spec"][f]);
    changed.then(|| ("FieldValueForbidden", "spec", message.to_owned()))
}

/// The fields that Kubernetes does not let change.
fn immutable(kind: &KindInfo, old: &Value, new: &Value) -> Vec<(&'static str, &'static str, String)> {
    let mut causes = Vec::new();
    let mut fixed = |field: &'static str, pointer: &str| {
        if old.pointer(pointer) != new.pointer(pointer) {
            causes.push(("FieldValueInvalid", field, "Invalid value: field is immutable".to_owned()));
        }
    };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet") => fixed("spec.selector", "/spec/selector"),
        ("apps", "StatefulSet") => causes.extend(stateful_set(old, new)),
        ("", "Service")
            if new["spec"]["type"] != "ExternalName"
                && old["spec"]["clusterIP"].is_string()
                && old["spec"]["clusterIP"] != new["spec"]["clusterIP"] =>
        {
            let message = format!("Invalid value: [{}]: may not change once set", new["spec"]["clusterIP"]);
            causes.push(("FieldValueInvalid", "spec.clusterIPs[0]", message));
        }
        ("batch", "Job") => {
            fixed("spec.template", "/spec/template");
            fixed("spec.selector", "/spec/selector");
            fixed("spec.completions", "/spec/completions");
        }
        ("", "Secret") => {
            fixed("type", "/type");
            if old["immutable"] == true {
                fixed("data", "/data");
            }
        }
        ("", "ConfigMap") if old["immutable"] == true => fixed("data", "/data"),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => fixed("roleRef", "/roleRef"),
        _ => {}
    }
    causes
}
