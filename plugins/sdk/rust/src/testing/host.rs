//! The contract's imports over [`super::World`], with the signatures that wit-bindgen gives them.

use serde_json::{Value, json};

use super::{World, world};

pub(crate) mod log {
    pub(crate) fn write(level: crate::log::Level, message: &str, fields: &str) {
        super::world(|w| w.log.push(format!("{level:?} {message} {fields}")));
    }
}

pub(crate) mod clock {
    pub(crate) fn now() -> u64 {
        1_700_000_000_000
    }
}

pub(crate) mod random {
    pub(crate) fn bytes(length: u32) -> Vec<u8> {
        (0..length.min(4096)).map(|i| (i % 251) as u8).collect()
    }
}

pub(crate) mod config {
    pub(crate) fn settings() -> String {
        super::world(|w| w.config.to_string())
    }
    pub(crate) fn secret(name: &str) -> Option<String> {
        super::world(|w| w.secrets.get(name).cloned())
    }
}

fn key(r: &crate::kubernetes::Reference) -> String {
    format!("{} {}/{}", r.kind, r.namespace.as_deref().unwrap_or_default(), r.name)
}

/// RFC 7386, which is near enough to server-side apply where no list is merged.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, field) in fields {
        if let Some(object) = into.as_object_mut() {
            if field.is_null() {
                object.remove(key);
            } else {
                merge(object.entry(key.clone()).or_insert(Value::Null), field);
            }
        }
    }
}

impl World {
    fn check_kubernetes(
        &self,
        kind: &str,
        writes: bool,
    ) -> Result<(), crate::wit::sutler::kubernetes::types::Error> {
        use crate::wit::sutler::kubernetes::types::Error;
        if self.refused.contains(kind) {
            return Err(Error::NotGranted(format!("{kind} is not granted")));
        }
        if writes && self.read_only { Err(Error::ReadOnlyCall) } else { Ok(()) }
    }
    fn check_helm(&self, verb: &str, writes: bool) -> Result<(), crate::wit::sutler::helm::types::Error> {
        use crate::wit::sutler::helm::types::Error;
        if self.refused.contains(verb) {
            return Err(Error::NotGranted(format!("{verb} is not granted")));
        }
        if writes && self.read_only { Err(Error::ReadOnlyCall) } else { Ok(()) }
    }
    /// What becomes of an applied manifest.
    fn applied(&mut self, manifest: &Value) -> Value {
        let at = key(&crate::kubernetes::Reference::to(manifest));
        let mut object = self.objects.get(&at).cloned().unwrap_or_else(|| {
            self.uid += 1;
            json!({ "metadata": { "uid": format!("uid-{}", self.uid), "resourceVersion": "0" } })
        });
        let before = object.clone();
        merge(&mut object, manifest);
        // As the API server does: no new version where nothing changed.
        if object != before {
            self.uid += 1;
            merge(&mut object, &json!({ "metadata": { "resourceVersion": self.uid.to_string() } }));
        }
        object
    }
}

pub(crate) mod kubernetes_read {
    use super::{Value, key, world};
    use crate::wit::sutler::kubernetes::read::{Page, Selector};
    use crate::wit::sutler::kubernetes::types::{Error, Reference};

    pub(crate) fn get(of: &Reference) -> Result<String, Error> {
        world(|w| {
            w.check_kubernetes(&of.kind, false)?;
            w.objects.get(&key(of)).map(Value::to_string).ok_or(Error::NotFound)
        })
    }
    /// Whether an object has the labels of a selector that knows `=` only.
    fn has(object: &Value, selector: &str) -> bool {
        selector.split(',').filter(|part| !part.is_empty()).all(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let labels = object.get("metadata").and_then(|m| m.get("labels"));
            labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value)
        })
    }
    pub(crate) fn list(of: &Selector) -> Result<Page, Error> {
        let start = format!("{} {}/", of.kind, of.namespace.as_deref().unwrap_or_default());
        world(|w| {
            w.check_kubernetes(&of.kind, false)?;
            let items = w.objects.iter().filter(|(k, v)| k.starts_with(&start) && has(v, &of.labels));
            Ok(Page { items: items.map(|(_, v)| v.to_string()).collect(), continue_token: None })
        })
    }
    pub(crate) fn dry_run_apply(
        _cluster: Option<&str>,
        manifest: &str,
        _force: bool,
    ) -> Result<String, Error> {
        let manifest: Value = serde_json::from_str(manifest).map_err(|e| Error::Invalid(e.to_string()))?;
        world(|w| {
            w.check_kubernetes(&Reference::to(&manifest).kind, false)?;
            Ok(w.applied(&manifest).to_string())
        })
    }
    pub(crate) fn can_i(_verb: &str, of: &Reference) -> Result<bool, Error> {
        world(|w| Ok(!w.refused.contains(&of.kind)))
    }
}

