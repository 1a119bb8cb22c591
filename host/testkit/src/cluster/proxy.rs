//! A way to a real API server that refuses, delays, cuts and loses as it is told. What it lets through it does not
//! change, and it tells every request that came by.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde_json::Value;
use tokio::sync::watch;

use super::emulator::Fault;
use super::kubeconfig::{self, Access};
use super::status::Refusal;
use crate::net::{ANY_PORT, HangUp, Server};

/// The largest body that an API server takes.
const BODY_LIMIT: usize = 3 << 20;

/// They belong to one connection, or follow from what is sent.
const OF_THE_CONNECTION: [HeaderName; 5] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    // What comes back is read here.
    header::ACCEPT_ENCODING,
];

/// A request that came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// `PATCH /api/v1/namespaces/ns/configmaps/x?fieldManager=helm`
    pub line: String,
    /// What it met.
    pub fault: Fault,
    /// What the API server answered, whether or not somebody heard it; `None` where it was not asked, or not yet.
    pub status: Option<u16>,
    /// Of the object in that answer; empty where there is none.
    pub uid: String,
}

impl Passed {
    /// Empty where the request is about no namespace.
    pub fn namespace(&self) -> &str {
        namespace(&self.line)
    }

    /// Whether it asked to change something (a dry run does not).
    pub fn writes(&self) -> bool {
        !self.line.starts_with("GET ") && !self.line.contains("dryRun=All")
    }
}

/// The namespace in `METHOD /path?query`; empty where there is none.
pub fn namespace(line: &str) -> &str {
    let after = line.split_once("/namespaces/").map_or("", |(_, rest)| rest);
    after.split(['/', '?']).next().unwrap_or_default()
}

/// Says what a request (`METHOD /path?query`) meets.
type Decide = Box<dyn FnMut(&str) -> Fault + Send>;

struct Way {
    server: String,
    client: reqwest::Client,
    decide: Mutex<Decide>,
    passed: Mutex<Vec<Passed>>,
    /// How many requests were held up so far.
    held: watch::Sender<usize>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries requests to an API server, for as long as this lives. Towards its callers it speaks plain HTTP and asks for
/// nothing; towards the API server it is who the kubeconfig says.
pub struct ApiProxy {
    way: Arc<Way>,
    server: Server,
}

impl ApiProxy {
    /// To the cluster of a kubeconfig, without any fault at first.
    ///
    /// # Panics
    /// When the kubeconfig cannot be used, or no port can be had.
    #[expect(clippy::expect_used, reason = "a test without its way cannot go on")]
    pub async fn to(kubeconfig: &Path) -> Self {
        let Access { server, client } =
            kubeconfig::access(kubeconfig).expect("a kubeconfig with certificates");
        let way = Arc::new(Way {
            server,
            client,
            decide: Mutex::new(Box::new(|_| Fault::None)),
            passed: Mutex::default(),
            held: watch::Sender::new(0),
        });
        let router = Router::new().fallback(handle).with_state(way.clone());
        Self { way, server: Server::start(ANY_PORT, None, router).await.expect("a free port on 127.0.0.1") }
    }

    /// A kubeconfig (YAML) for it.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::plain(&format!("http://{}", self.server.address))
    }

    /// From now on requests meet what this says of `METHOD /path?query`, in the order of their arrival.
    pub fn meet(&self, decide: impl FnMut(&str) -> Fault + Send + 'static) {
        *locked(&self.way.decide) = Box::new(decide);
    }

    /// From now on nothing goes wrong.
    pub fn calm(&self) {
        self.meet(|_| Fault::None);
    }

    /// The `n`-th request from now whose `METHOD /path?query` contains `part` meets this fault.
    pub fn fail_nth_matching(&self, n: usize, part: &str, fault: Fault) {
        let (mut left, part) = (n, part.to_owned());
        self.meet(move |line| {
            if !line.contains(&part) {
                return Fault::None;
            }
            left = left.saturating_sub(1);
            if left == 0 {
                left = usize::MAX;
                return fault;
            }
            Fault::None
        });
    }

