//! Requests to one registry: signing, redirects, limits. `oci-client` was weighed: it reads manifests, lists and
//! tokens into memory without a bound, follows redirects anywhere, and hides why a login failed.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use super::auth::{self, Challenge, Ticket, Tickets, TokenAnswer};
use super::error::RegistryError;
use crate::config::{ConfigError, Login, Registry};

const REDIRECTS: usize = 5;
const TOKEN_LIMIT: u64 = 256 << 10;

/// Until when a call may wait, and for how long one answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) deadline: Instant,
    pub(crate) each: Duration,
}

impl Clock {
    async fn run<T>(&self, registry: &str, f: impl Future<Output = T>) -> Result<T, RegistryError> {
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

pub(super) struct Remote {
    name: String,
    base: Url,
    http: reqwest::Client,
    login: Login,
    tickets: Tickets,
}

/// A client that follows no redirect by itself and trusts `ca` alone, or the system's authorities.
pub(super) fn http_client(
    ca: Option<&[u8]>,
    system: &rustls::RootCertStore,
    timeout: Duration,
) -> Result<reqwest::Client, ConfigError> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let tls = |e: &dyn std::fmt::Display| ConfigError::Tls(e.to_string());
    let mut roots = rustls::RootCertStore::empty();
    match ca {
        None => roots.clone_from(system),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.map_err(|e| tls(&e))?).map_err(|e| tls(&e))?;
            }
            if roots.is_empty() {
                return Err(ConfigError::Tls("the ca file holds no PEM certificate".into()));
            }
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| tls(&e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(timeout.min(Duration::from_secs(10)))
        .user_agent(concat!("sutler/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .build()
        .map_err(|e| tls(&e))
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

fn link_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(a)) => IpAddr::V4(a).is_unspecified() || a.is_link_local(),
        Some(url::Host::Ipv6(a)) => a.is_unspecified() || a.is_unicast_link_local(),
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
        Ok(Self { name: host.into(), base, http, login: registry.login, tickets: Tickets::default() })
    }

    pub(super) fn answer(&self, why: impl Into<String>) -> RegistryError {
        RegistryError::Answer { registry: self.name.clone(), why: why.into() }
    }

    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let url = self.base.join(path).map_err(|e| self.answer(e.to_string()))?;
        if same_origin(&url, &self.base) {
            Ok(url)
        } else {
            Err(self.answer("it names another host for its list of tags"))
        }
    }

