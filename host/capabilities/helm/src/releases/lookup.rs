//! What templates look up: read for them, within the grants and no further than the release's owner.

use serde_json::{Value, json};
use sutler_kubernetes::{Error as KubeError, Reference, Selector};
use sutler_model::Owner;

use super::target::Target;
use crate::engine::Lookup;
use crate::error::Error;
use crate::grant;
use crate::manifest::{RELEASE_NAME, RELEASE_NAMESPACE, shown};

/// Items of one list that a template sees.
const MOST: usize = 1000;

/// Answers one question.
///
/// # Errors
/// `NotGranted`, and `NotOwned` for one object of somebody else. Lists leave those out.
pub(crate) async fn look_up(target: &Target<'_>, mut q: Lookup) -> Result<Lookup, Error> {
    let namespaced = match target.cluster.is_namespaced(&q.api_version, &q.kind).await {
        Ok(namespaced) => namespaced,
        Err(KubeError::Other { code: "unknown-kind", message }) => {
            q.error = message;
            return Ok(q);
        }
        Err(e) => return Err(Error::kube(&format!("lookup of {} {}", q.kind, q.name), e)),
    };
    check(target, &q, namespaced)?;
    let namespace = Some(q.namespace.clone()).filter(|n| namespaced && !n.is_empty());
    if q.name.is_empty() {
        q.object = Some(list(target, &q, namespace, namespaced).await?);
        return Ok(q);
    }
    if namespaced && namespace.is_none() {
        return Ok(q);
    }
    let of = Reference {
        cluster: None,
        api_version: q.api_version.clone(),
        kind: q.kind.clone(),
        namespace,
        name: q.name.clone(),
    };
    q.object = target.get(&of).await?;
    if q.object.as_ref().is_some_and(|o| namespaced && !visible(target, o)) {
        return Err(Error::NotOwned(format!(
            "the chart looks up {}, which is not this application's; leave it to the values, or allow it with helm.unowned = true",
            shown(&of)
        )));
    }
    Ok(q)
}

fn check(target: &Target<'_>, q: &Lookup, namespaced: bool) -> Result<(), Error> {
    let name = if q.name.is_empty() { "*" } else { &q.name };
    if !namespaced {
        // Whether its own namespace is there is no secret to a release.
        if q.kind == "Namespace" && q.name == target.namespace {
            return Ok(());
        }
        return Ok(grant::cluster_scoped(target.grants, target.owner(), &q.kind, name)?);
    }
    let namespace = if q.namespace.is_empty() { "*" } else { &q.namespace };
    if namespace == target.namespace || (namespace == "*" && name != "*") {
        return Ok(());
    }
    Ok(grant::other_namespace(target.grants, target.owner(), (&q.kind, name), namespace)?)
}

/// Whether an object is the release's, or its owner's.
fn visible(target: &Target<'_>, object: &Value) -> bool {
    let text = |part: &str, key: &str| {
        object.pointer(part).and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
    };
    let notes = "/metadata/annotations";
    grant::unowned(target.grants)
        || text("/metadata/labels", Owner::LABEL) == target.owner().hash()
        || (text(notes, RELEASE_NAME) == target.name && text(notes, RELEASE_NAMESPACE) == target.namespace)
}

async fn list(
    target: &Target<'_>,
    q: &Lookup,
    namespace: Option<String>,
    namespaced: bool,
) -> Result<Value, Error> {
    let mut selector = Selector {
        api_version: q.api_version.clone(),
        kind: q.kind.clone(),
        namespace,
        ..Selector::default()
    };
    let mut items = Vec::new();
    loop {
        let page = target
            .cluster
            .list(&selector)
            .await
            .map_err(|e| Error::kube(&format!("lookup of every {}", q.kind), e))?;
        items.extend(page.items.into_iter().filter(|o| !namespaced || visible(target, o)));
        match page.continue_token {
            Some(token) if items.len() < MOST => selector.continue_token = Some(token),
            _ => break,
        }
    }
    Ok(json!({
        "apiVersion": q.api_version, "kind": format!("{}List", q.kind), "metadata": {}, "items": items,
    }))
}