    /// How many requests came by so far.
    pub fn count(&self) -> usize {
        locked(&self.way.passed).len()
    }

    /// What came by after the first `n`.
    pub fn passed_since(&self, n: usize) -> Vec<Passed> {
        locked(&self.way.passed).iter().skip(n).cloned().collect()
    }

    /// Waits until so many requests have met `Hold`, `HoldAnswer` or `Late`.
    pub async fn until_held(&self, n: usize) {
        // The sender lives as long as this.
        let _ = self.way.held.subscribe().wait_for(|held| *held >= n).await;
    }

    /// Asks the API server itself, past every fault and untold: status and answer.
    ///
    /// # Panics
    /// When there is no answer.
    #[expect(clippy::expect_used, reason = "the test has failed")]
    pub async fn direct(&self, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut request = self.way.client.request(method, format!("{}{path}", self.way.server));
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let answer = request.send().await.expect("an answer of the API server");
        let status = answer.status().as_u16();
        let text = answer.bytes().await.expect("the whole answer of the API server");
        (status, serde_json::from_slice(&text).unwrap_or_default())
    }
}

async fn handle(State(way): State<Arc<Way>>, request: Request) -> Response {
    answer(&way, request).await.unwrap_or_else(IntoResponse::into_response)
}

fn hang_up() -> Response {
    let mut response = StatusCode::BAD_GATEWAY.into_response();
    response.extensions_mut().insert(HangUp);
    response
}

async fn answer(way: &Arc<Way>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else { return Ok(hang_up()) };
    let line = format!("{} {}", parts.method, parts.uri);
    let (fault, place) = way.arrived(line);
    match fault {
        Fault::Status(code) => return Err(Refusal::of_code(code)),
        Fault::Forbidden => return Err(Refusal::forbidden(parts.uri.path())),
        Fault::NoDryRun => return Err(Refusal::no_dry_run()),
        Fault::Drop => return Ok(hang_up()),
        Fault::Hold => {
            way.hold();
            return std::future::pending().await;
        }
        Fault::Delay(time) => tokio::time::sleep(time).await,
        Fault::Late(time) => {
            way.hold();
            let way = way.clone();
            // Also when the caller is gone by then.
            let carried = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                way.carried(&parts, body, place).await
            });
            return Ok(carried.await.unwrap_or_else(|_| hang_up()));
        }
        Fault::None | Fault::DropAnswer | Fault::HoldAnswer | Fault::Cut(_) => {}
    }
    let response = way.carried(&parts, body, place).await;
    Ok(match fault {
        Fault::DropAnswer => hang_up(),
        Fault::HoldAnswer => {
            way.hold();
            std::future::pending().await
        }
        Fault::Cut(bytes) => cut(response, bytes),
        _ => response,
    })
}

/// The answer breaks off after so many bytes of its body.
pub(crate) fn cut(response: Response, bytes: usize) -> Response {
    let (mut head, body) = response.into_parts();
    // A length that is not reached would be another kind of fault.
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from_stream(first(body.into_data_stream(), bytes)))
}

fn first(
    body: impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static,
    bytes: usize,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let broken = futures::stream::once(async { Err(io::Error::other("cut by the test")) });
    body.scan(bytes, |left, piece| {
        let piece = piece.map_err(io::Error::other).map(|mut b| b.split_to(b.len().min(*left)));
        *left -= piece.as_ref().map_or(*left, Bytes::len);
        let more = piece.as_ref().is_ok_and(|b| !b.is_empty());
        std::future::ready(more.then_some(piece))
    })
    .chain(broken)
}

