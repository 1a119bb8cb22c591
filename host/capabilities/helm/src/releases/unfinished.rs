//! Releases that an operation holds, or left behind: what an operator has to know of them.

use serde_json::Value;
use sutler_kubernetes::{Cluster, Error as KubeError, RELEASE_SECRET, Reference, Selector};

use super::operation::Operation;
use super::record::Status;
use crate::error::Error;

/// A release whose newest revision is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    pub namespace: String,
    pub name: String,
    pub revision: u32,
    pub status: Status,
    /// Whether sutler wrote it; otherwise Helm or another tool did.
    pub ours: bool,
    /// `install`, `upgrade`, …: what sutler was doing; empty for others.
    pub doing: &'static str,
    /// The operation (of the provisioner API) that it was a step of.
    pub job: Option<String>,
}

/// Those of a namespace, or of all. Only labels and our own mark are looked at, so that a record that cannot be read
/// hides no other.
///
/// # Errors
/// What the API server says of listing Secrets.
pub async fn unfinished(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<Unfinished>, Error> {
    let failed = |e| Error::kube("release records", e);
    let status =
        [Status::PendingInstall, Status::PendingUpgrade, Status::PendingRollback, Status::Uninstalling];
    let mut selector = Selector {
        api_version: "v1".into(),
        kind: "Secret".into(),
        namespace: namespace.map(str::to_owned),
        labels: format!("owner=helm,status in ({})", status.map(Status::as_str).join(",")),
        fields: format!("type={RELEASE_SECRET}"),
        limit: 20,
        ..Selector::default()
    };
    let mut out = Vec::new();
    loop {
        let page = cluster.list(&selector).await.map_err(failed)?;
        for one in page.items.iter().filter_map(of_secret) {
            if newest(cluster, &one).await.map_err(failed)? {
                out.push(one);
            }
        }
        match page.continue_token {
            Some(token) => selector.continue_token = Some(token),
            None => return Ok(out),
        }
    }
}

fn of_secret(secret: &Value) -> Option<Unfinished> {
    let label = |key: &str| secret.pointer("/metadata/labels")?.get(key)?.as_str();
    let mark = secret.pointer("/metadata/annotations").and_then(|a| a.get(Operation::ANNOTATION));
    let operation = mark.and_then(Value::as_str).and_then(Operation::of_text);
    Some(Unfinished {
        namespace: secret.pointer("/metadata/namespace")?.as_str()?.to_owned(),
        name: label("name")?.to_owned(),
        revision: label("version")?.parse().ok()?,
        status: Status::from(label("status")?.to_owned()),
        ours: operation.is_some(),
        doing: operation.as_ref().map_or("", Operation::word),
        job: operation.and_then(|o| o.job),
    })
}

/// Revisions follow each other: a later one shows that this one is history.
async fn newest(cluster: &Cluster, one: &Unfinished) -> Result<bool, KubeError> {
    let of = Reference {
        cluster: None,
        api_version: "v1".into(),
        kind: "Secret".into(),
        namespace: Some(one.namespace.clone()),
        name: format!("sh.helm.release.v1.{}.v{}", one.name, one.revision.saturating_add(1)),
    };
    match cluster.get(&of).await {
        Ok(_) => Ok(false),
        Err(KubeError::NotFound) => Ok(true),
        Err(e) => Err(e),
    }
}
