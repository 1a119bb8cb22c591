//! A control plane that takes registrations, and answers them as a test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::net::{ANY_PORT, HangUp, Server};

/// How one registration is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Registered,
    /// 409 for these (kind, type) pairs.
    PairTaken(Vec<(String, String)>),
    Status(u16),
    /// Any status and body.
    Body(u16, Value),
    /// Registered, this much later.
    Late(Duration),
    /// The connection closes without an answer.
    Drop,
}

/// A registration as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    pub path: String,
    pub authorization: Option<String>,
    pub body: Value,
}

struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    seen: watch::Sender<Vec<Registration>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A control plane on a loopback port, for as long as this lives.
pub struct ControlPlane {
    shared: Arc<Shared>,
    server: Server,
}

impl ControlPlane {
    /// Answers in this order, and `Registered` afterwards.
    ///
    /// # Panics
    /// When the loopback interface gives no port.
    #[expect(clippy::expect_used, reason = "a test that cannot have a port cannot go on")]
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Mutex::new(answers.into_iter().collect());
        let shared = Arc::new(Shared { answers, seen: watch::Sender::new(Vec::new()) });
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let server = Server::start(ANY_PORT, None, router).await.expect("a free port on 127.0.0.1");
        Self { shared, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// The next registrations are answered so.
    pub fn answer_next(&self, answer: Answer) {
        locked(&self.shared.answers).push_back(answer);
    }

    /// What arrived so far.
    pub fn registrations(&self) -> Vec<Registration> {
        self.shared.seen.borrow().clone()
    }

    /// Waits until this many registrations have arrived.
    ///
    /// # Panics
    /// When they have not within the time.
    #[expect(clippy::panic, reason = "the test has failed")]
    pub async fn wait_for(&self, count: usize, within: Duration) -> Vec<Registration> {
        let mut seen = self.shared.seen.subscribe();
        let waited = tokio::time::timeout(within, seen.wait_for(|s| s.len() >= count)).await;
        match waited {
            Ok(Ok(registrations)) => registrations.clone(),
            _ => panic!("{} of {count} registrations arrived within {within:?}", self.registrations().len()),
        }
    }
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if !(parts.method == http::Method::POST && parts.uri.path().ends_with("/provisioners")) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let registration = Registration {
        path: parts.uri.path().into(),
        authorization: authorization(&parts.headers),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    };
    let answer = locked(&shared.answers).pop_front().unwrap_or(Answer::Registered);
    if let Answer::Late(time) = answer {
        tokio::time::sleep(time).await;
    }
    shared.seen.send_modify(|all| all.push(registration));
    let registered = (201, json!({"status": "registered"}));
    let (code, body) = match answer {
        Answer::Registered | Answer::Late(_) => registered,
        Answer::PairTaken(pairs) => {
            let pairs: Vec<Value> = pairs.into_iter().map(|(k, t)| json!({"kind": k, "type": t})).collect();
            (409, json!({"code": "pair-taken", "pairs": pairs}))
        }
        Answer::Status(code) => (code, json!({})),
        Answer::Body(code, body) => (code, body),
        Answer::Drop => {
            let mut response = StatusCode::BAD_GATEWAY.into_response();
            response.extensions_mut().insert(HangUp);
            return response;
        }
    };
    (StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(body)).into_response()
}

fn authorization(headers: &HeaderMap) -> Option<String> {
    headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).map(str::to_owned)
}
