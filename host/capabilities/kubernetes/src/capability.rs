//! `sutler:kubernetes` for one call: read-only check, grants, ownership, then the cluster.

use std::sync::Arc;

use serde_json::Value;
use sutler_model::{Call, Effective};

use crate::grant;
use crate::status::other_object;
use crate::{
    ApplyOptions, Ask, Cluster, Clusters, Error, Grants, Labels, Page, Propagation, Reference, Scope,
    Selector, Verb, manifest, owned, path,
};

/// What plugins are given. Every write is as the field manager `sutler-PLUGIN`, carries the owner's labels, and
/// reaches only objects of the call's owner unless a rule says `unowned = true`.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    clusters: Arc<Clusters>,
}

/// A call on one object: who, with which grants, where.
struct At<'a> {
    call: &'a Call,
    grants: &'a Effective<Grants>,
    cluster: &'a str,
    default_cluster: bool,
}

impl At<'_> {
    fn check(&self, verb: Verb, of: &Reference, labels: Labels<'_>, unowned: bool) -> Result<(), Error> {
        path::root(&of.api_version)?;
        path::check_name(&of.name)?;
        check_kind(&of.kind)?;
        if let Some(ns) = &of.namespace {
            path::check_namespace(ns)?;
        }
        let ask = Ask {
            verb,
            group: of.group(),
            kind: &of.kind,
            scope: of.namespace.as_deref().map_or(Scope::Cluster, Scope::Namespace),
            name: Some(&of.name),
            cluster: self.cluster,
            default_cluster: self.default_cluster,
            owner: &self.call.owner,
            unowned,
            labels,
        };
        Ok(grant::check(self.grants, &ask)?)
    }

    /// The rule has to cover the object as it is; another owner's, or nobody's, needs one that says so.
    fn check_existing(&self, verb: Verb, of: &Reference, existing: &Value) -> Result<bool, Error> {
        let own = owned::is_of(existing, &self.call.owner);
        self.check(verb, of, Labels::Of(existing), !own)?;
        Ok(own)
    }
}

fn check_kind(kind: &str) -> Result<(), Error> {
    let ok = (1..=253).contains(&kind.len()) && kind.bytes().all(|b| b.is_ascii_alphanumeric());
    if ok { Ok(()) } else { Err(Error::Invalid(format!("{kind:?} is not a kind; write Deployment"))) }
}

fn writes(call: &Call) -> Result<(), Error> {
    if call.mode.writes() { Ok(()) } else { Err(Error::ReadOnlyCall) }
}

fn manager(call: &Call) -> String {
    format!("sutler-{}", call.plugin)
}

impl Kubernetes {
    pub const fn new(clusters: Arc<Clusters>) -> Self {
        Self { clusters }
    }

    fn at<'a>(&'a self, call: &'a Call, grants: &'a Effective<Grants>, cluster: Option<&'a str>) -> At<'a> {
        At {
            call,
            grants,
            cluster: self.clusters.name(cluster),
            default_cluster: self.clusters.is_default(cluster),
        }
    }

    async fn cluster(&self, call: &Call, cluster: Option<&str>) -> Result<Cluster, Error> {
        Ok(self.clusters.get(cluster).await?.of_call(call))
    }

    /// One object, without its managedFields.
    ///
    /// # Errors
    /// `NotGranted`, `NotFound`, and what the API server says.
    pub async fn get(&self, call: &Call, grants: &Effective<Grants>, of: &Reference) -> Result<Value, Error> {
        let at = self.at(call, grants, of.cluster.as_deref());
        at.check(Verb::Get, of, Labels::Unknown, false)?;
        let cluster = self.cluster(call, of.cluster.as_deref()).await?;
        let object = cluster.get(of).await?;
        at.check(Verb::Get, of, Labels::Of(&object), false)?;
        Ok(manifest::shown(object))
    }

