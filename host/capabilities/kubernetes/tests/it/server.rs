//! A tiny API server: objects by path, every request recorded, answers to order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sutler_kubernetes::{Cluster, ClusterConfig, Clusters, Grants, Kubernetes};
use sutler_model::{Application, Call, Effective, Identifier, Layer, Mode, Owner};

#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

/// A status with the value of Retry-After, or an answer that is lost.
type First = Option<(u16, &'static str)>;

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) objects: BTreeMap<String, Value>,
    pub(crate) requests: Vec<Recorded>,
    /// (method, path) → answer instead of the usual.
    pub(crate) answers: BTreeMap<(String, String), (u16, Value)>,
    pub(crate) delay: Duration,
    /// (method, path) → what comes before the usual answer, each once; `None` has its effect and breaks off.
    pub(crate) first: BTreeMap<(String, String), VecDeque<First>>,
}

#[derive(Clone, Default)]
pub(crate) struct Server(pub(crate) Arc<Mutex<Inner>>);

impl Server {
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().objects.insert(path.into(), object);
    }
    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }
    pub(crate) fn answer(&self, method: &str, path: &str, status: u16, body: Value) {
        self.0.lock().unwrap().answers.insert((method.into(), path.into()), (status, body));
    }
    /// Statuses, with the value of Retry-After, that come first; `None` is an answer that is lost after its effect.
    pub(crate) fn first(&self, method: &str, path: &str, answers: &[First]) {
        let mut inner = self.0.lock().unwrap();
        inner.first.insert((method.into(), path.into()), answers.iter().copied().collect());
    }
    pub(crate) fn delay(&self, delay: Duration) {
        self.0.lock().unwrap().delay = delay;
    }
    /// The requests so far, without discovery.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        let all = self.0.lock().unwrap().requests.clone();
        all.into_iter().filter(|r| !matches!(r.path.as_str(), "/api/v1" | "/apis/apps/v1")).collect()
    }
    pub(crate) fn all_requests(&self) -> Vec<Recorded> {
        self.0.lock().unwrap().requests.clone()
    }
    pub(crate) fn last(&self) -> Recorded {
        self.requests().last().cloned().expect("a request")
    }

    /// Serves on a free port.
    pub(crate) async fn serve(&self) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().fallback(handle).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        port
    }

    /// Connects through a kubeconfig file.
    pub(crate) async fn cluster(&self) -> Cluster {
        self.slow_cluster(1).await
    }

    /// With seconds for each request.
    pub(crate) async fn slow_cluster(&self, timeout_seconds: u64) -> Cluster {
        let port = self.serve().await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig(port)).unwrap();
        let config = ClusterConfig { kubeconfig: Some(path), timeout_seconds, ..ClusterConfig::default() };
        Cluster::connect("default", &config).await.unwrap()
    }

    pub(crate) async fn kubernetes(&self) -> Kubernetes {
        Kubernetes::new(Arc::new(Clusters::of(vec![self.cluster().await])))
    }
}

pub(crate) fn kubeconfig(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: u, user: {{token: top-secret-token}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
    )
}

fn status(code: u16, reason: &str, name: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
                      "message": format!("{name}: {reason}"), "details": {"name": name}});
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

fn discovery(path: &str) -> Option<Value> {
    let r = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "kind": kind, "namespaced": namespaced});
    let resources = match path {
        "/api/v1" => json!([
            r("pods", "Pod", true),
            r("pods/eviction", "Eviction", true),
            r("secrets", "Secret", true),
            r("configmaps", "ConfigMap", true),
            r("namespaces", "Namespace", false),
            r("serviceaccounts", "ServiceAccount", true),
            r("serviceaccounts/token", "TokenRequest", true),
        ]),
        "/apis/apps/v1" => {
            json!([r("deployments", "Deployment", true), r("deployments/scale", "Scale", true)])
        }
        _ => return None,
    };
    Some(json!({"kind": "APIResourceList", "resources": resources}))
}

