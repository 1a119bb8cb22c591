//! Which kinds a cluster serves, and where.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::path::{self, Resource};
use crate::request::Outgoing;
use crate::{Cluster, Error};

/// The kinds of one group-version.
pub(crate) type Kinds = HashMap<String, Resource>;

/// Both forms of discovery; a server without the aggregated one answers with the other.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// What a cluster said of itself, to be asked for again only where it changed.
#[derive(Default)]
pub(crate) struct Discovered {
    version: Mutex<Option<(Instant, String)>>,
    /// By root.
    roots: Mutex<HashMap<&'static str, Root>>,
}

#[derive(Clone)]
struct Root {
    asked: Instant,
    /// The answer's ETag.
    tag: String,
    told: Served,
}

/// `apps/v1` and `apps/v1/Deployment`.
type Served = Arc<BTreeSet<String>>;

/// Where the core group is discovered.
const CORE: &str = "/api";
/// API servers are upgraded now and then, one after the other. The core group changes with them alone.
const VERSION_HOLDS: Duration = Duration::from_secs(60);

impl Cluster {
    /// Where a kind is served. Asked once a group-version, and again when a kind is not known.
    pub(crate) async fn resource(&self, api_version: &str, kind: &str) -> Result<Resource, Error> {
        let known = self.kinds().lock().unwrap_or_else(PoisonError::into_inner).get(api_version).cloned();
        if let Some(resource) = known.and_then(|k| k.get(kind).cloned()) {
            return Ok(resource);
        }
        let root = path::root(api_version)?;
        let kinds = match self.json(Outgoing::get(root)).await {
            Ok(list) => Arc::new(kinds_of(&list)),
            // A group that does not exist is a 404 without a Status, or with one without a name.
            Err(Error::NotFound | Error::Other { code: "not-served" | "unexpected-answer", .. }) => {
                Arc::default()
            }
            Err(e) => return Err(e),
        };
        let found = kinds.get(kind).cloned();
        if !kinds.is_empty() {
            self.kinds().lock().unwrap_or_else(PoisonError::into_inner).insert(api_version.to_owned(), kinds);
        }
        found.ok_or_else(|| {
            let shown: String = kind.chars().take(80).collect();
            Error::other(
                "unknown-kind",
                format!("cluster {:?} does not serve {api_version} {shown}; is its CustomResourceDefinition installed?", self.name()),
            )
        })
    }

    /// The kinds of a group-version are asked for anew; whether any were known.
    pub(crate) fn forget(&self, api_version: &str) -> bool {
        self.kinds().lock().unwrap_or_else(PoisonError::into_inner).remove(api_version).is_some()
    }

    /// Whether the kind's objects live in namespaces.
    ///
    /// # Errors
    /// `Other` with code `unknown-kind`.
    pub async fn is_namespaced(&self, api_version: &str, kind: &str) -> Result<bool, Error> {
        Ok(self.resource(api_version, kind).await?.namespaced)
    }

