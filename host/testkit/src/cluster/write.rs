//! Create, replace, patch, apply and delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::admission::admit;
use super::apply;
use super::fields::{Paths, merge, without_nulls};
use super::kinds::KindInfo;
use super::managed::{Owned, Owners, parse, render, track_update};
use super::pods;
use super::resource::{finalizers, meta, metadata, now, substance};
use super::status::Refusal;
use super::store::{Entry, Key, State};

/// One request for objects of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) kind: Arc<KindInfo>,
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) sub: Option<String>,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn value(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), "true" | "1")
    }

    fn dry_run(&self) -> bool {
        self.value("dryRun") == "All"
    }

    /// As the API server does: the parameter, or the first word of the user agent.
    fn manager(&self) -> String {
        match self.value("fieldManager") {
            "" => self.user_agent.split('/').next().filter(|w| !w.is_empty()).unwrap_or("unknown").into(),
            named => named.into(),
        }
    }

    fn owned(&self) -> Owned {
        Owned { fields: Paths::new(), api_version: self.kind.api_version(), time: now() }
    }

    fn key(&self, name: &str) -> Key {
        Key::new(&self.kind, &self.namespace, name)
    }

    /// The body as JSON; YAML where the content type says so.
    fn parsed(&self) -> Result<Value, Refusal> {
        let unreadable =
            |e: String| Refusal::bad_request(format!("the body of the request could not be read: {e}"));
        match serde_json::from_slice(&self.body) {
            Ok(value) => Ok(value),
            Err(_) if self.content_type.contains("yaml") => {
                serde_saphyr::from_slice(&self.body).map_err(|e| unreadable(e.to_string()))
            }
            Err(e) => Err(unreadable(e.to_string())),
        }
    }

    /// The body as an object of this kind, namespace and name.
    fn object(&self) -> Result<Value, Refusal> {
        let mut object = self.parsed()?;
        let (kind, version) = (&self.kind.kind, self.kind.api_version());
        if !object.is_object() {
            return Err(Refusal::bad_request("the object provided is unrecognized: it is not a JSON object"));
        }
        let found = (object["apiVersion"].as_str(), object["kind"].as_str());
        if found != (Some(version.as_str()), Some(kind.as_str())) {
            let message =
                format!("the object provided is {found:?}, and this is the path of {version} {kind}");
            return Err(Refusal::bad_request(message));
        }
        if self.kind.namespaced {
            let own = meta(&object, "namespace");
            if !own.is_empty() && own != self.namespace {
                return Err(Refusal::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            metadata(&mut object).insert("namespace".into(), self.namespace.clone().into());
        } else {
            metadata(&mut object).remove("namespace");
        }
        if let Some(name) = &self.name {
            let own = meta(&object, "name");
            if !own.is_empty() && own != name {
                let message =
                    format!("the name of the object ({own}) does not match the name on the URL ({name})");
                return Err(Refusal::bad_request(message));
            }
            metadata(&mut object).insert("name".into(), name.clone().into());
        }
        Ok(object)
    }
}

/// What a write came to: the object, and whether it is new.
pub(crate) type Written = Result<(Value, bool), Refusal>;

pub(crate) fn create(state: &mut State, ask: &Ask) -> Written {
    let mut object = ask.object()?;
    if meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty() {
        state.counter += 1;
        let name = format!("{}{:05x}", meta(&object, "generateName"), state.counter);
        metadata(&mut object).insert("name".into(), name.into());
    }
    let name = meta(&object, "name").to_owned();
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if state.objects.contains_key(&ask.key(&name)) {
        return Err(Refusal::already_exists(&ask.kind, &name));
    }
    metadata(&mut object).remove("managedFields");
    let mut owners = Owners::new();
    track_update(&mut owners, &Value::Null, &object, &ask.manager(), ask.owned());
    commit(state, ask, None, object, owners)
}

fn existing(state: &State, ask: &Ask, name: &str) -> Result<Entry, Refusal> {
    state.objects.get(&ask.key(name)).cloned().ok_or_else(|| Refusal::not_found(&ask.kind, name))
}

pub(crate) fn replace(state: &mut State, ask: &Ask, name: &str) -> Written {
    let object = ask.object()?;
    let old = existing(state, ask, name)?;
    update(state, ask, old, object)
}

/// Stores what a replace or a patch made of an object.
fn update(state: &mut State, ask: &Ask, old: Entry, mut object: Value) -> Written {
    let name = meta(&old.object, "name").to_owned();
    check_seen(&ask.kind, &name, &old.object, &object)?;
    if ask.sub.as_deref() == Some("status") {
        let mut with_status = old.object.clone();
        with_status["status"] = object["status"].take();
        return commit(state, ask, Some(old.clone()), with_status, old.owners);
    }
    let sent = metadata(&mut object).remove("managedFields");
    let mut owners = match sent {
        Some(Value::Array(entries)) if Value::Array(entries.clone()) != render(&old.owners) => {
            parse(&entries)
        }
        _ => old.owners.clone(),
    };
    track_update(&mut owners, &old.object, &object, &ask.manager(), ask.owned());
    commit(state, ask, Some(old), object, owners)
}

/// The version and the identity that the caller names are those of the live object.
fn check_seen(kind: &KindInfo, name: &str, live: &Value, sent: &Value) -> Result<(), Refusal> {
    let (asked, found) = (meta(sent, "uid"), meta(live, "uid"));
    if !asked.is_empty() && asked != found {
        return Err(Refusal::precondition(kind, name, "UID", asked, found));
    }
    let asked = meta(sent, "resourceVersion");
    if !asked.is_empty() && asked != meta(live, "resourceVersion") {
        return Err(Refusal::stale(kind, name));
    }
    Ok(())
}

pub(crate) fn patch(state: &mut State, ask: &Ask, name: &str) -> Written {
    match ask.content_type.split(';').next().unwrap_or_default().trim() {
        "application/apply-patch+yaml" | "application/apply-patch+json" => {
            server_side_apply(state, ask, name)
        }
        "application/merge-patch+json" => patched(state, ask, name, |object, patch| {
            json_patch::merge(object, &patch);
            Ok(())
        }),
        // Without schemas: keyed lists merge, null removes; `$patch` directives are not known.
        "application/strategic-merge-patch+json" => patched(state, ask, name, |object, patch| {
            merge(object, &patch);
            without_nulls(object);
            Ok(())
        }),
        "application/json-patch+json" => patched(state, ask, name, |object, patch| {
            let patch: json_patch::Patch =
                serde_json::from_value(patch).map_err(|e| Refusal::bad_request(e.to_string()))?;
            json_patch::patch(object, &patch).map_err(|e| Refusal::new(422, "Invalid", e.to_string()))
        }),
        other => {
            let message = format!("the body of the request was in an unknown format: {other:?}");
            Err(Refusal::new(415, "UnsupportedMediaType", message))
        }
    }
}

fn patched(
    state: &mut State,
    ask: &Ask,
    name: &str,
    change: impl FnOnce(&mut Value, Value) -> Result<(), Refusal>,
) -> Written {
    let old = existing(state, ask, name)?;
    let mut object = old.rendered();
    change(&mut object, ask.parsed()?)?;
    update(state, ask, old, object)
}

fn server_side_apply(state: &mut State, ask: &Ask, name: &str) -> Written {
    let mut wanted = ask.object()?;
    if ask.value("fieldManager").is_empty() {
        let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
        return Err(Refusal::new(422, "Invalid", message));
    }
    if wanted["metadata"]["managedFields"].as_array().is_some_and(|m| !m.is_empty()) {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    let old = state.objects.get(&ask.key(name)).cloned();
    if let Some(old) = &old {
        check_seen(&ask.kind, name, &old.object, &wanted)?;
    } else if !meta(&wanted, "uid").is_empty() {
        return Err(Refusal::precondition(&ask.kind, name, "UID", meta(&wanted, "uid"), ""));
    }
    for field in ["resourceVersion", "uid", "managedFields", "creationTimestamp", "generation"] {
        metadata(&mut wanted).remove(field);
    }
    without_nulls(&mut wanted);
    let status = ask.sub.as_deref() == Some("status");
    if !status && ask.kind.has_status() {
        super::resource::fields(&mut wanted).remove("status");
    }
    let none = (Value::Null, Owners::new());
    let (live, owners) = old.as_ref().map_or(none, |o| (o.object.clone(), o.owners.clone()));
    let applied = apply::apply(&live, &owners, &wanted, &ask.manager(), ask.flag("force"), ask.owned())
        .map_err(|conflicts| Refusal::managers(&conflicts))?;
    commit(state, ask, old, applied.object, applied.owners)
}

/// Completes, checks and stores an object; a dry run stops before the storing.
fn commit(state: &mut State, ask: &Ask, old: Option<Entry>, mut object: Value, owners: Owners) -> Written {
    let kind = &ask.kind;
    let created = old.is_none();
    if created {
        namespace_exists(state, ask)?;
    }
    let before = old.as_ref().map(|e| &e.object);
    system_fields(&mut object, before);
    admit(kind, &mut object, before)?;
    let status_only = ask.sub.as_deref() == Some("status");
    if !status_only && kind.has_status() {
        super::resource::fields(&mut object).remove("status");
        let grown = before.is_none_or(|b| b["metadata"]["generation"] != object["metadata"]["generation"]);
        let status = if grown { pods::status(kind, &object, state.readiness) } else { None };
        if let Some(status) = status.or_else(|| before.and_then(|b| b.get("status")).cloned()) {
            object["status"] = status;
        }
    }
    if let Some(old) = old.as_ref().filter(|o| o.object == object && o.owners == owners) {
        return Ok((old.rendered(), false));
    }
    let entry = Entry { kind: kind.clone(), object, owners };
    if ask.dry_run() {
        return Ok((entry.rendered(), created));
    }
    let key = ask.key(meta(&entry.object, "name"));
    let stored = state.put(&key, entry);
    if !status_only {
        pods::settle(state, &key);
    }
    Ok((stored, created))
}

fn namespace_exists(state: &State, ask: &Ask) -> Result<(), Refusal> {
    let Some(namespaces) = state.find("", "Namespace").filter(|_| ask.kind.namespaced) else { return Ok(()) };
    if state.objects.contains_key(&Key::new(&namespaces, "", &ask.namespace)) {
        return Ok(());
    }
    Err(Refusal::not_found(&namespaces, &ask.namespace))
}

/// What only the system writes in metadata.
fn system_fields(object: &mut Value, old: Option<&Value>) {
    let changed = old.is_none_or(|o| substance(o) != substance(object));
    let metadata = metadata(object);
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
    match old {
        None => {
            metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
            metadata.insert("creationTimestamp".into(), now().into());
            metadata.insert("generation".into(), 1.into());
            metadata.remove("deletionTimestamp");
        }
        Some(old) => {
            for field in
                ["uid", "creationTimestamp", "resourceVersion", "name", "namespace", "deletionTimestamp"]
            {
                match old["metadata"].get(field) {
                    Some(value) => metadata.insert(field.into(), value.clone()),
                    None => metadata.remove(field),
                };
            }
            let generation = old["metadata"]["generation"].as_u64().unwrap_or(1);
            metadata.insert("generation".into(), (generation + u64::from(changed)).into());
        }
    }
}

pub(crate) fn delete(state: &mut State, ask: &Ask, name: &str) -> Result<Value, Refusal> {
    let options = if ask.body.is_empty() { Value::Null } else { ask.parsed()? };
    let mut old = existing(state, ask, name)?;
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let found = meta(&old.object, field);
        if let Some(asked) = options["preconditions"][field].as_str().filter(|a| *a != found) {
            return Err(Refusal::precondition(&ask.kind, name, what, asked, found));
        }
    }
    let uid = meta(&old.object, "uid").to_owned();
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "group": ask.kind.group, "kind": ask.kind.plural, "uid": uid},
    });
    if ask.dry_run() || options["dryRun"].as_array().is_some_and(|d| !d.is_empty()) {
        return Ok(done);
    }
    let key = ask.key(name);
    if finalizers(&old.object) {
        metadata(&mut old.object).insert("deletionTimestamp".into(), now().into());
        return Ok(state.put(&key, old));
    }
    let propagation = options["propagationPolicy"].as_str().unwrap_or_else(|| ask.value("propagationPolicy"));
    if let Some(gone) = state.remove(&key, propagation == "Orphan") {
        pods::replace_pod(state, &gone);
    }
    Ok(done)
}
