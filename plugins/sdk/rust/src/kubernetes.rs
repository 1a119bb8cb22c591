//! Kubernetes objects as JSON. The host puts the owner's labels on what is written and lets a plugin change only
//! what its call owns.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::raw::{kubernetes_read as read, kubernetes_write as write};
pub use crate::wit::sutler::kubernetes::read::Selector;
pub use crate::wit::sutler::kubernetes::types::Reference;
pub use crate::wit::sutler::kubernetes::write::Propagation;
use crate::{Error, Result};

impl Reference {
    /// A cluster-scoped object, or one of a namespace after [`Reference::within`].
    pub fn new(api_version: &str, kind: &str, name: impl Into<String>) -> Self {
        Self {
            cluster: None,
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: None,
            name: name.into(),
        }
    }
    #[must_use]
    pub fn within(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
    #[must_use]
    pub fn on_cluster(mut self, cluster: impl Into<String>) -> Self {
        self.cluster = Some(cluster.into());
        self
    }
    /// The reference of a manifest.
    pub fn to(manifest: &Value) -> Self {
        let text = |p: &str| manifest.pointer(p).and_then(Value::as_str).map(str::to_owned);
        Self {
            cluster: None,
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name").unwrap_or_default(),
        }
    }
    fn said(&self) -> String {
        match &self.namespace {
            Some(n) => format!("{} {n}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

impl Selector {
    /// All objects of a kind in a namespace; narrow it by setting `labels` or `fields`.
    pub fn new(api_version: &str, kind: &str, namespace: impl Into<String>) -> Self {
        Self {
            cluster: None,
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: Some(namespace.into()),
            labels: String::new(),
            fields: String::new(),
            limit: 0,
            continue_token: None,
        }
    }
}

/// # Errors
/// `not-granted`, `forbidden`, `unavailable`.
pub fn get(of: &Reference) -> Result<Option<Value>> {
    match read::get(of).map_err(Error::from) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(e) if e.is("not-found") => Ok(None),
        Err(e) => Err(e.while_doing(format_args!("get {}", of.said()))),
    }
}

/// Every object, page after page.
///
/// # Errors
/// `not-granted`, `forbidden`, `unavailable`.
pub fn list(of: &Selector) -> Result<Vec<Value>> {
    let (mut of, mut out) = (of.clone(), Vec::new());
    loop {
        let page =
            read::list(&of).map_err(|e| Error::from(e).while_doing(format_args!("list {}", of.kind)))?;
        for item in &page.items {
            out.push(serde_json::from_str(item)?);
        }
        of.continue_token = page.continue_token;
        if of.continue_token.is_none() {
            return Ok(out);
        }
    }
}

/// What [`apply`] would make of it; changes nothing.
///
/// # Errors
/// As [`apply`].
pub fn dry_run(manifest: &Value) -> Result<Value> {
    answer(read::dry_run_apply(None, &manifest.to_string(), false), "dry-run", manifest)
}

/// # Errors
/// `unavailable`.
pub fn can_i(verb: &str, of: &Reference) -> Result<bool> {
    read::can_i(verb, of)
        .map_err(|e| Error::from(e).while_doing(format_args!("ask whether it may {verb} {}", of.said())))
}

/// Server-side apply: makes or changes the object, and only the fields that the manifest names.
///
/// # Errors
/// `not-granted`, `read-only-call`, `conflict` (another manager holds a field), `forbidden`, `invalid`, `unavailable`.
pub fn apply(manifest: &Value) -> Result<Value> {
    answer(write::apply(None, &manifest.to_string(), false), "apply", manifest)
}

/// [`apply`] that takes fields over from other managers.
///
/// # Errors
/// As [`apply`], without `conflict`.
pub fn apply_forced(manifest: &Value) -> Result<Value> {
    answer(write::apply(None, &manifest.to_string(), true), "apply", manifest)
}

/// # Errors
/// As [`apply`], and `already-exists`.
pub fn create(manifest: &Value) -> Result<Value> {
    answer(write::create(None, &manifest.to_string()), "create", manifest)
}

/// A JSON merge patch.
///
/// # Errors
/// As [`apply`], and `not-found`.
pub fn patch(of: &Reference, merge_patch: &Value) -> Result<Value> {
    let text = write::patch(of, &merge_patch.to_string())
        .map_err(|e| Error::from(e).while_doing(format_args!("patch {}", of.said())))?;
    Ok(serde_json::from_str(&text)?)
}

/// Whether there was something to delete.
///
/// # Errors
/// `not-granted`, `read-only-call`, `forbidden`, `unavailable`.
pub fn delete(of: &Reference) -> Result<bool> {
    match write::delete(of, None, Propagation::Background).map_err(Error::from) {
        Ok(()) => Ok(true),
        Err(e) if e.is("not-found") => Ok(false),
        Err(e) => Err(e.while_doing(format_args!("delete {}", of.said()))),
    }
}

fn answer(
    r: Result<String, crate::wit::sutler::kubernetes::types::Error>,
    verb: &str,
    manifest: &Value,
) -> Result<Value> {
    let text =
        r.map_err(|e| Error::from(e).while_doing(format_args!("{verb} {}", Reference::to(manifest).said())))?;
    Ok(serde_json::from_str(&text)?)
}

/// The text at a JSON Pointer of an object, empty where there is none.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The labels or annotations (`of` names which) of a live object that are the caller's: those with the keys that
/// were asked for ([`crate::Subject::keys`]). What others and the host put there is left out.
pub fn ours(object: &Value, of: &str, asked: &BTreeSet<String>) -> BTreeMap<String, String> {
    let live = object.pointer(&format!("/metadata/{of}")).and_then(Value::as_object);
    live.into_iter()
        .flatten()
        .filter(|(key, _)| asked.contains(*key))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}
