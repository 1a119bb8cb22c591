//! Signing in: the login of a registry, and what is done with it when the registry asks for one.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use sutler_model::Secret;
use url::Url;

use super::auth::{self, Challenge, Ticket, TokenAnswer};
use super::client::{Bounds, Remote, Request, link_local};
use super::error::RegistryError;
use crate::config::{Credentials, Login};

const TOKEN_LIMIT: u64 = 256 << 10;
/// How long a login from a file or a helper is kept.
const KEPT: Duration = Duration::from_secs(60);

/// One registry's login; from files it is looked up at its first use and kept for a while.
pub(super) struct Logins {
    from: Credentials,
    kept: Mutex<Option<(Login, Instant)>>,
}

impl Logins {
    pub(super) fn new(from: Credentials) -> Self {
        Self { from, kept: Mutex::default() }
    }

    /// The login, and whether another one may have replaced it meanwhile.
    pub(super) async fn get(&self, registry: &str) -> Result<(Login, bool), RegistryError> {
        let files = match &self.from {
            Credentials::Given(login) => return Ok((login.clone(), false)),
            Credentials::Files(files) => files,
        };
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((login, until)) = kept
            && until > Instant::now()
        {
            return Ok((login, true));
        }
        let login = files.login(registry).await?;
        let until = Instant::now() + KEPT;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((login.clone(), until));
        Ok((login, false))
    }

    pub(super) fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Remote {
    pub(super) fn refused(&self, login: &Login, status: StatusCode) -> RegistryError {
        let (login, advice) = match login {
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
            Login::Identity(_) => ("the stored identity token".to_owned(), "sign in anew".to_owned()),
        };
        RegistryError::Refused { registry: self.name.clone(), login, status: status.as_u16(), advice }
    }

    /// Gets a ticket for what the challenge asks; `None` where there is nothing to offer.
    pub(super) async fn meet(
        &self,
        login: &Login,
        headers: &HeaderMap,
        request: &Request<'_>,
    ) -> Result<Option<Ticket>, RegistryError> {
        let challenges: Vec<Challenge> =
            headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|h| auth::parse(h.to_str().ok()?)).collect();
        let bearer = challenges.iter().find_map(|c| match c {
            Challenge::Bearer { realm, service, scope } => Some((realm, service, scope)),
            Challenge::Basic => None,
        });
        let keep = |ticket: Ticket, lives| {
            self.tickets.put(request.repository, request.operation, ticket.clone(), lives);
            Ok(Some(ticket))
        };
        if let Some((realm, service, scope)) = bearer {
            let default = format!("repository:{}:pull", request.repository);
            let default = Some(default.as_str()).filter(|_| !request.repository.is_empty());
            let mut wanted = Vec::new();
            wanted.extend(scope.as_deref().or(default).map(|s| ("scope", s)));
            wanted.extend(service.as_deref().map(|s| ("service", s)));
            let (token, lives) = self.token(login, realm, &wanted, request).await?;
            return keep(Ticket::Bearer(token), lives);
        }
        if challenges.contains(&Challenge::Basic) && matches!(login, Login::Basic { .. }) {
            return keep(Ticket::Basic, Duration::from_secs(3600));
        }
        Ok(None)
    }

    async fn token(
        &self,
        login: &Login,
        realm: &str,
        wanted: &[(&str, &str)],
        request: &Request<'_>,
    ) -> Result<(Secret, Duration), RegistryError> {
        let clock = request.clock;
        let mut url =
            Url::parse(realm).map_err(|_| self.answer("its challenge names no address for tokens"))?;
        if !(url.scheme() == "https" || (url.scheme() == "http" && self.base.scheme() == "http"))
            || link_local(&url)
        {
            return Err(
                self.answer("its challenge sends the password over an unsafe connection; it was not sent")
            );
        }
        let asked = match login {
            // OAuth 2 (RFC 6749 §6), as Docker's token specification has it.
            Login::Identity(token) => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                form.extend_pairs(wanted);
                form.extend_pairs([("grant_type", "refresh_token"), ("client_id", "sutler")]);
                form.append_pair("refresh_token", token.expose());
                let form_type = "application/x-www-form-urlencoded";
                self.http.post(url).header(reqwest::header::CONTENT_TYPE, form_type).body(form.finish())
            }
            login => {
                url.query_pairs_mut().extend_pairs(wanted);
                match login {
                    Login::Basic { username, password } => {
                        self.http.get(url).basic_auth(username, Some(password.expose()))
                    }
                    _ => self.http.get(url),
                }
            }
        };
        let response = clock.run(&self.name, asked.send()).await?.map_err(|e| self.unreachable(&e))?;
        match response.status() {
            StatusCode::OK => {}
            // OAuth 2 answers 400 to a token that is no more valid.
            s @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST) => {
                return Err(self.refused(login, s));
            }
            s => return Err(self.status(s, "a token")),
        }
        let chart = format!("oci://{}/{}", self.name, request.repository);
        let bounds = Bounds { what: "a token", of: &chart, most: TOKEN_LIMIT, size: None, digest: None };
        let body = self.body(response, &bounds, clock).await?;
        serde_json::from_slice::<TokenAnswer>(&body)
            .ok()
            .and_then(TokenAnswer::take)
            .ok_or_else(|| self.answer("its token endpoint answered no token"))
    }
}
