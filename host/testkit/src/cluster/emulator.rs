//! The emulator as tests hold it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::sync::watch;

use super::logs::Logs;
use super::pods::{Readiness, settle, settle_all};
use super::resource::{meta, metadata, now};
use super::serve::handle;
use super::store::{Entry, Key, Store};
use crate::net::{ANY_PORT, Server};

/// What the next request meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This status code, as a Status object (429 and 503 with Retry-After).
    Status(u16),
    /// Served, this much later.
    Delay(Duration),
    /// 403, as RBAC refuses.
    Forbidden,
    /// 400, as where an admission webhook with effects of its own is asked about a dry run.
    NoDryRun,
    /// The connection closes without an answer.
    Drop,
    /// Served, and the connection closes without an answer.
    DropAnswer,
    /// Served, and the answer, a list or a watch too, breaks off after so many bytes of its body.
    Cut(usize),
    /// Never served and never answered: the request is on its way for ever.
    Hold,
    /// Served, and never answered.
    HoldAnswer,
    /// Served this much later, even when the caller is gone by then.
    Late(Duration),
    /// Nothing: it takes the place of a fault.
    None,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    pub user_agent: String,
    pub authorization: String,
    /// `Value::Null` where it is no JSON.
    pub body: Value,
}

impl SeenRequest {
    /// Whether it asked to change something (a dry run does not).
    pub fn writes(&self) -> bool {
        self.method != "GET"
            && !self.query.contains("dryRun=All")
            && !self.path.ends_with("selfsubjectaccessreviews")
    }
}

/// What was answered, whether or not somebody was there to hear it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenAnswer {
    pub request: SeenRequest,
    pub status: u16,
}

/// What the handlers share.
pub(crate) struct Cluster {
    pub(crate) store: Arc<Store>,
    pub(crate) logs: Arc<Logs>,
    /// Each with what `METHOD /path` must contain to meet it.
    faults: Mutex<VecDeque<(String, Fault)>>,
    seen: Mutex<Vec<SeenRequest>>,
    answered: Mutex<Vec<SeenAnswer>>,
    /// How many requests were held up so far.
    held: watch::Sender<usize>,
    denied: Mutex<BTreeSet<(String, String)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Records a request and takes the fault that it meets.
    pub(crate) fn arrived(&self, request: SeenRequest) -> Option<Fault> {
        let line = format!("{} {}?{}", request.method, request.path, request.query);
        locked(&self.seen).push(request);
        let mut faults = locked(&self.faults);
        let index = faults.iter().position(|(part, _)| line.contains(part))?;
        faults.remove(index).map(|(_, fault)| fault)
    }

    pub(crate) fn answered(&self, request: SeenRequest, status: u16) {
        locked(&self.answered).push(SeenAnswer { request, status });
    }

    /// Tells that a request is held up.
    pub(crate) fn holds_up(&self) {
        self.held.send_modify(|n| *n += 1);
    }

    pub(crate) fn denies(&self, verb: &str, resource: &str) -> bool {
        let denied = locked(&self.denied);
        denied.iter().any(|(v, r)| (v == "*" || v == verb) && (r == "*" || r == resource))
    }
}

/// An emulated Kubernetes API server on a loopback port, for as long as this lives.
pub struct Emulator {
    cluster: Arc<Cluster>,
    server: Server,
}

impl Emulator {
    /// The token in [`Emulator::kubeconfig`]. It is not checked: it is there so that tests can look for it in logs.
    pub const TOKEN: &'static str = "emulator-token-that-must-not-be-logged";

    /// Starts on a free port.
    ///
    /// # Panics
    /// When the loopback interface gives no port.
    #[expect(clippy::expect_used, reason = "a test that cannot have a port cannot go on")]
    pub async fn start() -> Self {
        Self::start_at(ANY_PORT).await.expect("a free port on 127.0.0.1")
    }

