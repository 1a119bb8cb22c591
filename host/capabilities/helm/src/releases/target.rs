//! One release within one call: where it is, what the call may touch, what lives there.

use std::collections::HashMap;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use sutler_kubernetes::{ApplyOptions, Cluster, Error as KubeError, Reference, Selector};
use sutler_model::{Call, Effective, Owner};

use super::operation::{Asked, Stage, Standing};
use super::record::{Record, Status};
use super::storage::{Storage, applying, worked_on};
use crate::engine::Labels;
use crate::error::Error;
use crate::grant::{self, Grants};
use crate::jobs::Jobs;
use crate::manifest::{MANAGED_BY, Object, claimed_by_other, foreign, objects, shown};

/// Requests about objects that run side by side.
const SIDE_BY_SIDE: usize = 8;
/// So many objects of one kind are rather watched than asked for one by one.
const WORTH_A_WATCH: usize = 2;

pub(crate) struct Target<'a> {
    pub(crate) cluster: Cluster,
    pub(crate) storage: Storage<'a>,
    pub(crate) grants: &'a Effective<Grants>,
    pub(crate) call: &'a Call,
    pub(crate) jobs: &'a dyn Jobs,
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
}

impl Target<'_> {
    pub(crate) fn owner(&self) -> &Owner {
        &self.call.owner
    }

    pub(crate) fn labels(&self) -> Labels {
        self.call.owner.labels(&self.call.plugin)
    }

    /// What the newest revision means for a call. What another job left under way becomes this one's.
    ///
    /// # Errors
    /// `Pending` where another job still works on it.
    pub(crate) async fn standing(&self, asked: &Asked, last: &mut Record) -> Result<Standing, Error> {
        let standing = asked.standing(last);
        if matches!(standing, Standing::Free | Standing::Ended) {
            return Ok(standing);
        }
        self.check_unworked(last).await?;
        if let (Standing::Ours, Some(o)) = (&standing, last.operation.as_mut())
            && o.job != asked.job
        {
            o.job.clone_from(&asked.job);
            o.call.clone_from(&asked.call);
            self.storage.update(last).await?;
        }
        Ok(standing)
    }

    /// # Errors
    /// `Pending` where another job works on the revision.
    async fn check_unworked(&self, last: &Record) -> Result<(), Error> {
        match last.operation.as_ref().and_then(|o| o.job.as_deref()) {
            Some(job) if self.call.job.as_deref() != Some(job) && self.jobs.runs(job).await? => {
                Err(worked_on(last, job))
            }
            _ => Ok(()),
        }
    }

    /// What the same owner began, and nobody goes on with, has failed: the next operation builds on it.
    pub(crate) async fn heal(&self, history: &mut [Record]) -> Result<(), Error> {
        let Some(dead) = history.last_mut() else { return Ok(()) };
        let word = dead.operation.as_ref().map_or("operation", |o| o.word());
        dead.set(Status::Failed, format!("the {word} was cut off, and another operation came after it"));
        if let Some(o) = dead.operation.as_mut() {
            o.enter(Stage::Done);
        }
        self.storage.update(dead).await
    }

    /// Every object of hooks, within the grants.
    ///
    /// # Errors
    /// As [`Target::objects`].
    pub(crate) async fn hook_objects(&self, hooks: &[Value]) -> Result<(), Error> {
        for hook in hooks {
            let manifest = hook.get("manifest").and_then(Value::as_str).unwrap_or_default();
            self.old_objects(manifest).await?.iter().try_for_each(Object::check_marks)?;
        }
        Ok(())
    }

    /// Every revision, oldest first.
    ///
    /// # Errors
    /// `NotOwned` where the release is another owner's, or nobody's, and the grants do not reach that far.
    pub(crate) async fn history(&self) -> Result<Vec<Record>, Error> {
        let history = self.storage.history(self.name).await?;
        // One record that somebody added proves nothing where others tell of another owner. Those without any are of
        // before the release was taken on.
        let last = history.last().map(|r| r.version);
        let labelled = |r: &&Record| Some(r.version) == last || r.labels.contains_key(Owner::LABEL);
        history.iter().filter(labelled).try_for_each(|r| self.check_owner(r))?;
        Ok(history)
    }

    /// The same, where what this owner's next operation would heal counts as failed.
    ///
    /// # Errors
    /// As [`Target::history`]; `Pending` where another job works on the release.
    pub(crate) async fn history_as_healed(&self) -> Result<Vec<Record>, Error> {
        let mut history = self.history().await?;
        let hash = self.owner().hash();
        if let Some(last) = history.last_mut()
            && last.operation.as_ref().is_some_and(|o| o.owner == hash && o.stage != Stage::Done)
            && (last.info.status.is_pending() || last.info.status == Status::Uninstalling)
        {
            self.check_unworked(last).await?;
            last.info.status = Status::Failed;
        }
        Ok(history)
    }

    fn check_owner(&self, record: &Record) -> Result<(), Error> {
        let found = record.labels.get(Owner::LABEL);
        if found == Some(&self.owner().hash()) || grant::unowned(self.grants) {
            return Ok(());
        }
        let whose =
            if found.is_some() { "belongs to another application" } else { "was not installed by sutler" };
        Err(Error::NotOwned(format!(
            "release {} in namespace {} {whose}; choose another name, or allow it with helm.unowned = true",
            self.name, self.namespace
        )))
    }

    /// The objects of a manifest, each in its namespace and within the grants. `crds` are the chart's own
    /// definitions, for kinds that the cluster does not serve yet.
    ///
    /// # Errors
    /// `NotGranted` for an object outside the release's namespace.
    pub(crate) async fn objects(&self, manifest: &str, crds: &[Object]) -> Result<Vec<Object>, Error> {
        let mut out = objects(manifest)?;
        for object in &mut out {
            let namespaced = self
                .namespaced(&object.reference, crds)
                .await
                .map_err(|e| Error::kube(&object.shown(), e))?;
            self.place(object, namespaced)?;
            object.check_marks()?;
        }
        Ok(out)
    }

    /// As [`Target::objects`], without objects of kinds that the cluster no longer serves: they cannot exist.
    pub(crate) async fn old_objects(&self, manifest: &str) -> Result<Vec<Object>, Error> {
        let mut out = Vec::new();
        for mut object in objects(manifest)? {
            match self.namespaced(&object.reference, &[]).await {
                Ok(namespaced) => {
                    self.place(&mut object, namespaced)?;
                    out.push(object);
                }
                Err(KubeError::Other { code: "unknown-kind", .. }) => {}
                Err(e) => return Err(Error::kube(&object.shown(), e)),
            }
        }
        Ok(out)
    }

    async fn namespaced(&self, r: &Reference, crds: &[Object]) -> Result<bool, KubeError> {
        match self.cluster.is_namespaced(&r.api_version, &r.kind).await {
            Err(e @ KubeError::Other { code: "unknown-kind", .. }) => {
                crds.iter().find_map(|c| defines(c, r)).ok_or(e)
            }
            other => other,
        }
    }

    fn place(&self, object: &mut Object, namespaced: bool) -> Result<(), Error> {
        let (kind, name) = (object.reference.kind.clone(), object.reference.name.clone());
        if !namespaced {
            object.set_namespace(None);
            return Ok(grant::cluster_scoped(self.grants, self.owner(), &kind, &name)?);
        }
        self.grants.check(|g| g.kind(object.reference.group(), &kind, &name))?;
        match object.reference.namespace.clone() {
            Some(ns) if ns != self.namespace => {
                Ok(grant::other_namespace(self.grants, self.owner(), (&kind, &name), &ns)?)
            }
            _ => {
                object.set_namespace(Some(self.namespace));
                Ok(())
            }
        }
    }

    /// A chart's own definitions, within the grants.
    ///
    /// # Errors
    /// `NotGranted` unless `CustomResourceDefinition` is among the granted kinds.
    pub(crate) fn definitions(&self, crds: &[String]) -> Result<Vec<Object>, Error> {
        let mut out = Vec::new();
        for file in crds {
            out.extend(objects(file)?);
        }
        for object in &mut out {
            self.place(object, false)?;
        }
        Ok(out)
    }

    /// What lives under each reference, in the same order.
    pub(crate) async fn live(&self, objects: &[Object]) -> Result<Vec<Option<Value>>, Error> {
        side_by_side(objects.iter().map(|o| self.get(&o.reference).boxed()).collect()).await
    }

    /// Whose what lives under each reference is: of kinds with several objects from the watch that remembers them, so
    /// that an upgrade need not ask for each. That may be a moment old.
    pub(crate) async fn marks(&self, objects: &[Object]) -> Result<Vec<Option<Value>>, Error> {
        let mut groups: HashMap<_, Vec<usize>> = HashMap::new();
        for (i, o) in objects.iter().enumerate() {
            let r = &o.reference;
            groups.entry((&r.api_version, &r.kind, &r.namespace)).or_default().push(i);
        }
        let mut out: Vec<Option<Value>> = objects.iter().map(|_| None).collect();
        for ((api_version, kind, namespace), places) in groups {
            let of = Selector {
                api_version: api_version.clone(),
                kind: kind.clone(),
                namespace: namespace.clone(),
                labels: format!("{MANAGED_BY}=Helm"),
                ..Selector::default()
            };
            let of_place = |i: &usize| objects.get(*i);
            let names: Vec<&str> =
                places.iter().filter_map(of_place).map(|o| o.reference.name.as_str()).collect();
            let begin = places.len() >= WORTH_A_WATCH;
            let found = self.cluster.remembered(&of, &names, begin).await.unwrap_or_default();
            for (place, found) in places.into_iter().zip(found) {
                if let (Some(out), Some(found)) = (out.get_mut(place), found) {
                    *out = Some((*found).clone());
                }
            }
        }
        let asked = out.iter().zip(objects).filter(|(known, _)| known.is_none());
        let asked = side_by_side(asked.map(|(_, o)| self.get(&o.reference).boxed()).collect()).await?;
        let unknown = out.iter_mut().filter(|known| known.is_none());
        unknown.zip(asked).for_each(|(known, live)| *known = live);
        Ok(out)
    }

    pub(crate) async fn get(&self, of: &Reference) -> Result<Option<Value>, Error> {
        match self.cluster.get(of).await {
            Ok(v) => Ok(Some(v)),
            // A kind whose definition comes with the chart has no objects yet.
            Err(KubeError::NotFound | KubeError::Other { code: "unknown-kind", .. }) => Ok(None),
            Err(e) => Err(Error::kube(&shown(of), e)),
        }
    }

    /// Whether the release may take hold of what is there (parity statement 5). `known` are the objects of the
    /// revision before: they may have lost their marks, but not to another release.
    ///
    /// # Errors
    /// `NotOwned` naming the object and what is wrong with it.
    pub(crate) fn check_ownership(
        &self,
        object: &Object,
        live: &Value,
        known: bool,
        take: bool,
    ) -> Result<(), Error> {
        if take || (known && !claimed_by_other(live, self.name, self.namespace)) {
            return Ok(());
        }
        match foreign(live, self.name, self.namespace) {
            None => Ok(()),
            Some(why) => Err(Error::NotOwned(format!(
                "{} exists and cannot be imported into release {}: {why}; take-ownership would adopt it",
                object.shown(),
                self.name
            ))),
        }
    }

    /// The object with the marks of Helm.
    pub(crate) fn decorated(&self, object: &Object) -> Value {
        object.decorated(self.name, self.namespace)
    }

    /// What applying would make of an object.
    pub(crate) async fn try_apply(&self, object: &Object, force: bool) -> Result<Value, KubeError> {
        let options = ApplyOptions { dry_run: true, ..applying(force) };
        self.cluster.apply(&self.decorated(object), &options).await
    }
}

/// Answers in the order of the questions; the first error ends it. Boxed, since a stream of borrowing futures is not
/// seen to be `Send`.
pub(crate) async fn side_by_side<T>(
    questions: Vec<BoxFuture<'_, Result<T, Error>>>,
) -> Result<Vec<T>, Error> {
    futures::stream::iter(questions).buffered(SIDE_BY_SIDE).try_collect().await
}

/// Whether a definition is of this kind, and then whether its objects live in namespaces.
fn defines(crd: &Object, r: &Reference) -> Option<bool> {
    let text = |p: &str| crd.value.pointer(p).and_then(Value::as_str);
    let (group, version) = r.api_version.split_once('/')?;
    let versions = crd.value.pointer("/spec/versions").and_then(Value::as_array)?;
    let served = versions.iter().any(|v| v.get("name").and_then(Value::as_str) == Some(version));
    (text("/spec/group") == Some(group) && text("/spec/names/kind") == Some(&r.kind) && served)
        .then(|| text("/spec/scope") == Some("Namespaced"))
}
