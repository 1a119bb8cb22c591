//! A tiny API server with pods and their logs, as a kubelet serves them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat};
use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_kubernetes::{Cluster, ClusterConfig, Clusters};
use sutler_logs::Logs;

pub(crate) use crate::calls::{call, grants, open_grants, owner, source};

#[derive(Clone)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) init: bool,
    pub(crate) running: bool,
    pub(crate) restarts: u32,
    /// Restarts that the pod's status tells of, where it lags behind.
    pub(crate) told: Option<u32>,
    /// (nanoseconds, text)
    pub(crate) lines: Vec<(i64, Arc<str>)>,
    pub(crate) previous: Option<Vec<(i64, Arc<str>)>>,
    pub(crate) waiting: bool,
    /// Each request takes one: cut within the line after so many.
    pub(crate) cuts: VecDeque<usize>,
    /// Each request takes one: this body instead of the log.
    pub(crate) refusals: VecDeque<String>,
    /// Every request gets these bytes, and where it follows no end.
    pub(crate) raw: Option<Bytes>,
    /// What happens to the pod at the first cut.
    pub(crate) at_cut: Option<fn(&mut PodState)>,
}

pub(crate) fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        init: false,
        running: true,
        restarts: 0,
        told: None,
        lines: Vec::new(),
        previous: None,
        waiting: false,
        cuts: VecDeque::new(),
        refusals: VecDeque::new(),
        raw: None,
        at_cut: None,
    }
}

impl Container {
    /// Lines at these milliseconds, each saying which it is.
    pub(crate) fn with(mut self, millis: &[i64]) -> Self {
        self.lines = lines(millis, 0);
        self
    }
}

pub(crate) const START: i64 = 1_767_323_045;

pub(crate) fn lines(millis: &[i64], from: usize) -> Vec<(i64, Arc<str>)> {
    let at = |ms: i64| START * 1_000_000_000 + ms * 1_000_000;
    millis.iter().enumerate().map(|(i, ms)| (at(*ms), format!("line {}", i + from).into())).collect()
}

#[derive(Clone)]
pub(crate) struct PodState {
    pub(crate) uid: String,
    pub(crate) phase: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) containers: Vec<Container>,
}

pub(crate) fn pod(containers: Vec<Container>) -> PodState {
    PodState { uid: "u-1".into(), phase: "Running".into(), labels: BTreeMap::new(), containers }
}

#[derive(Default)]
pub(crate) struct Inner {
    /// By namespace/name.
    pub(crate) pods: BTreeMap<String, PodState>,
    pub(crate) requests: Vec<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Server {
    pub(crate) inner: Arc<Mutex<Inner>>,
    /// Streams open now.
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) sent: Arc<AtomicUsize>,
    /// Cuts of all streams so far.
    cuts: Arc<AtomicUsize>,
}

impl Server {
    /// Breaks every stream that is open now.
    pub(crate) fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
    }
    /// Requests for logs that follow, and those that do not.
    pub(crate) fn log_requests(&self) -> (usize, usize) {
        let all = self.requests();
        let logs = all.iter().filter(|r| r.starts_with("log "));
        let (follow, past): (Vec<_>, Vec<_>) = logs.partition(|r| r.contains("follow=true"));
        (follow.len(), past.len())
    }
    pub(crate) fn set(&self, name: &str, pod: PodState) {
        self.inner.lock().unwrap().pods.insert(name.into(), pod);
    }
    pub(crate) fn remove(&self, name: &str) {
        self.inner.lock().unwrap().pods.remove(name);
    }
    pub(crate) fn change(&self, name: &str, f: impl FnOnce(&mut PodState)) {
        f(self.inner.lock().unwrap().pods.get_mut(name).unwrap());
    }
    pub(crate) fn requests(&self) -> Vec<String> {
        self.inner.lock().unwrap().requests.clone()
    }
    pub(crate) fn streams(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(crate) async fn logs(&self) -> Logs {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new()
            .route("/api/v1/namespaces/{ns}/pods", get(list))
            .route("/api/v1/namespaces/{ns}/pods/{pod}", get(one))
            .route("/api/v1/namespaces/{ns}/pods/{pod}/log", get(log))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
        );
        std::fs::write(&path, config).unwrap();
        let config = ClusterConfig { kubeconfig: Some(path), timeout_seconds: 5, ..ClusterConfig::default() };
        let cluster = Cluster::connect("default", &config).await.unwrap();
        Logs::new(Arc::new(Clusters::of(vec![cluster])))
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code, "details": {"name": "x"}});
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

