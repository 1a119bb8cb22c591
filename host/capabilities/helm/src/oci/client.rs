//! Requests to one registry: signing, redirects, limits. `oci-client` was weighed: it reads manifests, lists and
//! tokens into memory without a bound, follows redirects anywhere, and hides why a login failed.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode};
use sutler_model::Digest;
use url::Url;

use super::auth::{Operation, Ticket, Tickets};
use super::error::RegistryError;
use super::login::Logins;
use crate::config::{Login, Registry};

const REDIRECTS: usize = 5;

/// Until when a call may wait, and for how long one answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) deadline: Instant,
    pub(crate) each: Duration,
}

impl Clock {
    pub(super) async fn run<T>(
        &self,
        registry: &str,
        f: impl Future<Output = T>,
    ) -> Result<T, RegistryError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::time::timeout(left.min(self.each), f).await.map_err(|_| {
            if left <= self.each {
                RegistryError::TimeUsedUp(registry.into())
            } else {
                RegistryError::Slow { registry: registry.into(), seconds: self.each.as_secs() }
            }
        })
    }
}

/// What a request is about.
pub(super) struct Request<'a> {
    pub(super) repository: &'a str,
    pub(super) operation: Operation,
    pub(super) accept: &'static str,
    /// For errors: `the manifest`.
    pub(super) what: &'static str,
    pub(super) clock: Clock,
}

/// What a body may be.
pub(super) struct Bounds<'a> {
    pub(super) what: &'static str,
    /// Whose it is, for errors.
    pub(super) of: &'a str,
    /// Bytes.
    pub(super) most: u64,
    /// The size that was told before, in bytes.
    pub(super) size: Option<u64>,
    pub(super) digest: Option<Digest>,
}

pub(super) struct Remote {
    pub(super) name: String,
    pub(super) base: Url,
    pub(super) http: reqwest::Client,
    logins: Logins,
    pub(super) tickets: Tickets,
}

/// The innermost reason of a failed request: the outer ones repeat the address.
fn reason(e: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = e;
    while let Some(next) = inner.source() {
        inner = next;
    }
    if inner.is::<reqwest::Error>() { "the connection failed".into() } else { inner.to_string() }
}

fn same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme()
        && a.host_str() == b.host_str()
        && a.port_or_known_default() == b.port_or_known_default()
}