    /// Starts on a port of the caller's choice.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn start_at(listen: SocketAddr) -> io::Result<Self> {
        let cluster = Arc::new(Cluster {
            store: Arc::new(Store::new()),
            logs: Arc::new(Logs::default()),
            faults: Mutex::default(),
            seen: Mutex::default(),
            answered: Mutex::default(),
            held: watch::Sender::new(0),
            denied: Mutex::default(),
        });
        let router = Router::new().fallback(handle).with_state(cluster.clone());
        Ok(Self { cluster, server: Server::start(listen, None, router).await? })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// A kubeconfig (YAML) for it.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: emulator\n\
             clusters:\n- name: emulator\n  cluster:\n    server: {}\n\
             users:\n- name: emulator\n  user:\n    token: {}\n\
             contexts:\n- name: emulator\n  context:\n    cluster: emulator\n    user: emulator\n    namespace: default\n",
            self.url(),
            Self::TOKEN
        )
    }

    /// The next request meets this fault. Several queue up.
    pub fn fail_next(&self, fault: Fault) {
        self.fail_next_matching("", fault);
    }

    /// The next request whose `METHOD /path?query` contains `part` meets this fault.
    pub fn fail_next_matching(&self, part: &str, fault: Fault) {
        locked(&self.cluster.faults).push_back((part.into(), fault));
    }

    /// From now on `verb` on `resource` (plural, `pods/log`; `*` for any) is forbidden, and access reviews say so.
    pub fn deny(&self, verb: &str, resource: &str) {
        locked(&self.cluster.denied).insert((verb.into(), resource.into()));
    }

    /// What becomes of workloads, those that are there included.
    pub fn set_readiness(&self, readiness: Readiness) {
        self.cluster.store.with(|state| {
            state.readiness = readiness;
            settle_all(state);
        });
    }

    /// The newest resourceVersion: it grows with every write of an object.
    pub fn resource_version(&self) -> u64 {
        self.cluster.store.with(|s| s.version)
    }

    /// Every object, by kind, namespace and name.
    pub fn objects(&self) -> Vec<Value> {
        self.cluster.store.with(|s| s.objects.values().map(Entry::rendered).collect())
    }

    /// One object by its kind (`Deployment`); an empty namespace for cluster-scoped kinds.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.cluster.store.with(|state| {
            let entry = state
                .objects
                .iter()
                .find(|(k, e)| e.kind.kind == kind && k.namespace == namespace && k.name == name);
            entry.map(|(_, e)| e.rendered())
        })
    }

    /// Puts an object there without a request: no checks, no owners of its fields.
    ///
    /// # Panics
    /// When the kind is not served.
    #[expect(clippy::panic, reason = "a wrong seed is a mistake in the test")]
    pub fn seed(&self, mut object: Value) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        self.cluster.store.with(|state| {
            let Some(kind) =
                state.kinds.iter().find(|k| k.kind == kind && k.api_version() == version).cloned()
            else {
                panic!("the emulator does not serve {version} {kind}");
            };
            let uid = uuid::Uuid::new_v4().to_string();
            for (field, value) in [("uid", uid), ("creationTimestamp", now())] {
                metadata(&mut object).entry(field).or_insert_with(|| value.into());
            }
            metadata(&mut object).entry("generation").or_insert_with(|| 1.into());
            if object.get("status").is_none()
                && let Some(status) = super::pods::status(&kind, &object, state.readiness)
            {
                object["status"] = status;
            }
            let key = Key::new(&kind, meta(&object, "namespace"), meta(&object, "name"));
            state.put(&key, Entry { kind, object, owners: Default::default() });
            settle(state, &key);
        });
    }

    /// What arrived so far.
    pub fn requests(&self) -> Vec<SeenRequest> {
        locked(&self.cluster.seen).clone()
    }

    /// What was answered so far.
    pub fn answers(&self) -> Vec<SeenAnswer> {
        locked(&self.cluster.answered).clone()
    }

    /// The `n`-th request from now whose `METHOD /path?query` contains `part` meets this fault.
    pub fn fail_nth_matching(&self, n: usize, part: &str, fault: Fault) {
        for _ in 1..n {
            self.fail_next_matching(part, Fault::None);
        }
        self.fail_next_matching(part, fault);
    }

    /// How many requests have met `Hold`, `HoldAnswer` or `Late`.
    pub fn held(&self) -> usize {
        *self.cluster.held.borrow()
    }

    /// Waits until it is so many.
    pub async fn until_held(&self, n: usize) {
        // The sender lives as long as this.
        let _ = self.cluster.held.subscribe().wait_for(|held| *held >= n).await;
    }

    pub fn forget_requests(&self) {
        locked(&self.cluster.seen).clear();
    }

    /// Adds a line, with the time of now, to a container's log.
    pub fn write_log(&self, namespace: &str, pod: &str, container: &str, text: &str) {
        self.write_log_at(namespace, pod, container, Utc::now(), text);
    }

    /// Adds a line with a time of the test's choice: two lines may share one.
    pub fn write_log_at(&self, namespace: &str, pod: &str, container: &str, time: DateTime<Utc>, text: &str) {
        self.cluster.logs.write(&self.uid(namespace, pod), container, time, text);
    }

    /// Containers speak only when the test writes.
    pub fn quiet_logs(&self) {
        self.cluster.logs.set_quiet(true);
    }

    /// Breaks every followed log, as a lost connection does.
    pub fn cut_logs(&self) {
        self.cluster.logs.cut();
    }

    /// What was written so far is no longer there to read.
    pub fn rotate_log(&self, namespace: &str, pod: &str, container: &str) {
        self.cluster.logs.rotate(&self.uid(namespace, pod), container);
    }

    /// The container starts again: followers reach their end, the log so far is the previous one's.
    pub fn restart_container(&self, namespace: &str, pod: &str, container: &str) {
        let restarts = self.cluster.logs.restart(&self.uid(namespace, pod), container);
        self.cluster.store.with(|state| {
            let found = state
                .objects
                .iter()
                .find(|(k, e)| e.kind.is("", "Pod") && k.namespace == namespace && k.name == pod);
            let Some((key, mut entry)) = found.map(|(k, e)| (k.clone(), e.clone())) else { return };
            for status in entry.object["status"]["containerStatuses"].as_array_mut().into_iter().flatten() {
                if status["name"] == container {
                    status["restartCount"] = restarts.into();
                }
            }
            state.put(&key, entry);
        });
    }

    #[expect(clippy::panic, reason = "a wrong name is a mistake in the test")]
    fn uid(&self, namespace: &str, pod: &str) -> String {
        let Some(found) = self.object("Pod", namespace, pod) else {
            panic!("no pod {namespace}/{pod} in the emulator")
        };
        meta(&found, "uid").to_owned()
    }
}
