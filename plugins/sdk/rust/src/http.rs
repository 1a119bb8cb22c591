//! Calls to granted addresses. The host signs them; redirects are answered, not followed.

use serde_json::Value;

pub use crate::wit::sutler::http::outbound::{Method, Request, Response};
use crate::{Error, Result, raw};

impl Request {
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: vec![], body: vec![], credential: None }
    }
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
    /// A JSON body with its content type.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self.header("content-type", "application/json")
    }
    /// The name of a granted credential, for the host to sign or authorise with.
    #[must_use]
    pub fn credential(mut self, name: &str) -> Self {
        self.credential = Some(name.into());
        self
    }
    /// # Errors
    /// `not-granted`, `read-only-call`, `timed-out`, `too-large`, `unavailable`. A status of 400 and more is no error.
    pub fn send(&self) -> Result<Response> {
        raw::http::send(self).map_err(|e| Error::from(e).while_doing(format_args!("call {}", self.url)))
    }
}

impl Response {
    /// # Errors
    /// `unreadable-answer`
    pub fn json(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