fn signature(ticket: &Ticket, login: &Login) -> Option<HeaderValue> {
    use base64::Engine as _;
    let text = match (ticket, login) {
        (Ticket::Bearer(token), _) => format!("Bearer {}", token.expose()),
        (Ticket::Basic, Login::Basic { username, password }) => {
            let pair = format!("{username}:{}", password.expose());
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        }
        (Ticket::Basic, _) => return None,
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

pub(super) fn link_local(url: &Url) -> bool {
    let v4 = |a: Ipv4Addr| a.is_unspecified() || a.is_link_local();
    match url.host() {
        Some(url::Host::Ipv4(a)) => v4(a),
        Some(url::Host::Ipv6(a)) => {
            a.is_unspecified() || a.is_unicast_link_local() || a.to_ipv4_mapped().is_some_and(v4)
        }
        _ => false,
    }
}

impl Remote {
    pub(super) fn new(host: &str, registry: Registry, http: reqwest::Client) -> Result<Self, RegistryError> {
        let scheme = if registry.plain_http { "http" } else { "https" };
        // Docker Hub's API lives at another name than its images.
        let at = if host == "docker.io" { "registry-1.docker.io" } else { host };
        let base = Url::parse(&format!("{scheme}://{at}/v2/"))
            .map_err(|e| RegistryError::Answer { registry: host.into(), why: e.to_string() })?;
        Ok(Self {
            name: host.into(),
            base,
            http,
            logins: Logins::new(registry.credentials),
            tickets: Tickets::default(),
        })
    }

    pub(super) fn answer(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::Answer { registry: self.name.clone(), why: why.into() }
    }

    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        self.within(&self.base, path)
    }

    /// An address of this registry, relative to another one.
    pub(super) fn within(&self, from: &Url, path: &str) -> Result<Url, RegistryError> {
        let url = from.join(path).map_err(|e| self.answer(e.to_string()))?;
        if same_origin(&url, &self.base) {
            Ok(url)
        } else {
            Err(self.answer("it names another host for its list of tags"))
        }
    }

    /// The configured login.
    pub(super) async fn login(&self, clock: Clock) -> Result<Login, RegistryError> {
        Ok(clock.run(&self.name, self.logins.get(&self.name)).await??.0)
    }

    /// Sends a request, answering one challenge. The answer may have any status but 401 and 403.
    pub(super) async fn send(
        &self,
        method: Method,
        url: Url,
        request: &Request<'_>,
    ) -> Result<Response, RegistryError> {
        let (login, kept) = request.clock.run(&self.name, self.logins.get(&self.name)).await??;
        match self.send_as(&login, &method, &url, request).await {
            // The credentials may have been changed since they were read.
            Err(RegistryError::Refused { .. }) if kept => {
                self.logins.forget();
                let (login, _) = request.clock.run(&self.name, self.logins.get(&self.name)).await??;
                self.tickets.clear();
                self.send_as(&login, &method, &url, request).await
            }
            other => other,
        }
    }

    async fn send_as(
        &self,
        login: &Login,
        method: &Method,
        url: &Url,
        request: &Request<'_>,
    ) -> Result<Response, RegistryError> {
        let (repository, operation) = (request.repository, request.operation);
        let mut challenged = matches!(login, Login::Token(_));
        let mut ticket = match login {
            Login::Token(t) => Some(Ticket::Bearer(t.clone())),
            _ => self.tickets.get(repository, operation),
        };
        loop {
            let signature = ticket.and_then(|t| signature(&t, login));
            let (response, elsewhere) = self.follow(method, url.clone(), signature, request).await?;
            let status = response.status();
            // Another host's challenge would lead the password to where that host wants it.
            if let (Some(to), 401 | 403) = (elsewhere, status.as_u16()) {
                let why = format!("it answered {}", status.as_u16());
                return Err(RegistryError::Redirect { registry: self.name.clone(), to, why });
            }
            if status == StatusCode::UNAUTHORIZED && !challenged {
                challenged = true;
                self.tickets.forget(repository, operation);
                ticket = self.meet(login, response.headers(), request).await?;
                if ticket.is_some() {
                    continue;
                }
            }
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                self.tickets.forget(repository, operation);
                return Err(self.refused(login, status));
            }
            return Ok(response);
        }
    }

    pub(super) fn unreachable(&self, e: &reqwest::Error) -> RegistryError {
        RegistryError::Unreachable { registry: self.name.clone(), why: reason(e) }
    }

    /// Follows redirects, and tells the last host once they left the registry's own origin. What signs the request
    /// never leaves that origin, and does not come back to it.
    async fn follow(
        &self,
        method: &Method,
        mut url: Url,
        mut signature: Option<HeaderValue>,
        request: &Request<'_>,
    ) -> Result<(Response, Option<String>), RegistryError> {
        let mut left = false;
        for _ in 0..=REDIRECTS {
            left |= !same_origin(&url, &self.base);
            if left {
                signature = None;
            }
            let mut one = self.http.request(method.clone(), url.clone()).header(ACCEPT, request.accept);
            if let Some(value) = &signature {
                one = one.header(AUTHORIZATION, value.clone());
            }
            let response =
                request.clock.run(&self.name, one.send()).await?.map_err(|e| self.unreachable(&e))?;
            if !response.status().is_redirection() {
                return Ok((response, left.then(|| url.host_str().unwrap_or("nowhere").to_owned())));
            }
            let to =
                response.headers().get(LOCATION).and_then(|l| l.to_str().ok()).and_then(|l| url.join(l).ok());
            let Some(to) = to else { return Err(self.answer("it redirects without an address")) };
            let stop = |why: &str| RegistryError::Redirect {
                registry: self.name.clone(),
                to: to.host_str().unwrap_or("nowhere").into(),
                why: why.into(),
            };
            if to.scheme() != "https" && !(to.scheme() == "http" && self.base.scheme() == "http") {
                return Err(stop("only https is followed"));
            }
            if link_local(&to) {
                return Err(stop("link-local addresses are not followed"));
            }
            url = to;
        }
        Err(self.answer(format!("it redirects more than {REDIRECTS} times")))
    }

    /// An answer that a web server gives as well is no registry's.
    pub(super) fn no_page(&self, response: Response, what: &str) -> Result<Response, RegistryError> {
        let status = response.status();
        let html = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|t| t.as_bytes().to_ascii_lowercase().starts_with(b"text/html"));
        // A gateway's 502 is a page too, but one that goes away.
        if html && (status.is_success() || status.is_client_error()) {
            return Err(RegistryError::NotOci { registry: self.name.clone(), what: what.into() });
        }
        Ok(response)
    }

    /// Reads a body within its bounds. The digest is computed as it comes, and nothing is read that is too much.
    pub(super) async fn body(
        &self,
        mut response: Response,
        bounds: &Bounds<'_>,
        clock: Clock,
    ) -> Result<Bytes, RegistryError> {
        use sha2::Digest as _;
        let (what, chart) = (bounds.what, || bounds.of.to_owned());
        let check = |n: u64, whole: bool| match bounds.size {
            _ if n > bounds.most => Err(RegistryError::TooLarge { chart: chart(), what, limit: bounds.most }),
            Some(told) if n > told || (whole && n < told) => {
                Err(RegistryError::Size { chart: chart(), what, told })
            }
            _ => Ok(()),
        };
        if let Some(claimed) = response.content_length() {
            check(claimed, true)?;
        }
        let (mut out, mut hash) = (BytesMut::new(), sha2::Sha256::new());
        while let Some(chunk) =
            clock.run(&self.name, response.chunk()).await?.map_err(|e| self.unreachable(&e))?
        {
            check((out.len() + chunk.len()) as u64, false)?;
            hash.update(&chunk);
            out.extend_from_slice(&chunk);
        }
        check(out.len() as u64, true)?;
        let actual = Digest::from_bytes(hash.finalize().into());
        match bounds.digest {
            Some(expected) if expected != actual => Err(RegistryError::Digest {
                chart: chart(),
                what,
                expected: expected.to_string(),
                actual: actual.to_string(),
            }),
            _ => Ok(out.freeze()),
        }
    }

    pub(super) fn status(&self, status: StatusCode, what: &str) -> RegistryError {
        RegistryError::Status { registry: self.name.clone(), status: status.as_u16(), what: what.into() }
    }
}
