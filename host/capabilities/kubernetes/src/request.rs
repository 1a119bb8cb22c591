//! One request to an API server: time-outs, bounded answers, errors without secrets.

use std::error::Error as StdError;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
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
    /// The answer that is known already, by its ETag.
    pub(crate) known: Option<String>,
    /// Whether sending it twice is sending it once.
    pub(crate) repeatable: bool,
}

/// Tries of a request that may be repeated, or that the API server put off.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A request that failed, and when it may be sent again.
struct Failed {
    error: Error,
    again: Again,
}

enum Again {
    Never,
    /// It may have had its effect.
    IfRepeatable,
    /// The API server did nothing; with the pause that it asks for.
    After(Option<Duration>),
}

pub(crate) const JSON: &str = "application/json";

impl Outgoing {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: http::Method::GET,
            path: path.into(),
            accept: JSON,
            body: None,
            known: None,
            repeatable: true,
        }
    }

    pub(crate) fn with(method: http::Method, path: String, media: &'static str, body: &Value) -> Self {
        let body = Some((media, body.to_string().into_bytes()));
        Self { method, path, accept: JSON, body, known: None, repeatable: false }
    }

    /// Sending it twice is sending it once.
    pub(crate) const fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    fn build(&self) -> Result<http::Request<Body>, Error> {
        let mut request = http::Request::builder()
            .method(&self.method)
            .uri(&self.path)
            .header(http::header::ACCEPT, self.accept)
            .header(http::header::USER_AGENT, concat!("sutler/", env!("CARGO_PKG_VERSION")));
        if let Some((media, _)) = &self.body {
            request = request.header(http::header::CONTENT_TYPE, *media);
        }
        if let Some(known) = &self.known {
            request = request.header(http::header::IF_NONE_MATCH, known);
        }
        let body = self.body.as_ref().map_or_else(Body::empty, |(_, bytes)| Body::from(bytes.clone()));
        request.body(body).map_err(|e| Error::Invalid(format!("this makes no valid request: {e}")))
    }
}

/// Doubling, with half of it by chance so that many who failed at once do not come again at once.
fn pause(tries: u32, asked: Option<Duration>) -> Duration {
    let full = FIRST_PAUSE * 2_u32.saturating_pow(tries.saturating_sub(1));
    let chance = RandomState::new().build_hasher().finish() % 1_000;
    let jittered = full / 2 + full / 2 * u32::try_from(chance).unwrap_or_default() / 1_000;
    asked.map_or(jittered, |a| a.max(jittered)).min(LONGEST_PAUSE)
}

impl Cluster {
    fn left_for(&self, outgoing: &Outgoing) -> Option<Duration> {
        if outgoing.method == http::Method::GET { self.left() } else { self.left_to_write() }
    }

    /// Runs `work` within what is left, and within the time that a request may take at all.
    pub(crate) async fn within<T>(
        &self,
        left: Option<Duration>,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let most = self.timeout();
        let (limit, by_call) = match left {
            Some(left) if left < most => (left, true),
            _ => (most, false),
        };
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
        self.send(&outgoing).await.map_err(|f| f.error)
    }

    async fn send(&self, outgoing: &Outgoing) -> Result<http::Response<Body>, Failed> {
        let request = outgoing.build().map_err(|error| Failed { error, again: Again::Never })?;
        self.turn().await;
        if outgoing.method != http::Method::GET && self.left_for(outgoing).is_some_and(|l| l.is_zero()) {
            return Err(Failed { error: Error::TimedOut, again: Again::Never });
        }
        let answer = self.client().send(request).await.map_err(|e| {
            let error = self.unreachable(&e);
            let again = if error.retryable() { Again::IfRepeatable } else { Again::Never };
            Failed { error, again }
        })?;
        let status = answer.status();
        if status.is_success() || status == http::StatusCode::NOT_MODIFIED && outgoing.known.is_some() {
            return Ok(answer);
        }
        let asked =
            answer.headers().get(http::header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        let again = match status.as_u16() {
            429 => Again::After(asked.map(Duration::from_secs)),
            500 | 502..=504 => Again::IfRepeatable,
            _ => Again::Never,
        };
        let body = Limited::new(answer.into_body(), MAX_STATUS).collect().await;
        let error = error_of(status.as_u16(), &body.map(|b| b.to_bytes()).unwrap_or_default());
        // What the API server calls 500 may be a refusal of the object.
        let again = if error.retryable() { again } else { Again::Never };
        Err(Failed { error, again })
    }

    async fn once(&self, outgoing: &Outgoing) -> Result<(http::response::Parts, bytes::Bytes), Failed> {
        let (head, body) = self.send(outgoing).await?.into_parts();
        match Limited::new(body, MAX_ANSWER).collect().await {
            Ok(bytes) => Ok((head, bytes.to_bytes())),
            Err(e) if e.downcast_ref::<http_body_util::LengthLimitError>().is_some() => {
                let text = "the answer is over 32 MiB; ask for fewer objects at once";
                Err(Failed { error: Error::other("answer-too-large", text), again: Again::Never })
            }
            Err(_) => {
                let text = format!("the answer of cluster {:?} broke off", self.name());
                Err(Failed { error: Error::Unavailable(text), again: Again::IfRepeatable })
            }
        }
    }

    /// Sends within the time that is left, again where that is safe and the failure may pass.
    pub(crate) async fn answer(
        &self,
        outgoing: &Outgoing,
    ) -> Result<(http::response::Parts, bytes::Bytes), Error> {
        self.within(self.left_for(outgoing), async {
            let mut tries = 1;
            loop {
                let failed = match self.once(outgoing).await {
                    Ok(answer) => return Ok(answer),
                    Err(failed) => failed,
                };
                let asked = match failed.again {
                    Again::After(asked) => asked,
                    Again::IfRepeatable if outgoing.repeatable => None,
                    Again::IfRepeatable | Again::Never => return Err(failed.error),
                };
                let pause = pause(tries, asked);
                // Rather the reason than a time-out.
                if tries == TRIES || self.left().is_some_and(|left| left <= pause) {
                    return Err(failed.error);
                }
                tries += 1;
                tokio::time::sleep(pause).await;
            }
        })
        .await
    }

    pub(crate) async fn bytes(&self, outgoing: Outgoing) -> Result<bytes::Bytes, Error> {
        self.answer(&outgoing).await.map(|(_, bytes)| bytes)
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
