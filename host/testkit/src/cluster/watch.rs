//! Lists, and streams of changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};

use super::kinds::KindInfo;
use super::selector::Selector;
use super::status::Refusal;
use super::store::{Event, State, Store};
use super::write::Ask;

pub(crate) fn selector(ask: &Ask) -> Result<Selector, Refusal> {
    Selector::parse(ask.value("labelSelector"), ask.value("fieldSelector")).map_err(Refusal::bad_request)
}

/// The objects that the request selects, by page.
pub(crate) fn list(state: &State, ask: &Ask) -> Result<Value, Refusal> {
    let selector = selector(ask)?;
    let after = match ask.value("continue") {
        "" => None,
        token => Some(
            URL_SAFE_NO_PAD
                .decode(token)
                .ok()
                .and_then(|b| serde_json::from_slice::<(String, String)>(&b).ok())
                .ok_or_else(|| Refusal::bad_request("continue key is not valid"))?,
        ),
    };
    let limit = ask.value("limit").parse::<usize>().ok().filter(|l| *l > 0).unwrap_or(usize::MAX);
    let place = |key: &super::store::Key| (key.namespace.clone(), key.name.clone());
    let mut found = state
        .of_kind(&ask.kind, &ask.namespace)
        .filter(|(key, _)| after.as_ref().is_none_or(|a| place(key) > *a))
        .map(|(key, entry)| (place(key), entry.rendered()))
        .filter(|(_, object)| selector.matches(object));
    let mut page: Vec<((String, String), Value)> = found.by_ref().take(limit).collect();
    let left = found.count();
    let mut metadata = json!({"resourceVersion": state.version.to_string()});
    if left > 0
        && let Some((last, _)) = page.last()
    {
        metadata["continue"] = URL_SAFE_NO_PAD.encode(json!(last).to_string()).into();
        metadata["remainingItemCount"] = left.into();
    }
    let items: Vec<Value> = page.drain(..).map(|(_, object)| object).collect();
    let kind = format!("{}List", ask.kind.kind);
    Ok(json!({"kind": kind, "apiVersion": ask.kind.api_version(), "metadata": metadata, "items": items}))
}

struct Watch {
    store: Arc<Store>,
    changes: tokio::sync::watch::Receiver<u64>,
    resource: String,
    namespace: String,
    selector: Selector,
    seen: u64,
    first: Option<Bytes>,
    until: tokio::time::Instant,
    over: bool,
}

/// The stream of changes after `resourceVersion`; without one, of what there is and then of changes.
pub(crate) fn watch(store: &Arc<Store>, ask: &Ask) -> Result<Response, Refusal> {
    let mut selector = selector(ask)?;
    if let Some(name) = &ask.name {
        selector = Selector::parse("", &format!("metadata.name={name}")).map_err(Refusal::bad_request)?;
    }
    let from = ask.value("resourceVersion").parse::<u64>().unwrap_or(0);
    let seconds = ask.value("timeoutSeconds").parse().unwrap_or(3600);
    let initial = ask.flag("sendInitialEvents");
    let changes = store.changes();
    let (first, seen) = store.with(|state| {
        if from > 0 && from < state.forgotten {
            return Err(Refusal::gone());
        }
        if from > 0 && !initial {
            return Ok((Vec::new(), from));
        }
        let mut lines = Vec::new();
        for (_, entry) in state.of_kind(&ask.kind, &ask.namespace) {
            let object = entry.rendered();
            if selector.matches(&object) {
                line(&mut lines, "ADDED", &object);
            }
        }
        if initial {
            line(&mut lines, "BOOKMARK", &initial_end(&ask.kind, state.version));
        }
        Ok((lines, state.version))
    })?;
    let watch = Watch {
        store: store.clone(),
        changes,
        resource: ask.kind.resource(),
        namespace: ask.namespace.clone(),
        selector,
        seen,
        // An empty piece sends the headers at once.
        first: Some(first.into()),
        until: tokio::time::Instant::now() + Duration::from_secs(seconds),
        over: false,
    };
    let pieces = stream::unfold(watch, |mut watch| async {
        let piece = watch.next().await?;
        Some((Ok::<_, Infallible>(piece), watch))
    });
    Ok(([(http::header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response())
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take().filter(|f| !f.is_empty()) {
            return Some(first);
        }
        loop {
            if self.over {
                return None;
            }
            self.changes.borrow_and_update();
            let piece = self.gather();
            if !piece.is_empty() {
                return Some(piece.into());
            }
            match tokio::time::timeout_at(self.until, self.changes.changed()).await {
                Ok(Ok(())) => {}
                _ => return None,
            }
        }
    }

    fn gather(&mut self) -> Vec<u8> {
        let (events, gone): (Vec<Arc<Event>>, bool) = self.store.with(|state| {
            let new = state.history.iter().filter(|e| e.version > self.seen).cloned().collect();
            let gone = self.seen < state.forgotten;
            self.seen = state.version;
            (new, gone)
        });
        let mut out = Vec::new();
        if gone {
            self.over = true;
            line(&mut out, "ERROR", &Refusal::gone().body());
            return out;
        }
        for event in events {
            if event.resource != self.resource
                || !(self.namespace.is_empty() || self.namespace == event.namespace)
            {
                continue;
            }
            let before = event.before.as_ref().filter(|o| self.selector.matches(o));
            let after = event.after.as_ref().filter(|o| self.selector.matches(o));
            match (before, after) {
                (None, Some(object)) => line(&mut out, "ADDED", object),
                (Some(_), Some(object)) => line(&mut out, "MODIFIED", object),
                (Some(last), None) => line(&mut out, "DELETED", event.after.as_ref().unwrap_or(last)),
                (None, None) => {}
            }
        }
        out
    }
}

fn line(out: &mut Vec<u8>, kind: &str, object: &Value) {
    out.extend(json!({"type": kind, "object": object}).to_string().into_bytes());
    out.push(b'\n');
}

/// What ends the initial events of a streaming list.
fn initial_end(kind: &KindInfo, version: u64) -> Value {
    json!({
        "kind": kind.kind, "apiVersion": kind.api_version(),
        "metadata": {"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}},
    })
}
