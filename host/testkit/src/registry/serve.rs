//! The registry's HTTP side: OCI distribution 1.1, pull and push.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, StatusCode, header};
use serde_json::json;

use super::auth::Auth;
use super::server::{Misbehaviour, RegistryRequest, Shared, locked};

const BODY_LIMIT: usize = 64 << 20;

/// An error in the registry's own form.
fn refused(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"errors": [{"code": code, "message": message, "detail": null}]}))).into_response()
}

pub(crate) async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let authorization =
        parts.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let seen = RegistryRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().into(),
        query: parts.uri.query().unwrap_or_default().into(),
        authorization: authorization.clone(),
    };
    locked(&shared.seen).push(seen.clone());
    let faults = locked(&shared.faults).clone();
    if let Some(fault) = faults.and_then(|f| f(&seen)) {
        return fault.response();
    }
    let wrong = locked(&shared.wrong).clone();
    match &wrong {
        Some(Misbehaviour::Delay(time)) => tokio::time::sleep(*time).await,
        Some(Misbehaviour::Status(code)) => {
            let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return refused(status, "UNKNOWN", "asked for by the test");
        }
        Some(Misbehaviour::NotARegistry) => {
            let page = axum::response::Html("<html><body>404 - Not here</body></html>");
            return (StatusCode::NOT_FOUND, page).into_response();
        }
        _ => {}
    }
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID", "the body is too large");
    };
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let call = Call {
        shared: &shared,
        method: parts.method,
        query,
        content_type: parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned(),
        authorization: authorization.unwrap_or_default(),
        body,
        wrong,
    };
    call.answer(parts.uri.path())
}

struct Call<'a> {
    shared: &'a Shared,
    method: Method,
    query: BTreeMap<String, String>,
    content_type: String,
    authorization: String,
    body: Bytes,
    wrong: Option<Misbehaviour>,
}