fn shown(name: &str, pod: &PodState) -> Value {
    let list = |init: bool, f: &dyn Fn(&Container) -> Value| -> Vec<Value> {
        pod.containers.iter().filter(|c| c.init == init).map(f).collect()
    };
    let spec = |c: &Container| json!({"name": c.name});
    let state = |c: &Container| {
        let state = match (c.running, c.waiting) {
            (true, _) => json!({"running": {}}),
            (_, true) => json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            _ => json!({"terminated": {"exitCode": 0}}),
        };
        json!({"name": c.name, "restartCount": c.told.unwrap_or(c.restarts), "state": state})
    };
    json!({
        "metadata": {"name": name.split_once('/').unwrap().1, "uid": pod.uid, "labels": pod.labels},
        "spec": {"initContainers": list(true, &spec), "containers": list(false, &spec)},
        "status": {"phase": pod.phase, "initContainerStatuses": list(true, &state), "containerStatuses": list(false, &state)},
    })
}

type Options = Query<BTreeMap<String, String>>;

async fn list(State(server): State<Server>, Path(ns): Path<String>, Query(q): Options) -> Response {
    let mut inner = server.inner.lock().unwrap();
    let labels = q.get("labelSelector").cloned().unwrap_or_default();
    inner.requests.push(format!("list {ns} {labels}"));
    let wanted: Vec<(&str, &str)> = labels.split(',').filter_map(|l| l.split_once('=')).collect();
    let fits = |p: &PodState| wanted.iter().all(|(k, v)| p.labels.get(*k).is_some_and(|l| l == v));
    let items: Vec<Value> = inner
        .pods
        .iter()
        .filter(|(name, p)| name.starts_with(&format!("{ns}/")) && fits(p))
        .map(|(name, p)| shown(name, p))
        .collect();
    axum::Json(json!({"kind": "PodList", "items": items})).into_response()
}

async fn one(State(server): State<Server>, Path((ns, name)): Path<(String, String)>) -> Response {
    let mut inner = server.inner.lock().unwrap();
    inner.requests.push(format!("get {ns}/{name}"));
    let key = format!("{ns}/{name}");
    match inner.pods.get(&key) {
        Some(p) => axum::Json(shown(&key, p)).into_response(),
        None => status(404, "NotFound", "pod not found"),
    }
}

fn text(at: i64, line: &str, stamps: bool) -> String {
    if !stamps {
        return format!("{line}\n");
    }
    let time =
        DateTime::from_timestamp(at.div_euclid(1_000_000_000), at.rem_euclid(1_000_000_000) as u32).unwrap();
    format!("{} {line}\n", time.to_rfc3339_opts(SecondsFormat::Nanos, true))
}