    /// The API server's `gitVersion`: `v1.37.2`; at most a minute old.
    ///
    /// # Errors
    /// What every request can meet.
    pub async fn version(&self) -> Result<String, Error> {
        let cell = &self.discovered().version;
        let known = cell.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, version)) = known.filter(|(at, _)| at.elapsed() < VERSION_HOLDS) {
            return Ok(version);
        }
        let answer = self.json(Outgoing::get("/version")).await?;
        let Some(version) = texts(&answer, "gitVersion") else {
            return Err(Error::other("unexpected-answer", "the API server tells no version"));
        };
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), version.to_owned()));
        Ok(version.to_owned())
    }

    /// What Helm's `.Capabilities.APIVersions` holds: `apps/v1` and `apps/v1/Deployment`, sorted. Always what the
    /// cluster serves now; it sends the list only where that changed.
    ///
    /// # Errors
    /// What every request can meet. A group whose own server is down is left out.
    pub async fn api_versions(&self) -> Result<Vec<String>, Error> {
        let (core, groups) = tokio::try_join!(self.served(CORE), self.served("/apis"))?;
        let mut out: Vec<String> = core.iter().chain(groups.iter()).cloned().collect();
        out.sort();
        Ok(out)
    }

    async fn served(&self, root: &'static str) -> Result<Served, Error> {
        let roots = &self.discovered().roots;
        let known = roots.lock().unwrap_or_else(PoisonError::into_inner).get(root).cloned();
        if let Some(root) = known.as_ref().filter(|k| root == CORE && k.asked.elapsed() < VERSION_HOLDS) {
            return Ok(root.told.clone());
        }
        let asked = Instant::now();
        let tag = known.as_ref().map(|k| k.tag.clone());
        let (head, bytes) =
            self.answer(&Outgoing { accept: AGGREGATED, known: tag, ..Outgoing::get(root) }).await?;
        if let (http::StatusCode::NOT_MODIFIED, Some(known)) = (head.status, known) {
            let told = known.told.clone();
            roots.lock().unwrap_or_else(PoisonError::into_inner).insert(root, Root { asked, ..known });
            return Ok(told);
        }
        let answer: Value = serde_json::from_slice(&bytes)
            .map_err(|_| Error::other("unexpected-answer", "the API server's discovery is not JSON"))?;
        let mut set = BTreeSet::new();
        if answer.get("items").is_none() {
            self.each_version(&answer, &mut set).await?;
            return Ok(Arc::new(set));
        }
        aggregated(&answer, &mut set);
        let set = Arc::new(set);
        let tag = head.headers.get(http::header::ETAG).and_then(|v| v.to_str().ok());
        if let Some(tag) = tag {
            let entry = Root { asked, tag: tag.to_owned(), told: set.clone() };
            roots.lock().unwrap_or_else(PoisonError::into_inner).insert(root, entry);
        }
        Ok(set)
    }

    /// For a server without aggregated discovery: one request a group-version.
    async fn each_version(&self, answer: &Value, out: &mut BTreeSet<String>) -> Result<(), Error> {
        for version in plain(answer) {
            match self.json(Outgoing::get(path::root(&version)?)).await {
                Ok(list) => out.extend(kinds_with_subresources(&list).map(|k| format!("{version}/{k}"))),
                Err(Error::Unavailable(_) | Error::NotFound | Error::Other { .. }) => {}
                Err(e) => return Err(e),
            }
            out.insert(version);
        }
        Ok(())
    }
}

fn texts<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of.get(key).and_then(Value::as_str).filter(|s| !s.is_empty())
}

fn array<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Of an APIResourceList. Subresources have kinds of their own (`Scale`, `Eviction`, `TokenRequest`) that must not
/// be reachable as objects.
fn kinds_of(list: &Value) -> Kinds {
    array(list, "resources")
        .filter_map(|r| {
            let (name, kind) = (texts(r, "name")?, texts(r, "kind")?);
            let namespaced = r.get("namespaced").and_then(Value::as_bool).unwrap_or(false);
            (!name.contains('/')).then(|| (kind.to_owned(), Resource { plural: name.to_owned(), namespaced }))
        })
        .collect()
}

fn kinds_with_subresources(list: &Value) -> impl Iterator<Item = &str> {
    array(list, "resources").filter_map(|r| texts(r, "kind"))
}

/// Of an APIVersions (`/api`) or an APIGroupList (`/apis`).
fn plain(answer: &Value) -> Vec<String> {
    let core = array(answer, "versions").filter_map(Value::as_str).map(str::to_owned);
    let groups = array(answer, "groups")
        .flat_map(|g| array(g, "versions"))
        .filter_map(|v| texts(v, "groupVersion"))
        .map(str::to_owned);
    core.chain(groups).collect()
}

/// Of an APIGroupDiscoveryList.
fn aggregated(answer: &Value, out: &mut BTreeSet<String>) {
    for group in array(answer, "items") {
        let name = group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        for version in array(group, "versions") {
            let Some(v) = texts(version, "version") else { continue };
            let id = if name.is_empty() { v.to_owned() } else { format!("{name}/{v}") };
            for resource in array(version, "resources") {
                let kinds = std::iter::once(resource).chain(array(resource, "subresources"));
                let kinds = kinds.filter_map(|r| texts(r.get("responseKind")?, "kind"));
                out.extend(kinds.map(|k| format!("{id}/{k}")));
            }
            out.insert(id);
        }
    }
}