    /// One page of a list.
    ///
    /// # Errors
    /// `NotGranted`; `Other` with code `expired` for a continue token that is too old.
    pub async fn list(&self, call: &Call, grants: &Effective<Grants>, of: &Selector) -> Result<Page, Error> {
        path::root(&of.api_version)?;
        check_kind(&of.kind)?;
        let name = of.fields.strip_prefix("metadata.name=").filter(|n| path::check_name(n).is_ok());
        let ask = |scope| Ask {
            verb: Verb::List,
            group: crate::reference::group_of(&of.api_version),
            kind: &of.kind,
            scope,
            name,
            cluster: self.clusters.name(of.cluster.as_deref()),
            default_cluster: self.clusters.is_default(of.cluster.as_deref()),
            owner: &call.owner,
            unowned: false,
            labels: Labels::Selector(&of.labels),
        };
        let check = |scope| grant::check(grants, &ask(scope));
        let cluster = if let Some(ns) = &of.namespace {
            path::check_namespace(ns)?;
            check(Scope::Namespace(ns))?;
            self.cluster(call, of.cluster.as_deref()).await?
        } else {
            // Without a namespace the kind decides what is asked; nothing is sent where neither is granted.
            let (scoped, everywhere) = (check(Scope::Cluster), check(Scope::Everywhere));
            if let (Err(refused), Err(_)) = (&scoped, &everywhere) {
                return Err(refused.clone().into());
            }
            let cluster = self.cluster(call, of.cluster.as_deref()).await?;
            let namespaced = cluster.is_namespaced(&of.api_version, &of.kind).await?;
            if namespaced {
                everywhere?
            } else {
                scoped?
            }
            cluster
        };
        let mut page = cluster.list(of).await?;
        page.items = page.items.into_iter().map(manifest::shown).collect();
        Ok(page)
    }

    /// What apply would make of it. Needs the verbs `get` and `apply`; refuses what apply would refuse.
    ///
    /// # Errors
    /// As [`Kubernetes::apply`].
    pub async fn dry_run_apply(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        text: &str,
        force: bool,
    ) -> Result<Value, Error> {
        self.apply_with(call, grants, cluster, text, &[Verb::Get, Verb::Apply], force, true).await
    }

    /// Server-side apply, as the plugin's own field manager.
    ///
    /// Between the look at the object and the apply it can be replaced: then the uid makes it a `Conflict`. That
    /// somebody else creates it in that moment cannot be ruled out; without `force` his fields are not overwritten.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `Conflict`, `Invalid`.
    pub async fn apply(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        text: &str,
        force: bool,
    ) -> Result<Value, Error> {
        writes(call)?;
        self.apply_with(call, grants, cluster, text, &[Verb::Apply], force, false).await
    }

    #[allow(clippy::too_many_arguments, reason = "the two callers name what differs")]
    async fn apply_with(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        text: &str,
        verbs: &[Verb],
        force: bool,
        dry_run: bool,
    ) -> Result<Value, Error> {
        let (mut object, of, labels) = self.manifest(call, text)?;
        let at = self.at(call, grants, cluster);
        for verb in verbs {
            at.check(*verb, &of, Labels::Of(&object), false)?;
        }
        let cluster = self.cluster(call, cluster).await?;
        let own = match cluster.get(&of).await {
            Ok(existing) => {
                let own = at.check_existing(Verb::Apply, &of, &existing)?;
                same_object(&mut object, &existing)?;
                own
            }
            Err(Error::NotFound) => true,
            Err(e) => return Err(e),
        };
        // What another owner made never becomes this one's by an apply.
        if own {
            owned::add_labels(&mut object, labels)?;
        }
        let options = ApplyOptions { field_manager: manager(call), force, dry_run };
        Ok(manifest::shown(cluster.apply(&object, &options).await?))
    }

    /// Creates, with the owner's labels.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `AlreadyExists`, `Invalid`.
    pub async fn create(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        cluster: Option<&str>,
        text: &str,
    ) -> Result<Value, Error> {
        writes(call)?;
        let (mut object, of, labels) = self.manifest(call, text)?;
        self.at(call, grants, cluster).check(Verb::Create, &of, Labels::Of(&object), false)?;
        owned::add_labels(&mut object, labels)?;
        let cluster = self.cluster(call, cluster).await?;
        Ok(manifest::shown(cluster.create(&object, &manager(call), false).await?))
    }