impl Way {
    /// Records a request: what it meets, and its place in the record.
    fn arrived(&self, line: String) -> (Fault, usize) {
        // The order of arrival is that of the record: both locks are held.
        let mut decide = locked(&self.decide);
        let mut passed = locked(&self.passed);
        let fault = decide(&line);
        passed.push(Passed { line, fault, status: None, uid: String::new() });
        (fault, passed.len() - 1)
    }

    fn hold(&self) {
        self.held.send_modify(|n| *n += 1);
    }

    /// As the API server answers it.
    async fn carried(&self, parts: &Parts, body: Bytes, place: usize) -> Response {
        let url = format!("{}{}", self.server, parts.uri);
        let request =
            self.client.request(parts.method.clone(), url).headers(carried(&parts.headers)).body(body);
        let Ok(answer) = request.send().await else { return hang_up() };
        let (status, headers) = (answer.status(), carried(answer.headers()));
        let query = parts.uri.query().unwrap_or_default();
        let mut response = if ["watch=", "follow="].iter().any(|s| query.contains(s)) {
            self.answered(place, status, &Bytes::new());
            Response::new(Body::from_stream(answer.bytes_stream()))
        } else {
            let Ok(whole) = answer.bytes().await else { return hang_up() };
            self.answered(place, status, &whole);
            Response::new(Body::from(whole))
        };
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    fn answered(&self, place: usize, status: StatusCode, body: &Bytes) {
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(passed) = locked(&self.passed).get_mut(place) {
            passed.status = Some(status.as_u16());
            passed.uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        }
    }
}

fn carried(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| !OF_THE_CONNECTION.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Emulator;

    async fn both() -> (Emulator, ApiProxy) {
        let emulator = Emulator::start().await;
        let file = std::env::temp_dir().join(format!("sutler-proxy-{}", uuid::Uuid::new_v4()));
        std::fs::write(&file, emulator.kubeconfig()).unwrap();
        let proxy = ApiProxy::to(&file).await;
        std::fs::remove_file(&file).unwrap();
        (emulator, proxy)
    }

    async fn make(proxy: &ApiProxy, name: &str) -> Result<u16, reqwest::Error> {
        let url = format!("http://{}/api/v1/namespaces/ns/configmaps", proxy.server.address);
        let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let answer = crate::http::client().post(url).json(&object).send().await?;
        let status = answer.status().as_u16();
        answer.bytes().await.map(|_| status)
    }

    #[tokio::test]
    async fn what_is_lost_before_and_after_the_effect() {
        let (emulator, proxy) = both().await;
        emulator
            .seed(serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}));
        let there = |name: &str| emulator.object("ConfigMap", "ns", name).is_some();
        for (fault, heard, done) in [
            (Fault::None, Some(201), true),
            (Fault::Status(503), Some(503), false),
            (Fault::Status(429), Some(429), false),
            (Fault::Drop, None, false),
            (Fault::DropAnswer, None, true),
            (Fault::Cut(10), None, true),
        ] {
            let name = format!("{fault:?}").to_lowercase().replace(['(', ')'], "-") + "x";
            proxy.fail_nth_matching(1, "POST /api/v1/namespaces/ns/", fault);
            assert_eq!((make(&proxy, &name).await.ok(), there(&name)), (heard, done), "{fault:?}");
            let last = proxy.passed_since(0).pop().unwrap();
            assert_eq!((last.fault, last.status.is_some(), last.namespace()), (fault, done, "ns"));
            assert_eq!(last.uid.is_empty(), !done, "{fault:?}");
        }
        assert_eq!(proxy.direct(Method::GET, "/api/v1/namespaces/ns/configmaps/absent", None).await.0, 404);
    }

    #[test]
    fn namespaces_of_requests() {
        for (line, of) in [
            ("GET /api/v1/namespaces/a/secrets?limit=2", "a"),
            ("GET /api/v1/namespaces/b?x", "b"),
            ("GET /version", ""),
        ] {
            assert_eq!(namespace(line), of);
        }
    }
}
