//! Pods and what their containers wrote.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::request::Outgoing;
use crate::{Cluster, Error, Selector, path};

/// Helm's annotations on the objects of a release begin so.
const RELEASE_MARKS: &str = "meta.helm.sh/";

/// A pod as readers of logs need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: String,
    /// Labels by key.
    pub labels: BTreeMap<String, String>,
    /// Those annotations that name a Helm release; others can be large.
    pub release: BTreeMap<String, String>,
    /// What made it and keeps it.
    pub controller: Option<Controller>,
    /// In the order of the manifest, init containers first.
    pub containers: Vec<Container>,
}

/// An object's controller, by the object's own references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl Controller {
    /// That of any object; `None` for one that nothing controls.
    pub fn of(object: &Value) -> Option<Self> {
        let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
        let owner = owners.iter().find(|o| o.get("controller") == Some(&Value::Bool(true)))?;
        let text = |key: &str| owner.get(key).and_then(Value::as_str).map(str::to_owned);
        let (api_version, kind) = (text("apiVersion")?, text("kind")?);
        Some(Self { api_version, kind, name: text("name")?, uid: text("uid")? })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    /// Runs before the others.
    pub init: bool,
    pub restarts: u32,
    /// Whether it runs now.
    pub running: bool,
    /// Whether it ended and the pod will not start it again by itself now.
    pub terminated: bool,
}

impl Pod {
    /// How often its containers (not the init containers) were started again, in all.
    pub fn restarts(&self) -> u32 {
        self.containers.iter().filter(|c| !c.init).map(|c| c.restarts).fold(0, u32::saturating_add)
    }

    /// Whether no container of it will run again.
    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(crate) fn of(value: &Value) -> Option<Self> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let group = |spec: &str, status: &str, init: bool| -> Vec<Container> {
            let statuses = value.pointer(status).and_then(Value::as_array);
            let names = value.pointer(spec).and_then(Value::as_array).into_iter().flatten();
            names
                .filter_map(|c| c.get("name")?.as_str())
                .map(|name| {
                    let status = statuses
                        .and_then(|s| s.iter().find(|s| s.get("name").and_then(Value::as_str) == Some(name)));
                    container(name, init, status)
                })
                .collect()
        };
        let mut containers = group("/spec/initContainers", "/status/initContainerStatuses", true);
        containers.extend(group("/spec/containers", "/status/containerStatuses", false));
        let texts = |pointer: &str, prefix: &str| -> BTreeMap<String, String> {
            let all = value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
            let those = all.filter(|(key, _)| key.starts_with(prefix));
            those.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
        };
        Some(Self {
            name: text("/metadata/name")?,
            uid: text("/metadata/uid").unwrap_or_default(),
            phase: text("/status/phase").unwrap_or_else(|| "Unknown".into()),
            labels: texts("/metadata/labels", ""),
            release: texts("/metadata/annotations", RELEASE_MARKS),
            controller: Controller::of(value),
            containers,
        })
    }
}

fn container(name: &str, init: bool, status: Option<&Value>) -> Container {
    let state =
        |s: &str| status.and_then(|v| v.pointer(&format!("/state/{s}"))).is_some_and(Value::is_object);
    let restarts = status.and_then(|s| s.get("restartCount")).and_then(Value::as_u64).unwrap_or(0);
    Container {
        name: name.into(),
        init,
        restarts: u32::try_from(restarts).unwrap_or(u32::MAX),
        running: state("running"),
        terminated: state("terminated"),
    }
}

/// What to read of one container: the API server's options (Kubernetes `PodLogOptions`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub container: Option<String>,
    pub follow: bool,
    /// Of the container's run before this one.
    pub previous: bool,
    pub since_seconds: Option<u64>,
    /// RFC 3339, whole seconds.
    pub since_time: Option<String>,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
    pub timestamps: bool,
}

