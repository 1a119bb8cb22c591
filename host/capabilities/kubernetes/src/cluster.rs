//! One cluster, without grants: what the capabilities are built on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use sutler_model::{Call, Fence};

use crate::discovery::{Discovered, Kinds};
use crate::rate::Rate;
use crate::remembered::Memories;
use crate::request::{JSON, Outgoing};
use crate::watch::Watches;
use crate::{ClusterConfig, Error, Page, Propagation, Reference, Selector, path};

const DEFAULT_PAGE: u32 = 500;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one cluster; cheap to clone. Checks no grants and no owners: [`crate::Kubernetes`] does.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
    deadline: Option<Instant>,
    /// For whom requests are sent: what the rate is shared by.
    asker: Arc<str>,
    /// Once it is lost, nothing is written any more.
    fence: Fence,
}

struct Inner {
    name: String,
    client: kube::Client,
    timeout: Duration,
    rate: Option<Arc<Rate>>,
    /// By apiVersion.
    kinds: Mutex<HashMap<String, Arc<Kinds>>>,
    discovered: Discovered,
    watches: Watches,
    memories: Memories,
}

/// How server-side apply goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOptions {
    pub field_manager: String,
    /// Takes fields over from other managers.
    pub force: bool,
    pub dry_run: bool,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads the configuration and makes the client; nothing is sent yet.
    ///
    /// # Errors
    /// `Other` with code `kubeconfig` where the file cannot be used, or none is found.
    pub async fn connect(name: &str, config: &ClusterConfig) -> Result<Self, Error> {
        // Two crypto providers in one binary would make rustls panic on first use; the first one wins.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut kube_config = read_config(name, config).await?;
        kube_config.connect_timeout = Some(CONNECT_TIMEOUT);
        kube_config.default_retry = false;
        let client = kube::Client::try_from(kube_config).map_err(|_| {
            // The library's text may quote what it read.
            Error::other(
                "kubeconfig",
                format!("cluster {name:?}: certificates, keys or user of its kubeconfig cannot be used"),
            )
        })?;
        let rate = Rate::new(config.requests_per_second, config.burst);
        Ok(Self::with(name, client, Duration::from_secs(config.timeout_seconds.max(1)), rate))
    }

    /// A cluster behind a client that is there already, without a limit of its rate.
    pub fn of_client(name: &str, client: kube::Client, timeout: Duration) -> Self {
        Self::with(name, client, timeout, None)
    }

    fn with(name: &str, client: kube::Client, timeout: Duration, rate: Option<Arc<Rate>>) -> Self {
        let inner = Inner {
            name: name.into(),
            client,
            timeout,
            rate,
            kinds: Mutex::default(),
            discovered: Discovered::default(),
            watches: Watches::default(),
            memories: Memories::default(),
        };
        Self { inner: Arc::new(inner), deadline: None, asker: "".into(), fence: Fence::endless() }
    }

    /// The same cluster for one call: requests end by its deadline, take their turns as its plugin's, and write only
    /// while its job is still this host's.
    #[must_use]
    pub fn of_call(&self, call: &Call) -> Self {
        let (asker, fence) = (call.plugin.as_str().into(), call.fence.clone());
        Self { inner: self.inner.clone(), deadline: Some(call.deadline), asker, fence }
    }

    /// The same cluster with requests that end by `deadline`; then they are [`Error::TimedOut`].
    #[must_use]
    pub fn until(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.inner.client
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    pub(crate) fn watches(&self) -> &Watches {
        &self.inner.watches
    }

    pub(crate) fn memories(&self) -> &Memories {
        &self.inner.memories
    }

    pub(crate) fn discovered(&self) -> &Discovered {
        &self.inner.discovered
    }

    /// Waits until this asker may send one request more.
    pub(crate) async fn turn(&self) {
        if let Some(rate) = &self.inner.rate {
            rate.turn(&self.asker).await;
        }
    }

    /// Watches of pods that run now.
    pub fn watches_running(&self) -> usize {
        self.watches().running()
    }

    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|d| d.saturating_duration_since(Instant::now()))
    }

    /// What is left of the call and of its lease: no write takes longer, and none begins where it is zero.
    pub(crate) fn left_to_write(&self) -> Option<Duration> {
        self.left().map(|left| left.min(self.fence.left()))
    }

    pub(crate) fn kinds(&self) -> &Mutex<HashMap<String, Arc<Kinds>>> {
        &self.inner.kinds
    }

    /// Sends to where a kind is served. What the API server does not serve there had no effect: its definition is gone,
    /// or another one by now, so its group-version is looked up anew and the request is sent once more.
    async fn send_to(&self, at: At<'_>, request: impl Fn(String) -> Outgoing) -> Result<Value, Error> {
        match self.json(request(self.path_of(at).await?)).await {
            Err(Error::Other { code: "not-served", .. }) if self.forget(at.api_version) => {
                self.json(request(self.path_of(at).await?)).await
            }
            answer => answer,
        }
    }

    async fn path_of(&self, at: At<'_>) -> Result<String, Error> {
        at.name.map_or(Ok(()), path::check_name)?;
        let resource = self.resource(at.api_version, at.kind).await?;
        path::object(at.api_version, at.kind, &resource, at.namespace, at.name)
    }

    /// # Errors
    /// `NotFound`, and what every request can meet.
    pub async fn get(&self, of: &Reference) -> Result<Value, Error> {
        self.send_to(At::one(of), Outgoing::get).await
    }

    /// One page; `of.cluster` is not looked at. Items carry apiVersion and kind, which the API server leaves out.
    ///
    /// # Errors
    /// `Other` with code `expired` where the continue token is too old.
    pub async fn list(&self, of: &Selector) -> Result<Page, Error> {
        let limit = if of.limit == 0 { DEFAULT_PAGE } else { of.limit.min(DEFAULT_PAGE) }.to_string();
        let mut query = vec![("limit", limit.as_str())];
        for (key, value) in [("labelSelector", &of.labels), ("fieldSelector", &of.fields)] {
            if !value.is_empty() {
                query.push((key, value));
            }
        }
        if let Some(token) = &of.continue_token {
            query.push(("continue", token));
        }
        let query = path::query(&query);
        let at = At::all(&of.api_version, &of.kind, of.namespace.as_deref());
        let mut list = self.send_to(at, |path| Outgoing::get(path + &query)).await?;
        let token = list.pointer("/metadata/continue").and_then(Value::as_str).filter(|t| !t.is_empty());
        let continue_token = token.map(str::to_owned);
        let Some(Value::Array(mut items)) = list.get_mut("items").map(Value::take) else {
            return Err(Error::other("unexpected-answer", "the API server's list has no items"));
        };
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.entry("apiVersion").or_insert_with(|| of.api_version.clone().into());
            item.entry("kind").or_insert_with(|| of.kind.clone().into());
        }
        Ok(Page { items, continue_token })
    }

    /// Server-side apply. `metadata.uid` in the manifest is a precondition. Sent again where the API server or the
    /// network fails: applying twice is applying once.
    ///
    /// # Errors
    /// `Conflict` naming fields and managers without `force`.
    pub async fn apply(&self, manifest: &Value, options: &ApplyOptions) -> Result<Value, Error> {
        let of = Reference::of_manifest(manifest)?;
        let mut query = vec![("fieldManager", options.field_manager.as_str()), ("fieldValidation", "Strict")];
        if options.force {
            query.push(("force", "true"));
        }
        if options.dry_run {
            query.push(("dryRun", "All"));
        }
        // JSON is YAML, which is what this media type is.
        let (query, media) = (path::query(&query), "application/apply-patch+yaml");
        let request =
            |path: String| Outgoing::with(Method::PATCH, path + &query, media, manifest).repeatable();
        self.send_to(At::one(&of), request).await
    }

    /// # Errors
    /// `AlreadyExists`.
    pub async fn create(&self, manifest: &Value, field_manager: &str, dry_run: bool) -> Result<Value, Error> {
        let of = Reference::of_manifest(manifest)?;
        path::check_name(&of.name)?;
        if of.namespace.is_none() && self.is_namespaced(&of.api_version, &of.kind).await? {
            return Err(Error::Invalid(format!(
                "a {} lives in a namespace; name it in metadata.namespace",
                of.kind
            )));
        }
        let at = At::all(&of.api_version, &of.kind, of.namespace.as_deref());
        let query = write_query(field_manager, dry_run);
        self.send_to(at, |path| Outgoing::with(Method::POST, path + &query, JSON, manifest)).await
    }

    /// PUT: the manifest becomes the whole object. `metadata.resourceVersion` and `metadata.uid` are preconditions.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` where a precondition does not hold.
    pub async fn replace(
        &self,
        manifest: &Value,
        field_manager: &str,
        dry_run: bool,
    ) -> Result<Value, Error> {
        let (of, query) = (Reference::of_manifest(manifest)?, write_query(field_manager, dry_run));
        self.send_to(At::one(&of), |path| Outgoing::with(Method::PUT, path + &query, JSON, manifest)).await
    }

    /// A JSON merge patch (RFC 7386). `metadata.uid` in it is a precondition.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` where the precondition does not hold.
    pub async fn merge_patch(
        &self,
        of: &Reference,
        patch: &Value,
        field_manager: &str,
    ) -> Result<Value, Error> {
        let (query, media) = (write_query(field_manager, false), "application/merge-patch+json");
        self.send_to(At::one(of), |path| Outgoing::with(Method::PATCH, path + &query, media, patch)).await
    }

    /// Deletes; the object may still be there for as long as its finalizers need.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` where the object under that name has another uid.
    pub async fn delete(
        &self,
        of: &Reference,
        uid: Option<&str>,
        propagation: Propagation,
    ) -> Result<(), Error> {
        let mut options =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation.as_str()});
        if let (Some(uid), Some(o)) = (uid, options.as_object_mut()) {
            o.insert("preconditions".into(), json!({ "uid": uid }));
        }
        self.send_to(At::one(of), |path| Outgoing::with(Method::DELETE, path, JSON, &options)).await.map(drop)
    }

    /// The names of all namespaces, over all pages.
    ///
    /// # Errors
    /// `Forbidden` where the account may not list them.
    pub async fn namespaces(&self) -> Result<Vec<String>, Error> {
        let mut of = Selector { api_version: "v1".into(), kind: "Namespace".into(), ..Selector::default() };
        let mut out = Vec::new();
        loop {
            let page = self.list(&of).await?;
            let names = page.items.iter().filter_map(|n| n.pointer("/metadata/name")?.as_str());
            out.extend(names.map(str::to_owned));
            match page.continue_token {
                Some(token) => of.continue_token = Some(token),
                None => return Ok(out),
            }
        }
    }
}

