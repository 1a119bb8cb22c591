//! One request to an API server: time-outs, bounded answers, errors without secrets.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;

use crate::{Cluster, Error, error_of};

/// The largest answer that is read: a page of 500 objects is far below it.
const MAX_ANSWER: usize = 32 << 20;
const MAX_STATUS: usize = 64 << 10;

/// What is sent.
pub(crate) struct Outgoing {
    pub(crate) method: http::Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) body: Option<(&'static str, Vec<u8>)>,
}

pub(crate) const JSON: &str = "application/json";

impl Outgoing {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: http::Method::GET, path: path.into(), accept: JSON, body: None }
    }

    pub(crate) fn with(method: http::Method, path: String, media: &'static str, body: &Value) -> Self {
        Self { method, path, accept: JSON, body: Some((media, body.to_string().into_bytes())) }
    }

    fn build(self) -> Result<http::Request<Body>, Error> {
        let mut request = http::Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(http::header::ACCEPT, self.accept)
            .header(http::header::USER_AGENT, concat!("sutler/", env!("CARGO_PKG_VERSION")));
        if let Some((media, _)) = &self.body {
            request = request.header(http::header::CONTENT_TYPE, *media);
        }
        let body = self.body.map_or_else(Body::empty, |(_, bytes)| Body::from(bytes));
        request.body(body).map_err(|e| Error::Invalid(format!("this makes no valid request: {e}")))
    }
}

impl Cluster {
    /// The time that a request may take now, and whether the call's deadline set it.
    pub(crate) fn limit(&self) -> (Duration, bool) {
        let most = self.timeout();
        match self.left() {
            Some(left) if left < most => (left, true),
            _ => (most, false),
        }
    }

    /// Runs `work` within the time that is left.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (limit, by_call) = self.limit();
        match tokio::time::timeout(limit, work).await {
            Ok(answer) => answer,
            Err(_) if by_call => Err(Error::TimedOut),
            Err(_) => Err(Error::Unavailable(format!(
                "cluster {:?} did not answer within {} s; is its API server overloaded?",
                self.name(),
                limit.as_secs()
            ))),
        }
    }

    /// Sends, and reads the head of a success; anything else becomes an error.
    pub(crate) async fn open(&self, outgoing: Outgoing) -> Result<http::Response<Body>, Error> {
        let request = outgoing.build()?;
        let answer = self.client().send(request).await.map_err(|e| self.unreachable(&e))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = Limited::new(answer.into_body(), MAX_STATUS).collect().await;
        Err(error_of(status.as_u16(), &body.map(|b| b.to_bytes()).unwrap_or_default()))
    }

    pub(crate) async fn bytes(&self, outgoing: Outgoing) -> Result<bytes::Bytes, Error> {
        self.within(async {
            let answer = self.open(outgoing).await?;
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            body.map(|b| b.to_bytes()).map_err(|e| {
                if e.downcast_ref::<http_body_util::LengthLimitError>().is_some() {
                    Error::other(
                        "answer-too-large",
                        "the answer is over 32 MiB; ask for fewer objects at once",
                    )
                } else {
                    Error::Unavailable(format!("the answer of cluster {:?} broke off", self.name()))
                }
            })
        })
        .await
    }

    pub(crate) async fn json(&self, outgoing: Outgoing) -> Result<Value, Error> {
        let bytes = self.bytes(outgoing).await?;
        serde_json::from_slice(&bytes).map_err(|_| {
            Error::other("unexpected-answer", "the API server's answer is not JSON; is the address right?")
        })
    }

    /// The text of a credential helper's failure can hold a token, so only what the network said is passed on.
    fn unreachable(&self, error: &kube::Error) -> Error {
        if matches!(error, kube::Error::Auth(_)) {
            return Error::other(
                "credentials",
                format!(
                    "the credentials of cluster {:?} cannot be obtained; check its kubeconfig's user",
                    self.name()
                ),
            );
        }
        let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
        let mut network = None;
        while let Some(e) = cause {
            if e.is::<kube::client::AuthError>() {
                return Error::other(
                    "credentials",
                    format!(
                        "the credentials of cluster {:?} cannot be obtained; check its kubeconfig's user",
                        self.name()
                    ),
                );
            }
            if let Some(io) = e.downcast_ref::<std::io::Error>() {
                network = Some(io.to_string());
            }
            cause = e.source();
        }
        let why = network.unwrap_or_else(|| "the connection failed".into());
        Error::Unavailable(format!("cluster {:?} cannot be reached: {why}", self.name()))
    }
}