    /// A JSON merge patch. Labels under `sutler.dev/` cannot be changed by it.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `NotFound`, `Conflict` where the object was replaced meanwhile, `Invalid`.
    pub async fn patch(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &Reference,
        text: &str,
    ) -> Result<Value, Error> {
        writes(call)?;
        let at = self.at(call, grants, of.cluster.as_deref());
        at.check(Verb::Patch, of, Labels::Unknown, false)?;
        let mut patch = manifest::parse(text, "merge patch")?;
        owned::check_labels(&patch, &call.owner.labels(&call.plugin))?;
        let cluster = self.cluster(call, of.cluster.as_deref()).await?;
        let existing = cluster.get(of).await?;
        let own = at.check_existing(Verb::Patch, of, &existing)?;
        at.check(Verb::Patch, of, Labels::Of(&manifest::with_labels(&existing, &patch)), !own)?;
        same_object(&mut patch, &existing)?;
        Ok(manifest::shown(cluster.merge_patch(of, &patch, &manager(call)).await?))
    }

    /// Deletes the object that is there now, or the one with `uid`; never another that takes its name meanwhile.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `NotFound`, `Conflict` where the object has another uid.
    pub async fn delete(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        of: &Reference,
        uid: Option<&str>,
        propagation: Propagation,
    ) -> Result<(), Error> {
        writes(call)?;
        let at = self.at(call, grants, of.cluster.as_deref());
        at.check(Verb::Delete, of, Labels::Unknown, false)?;
        let cluster = self.cluster(call, of.cluster.as_deref()).await?;
        let existing = cluster.get(of).await?;
        at.check_existing(Verb::Delete, of, &existing)?;
        let found = manifest::uid(&existing);
        if uid.is_some() && uid != found {
            return Err(Error::Conflict(vec![other_object()]));
        }
        cluster.delete(of, found, propagation).await
    }

    /// Whether the plugin may do this: its grants cover it, and the host's account may. `verb` is one of the grants'
    /// verbs, or `update`, which is a patch here; any other is answered no.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn can_i(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        verb: &str,
        of: &Reference,
    ) -> Result<bool, Error> {
        let (granted, asked) = match verb {
            "get" => (Verb::Get, "get"),
            "list" => (Verb::List, "list"),
            "apply" => (Verb::Apply, "patch"),
            "create" => (Verb::Create, "create"),
            "patch" | "update" => (Verb::Patch, "patch"),
            "delete" => (Verb::Delete, "delete"),
            _ => return Ok(false),
        };
        match self.at(call, grants, of.cluster.as_deref()).check(granted, of, Labels::Unknown, false) {
            Ok(()) => self.cluster(call, of.cluster.as_deref()).await?.can_i(asked, of).await,
            Err(Error::NotGranted(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A plugin's manifest, what it names, and the labels that it will carry.
    fn manifest(
        &self,
        call: &Call,
        text: &str,
    ) -> Result<(Value, Reference, std::collections::BTreeMap<String, String>), Error> {
        let object = manifest::parse(text, "manifest")?;
        let labels = call.owner.labels(&call.plugin);
        owned::check_labels(&object, &labels)?;
        if object.get("type").and_then(Value::as_str) == Some(owned::RELEASE_SECRET) {
            let text = "a release record is Helm's to write; use the helm interface";
            return Err(Error::Invalid(text.into()));
        }
        let of = Reference::of_manifest(&object)?;
        Ok((object, of, labels))
    }
}

/// Makes the uid of the object that was looked at a precondition of the write.
fn same_object(write: &mut Value, existing: &Value) -> Result<(), Error> {
    let Some(found) = manifest::uid(existing) else { return Ok(()) };
    if manifest::uid(write).is_some_and(|named| named != found) {
        return Err(Error::Conflict(vec![other_object()]));
    }
    manifest::metadata(write)?.insert("uid".into(), found.into());
    Ok(())
}
