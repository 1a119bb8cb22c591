//! Whose a pod is that carries no owner's label: that of the Helm release which it comes from.
//!
//! A release's objects are as Helm writes them, without marks of ours. What counts is what made the pod, by the
//! references of controllers with their uids, and the records of the release that it names: labels of pods and
//! selectors of workloads prove nothing, since another owner's workload can be given the same ones.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use sutler_kubernetes::{Cluster, Controller, Error as KubeError, Pod, RELEASE_SECRET, Reference, Selector};
use sutler_model::Owner;

use crate::grant::Reach;
use crate::{Error, grant};

/// ReplicaSet, Deployment, and one more.
const DEPTH: usize = 3;

/// What was found out about pods and their controllers, by uid, and about releases, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pods: HashMap<String, bool>,
    controllers: HashMap<String, bool>,
    releases: HashMap<Release, bool>,
}

/// Namespace and name.
type Release = (String, String);

/// Keeps the pods that the reach covers. Each controller and each release is looked at once, however many pods it has.
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
    let there: HashSet<&str> = pods.iter().map(|p| p.uid.as_str()).collect();
    found.pods.retain(|uid, _| there.contains(uid.as_str()));
    found.controllers.clear();
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

/// Whether a pod without an owner's label comes from a release of this owner: by its outermost controller, or, where
/// nothing made it but Helm itself, by its own marks.
async fn of_owner(
    cluster: &Cluster,
    namespace: &str,
    pod: &Pod,
    owner: &Owner,
    found: &mut Found,
) -> Result<bool, Error> {
    match &pod.controller {
        Some(controller) => of_controller(cluster, namespace, controller.clone(), owner, found).await,
        None => {
            let text = String::as_str;
            let release = release(|k| pod.labels.get(k).map(text), |k| pod.release.get(k).map(text));
            of_release(cluster, release, owner, found).await
        }
    }
}

async fn of_controller(
    cluster: &Cluster,
    namespace: &str,
    mut controller: Controller,
    owner: &Owner,
    found: &mut Found,
) -> Result<bool, Error> {
    let (mut passed, mut ours) = (Vec::new(), false);
    for _ in 0..DEPTH {
        if let Some(known) = found.controllers.get(&controller.uid) {
            ours = *known;
            break;
        }
        passed.push(controller.uid.clone());
        let of = Reference {
            cluster: None,
            api_version: controller.api_version,
            kind: controller.kind,
            namespace: Some(namespace.into()),
            name: controller.name,
        };
        let object = match cluster.get(&of).await {
            Ok(object) => object,
            Err(e) if e.retryable() => return Err(e.into()),
            Err(_) => break,
        };
        let text = |place: &str, key: &str| object.pointer(place)?.get(key)?.as_str();
        if text("/metadata", "uid") != passed.last().map(String::as_str) {
            break;
        }
        let marks = release(|k| text("/metadata/labels", k), |k| text("/metadata/annotations", k));
        if marks.is_some() {
            ours = of_release(cluster, marks, owner, found).await?;
            break;
        }
        match Controller::of(&object) {
            Some(next) => controller = next,
            None => break,
        }
    }
    found.controllers.extend(passed.into_iter().map(|uid| (uid, ours)));
    Ok(ours)
}

async fn of_release(
    cluster: &Cluster,
    release: Option<Release>,
    owner: &Owner,
    found: &mut Found,
) -> Result<bool, Error> {
    let Some(release) = release else { return Ok(false) };
    if let Some(known) = found.releases.get(&release) {
        return Ok(*known);
    }
    let ours = records(cluster, &release, owner).await?;
    found.releases.insert(release, ours);
    Ok(ours)
}

/// The release that an object says it belongs to, by its labels and annotations.
fn release<'a>(
    label: impl Fn(&str) -> Option<&'a str>,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> Option<Release> {
    let managed = label("app.kubernetes.io/managed-by") == Some("Helm");
    let name = annotation("meta.helm.sh/release-name")?;
    let namespace = annotation("meta.helm.sh/release-namespace")?;
    // Nothing that would change a selector's meaning.
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    (managed && plain(name) && plain(namespace)).then(|| (namespace.to_owned(), name.to_owned()))
}

/// Whether every record of the release carries the owner's label: one that somebody added proves nothing.
async fn records(cluster: &Cluster, release: &Release, owner: &Owner) -> Result<bool, Error> {
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