/// Objects of a kind, or one of them.
#[derive(Clone, Copy)]
struct At<'a> {
    api_version: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> At<'a> {
    const fn all(api_version: &'a str, kind: &'a str, namespace: Option<&'a str>) -> Self {
        Self { api_version, kind, namespace, name: None }
    }

    fn one(of: &'a Reference) -> Self {
        let (namespace, name) = (of.namespace.as_deref(), Some(of.name.as_str()));
        Self { api_version: &of.api_version, kind: &of.kind, namespace, name }
    }
}

fn write_query(field_manager: &str, dry_run: bool) -> String {
    let mut query = vec![("fieldManager", field_manager), ("fieldValidation", "Strict")];
    if dry_run {
        query.push(("dryRun", "All"));
    }
    path::query(&query)
}

async fn read_config(name: &str, config: &ClusterConfig) -> Result<kube::Config, Error> {
    let failed = |what: &str| Error::other("kubeconfig", format!("cluster {name:?}: {what}"));
    let file = match &config.kubeconfig {
        Some(path) => Some(
            kube::config::Kubeconfig::read_from(path)
                .map_err(|_| failed(&format!("{} cannot be read as a kubeconfig", path.display())))?,
        ),
        None => kube::config::Kubeconfig::from_env()
            .map_err(|_| failed("the file that KUBECONFIG names cannot be read as a kubeconfig"))?,
    };
    let Some(file) = file else {
        return kube::Config::incluster().map_err(|_| {
            failed(
                "no kubeconfig is set, KUBECONFIG is not set, and this is not a pod with a service account; \
                 set kubeconfig in [kubernetes.clusters]",
            )
        });
    };
    let options = kube::config::KubeConfigOptions { context: config.context.clone(), ..Default::default() };
    kube::Config::from_custom_kubeconfig(file, &options).await.map_err(|_| {
        let context = config.context.as_deref().unwrap_or("(current)");
        failed(&format!(
            "context {context} of its kubeconfig is not usable: it, its cluster or its user is missing"
        ))
    })
}