pub(crate) mod kubernetes_write {
    use super::{Value, key, merge, world};
    use crate::wit::sutler::kubernetes::types::{Error, Reference};
    use crate::wit::sutler::kubernetes::write::Propagation;

    fn store(verb: &str, manifest: &str, fresh: bool) -> Result<String, Error> {
        let manifest: Value = serde_json::from_str(manifest).map_err(|e| Error::Invalid(e.to_string()))?;
        let of = Reference::to(&manifest);
        world(|w| {
            w.check_kubernetes(&of.kind, true)?;
            if fresh && w.objects.contains_key(&key(&of)) {
                return Err(Error::AlreadyExists);
            }
            let object = w.applied(&manifest);
            w.writes.push(format!("{verb} {}", key(&of)));
            w.objects.insert(key(&of), object.clone());
            Ok(object.to_string())
        })
    }
    pub(crate) fn apply(_cluster: Option<&str>, manifest: &str, _force: bool) -> Result<String, Error> {
        store("apply", manifest, false)
    }
    pub(crate) fn create(_cluster: Option<&str>, manifest: &str) -> Result<String, Error> {
        store("create", manifest, true)
    }
    pub(crate) fn patch(of: &Reference, merge_patch: &str) -> Result<String, Error> {
        let patch: Value = serde_json::from_str(merge_patch).map_err(|e| Error::Invalid(e.to_string()))?;
        world(|w| {
            w.check_kubernetes(&of.kind, true)?;
            w.writes.push(format!("patch {}", key(of)));
            let object = w.objects.get_mut(&key(of)).ok_or(Error::NotFound)?;
            merge(object, &patch);
            Ok(object.to_string())
        })
    }
    pub(crate) fn delete(of: &Reference, _uid: Option<&str>, _propagation: Propagation) -> Result<(), Error> {
        world(|w| {
            w.check_kubernetes(&of.kind, true)?;
            w.writes.push(format!("delete {}", key(of)));
            w.objects.remove(&key(of)).map(|_| ()).ok_or(Error::NotFound)
        })
    }
}

pub(crate) mod helm_charts {
    use crate::wit::sutler::helm::charts::{Chart, Rendered};
    use crate::wit::sutler::helm::types::{ChartReference, Error, ReleaseReference};

    pub(crate) fn pull(chart: &ChartReference) -> Result<Chart, Error> {
        super::world(|w| w.check_helm("pull", false))?;
        let name = chart.url.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Chart {
            name,
            version: chart.version.clone().unwrap_or_else(|| "0.0.0".into()),
            app_version: None,
            digest: chart.digest.clone().unwrap_or_else(|| "sha256:0".into()),
            values: "{}".into(),
            schema: None,
        })
    }
    pub(crate) fn tags(_url: &str) -> Result<Vec<String>, Error> {
        Err(Error::Unavailable("there is no registry in this world".into()))
    }
    pub(crate) fn render(
        _chart: &ChartReference,
        _of: &ReleaseReference,
        _values: &str,
    ) -> Result<Rendered, Error> {
        Err(Error::Unavailable("there is no template engine in this world".into()))
    }
}

pub(crate) mod helm_releases {
    use super::{json, world};
    use crate::wit::sutler::helm::releases::{Health, Release};
    use crate::wit::sutler::helm::types::{ChartReference, Error, Options, ReleaseReference};