async fn handle(State(server): State<Server>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, 4 << 20).await.unwrap();
    let path = parts.uri.path().to_owned();
    let header =
        |name: &str| parts.headers.get(name).map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let recorded = Recorded {
        method: parts.method.to_string(),
        path: path.clone(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        content_type: header("content-type"),
        authorization: header("authorization"),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    };
    let delay = server.0.lock().unwrap().delay;
    tokio::time::sleep(delay).await;
    let mut inner = server.0.lock().unwrap();
    inner.requests.push(recorded.clone());
    let first = inner.first.get_mut(&(recorded.method.clone(), path.clone())).and_then(VecDeque::pop_front);
    match first {
        Some(Some((code, after))) => {
            let mut refused = status(code, "Busy", &path);
            refused.headers_mut().insert("retry-after", after.parse().unwrap());
            return refused;
        }
        Some(None) => {
            objects(&mut inner, &recorded);
            let broken = futures::stream::iter([Err::<&str, _>(std::io::Error::other("cut"))]);
            return Body::from_stream(broken).into_response();
        }
        None => {}
    }
    if parts
        .headers
        .get("if-none-match")
        .is_some_and(|t| *t == inner.objects[&path]["etag"].as_str().unwrap())
    {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    if let ("/api" | "/apis", Some(o)) = (path.as_str(), inner.objects.get(&path)) {
        let tag = [("etag", o["etag"].as_str().unwrap().to_owned())];
        return (tag, axum::Json(o.clone())).into_response();
    }
    if let Some((code, body)) = inner.answers.get(&(recorded.method.clone(), path.clone())) {
        let code = StatusCode::from_u16(*code).unwrap();
        return match body {
            Value::String(text) => (code, Body::from(text.clone())).into_response(),
            body => (code, axum::Json(body.clone())).into_response(),
        };
    }
    if let Some(list) = discovery(&path) {
        return axum::Json(list).into_response();
    }
    objects(&mut inner, &recorded)
}

fn objects(inner: &mut Inner, r: &Recorded) -> Response {
    let path = r.path.as_str();
    let dry = r.query.contains("dryRun=All");
    match r.method.as_str() {
        "GET" => match inner.objects.get(path) {
            Some(o) => axum::Json(o.clone()).into_response(),
            None => status(404, "NotFound", path),
        },
        "POST" => {
            let path = format!(
                "{path}/{}",
                r.body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
            );
            if inner.objects.contains_key(&path) {
                return status(409, "AlreadyExists", &path);
            }
            store(inner, &path, r.body.clone(), dry)
        }
        "PATCH" | "PUT" => {
            let there = inner.objects.get(path).and_then(|o| o.pointer("/metadata/uid")).cloned();
            let meant = r.body.pointer("/metadata/uid").cloned();
            if there.is_some() && meant.is_some() && there != meant {
                return status(409, "Conflict", "uid mismatch");
            }
            store(inner, path, r.body.clone(), dry)
        }
        "DELETE" => match inner.objects.remove(path) {
            Some(_) => axum::Json(json!({"kind": "Status", "status": "Success"})).into_response(),
            None => status(404, "NotFound", path),
        },
        _ => status(405, "MethodNotAllowed", path),
    }
}

fn store(inner: &mut Inner, path: &str, mut object: Value, dry: bool) -> Response {
    object["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    if object.pointer("/metadata/uid").is_none() {
        object["metadata"]["uid"] = json!(format!("uid-of-{path}"));
    }
    if !dry {
        inner.objects.insert(path.into(), object.clone());
    }
    axum::Json(object).into_response()
}

pub(crate) fn owner(application: &str, tenant: &str) -> Owner {
    let id = |s: &str| Identifier::parse(s).unwrap();
    Owner {
        application: Application {
            id: id(application),
            environment: id("prod"),
            tenant: Some(id(tenant)),
            instance: None,
        },
        pair: "deployment/ksml".parse().unwrap(),
    }
}

pub(crate) fn call(mode: Mode) -> Call {
    Call {
        plugin: "ksml".parse().unwrap(),
        owner: owner("orders", "acme"),
        mode,
        request_id: "r-1".into(),
        deadline: Instant::now() + Duration::from_secs(20),
        job: None,
        fence: sutler_model::Fence::endless(),
    }
}

/// Grants of the plugin's layer from the TOML of `[plugins.ksml.grants]`.
pub(crate) fn grants(toml: &str) -> Effective<Grants> {
    Effective::new(vec![(Layer::Plugin("ksml".into()), Arc::new(parse(toml).unwrap()))])
}

pub(crate) fn parse(toml: &str) -> Result<Grants, toml::de::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        kubernetes: Grants,
    }
    toml::from_str::<Table>(toml).map(|t| t.kubernetes)
}

pub(crate) const ALL: &str = r#"
[[kubernetes]]
verbs = ["get", "list", "apply", "create", "patch", "delete"]
kinds = ["*"]
namespaces = ["acme"]
"#;
