//! The objects of a rendered manifest (`---\n# Source: path` before each).

use serde_json::{Map, Value, json};
use sutler_kubernetes::{LABEL_PREFIX, RELEASE_SECRET, Reference};

use crate::error::Error;
use crate::yaml;

pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub(crate) const RELEASE_NAME: &str = "meta.helm.sh/release-name";
pub(crate) const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
pub(crate) const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// One object, as the chart wrote it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Object {
    /// The template it came from; empty where the manifest does not say.
    pub(crate) source: String,
    pub(crate) reference: Reference,
    pub(crate) value: Value,
}

/// Documents begin at a line of `---`; Helm itself also splits where a template glued text to it.
pub(crate) fn documents(manifest: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut at = 0;
    for line in manifest.split_inclusive('\n') {
        if line.starts_with("---") {
            out.push(manifest.get(start..at).unwrap_or_default());
            start = at + 3;
        }
        at += line.len();
    }
    out.push(manifest.get(start..).unwrap_or_default());
    out.into_iter().filter(|d| !d.trim().is_empty()).collect()
}

fn source(document: &str) -> String {
    let mut lines =
        document.lines().take_while(|l| l.is_empty() || l.starts_with('#') || l.trim().is_empty());
    lines.find_map(|l| l.strip_prefix("# Source: ")).unwrap_or_default().trim().to_owned()
}

/// Every object of a manifest, lists taken apart, in their order.
///
/// # Errors
/// `Render` naming the template whose output is not a Kubernetes object.
pub(crate) fn objects(manifest: &str) -> Result<Vec<Object>, Error> {
    let mut out = Vec::new();
    for document in documents(manifest) {
        let source = source(document);
        let value = yaml::parse(document).map_err(|e| Error::Render(format!("{source}: not YAML: {e}")))?;
        flatten(&source, value, &mut out)?;
    }
    Ok(out)
}

fn flatten(source: &str, value: Value, out: &mut Vec<Object>) -> Result<(), Error> {
    if value.is_null() {
        return Ok(());
    }
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"));
    if let (true, Some(Value::Array(items))) = (is_list, value.get("items")) {
        return items.iter().try_for_each(|i| flatten(source, i.clone(), out));
    }
    if value.pointer("/metadata/name").is_none() && value.pointer("/metadata/generateName").is_some() {
        return Err(Error::Render(format!(
            "{source}: an object with generateName; give it a name, so that it can be upgraded"
        )));
    }
    let reference = Reference::of_manifest(&value).map_err(|e| Error::Render(format!("{source}: {e}")))?;
    out.push(Object { source: source.to_owned(), reference, value });
    Ok(())
}

impl Object {
    /// What two revisions compare objects by. Versions of one kind are the same object, so the group alone counts.
    pub(crate) fn key(&self) -> (String, String, Option<String>, String) {
        let r = &self.reference;
        (r.group().to_owned(), r.kind.clone(), r.namespace.clone(), r.name.clone())
    }

    /// `Deployment "app" in namespace "ns"`, as Helm names objects.
    pub(crate) fn shown(&self) -> String {
        shown(&self.reference)
    }

    pub(crate) fn set_namespace(&mut self, namespace: Option<&str>) {
        self.reference.namespace = namespace.map(str::to_owned);
        if let Some(metadata) = map_at(&mut self.value, &["metadata"]) {
            match namespace {
                Some(ns) => metadata.insert("namespace".into(), ns.into()),
                None => metadata.remove("namespace"),
            };
        }
    }

    /// Refuses what would tell of another owner: Helm's records, and labels of ours.
    ///
    /// # Errors
    /// `Render` naming the object.
    pub(crate) fn check_marks(&self) -> Result<(), Error> {
        let text = |key: &str| self.value.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("kind") == "Secret" && text("type") == RELEASE_SECRET {
            return Err(Error::Render(format!(
                "{} is a release record; a chart may not have one",
                self.shown()
            )));
        }
        for place in ["/metadata/labels", "/spec/template/metadata/labels"] {
            let labels = self.value.pointer(place).and_then(Value::as_object).into_iter().flatten();
            if let Some((label, _)) = labels.into_iter().find(|(k, _)| k.starts_with(LABEL_PREFIX)) {
                return Err(Error::Render(format!(
                    "{} has the label {label}, which is the host's to set; take it out of the chart or its values",
                    self.shown()
                )));
            }
        }
        Ok(())
    }

    /// The object as it is applied: with Helm's label and annotations, and nothing else, so that it is what Helm makes.
    /// Whose it is follows from the release's record.
    pub(crate) fn decorated(&self, release: &str, namespace: &str) -> Value {
        let mut value = self.value.clone();
        if let Some(labels) = map_at(&mut value, &["metadata", "labels"]) {
            labels.insert(MANAGED_BY.into(), "Helm".into());
        }
        if let Some(annotations) = map_at(&mut value, &["metadata", "annotations"]) {
            annotations.insert(RELEASE_NAME.into(), release.into());
            annotations.insert(RELEASE_NAMESPACE.into(), namespace.into());
        }
        value
    }
}

