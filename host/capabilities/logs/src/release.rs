//! Whose a pod is that carries no owner's label: that of the Helm release which it comes from.
//!
//! A release's objects are as Helm writes them, without marks of ours. What counts is what made the pod, by the
//! references of controllers with their uids, and the records of the release that it names: labels of pods and
//! selectors of workloads prove nothing, since another owner's workload can be given the same ones.

use std::collections::HashMap;

use serde_json::Value;
use sutler_kubernetes::{Cluster, Error as KubeError, Pod, RELEASE_SECRET, Reference, Selector};
use sutler_model::Owner;

use crate::grant::Reach;
use crate::{Error, grant};

/// Pod, ReplicaSet, Deployment, and one more.
const DEPTH: usize = 4;

/// What was found out about pods, by uid, and about releases, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pods: HashMap<String, bool>,
    releases: HashMap<(String, String), bool>,
}

/// Keeps the pods that the reach covers.
///
/// # Errors
/// Where the cluster cannot be asked now. What the host's account may not read is nobody's.
pub(crate) async fn keep(
    cluster: &Cluster,
    namespace: &str,
    pods: Vec<Pod>,
    reach: Reach,
    owner: &Owner,
    found: &mut Found,
) -> Result<Vec<Pod>, Error> {
    found.pods.retain(|uid, _| pods.iter().any(|p| p.uid == *uid));
    found.releases.clear();
    let mut out = Vec::with_capacity(pods.len());
    for pod in pods {
        let sees = match (grant::sees(reach, &pod, owner), found.pods.get(&pod.uid)) {
            (Some(sees), _) | (None, Some(&sees)) => sees,
            (None, None) => {
                let sees = of_owner(cluster, namespace, &pod, owner, found).await?;
                found.pods.insert(pod.uid.clone(), sees);
                sees
            }
        };
        if sees {
            out.push(pod);
        }
    }
    Ok(out)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

async fn of_owner(
    cluster: &Cluster,
    namespace: &str,
    pod: &Pod,
    owner: &Owner,
    found: &mut Found,
) -> Result<bool, Error> {
    let mut of = Reference {
        cluster: None,
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: Some(namespace.into()),
        name: pod.name.clone(),
    };
    let mut uid = pod.uid.clone();
    for _ in 0..DEPTH {
        let object = match cluster.get(&of).await {
            Ok(object) => object,
            Err(e) if e.retryable() => return Err(e.into()),
            Err(_) => return Ok(false),
        };
        if text(&object, "/metadata/uid") != uid {
            return Ok(false);
        }
        if let Some(release) = release(&object) {
            if let Some(known) = found.releases.get(&release) {
                return Ok(*known);
            }
            let ours = records(cluster, &release, owner).await?;
            found.releases.insert(release, ours);
            return Ok(ours);
        }
        let controllers = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let Some(controller) =
            controllers.into_iter().flatten().find(|r| r.get("controller") == Some(&Value::Bool(true)))
        else {
            return Ok(false);
        };
        of.api_version = text(controller, "/apiVersion").to_owned();
        of.kind = text(controller, "/kind").to_owned();
        of.name = text(controller, "/name").to_owned();
        uid = text(controller, "/uid").to_owned();
    }
    Ok(false)
}

/// Namespace and name of the release that an object says it belongs to.
fn release(object: &Value) -> Option<(String, String)> {
    let labels = object.pointer("/metadata/labels")?;
    let notes = object.pointer("/metadata/annotations")?;
    let managed = labels.get("app.kubernetes.io/managed-by").and_then(Value::as_str) == Some("Helm");
    let name = notes.get("meta.helm.sh/release-name")?.as_str()?;
    let namespace = notes.get("meta.helm.sh/release-namespace")?.as_str()?;
    // Nothing that would change a selector's meaning.
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    (managed && plain(name) && plain(namespace)).then(|| (namespace.to_owned(), name.to_owned()))
}

/// Whether every record of the release carries the owner's label: one that somebody added proves nothing.
async fn records(cluster: &Cluster, release: &(String, String), owner: &Owner) -> Result<bool, Error> {
    let (namespace, name) = release;
    let mut selector = Selector {
        api_version: "v1".into(),
        kind: "Secret".into(),
        namespace: Some(namespace.clone()),
        labels: format!("owner=helm,name={name}"),
        fields: format!("type={RELEASE_SECRET}"),
        limit: 20,
        ..Selector::default()
    };
    let (hash, mut any) = (owner.hash(), false);
    loop {
        let page = match cluster.list(&selector).await {
            Ok(page) => page,
            Err(e @ (KubeError::Unavailable(_) | KubeError::TimedOut)) => return Err(e.into()),
            Err(_) => return Ok(false),
        };
        for record in &page.items {
            let label = record.pointer("/metadata/labels").and_then(|l| l.get(Owner::LABEL));
            if label.and_then(Value::as_str) != Some(&hash) {
                return Ok(false);
            }
            any = true;
        }
        match page.continue_token {
            Some(token) => selector.continue_token = Some(token),
            None => return Ok(any),
        }
    }
}