    pub(crate) fn get(of: &ReleaseReference) -> Result<Release, Error> {
        world(|w| {
            w.check_helm("get", false)?;
            w.releases.get(&format!("{}/{}", of.namespace, of.name)).cloned().ok_or(Error::NotFound)
        })
    }
    pub(crate) fn history(of: &ReleaseReference) -> Result<Vec<Release>, Error> {
        get(of).map(|r| vec![r])
    }
    pub(crate) fn list(_cluster: Option<&str>, namespace: &str) -> Result<Vec<Release>, Error> {
        world(|w| Ok(w.releases.values().filter(|r| r.namespace == namespace).cloned().collect()))
    }
    pub(crate) fn readiness(of: &ReleaseReference) -> Result<Health, Error> {
        get(of)?;
        Ok(world(|w| w.health.pop_front()).unwrap_or(Health::Ready))
    }
    pub(crate) fn drift(of: &ReleaseReference) -> Result<String, Error> {
        get(of)?;
        let each = |d: &crate::helm::Drift| json!({"object": d.object, "field": d.field, "expected": d.expected, "actual": d.actual, "class": d.class});
        Ok(world(|w| {
            w.drift.iter().map(each).collect::<Vec<_>>().into_iter().collect::<super::Value>().to_string()
        }))
    }
    pub(crate) fn preview(
        _: &ChartReference,
        _: &ReleaseReference,
        _: &str,
        _: Options,
    ) -> Result<String, Error> {
        Err(Error::Unavailable("there is no template engine in this world".into()))
    }
}

pub(crate) mod helm_changes {
    use super::world;
    use crate::wit::sutler::helm::changes::Outcome;
    use crate::wit::sutler::helm::releases::{Release, Status};
    use crate::wit::sutler::helm::types::{ChartReference, Error, Options, ReleaseReference};

    fn key(of: &ReleaseReference) -> String {
        format!("{}/{}", of.namespace, of.name)
    }
    pub(crate) fn upgrade(
        chart: &ChartReference,
        of: &ReleaseReference,
        values: &str,
        _: Options,
    ) -> Result<Outcome, Error> {
        let chart = super::helm_charts::pull(chart)?;
        world(|w| {
            w.check_helm("upgrade", true)?;
            let before = w.releases.get(&key(of));
            // As the host does: the same chart with the same values is the same release.
            if let Some(same) = before.filter(|r| r.values == values && r.chart_version == chart.version) {
                return Ok(Outcome::Done(same.clone()));
            }
            let release = Release {
                name: of.name.clone(),
                namespace: of.namespace.clone(),
                revision: before.map_or(0, |r| r.revision) + 1,
                status: Status::Deployed,
                description: "Upgrade complete".into(),
                chart_name: chart.name,
                chart_version: chart.version,
                values: values.into(),
                manifest: String::new(),
                notes: String::new(),
            };
            w.writes.push(format!("upgrade {}", key(of)));
            w.releases.insert(key(of), release.clone());
            Ok(Outcome::Done(release))
        })
    }
    pub(crate) fn rollback(_: &ReleaseReference, _: u32, _: Options) -> Result<Outcome, Error> {
        Err(Error::Unavailable("this world keeps no history".into()))
    }
    pub(crate) fn uninstall(of: &ReleaseReference, _keep: bool) -> Result<Outcome, Error> {
        world(|w| {
            w.check_helm("uninstall", true)?;
            w.writes.push(format!("uninstall {}", key(of)));
            w.releases.remove(&key(of)).map(Outcome::Done).ok_or(Error::NotFound)
        })
    }
    pub(crate) fn test(_: &ReleaseReference) -> Result<Outcome, Error> {
        Err(Error::Unavailable("this world runs no hooks".into()))
    }
}

pub(crate) mod logs_read {
    use crate::wit::sutler::logs::read::{Error, Options, Pod};

    pub(crate) fn pods(_: Option<&str>, _: &str, _: &str) -> Result<Vec<Pod>, Error> {
        Err(Error::Unavailable("this world has no pods".into()))
    }
    pub(crate) fn tail(_: Option<&str>, _: &str, _: &str, _: &Options) -> Result<Vec<String>, Error> {
        Err(Error::Unavailable("this world has no pods".into()))
    }
}

pub(crate) mod http {
    use crate::wit::sutler::http::outbound::{Error, Request, Response};

    pub(crate) fn send(_: &Request) -> Result<Response, Error> {
        Err(Error::Unavailable("this world has no network".into()))
    }
}