struct Serving {
    server: Server,
    key: String,
    uid: String,
    container: String,
    restarts: u32,
    since: i64,
    at: usize,
    follow: bool,
    stamps: bool,
    cut: Option<usize>,
    cuts: usize,
    limit: Option<usize>,
    out: VecDeque<Result<Bytes, std::io::Error>>,
    over: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Serving {
    /// In two chunks, so that lines go over chunk borders.
    fn push(&mut self, line: &str) {
        let line = match &mut self.limit {
            Some(left) => {
                let line = &line[..line.len().min(*left)];
                *left -= line.len();
                line
            }
            None => line,
        };
        self.server.sent.fetch_add(line.len(), Ordering::SeqCst);
        let (a, b) = line.as_bytes().split_at(line.len() / 2);
        self.out.extend([a, b].into_iter().filter(|p| !p.is_empty()).map(|p| Ok(Bytes::copy_from_slice(p))));
        self.over |= self.limit == Some(0);
    }

    /// One more line, or the end.
    fn step(&mut self) {
        let inner = self.server.inner.clone();
        let inner = inner.lock().unwrap();
        let pod = inner.pods.get(&self.key).filter(|p| p.uid == self.uid);
        let c = pod.and_then(|p| p.containers.iter().find(|c| c.name == self.container));
        let Some(c) = c else {
            self.over = true;
            return;
        };
        let same = c.restarts == self.restarts;
        let lines = if same { Some(&c.lines) } else { c.previous.as_ref() };
        let Some((at, line)) = lines.and_then(|l| l.get(self.at)).cloned() else {
            self.over |= !self.follow || !same || !c.running;
            return;
        };
        drop(inner);
        self.at += 1;
        if at < self.since {
            return;
        }
        let line = text(at, &line, self.stamps);
        match &mut self.cut {
            Some(0) => {
                self.push(&line[..line.len() / 2]);
                self.out.push_back(Err(std::io::Error::other("cut")));
                self.over = true;
                let mut inner = self.server.inner.lock().unwrap();
                let Some(pod) = inner.pods.get_mut(&self.key) else { return };
                let at_cut = pod
                    .containers
                    .iter_mut()
                    .find(|c| c.name == self.container)
                    .and_then(|c| c.at_cut.take());
                if let Some(change) = at_cut {
                    change(pod);
                }
            }
            Some(n) => {
                *n -= 1;
                self.push(&line);
            }
            None => self.push(&line),
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if let Some(chunk) = self.out.pop_front() {
                // Lets what came before a cut be flushed.
                tokio::task::yield_now().await;
                if chunk.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                return Some(chunk);
            }
            if self.over {
                return None;
            }
            if self.cuts != self.server.cuts.load(Ordering::SeqCst) {
                self.over = true;
                return Some(Err(std::io::Error::other("cut")));
            }
            let before = self.at;
            self.step();
            if self.at == before && !self.over {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn log(
    State(server): State<Server>,
    Path((ns, name)): Path<(String, String)>,
    Query(q): Options,
) -> Response {
    let key = format!("{ns}/{name}");
    let on = |k: &str| q.get(k).is_some_and(|v| v == "true");
    let number = |k: &str| q.get(k).map(|v| v.parse::<usize>().unwrap());
    let mut guard = server.inner.lock().unwrap();
    let shown: Vec<String> = q.iter().map(|(k, v)| format!("{k}={v}")).collect();
    guard.requests.push(format!("log {key} {}", shown.join("&")));
    let Some(pod) = guard.pods.get_mut(&key) else { return status(404, "NotFound", "pod not found") };
    let uid = pod.uid.clone();
    let wanted = q.get("container").cloned().unwrap_or_else(|| pod.containers[0].name.clone());
    let Some(c) = pod.containers.iter_mut().find(|c| c.name == wanted) else {
        return status(400, "BadRequest", "container is not valid");
    };
    if let Some(text) = c.refusals.pop_front() {
        return text.into_response();
    }
    if let Some(raw) = c.raw.clone() {
        let head = futures::stream::iter([Ok::<_, std::io::Error>(raw)]);
        return match on("follow") {
            true => Body::from_stream(head.chain(futures::stream::pending())).into_response(),
            false => Body::from_stream(head).into_response(),
        };
    }
    let previous = on("previous");
    if previous && c.previous.is_none() {
        return status(400, "BadRequest", "previous terminated container not found");
    }
    let since = match q.get("sinceTime").map(|t| DateTime::parse_from_rfc3339(t)) {
        None => i64::MIN,
        Some(Ok(t)) => t.timestamp() * 1_000_000_000,
        Some(Err(_)) => return status(400, "BadRequest", "sinceTime cannot be read"),
    };
    let lines = if previous { c.previous.clone().unwrap() } else { c.lines.clone() };
    let at = number("tailLines").map_or(0, |n| lines.len().saturating_sub(n));
    server.open.fetch_add(1, Ordering::SeqCst);
    let serving = Serving {
        server: server.clone(),
        key,
        uid,
        container: wanted,
        restarts: if previous { u32::MAX } else { c.restarts },
        since,
        at,
        follow: on("follow") && !previous,
        stamps: on("timestamps"),
        cut: c.cuts.pop_front(),
        cuts: server.cuts.load(Ordering::SeqCst),
        limit: number("limitBytes"),
        out: VecDeque::new(),
        over: false,
    };
    let stream = futures::stream::unfold(serving, |mut s| async move {
        let chunk = s.next().await?;
        Some((chunk, s))
    });
    Body::from_stream(stream).into_response()
}