impl Call<'_> {
    fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    fn answer(mut self, path: &str) -> Response {
        if path == "/token" {
            return self.token();
        }
        let (path, auth) = match path.strip_prefix("/elsewhere") {
            None => (path, &self.shared.auth),
            Some(path) => {
                self.wrong = None;
                (path, &Auth::None)
            }
        };
        let Some(rest) = path.strip_prefix("/v2") else {
            return refused(StatusCode::NOT_FOUND, "UNSUPPORTED", "there is nothing but /v2 here");
        };
        let rest = rest.trim_start_matches('/');
        let (repository, what, reference) = match rest.rsplit_once("/blobs/uploads") {
            Some((repository, id)) => (repository, "uploads", id.trim_matches('/')),
            None => ["/manifests/", "/blobs/", "/tags/"]
                .into_iter()
                .find_map(|part| {
                    rest.rsplit_once(part).map(|(repository, r)| (repository, part.trim_matches('/'), r))
                })
                .unwrap_or(("", "", rest)),
        };
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        let operation = if reads { "pull" } else { "push" };
        if !auth.allows(&locked(&self.shared.tokens), &self.authorization, repository, operation) {
            let mut response = refused(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "authentication required");
            let base = locked(&self.shared.base).clone();
            let challenge = auth.challenge(&base, repository, operation);
            if let Some(value) = challenge.and_then(|c| c.parse().ok()) {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
            }
            return response;
        }
        let mut response = match (what, reads) {
            ("", true) if reference.is_empty() => Json(json!({})).into_response(),
            ("manifests", true) => self.manifest(repository, reference),
            ("blobs", true) => self.blob(path, repository, reference),
            ("tags", true) if reference == "list" => self.tags(repository),
            ("manifests", false) if self.method == Method::PUT => self.put_manifest(repository, reference),
            ("uploads", false) => self.upload(repository, reference),
            _ => refused(StatusCode::NOT_FOUND, "UNSUPPORTED", "the registry does not do this"),
        };
        let version = http::HeaderValue::from_static("registry/2.0");
        response.headers_mut().insert("docker-distribution-api-version", version);
        response
    }

    fn token(&self) -> Response {
        let mut tokens = locked(&self.shared.tokens);
        match self.shared.auth.token(&mut tokens, &self.authorization, self.query("scope")) {
            None => refused(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "wrong user or password"),
            Some((token, expires)) => {
                let body = json!({"token": token, "access_token": token, "expires_in": expires.as_secs()});
                Json(body).into_response()
            }
        }
    }

    fn manifest(&self, repository: &str, reference: &str) -> Response {
        let Some((digest, mut manifest)) = locked(&self.shared.contents).manifest(repository, reference)
        else {
            return refused(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "manifest unknown");
        };
        if self.wrong == Some(Misbehaviour::WrongManifest) {
            let mut other = manifest.bytes.to_vec();
            other.push(b'\n');
            manifest.bytes = other.into();
        }
        let headers = [
            (header::CONTENT_TYPE, manifest.media_type),
            (header::HeaderName::from_static("docker-content-digest"), digest),
        ];
        self.sized(headers, manifest.bytes)
    }

    /// An answer whose HEAD tells the size.
    fn sized(&self, headers: [(header::HeaderName, String); 2], bytes: Bytes) -> Response {
        let length = [(header::CONTENT_LENGTH, bytes.len().to_string())];
        if self.method == Method::HEAD {
            (headers, length).into_response()
        } else {
            (headers, length, bytes).into_response()
        }
    }

    fn blob(&self, path: &str, repository: &str, digest: &str) -> Response {
        let found = locked(&self.shared.contents).blob(repository, digest);
        let Some(mut bytes) = found.filter(|_| self.wrong != Some(Misbehaviour::DropBlob)) else {
            return refused(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "blob unknown to registry");
        };
        match &self.wrong {
            Some(Misbehaviour::Redirect(prefix)) => {
                return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, format!("{prefix}{path}"))])
                    .into_response();
            }
            Some(Misbehaviour::WrongDigest) => {
                let mut other = bytes.to_vec();
                if let Some(byte) = other.last_mut() {
                    *byte ^= 1;
                }
                bytes = other.into();
            }
            Some(Misbehaviour::Truncate) => {
                let half = bytes.slice(..bytes.len() / 2);
                // The pause lets the first half leave before the connection breaks.
                let end = futures::stream::once(async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Err(io::Error::other("asked to break off"))
                });
                let pieces = futures::stream::iter([Ok(half)]).chain(end);
                let length = [(header::CONTENT_LENGTH, bytes.len().to_string())];
                return (length, Body::from_stream(pieces)).into_response();
            }
            _ => {}
        }
        let headers = [
            (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
            (header::HeaderName::from_static("docker-content-digest"), digest.to_owned()),
        ];
        self.sized(headers, bytes)
    }

    fn tags(&self, repository: &str) -> Response {
        let Some(mut tags) = locked(&self.shared.contents).tags(repository, self.query("last")) else {
            return refused(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "repository name not known to registry");
        };
        let page = self.query("n").parse().unwrap_or(usize::MAX);
        let more = tags.len() > page;
        tags.truncate(page);
        let last = tags.last().cloned().unwrap_or_default();
        let mut response = Json(json!({"name": repository, "tags": tags})).into_response();
        let link = format!("</v2/{repository}/tags/list?last={last}&n={page}>; rel=\"next\"");
        if let Some(value) = link.parse().ok().filter(|_| more) {
            response.headers_mut().insert(header::LINK, value);
        }
        response
    }

    fn put_manifest(&self, repository: &str, reference: &str) -> Response {
        let mut contents = locked(&self.shared.contents);
        let parsed = serde_json::from_slice(&self.body).unwrap_or_default();
        if !contents.complete(repository, &parsed) {
            return refused(
                StatusCode::BAD_REQUEST,
                "MANIFEST_BLOB_UNKNOWN",
                "the manifest names unknown blobs",
            );
        }
        let digest = contents.push_manifest(repository, reference, &self.content_type, self.body.clone());
        let headers = [
            (header::LOCATION, format!("/v2/{repository}/manifests/{digest}")),
            (header::HeaderName::from_static("docker-content-digest"), digest),
        ];
        (StatusCode::CREATED, headers).into_response()
    }

    fn upload(&self, repository: &str, id: &str) -> Response {
        let mut contents = locked(&self.shared.contents);
        let id = if self.method == Method::POST { contents.begin_upload() } else { id.to_owned() };
        let Some(size) = contents.upload(&id, &self.body) else {
            return refused(StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry");
        };
        let digest = self.query("digest");
        if digest.is_empty() {
            let range = if size == 0 { "0-0".to_owned() } else { format!("0-{}", size - 1) };
            let headers =
                [(header::LOCATION, format!("/v2/{repository}/blobs/uploads/{id}")), (header::RANGE, range)];
            return (StatusCode::ACCEPTED, headers).into_response();
        }
        match contents.end_upload(repository, &id, digest) {
            Some(true) => {
                let location = [(header::LOCATION, format!("/v2/{repository}/blobs/{digest}"))];
                (StatusCode::CREATED, location).into_response()
            }
            _ => refused(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "the digest is not that of the bytes"),
        }
    }
}
