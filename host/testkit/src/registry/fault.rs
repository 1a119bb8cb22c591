//! Answers that no good registry gives.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderName, HeaderValue, StatusCode, header};

/// An answer instead of the registry's own.
#[derive(Debug, Clone)]
pub struct Fault {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: FaultBody,
}

#[derive(Debug, Clone)]
pub enum FaultBody {
    /// With its length.
    Bytes(Bytes),
    /// Without a length told before.
    Chunked(Bytes),
    /// Zeros for ever, without a length.
    Endless,
    /// A length, and nothing that comes after it.
    Claim(u64),
    /// A byte at a time, with the whole's length.
    Drip(Bytes, Duration),
}

impl Fault {
    /// An answer with a body and its type.
    pub fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".into(), content_type.into())];
        Self { status, headers, body: FaultBody::Bytes(body.into()) }
    }

    pub fn redirect(to: impl Into<String>) -> Self {
        Self::new(307, "text/plain", "").header("location", to)
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: FaultBody) -> Self {
        self.body = body;
        self
    }

    pub(crate) fn response(self) -> Response {
        let (length, body) = match self.body {
            FaultBody::Bytes(bytes) => (Some(bytes.len() as u64), Body::from(bytes)),
            FaultBody::Chunked(bytes) => (None, streamed(stream::iter([bytes]))),
            FaultBody::Endless => {
                (None, streamed(stream::repeat_with(|| Bytes::from_static(&[0; 64 << 10]))))
            }
            FaultBody::Claim(length) => (Some(length), streamed(stream::pending())),
            FaultBody::Drip(bytes, every) => {
                let length = bytes.len() as u64;
                let bytes = stream::iter(0..bytes.len()).then(move |i| {
                    let one = bytes.slice(i..=i);
                    async move {
                        tokio::time::sleep(every).await;
                        one
                    }
                });
                (Some(length), streamed(bytes))
            }
        };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, body).into_response();
        if let Some(length) = length {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

fn streamed(bytes: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    Body::from_stream(bytes.map(Ok::<_, Infallible>))
}