    /// Sends a request for `repository`, answering one challenge. The answer may have any status but 401 and 403.
    pub(super) async fn send(
        &self,
        method: Method,
        repository: &str,
        url: Url,
        accept: &'static str,
        clock: Clock,
    ) -> Result<Response, RegistryError> {
        let mut challenged = false;
        loop {
            let ticket = match &self.login {
                Login::Token(t) => Some(Ticket::Bearer(t.clone())),
                _ => self.tickets.get(repository),
            };
            let response = self.follow(&method, url.clone(), accept, ticket.as_ref(), clock).await?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && !challenged && !matches!(self.login, Login::Token(_)) {
                challenged = true;
                self.tickets.forget(repository);
                if self.meet(response.headers(), repository, clock).await? {
                    continue;
                }
            }
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                self.tickets.forget(repository);
                return Err(self.refused(status));
            }
            return Ok(response);
        }
    }

    fn refused(&self, status: StatusCode) -> RegistryError {
        let (login, advice) = match &self.login {
            Login::Anonymous => (
                "a request without credentials".to_owned(),
                format!(
                    "set username and password under [registries.\"{}\"] in sutler.toml, or check the chart's name",
                    self.name
                ),
            ),
            Login::Basic { username, .. } => (
                format!("the credentials of user {username}"),
                "check the password and what the user may pull".to_owned(),
            ),
            Login::Token(_) => {
                ("the configured token".to_owned(), "check that it is valid and may pull".to_owned())
            }
        };
        RegistryError::Refused { registry: self.name.clone(), login, status: status.as_u16(), advice }
    }

    /// Gets a ticket for what the challenge asks; `false` where there is nothing to offer.
    async fn meet(&self, headers: &HeaderMap, repository: &str, clock: Clock) -> Result<bool, RegistryError> {
        let challenges: Vec<Challenge> =
            headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|h| auth::parse(h.to_str().ok()?)).collect();
        let bearer = challenges.iter().find_map(|c| match c {
            Challenge::Bearer { realm, service, scope } => Some((realm, service, scope)),
            Challenge::Basic => None,
        });
        if let Some((realm, service, scope)) = bearer {
            let (token, lives) =
                self.token(realm, service.as_deref(), scope.as_deref(), repository, clock).await?;
            self.tickets.put(repository, Ticket::Bearer(token), lives);
            return Ok(true);
        }
        if challenges.contains(&Challenge::Basic) && matches!(self.login, Login::Basic { .. }) {
            self.tickets.put(repository, Ticket::Basic, Duration::from_secs(3600));
            return Ok(true);
        }
        Ok(false)
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        repository: &str,
        clock: Clock,
    ) -> Result<(sutler_model::Secret, Duration), RegistryError> {
        let mut url =
            Url::parse(realm).map_err(|_| self.answer("its challenge names no address for tokens"))?;
        if !(url.scheme() == "https" || (url.scheme() == "http" && self.base.scheme() == "http"))
            || link_local(&url)
        {
            return Err(
                self.answer("its challenge sends the password over an unsafe connection; it was not sent")
            );
        }
        let default_scope = format!("repository:{repository}:pull");
        {
            let mut query = url.query_pairs_mut();
            service.iter().for_each(|s| {
                query.append_pair("service", s);
            });
            query.append_pair("scope", scope.unwrap_or(&default_scope));
        }
        let mut request = self.http.get(url);
        if let Login::Basic { username, password } = &self.login {
            request = request.basic_auth(username, Some(password.expose()));
        }
        let response = clock.run(&self.name, request.send()).await?.map_err(|e| self.unreachable(&e))?;
        match response.status() {
            StatusCode::OK => {}
            s if s == StatusCode::UNAUTHORIZED || s == StatusCode::FORBIDDEN => return Err(self.refused(s)),
            s => {
                return Err(RegistryError::Status {
                    registry: self.name.clone(),
                    status: s.as_u16(),
                    what: "a token".into(),
                });
            }
        }
        let body = self.body(response, TOKEN_LIMIT, "a token", "its token endpoint", clock).await?;
        serde_json::from_slice::<TokenAnswer>(&body)
            .ok()
            .and_then(TokenAnswer::take)
            .ok_or_else(|| self.answer("its token endpoint answered no token"))
    }

    fn unreachable(&self, e: &reqwest::Error) -> RegistryError {
        RegistryError::Unreachable { registry: self.name.clone(), why: reason(e) }
    }

    fn signature(&self, ticket: Option<&Ticket>) -> Option<HeaderValue> {
        use base64::Engine as _;
        let text = match (ticket?, &self.login) {
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

    /// Follows redirects; what signs the request never leaves the registry's own origin.
    async fn follow(
        &self,
        method: &Method,
        mut url: Url,
        accept: &'static str,
        ticket: Option<&Ticket>,
        clock: Clock,
    ) -> Result<Response, RegistryError> {
        for _ in 0..=REDIRECTS {
            let mut request = self.http.request(method.clone(), url.clone()).header(ACCEPT, accept);
            if same_origin(&url, &self.base)
                && let Some(value) = self.signature(ticket)
            {
                request = request.header(AUTHORIZATION, value);
            }
            let response = clock.run(&self.name, request.send()).await?.map_err(|e| self.unreachable(&e))?;
            if !response.status().is_redirection() {
                return Ok(response);
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

    /// Reads a body that may not be larger than `limit`.
    pub(super) async fn body(
        &self,
        mut response: Response,
        limit: u64,
        what: &'static str,
        of: &str,
        clock: Clock,
    ) -> Result<Bytes, RegistryError> {
        let too_large = || RegistryError::TooLarge { chart: of.into(), what, limit };
        if response.content_length().is_some_and(|n| n > limit) {
            return Err(too_large());
        }
        let mut out = BytesMut::new();
        while let Some(chunk) =
            clock.run(&self.name, response.chunk()).await?.map_err(|e| self.unreachable(&e))?
        {
            if (out.len() + chunk.len()) as u64 > limit {
                return Err(too_large());
            }
            out.extend_from_slice(&chunk);
        }
        Ok(out.freeze())
    }

    pub(super) fn status(&self, status: StatusCode, what: impl Into<String>) -> RegistryError {
        RegistryError::Status { registry: self.name.clone(), status: status.as_u16(), what: what.into() }
    }
}