impl LogQuery {
    fn query(&self) -> String {
        let numbers = [
            ("sinceSeconds", self.since_seconds),
            ("tailLines", self.tail_lines),
            ("limitBytes", self.limit_bytes),
        ];
        let numbers: Vec<(&str, String)> =
            numbers.into_iter().filter_map(|(k, v)| v.map(|v| (k, v.to_string()))).collect();
        let flags = [("follow", self.follow), ("previous", self.previous), ("timestamps", self.timestamps)];
        let mut pairs: Vec<(&str, &str)> =
            flags.into_iter().filter(|(_, on)| *on).map(|(k, _)| (k, "true")).collect();
        pairs.extend(numbers.iter().map(|(k, v)| (*k, v.as_str())));
        pairs.extend(self.container.as_deref().map(|c| ("container", c)));
        pairs.extend(self.since_time.as_deref().map(|t| ("sinceTime", t)));
        path::query(&pairs)
    }
}

impl Cluster {
    /// Every pod that the label selector names (all with an empty one), over all pages.
    ///
    /// # Errors
    /// What every request can meet.
    pub async fn pods(&self, namespace: &str, labels: &str) -> Result<Vec<Pod>, Error> {
        let mut selector = Selector {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: Some(namespace.into()),
            labels: labels.into(),
            ..Selector::default()
        };
        let mut out = Vec::new();
        loop {
            let page = self.list_pods(&selector).await?;
            out.extend(page.0);
            match page.1 {
                Some(token) => selector.continue_token = Some(token),
                None => return Ok(out),
            }
        }
    }

    /// Without discovery: readers of logs may have no role but that for pods.
    async fn list_pods(&self, of: &Selector) -> Result<(Vec<Pod>, Option<String>), Error> {
        let namespace = of.namespace.as_deref().unwrap_or_default();
        path::check_namespace(namespace)?;
        let mut query = vec![("limit", "500")];
        if !of.labels.is_empty() {
            query.push(("labelSelector", &of.labels));
        }
        if let Some(token) = &of.continue_token {
            query.push(("continue", token));
        }
        let list = self
            .json(Outgoing::get(format!("/api/v1/namespaces/{namespace}/pods{}", path::query(&query))))
            .await?;
        let token = list.pointer("/metadata/continue").and_then(Value::as_str).filter(|t| !t.is_empty());
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        Ok((items.filter_map(Pod::of).collect(), token.map(str::to_owned)))
    }

    /// One pod.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Pod, Error> {
        path::check_namespace(namespace)?;
        path::check_name(name)?;
        let value = self.json(Outgoing::get(format!("/api/v1/namespaces/{namespace}/pods/{name}"))).await?;
        Pod::of(&value).ok_or_else(|| Error::other("unexpected-answer", "the API server's pod has no name"))
    }

    /// The bytes of a container's log as they come. Dropping the stream ends the request.
    ///
    /// A stream that follows has no time-out of its own: the kubelet sends not even a head before the first line.
    ///
    /// # Errors
    /// `NotFound` for the pod, `Invalid` for a container that is not (or not yet) there; in the stream `Unavailable`
    /// where the connection broke.
    pub async fn log_stream(
        &self,
        namespace: &str,
        pod: &str,
        query: &LogQuery,
    ) -> Result<BoxStream<'static, Result<Bytes, Error>>, Error> {
        path::check_namespace(namespace)?;
        path::check_name(pod)?;
        let outgoing = Outgoing {
            accept: "*/*",
            ..Outgoing::get(format!("/api/v1/namespaces/{namespace}/pods/{pod}/log{}", query.query()))
        };
        let answer = if query.follow {
            self.open(outgoing).await?
        } else {
            self.within(self.left(), self.open(outgoing)).await?
        };
        let name = self.name().to_owned();
        let idle = (!query.follow).then(|| self.timeout());
        let chunks = answer.into_body().into_data_stream();
        let stream = futures::stream::unfold(Some(chunks), move |chunks| {
            let name = name.clone();
            async move {
                let mut chunks = chunks?;
                let next = match idle {
                    Some(most) => tokio::time::timeout(most, chunks.next())
                        .await
                        .unwrap_or(Some(Err(kube::Error::Service("no data within the time-out".into())))),
                    None => chunks.next().await,
                };
                match next? {
                    Ok(bytes) => Some((Ok(bytes), Some(chunks))),
                    Err(_) => Some((
                        Err(Error::Unavailable(format!("the log stream of cluster {name:?} broke off"))),
                        None,
                    )),
                }
            }
        });
        Ok(stream.boxed())
    }
}
