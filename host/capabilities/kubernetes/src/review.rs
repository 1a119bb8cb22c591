//! What the API server says that the host's account may do.

use http::Method;
use serde_json::{Value, json};

use crate::request::{JSON, Outgoing};
use crate::{Cluster, Error, Reference};

/// One thing that RBAC allows or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right<'a> {
    pub verb: &'a str,
    /// `""` for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: Option<&'a str>,
    /// Empty for every name.
    pub name: &'a str,
}

impl Cluster {
    /// Whether the host's account may `verb` (a Kubernetes verb) this object.
    ///
    /// # Errors
    /// What every request can meet.
    pub async fn can_i(&self, verb: &str, of: &Reference) -> Result<bool, Error> {
        let resource = self.resource(&of.api_version, &of.kind).await?;
        let (group, version) = of.api_version.split_once('/').unwrap_or(("", &of.api_version));
        let attributes = json!({
            "verb": verb, "group": group, "version": version, "resource": resource.plural,
            "namespace": of.namespace.as_deref().unwrap_or_default(), "name": of.name,
        });
        self.review(attributes).await
    }

    /// Whether the host's account may do all of a rule's verb in a namespace (`None`: everywhere, and outside
    /// namespaces). `resource` may name a subresource: `pods/log`.
    ///
    /// # Errors
    /// What every request can meet.
    pub async fn allowed(&self, right: &Right<'_>) -> Result<bool, Error> {
        let (resource, sub) = right.resource.split_once('/').unwrap_or((right.resource, ""));
        self.review(json!({
            "verb": right.verb, "group": right.group, "resource": resource, "subresource": sub,
            "namespace": right.namespace.unwrap_or_default(), "name": right.name,
        }))
        .await
    }

    async fn review(&self, attributes: Value) -> Result<bool, Error> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
        let answer = self.json(Outgoing::with(Method::POST, path, JSON, &review).repeatable()).await?;
        Ok(answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or(false))
    }
}