pub(crate) fn shown(r: &Reference) -> String {
    match &r.namespace {
        Some(ns) => format!("{} {:?} in namespace {ns:?}", r.kind, r.name),
        None => format!("{} {:?}", r.kind, r.name),
    }
}

/// The reference as JSON, for drift and preview.
pub(crate) fn described(r: &Reference) -> Value {
    let mut out = json!({"apiVersion": r.api_version, "kind": r.kind, "name": r.name});
    if let (Some(ns), Some(o)) = (&r.namespace, out.as_object_mut()) {
        o.insert("namespace".into(), ns.clone().into());
    }
    out
}

/// The map at a path, made where it is missing.
fn map_at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut at = value;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut()?.entry(*key).or_insert_with(|| json!({}));
    }
    if !at.is_object() {
        *at = json!({});
    }
    at.as_object_mut()
}

/// Whether a live object belongs to the release; if not, what is wrong with it (Helm 4, `checkOwnership`).
pub(crate) fn foreign(live: &Value, release: &str, namespace: &str) -> Option<String> {
    let label = |p: &str, k: &str| live.pointer(p).and_then(|m| m.get(k)).and_then(Value::as_str);
    let mut wrong = Vec::new();
    for (what, place, key, expected) in [
        ("label", "/metadata/labels", MANAGED_BY, "Helm"),
        ("annotation", "/metadata/annotations", RELEASE_NAME, release),
        ("annotation", "/metadata/annotations", RELEASE_NAMESPACE, namespace),
    ] {
        match label(place, key) {
            Some(v) if v == expected => {}
            Some(v) => wrong.push(format!("{what} {key} is {v:?}, not {expected:?}")),
            None => wrong.push(format!("{what} {key} is missing, expected {expected:?}")),
        }
    }
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Whether a live object names another release as its owner.
pub(crate) fn claimed_by_other(live: &Value, release: &str, namespace: &str) -> bool {
    let annotation =
        |k: &str| live.pointer("/metadata/annotations").and_then(|m| m.get(k)).and_then(Value::as_str);
    annotation(RELEASE_NAME).is_some_and(|v| v != release)
        || annotation(RELEASE_NAMESPACE).is_some_and(|v| v != namespace)
}

/// Whether `helm.sh/resource-policy: keep` is set.
pub(crate) fn kept(value: &Value) -> bool {
    let policy =
        value.pointer("/metadata/annotations").and_then(|a| a.get(RESOURCE_POLICY)).and_then(Value::as_str);
    policy.is_some_and(|p| p.trim().eq_ignore_ascii_case("keep"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "---\n# Source: app/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: |\n    --- not a separator\n---\n# Source: app/templates/b.yaml\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s}\n- apiVersion: apps/v1\n  kind: Deployment\n  metadata: {name: d, namespace: other}\n---\n# Source: app/templates/empty.yaml\n# nothing\n";

    #[test]
    fn taken_apart() {
        let got: Vec<String> =
            objects(MANIFEST).unwrap().iter().map(|o| format!("{} from {}", o.shown(), o.source)).collect();
        assert_eq!(
            got,
            [
                "ConfigMap \"a\" from app/templates/a.yaml",
                "Secret \"s\" from app/templates/b.yaml",
                "Deployment \"d\" in namespace \"other\" from app/templates/b.yaml"
            ]
        );
        assert_eq!(objects("").unwrap(), vec![]);
        for (bad, part) in [
            ("---\n# Source: t.yaml\na: [", "t.yaml: not YAML"),
            ("---\n# Source: t.yaml\nkind: X\nmetadata: {name: a}", "t.yaml: the manifest lacks apiVersion"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {generateName: x-}", "generateName"),
        ] {
            let e = objects(bad).unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn decorated_and_owned() {
        let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {metadata: {labels: {app: d}}}}";
        let object = objects(deployment).unwrap().remove(0);
        let live = object.decorated("rel", "ns");
        assert_eq!(live.pointer("/metadata/labels").unwrap(), &json!({MANAGED_BY: "Helm"}));
        assert_eq!(live.pointer("/spec/template"), object.value.pointer("/spec/template"));
        assert_eq!(foreign(&live, "rel", "ns"), None);
        assert!(foreign(&live, "other", "ns").unwrap().contains("is \"rel\", not \"other\""));
        assert!(foreign(&object.value, "rel", "ns").unwrap().contains("is missing"));
        assert!(claimed_by_other(&live, "other", "ns") && !claimed_by_other(&object.value, "rel", "ns"));
    }

    #[test]
    fn keep_policy() {
        for (policy, keep) in [("keep", true), (" Keep ", true), ("delete", false)] {
            assert_eq!(kept(&json!({"metadata": {"annotations": {RESOURCE_POLICY: policy}}})), keep);
        }
        assert!(!kept(&json!({"metadata": {}})));
    }
}
