//! Pods as they are now, kept up to date by one watch for all who look at the same ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{Event, watcher};
use tokio::sync::watch;

use crate::events::{self, Events};
use crate::{Cluster, Error, Pod, path};

/// Pods that one watch keeps; there is no more in a namespace that a stream of logs could read.
const MAX_PODS: usize = 5_000;
/// Watches of one cluster at once.
const MAX_WATCHES: usize = 256;

/// Namespace and label selector.
type Key = (String, String);

/// What a watch knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Watched {
    #[default]
    Starting,
    /// Every pod, as far as the API server has told.
    Live(Arc<Vec<Pod>>),
    /// The API server does not answer, or does not allow it; ask it directly. It is tried on.
    Lost,
}

/// One looker. The watch ends with the last one.
#[derive(Debug, Clone)]
pub struct PodWatch(watch::Receiver<Watched>);

impl PodWatch {
    /// What is known now.
    pub fn now(&self) -> Watched {
        self.0.borrow().clone()
    }

    /// Waits until something else is known; dropped, it has changed nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The watches that run.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<HashMap<Key, watch::Sender<Watched>>>);

impl Watches {
    pub(crate) fn running(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Cluster {
    /// The pods that a selector names (all with an empty one); `None` where too many watches run already. Asks for
    /// `list` and `watch` on pods.
    ///
    /// # Errors
    /// `Invalid` for what is no namespace.
    pub fn watch_pods(&self, namespace: &str, labels: &str) -> Result<Option<PodWatch>, Error> {
        path::check_namespace(namespace)?;
        let key = (namespace.to_owned(), labels.to_owned());
        let mut running = self.watches().0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = running.get(&key) {
            return Ok(Some(PodWatch(known.subscribe())));
        }
        if running.len() >= MAX_WATCHES {
            return Ok(None);
        }
        let (tell, look) = watch::channel(Watched::default());
        running.insert(key.clone(), tell.clone());
        tokio::spawn(keep(self.clone(), key, tell));
        Ok(Some(PodWatch(look)))
    }
}

/// Runs one watch until nobody looks any more.
async fn keep(cluster: Cluster, key: Key, tell: watch::Sender<Watched>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api: kube::Api<DynamicObject> = kube::Api::namespaced_with(cluster.of_watch(), &key.0, &resource);
    let config = events::config(&key.1);
    let mut events = Events::new(move || watcher(api.clone(), config.clone()).boxed());
    let mut state = Kept::default();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = tell.closed() => {
                let mut running = cluster.watches().0.lock().unwrap_or_else(PoisonError::into_inner);
                // Somebody may have come while the lock was waited for.
                if tell.receiver_count() == 0 {
                    running.remove(&key);
                    return;
                }
                continue;
            }
        };
        let now = match event {
            Ok(event) => state.after(event),
            Err(kind) => {
                tracing::debug!(event = "pod-watch-failed", namespace = key.0, kind);
                Some(Watched::Lost)
            }
        };
        if let Some(now) = now {
            tell.send_if_modified(|known| {
                let changed = *known != now;
                *known = now;
                changed
            });
        }
    }
}

/// The pods that the events so far have left.
#[derive(Default)]
struct Kept {
    /// By name.
    pods: BTreeMap<String, Pod>,
    /// Those of a list that is not complete yet.
    coming: BTreeMap<String, Pod>,
}

impl Kept {
    /// What is known after an event; `None` in the middle of a list.
    fn after(&mut self, event: Event<DynamicObject>) -> Option<Watched> {
        match event {
            Event::Init => {
                self.coming.clear();
                return None;
            }
            Event::InitApply(object) => {
                keep_one(&mut self.coming, &object);
                return None;
            }
            Event::InitDone => self.pods = std::mem::take(&mut self.coming),
            Event::Apply(object) => keep_one(&mut self.pods, &object),
            Event::Delete(object) => {
                self.pods.remove(object.metadata.name.as_deref().unwrap_or_default());
            }
        }
        Some(Watched::Live(Arc::new(self.pods.values().cloned().collect())))
    }
}

fn keep_one(pods: &mut BTreeMap<String, Pod>, object: &DynamicObject) {
    let pod = serde_json::to_value(object).ok().as_ref().and_then(Pod::of);
    let Some(pod) = pod else { return };
    if pods.len() < MAX_PODS || pods.contains_key(&pod.name) {
        pods.insert(pod.name.clone(), pod);
    }
}
