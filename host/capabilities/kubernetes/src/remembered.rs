//! Metadata of objects that are asked for again and again: one watch a kind, namespace and selector, for all who ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{Event, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::events::{self, Events};
use crate::{Cluster, Selector, path};

/// Watches of one cluster at once.
const MAX_WATCHES: usize = 64;
/// Objects that one watch remembers; where there are more, it remembers none.
const MAX_OBJECTS: usize = 10_000;
/// A watch that nobody asked for so long ends.
const IDLE: Duration = Duration::from_secs(300);
/// How long the first one to ask waits for the list.
const FIRST: Duration = Duration::from_secs(2);

/// `apiVersion`, kind, namespace and label selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    api_version: String,
    kind: String,
    namespace: String,
    labels: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Live,
    /// The API server does not answer, does not allow it, or has too many of them.
    Lost,
}

/// What one watch knows.
#[derive(Debug)]
struct Memory {
    state: watch::Sender<State>,
    objects: Mutex<HashMap<String, Arc<Value>>>,
    asked: Mutex<Instant>,
}

/// The watches that run.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<HashMap<Key, Arc<Memory>>>);

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// The metadata of these objects as a watch told it a moment ago: `uid`, `resourceVersion`, labels and annotations
    /// of `helm.sh`. Whoever writes on the strength of it names the version as a precondition. `None` where there is
    /// no watch, or none can be had: ask for each. One is begun only if `begin`. Asks for `list` and `watch`.
    pub async fn remembered(
        &self,
        of: &Selector,
        names: &[&str],
        begin: bool,
    ) -> Option<Vec<Option<Arc<Value>>>> {
        let memory = self.memory(of, begin).await?;
        *locked(&memory.asked) = Instant::now();
        let mut state = memory.state.subscribe();
        let known = tokio::time::timeout(FIRST, state.wait_for(|s| *s != State::Starting)).await;
        if !known.is_ok_and(|s| s.is_ok_and(|s| *s == State::Live)) {
            return None;
        }
        let objects = locked(&memory.objects);
        Some(names.iter().map(|name| objects.get(*name).cloned()).collect())
    }

    /// Watches of metadata that run now.
    pub fn memories_running(&self) -> usize {
        locked(&self.memories().0).len()
    }

    async fn memory(&self, of: &Selector, begin: bool) -> Option<Arc<Memory>> {
        let namespace = of.namespace.clone()?;
        path::check_namespace(&namespace).ok()?;
        let key = Key {
            api_version: of.api_version.clone(),
            kind: of.kind.clone(),
            namespace,
            labels: of.labels.clone(),
        };
        if let Some(known) = locked(&self.memories().0).get(&key) {
            return Some(known.clone());
        }
        if !begin {
            return None;
        }
        let plural = self.resource(&key.api_version, &key.kind).await.ok()?.plural;
        let mut running = locked(&self.memories().0);
        if let Some(known) = running.get(&key) {
            return Some(known.clone());
        }
        if running.len() >= MAX_WATCHES {
            return None;
        }
        let memory = Arc::new(Memory {
            state: watch::Sender::new(State::Starting),
            objects: Mutex::default(),
            asked: Mutex::new(Instant::now()),
        });
        running.insert(key.clone(), memory.clone());
        tokio::spawn(keep(self.clone(), key, plural, memory.clone()));
        Some(memory)
    }
}

/// Runs one watch until nobody asks any more.
async fn keep(cluster: Cluster, key: Key, plural: String, memory: Arc<Memory>) {
    let (group, version) = key.api_version.split_once('/').unwrap_or(("", &key.api_version));
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &key.kind), &plural);
    let api: kube::Api<PartialObjectMeta<DynamicObject>> =
        kube::Api::namespaced_with(cluster.of_watch(), &key.namespace, &resource);
    let config = events::config(&key.labels);
    let mut events = Events::new(move || watcher(api.clone(), config.clone()).boxed());
    loop {
        let idle = *locked(&memory.asked) + IDLE;
        let event = tokio::select! {
            event = events.next() => event,
            () = tokio::time::sleep_until(idle) => {
                let mut running = locked(&cluster.memories().0);
                // Somebody may have asked while the lock was waited for.
                if *locked(&memory.asked) + IDLE <= Instant::now() {
                    running.remove(&key);
                    memory.state.send_replace(State::Lost);
                    return;
                }
                continue;
            }
        };
        let state = match event {
            Ok(event) => memory.after(event),
            Err(kind) => {
                tracing::debug!(event = "metadata-watch-failed", namespace = key.namespace, kind);
                Some(State::Lost)
            }
        };
        if let Some(state) = state {
            memory.state.send_replace(state);
        }
    }
}

impl Memory {
    /// What is known after an event; `None` in the middle of a list, when the old objects are gone already.
    fn after(&self, event: Event<PartialObjectMeta<DynamicObject>>) -> Option<State> {
        let mut objects = locked(&self.objects);
        match event {
            Event::Init => {
                objects.clear();
                return Some(State::Starting);
            }
            Event::InitApply(object) | Event::Apply(object) if objects.len() < MAX_OBJECTS => {
                let (name, metadata) = masked(object);
                objects.insert(name, Arc::new(metadata));
                return None;
            }
            // One too many: the list is not whole, and will not be.
            Event::InitApply(_) | Event::Apply(_) => return Some(State::Lost),
            Event::Delete(object) => {
                objects.remove(object.metadata.name.as_deref().unwrap_or_default());
                return None;
            }
            Event::InitDone => {}
        }
        Some(if objects.len() < MAX_OBJECTS { State::Live } else { State::Lost })
    }
}

/// What is remembered of an object.
fn masked(object: PartialObjectMeta<DynamicObject>) -> (String, Value) {
    let metadata = object.metadata;
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| key.split('/').next().is_some_and(|domain| domain.ends_with("helm.sh")));
    let kept = json!({
        "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "labels": metadata.labels.unwrap_or_default(), "annotations": annotations,
    });
    (metadata.name.unwrap_or_default(), json!({ "metadata": kept }))
}
