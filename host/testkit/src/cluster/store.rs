//! The objects, their versions, and what happened to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::kinds::{KindInfo, common};
use super::managed::{Owners, render};
use super::pods::Readiness;
use super::resource::{finalizers, meta, metadata, owner_uids};

/// Ordered as lists are: by namespace and name within a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: &KindInfo, namespace: &str, name: &str) -> Self {
        let namespace = if kind.namespaced { namespace.into() } else { String::new() };
        Self { resource: kind.resource(), namespace, name: name.into() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) kind: Arc<KindInfo>,
    /// Without managedFields: they follow from `owners`.
    pub(crate) object: Value,
    pub(crate) owners: Owners,
}

impl Entry {
    pub(crate) fn rendered(&self) -> Value {
        let mut object = self.object.clone();
        if !self.owners.is_empty() {
            metadata(&mut object).insert("managedFields".into(), render(&self.owners));
        }
        object
    }
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// How many events a watch can go back.
const HISTORY: usize = 4096;

pub(crate) struct State {
    pub(crate) kinds: Vec<Arc<KindInfo>>,
    pub(crate) objects: BTreeMap<Key, Entry>,
    pub(crate) history: VecDeque<Arc<Event>>,
    /// The newest version whose event is no longer kept.
    pub(crate) forgotten: u64,
    pub(crate) version: u64,
    pub(crate) readiness: Readiness,
    /// For names that must be new.
    pub(crate) counter: u64,
}

impl State {
    fn new() -> Self {
        let mut state = Self {
            kinds: common(),
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            forgotten: 0,
            version: 1,
            readiness: Readiness::Instant,
            counter: 0,
        };
        if let Some(kind) = state.find("", "Namespace") {
            for name in ["default", "kube-public", "kube-system"] {
                let object = json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {
                        "name": name, "uid": uuid::Uuid::new_v4().to_string(),
                        "creationTimestamp": super::resource::now(),
                        "labels": {"kubernetes.io/metadata.name": name},
                    },
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
                });
                state.put(
                    &Key::new(&kind, "", name),
                    Entry { kind: kind.clone(), object, owners: Owners::new() },
                );
            }
        }
        state
    }

    pub(crate) fn find(&self, group: &str, kind: &str) -> Option<Arc<KindInfo>> {
        self.kinds.iter().find(|k| k.is(group, kind)).cloned()
    }

    pub(crate) fn by_plural(&self, group: &str, version: &str, plural: &str) -> Option<Arc<KindInfo>> {
        self.kinds.iter().find(|k| k.group == group && k.version == version && k.plural == plural).cloned()
    }

    /// Stores an object under a new version. One that is being deleted and has no finalizer left goes instead.
    pub(crate) fn put(&mut self, key: &Key, mut entry: Entry) -> Value {
        if !meta(&entry.object, "deletionTimestamp").is_empty() && !finalizers(&entry.object) {
            self.remove(key, false);
            return entry.rendered();
        }
        self.version += 1;
        metadata(&mut entry.object).insert("resourceVersion".into(), self.version.to_string().into());
        if entry.kind.is("apiextensions.k8s.io", "CustomResourceDefinition")
            && let Some(kind) = KindInfo::of_definition(&entry.object)
            && !self.kinds.contains(&kind)
        {
            self.kinds.push(kind);
        }
        let after = entry.rendered();
        let before = self.objects.insert(key.clone(), entry).map(|e| e.rendered());
        self.remember(key, before, Some(after.clone()));
        after
    }

    /// Takes an object away, with what it owns (unless `orphan`) and, for a namespace, what is in it.
    pub(crate) fn remove(&mut self, key: &Key, orphan: bool) -> Option<Value> {
        let entry = self.objects.remove(key)?;
        self.version += 1;
        let mut last = entry.rendered();
        metadata(&mut last).insert("resourceVersion".into(), self.version.to_string().into());
        self.remember(key, Some(last.clone()), None);
        let uid = meta(&last, "uid").to_owned();
        let mut with_it: Vec<Key> = Vec::new();
        if !orphan {
            with_it.extend(
                self.objects
                    .iter()
                    .filter(|(_, e)| owner_uids(&e.object).any(|o| o == uid))
                    .map(|(k, _)| k.clone()),
            );
        }
        if entry.kind.is("", "Namespace") {
            with_it.extend(self.objects.keys().filter(|k| k.namespace == key.name).cloned());
        }
        if entry.kind.is("apiextensions.k8s.io", "CustomResourceDefinition")
            && let Some(defined) = KindInfo::of_definition(&last)
        {
            with_it.extend(self.objects.keys().filter(|k| k.resource == defined.resource()).cloned());
            self.kinds.retain(|k| *k != defined);
        }
        for key in with_it {
            self.remove(&key, false);
        }
        Some(last)
    }

    fn remember(&mut self, key: &Key, before: Option<Value>, after: Option<Value>) {
        let event = Event {
            version: self.version,
            resource: key.resource.clone(),
            namespace: key.namespace.clone(),
            before,
            after,
        };
        self.history.push_back(Arc::new(event));
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.forgotten = oldest.version;
        }
    }

    /// The objects of a kind in a namespace (empty for all).
    pub(crate) fn of_kind(&self, kind: &KindInfo, namespace: &str) -> impl Iterator<Item = (&Key, &Entry)> {
        let resource = kind.resource();
        self.objects.iter().filter(move |(k, _)| {
            k.resource == resource && (namespace.is_empty() || k.namespace == namespace)
        })
    }
}

/// The state behind a lock, with a signal for watchers.
pub(crate) struct Store {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new() -> Self {
        let state = State::new();
        Self { changed: watch::Sender::new(state.version), state: Mutex::new(state) }
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut state);
        let version = state.version;
        drop(state);
        self.changed.send_if_modified(|seen| std::mem::replace(seen, version) != version);
        result
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
