//! Objects of a release, applied and removed (parity statements 5 to 7).

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use sutler_kubernetes::{Error as KubeError, Propagation};

use super::client_side;
use super::migrate::migrate;
use super::storage::applying;
use super::target::Target;
use crate::error::Error;
use crate::manifest::{Object, foreign, kept};

/// Looks that are taken at an object that others write meanwhile.
const LOOKS: usize = 4;
/// With less of the call left, the rest is done in the next one.
const PAUSE: Duration = Duration::from_secs(3);

/// Which objects an operation may take hold of, beside those that carry the release's marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Those of the revision before.
    Known,
    /// All that the revision to be taken back to had, where nobody else claims them by now.
    TakeBack,
    /// Every one.
    Adopt,
}

/// How much of the live objects was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Whole,
    /// Whose they are, as of a moment ago: each write makes sure that nothing has changed about that.
    Marks,
}

/// Objects within the grants, with what lives under them, and those of the revision before that are no more.
pub(crate) struct Work {
    pub(crate) objects: Vec<Object>,
    pub(crate) live: Vec<Option<Value>>,
    pub(crate) before: Vec<Object>,
    claim: Claim,
    seen: Seen,
}

/// How a revision's objects are written.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) server_side: bool,
    /// Fields that were applied client-side move to server-side apply first.
    pub(crate) migrates: bool,
    pub(crate) force: bool,
}

impl Work {
    /// Reads and checks; `take` adopts what nobody owns.
    ///
    /// # Errors
    /// `NotGranted`, `NotOwned`, and what the API server refuses.
    pub(crate) async fn new(
        target: &Target<'_>,
        objects: Vec<Object>,
        before: Vec<Object>,
        claim: Claim,
        seen: Seen,
    ) -> Result<Self, Error> {
        let old: HashMap<_, _> = before.iter().map(|o| (o.key(), ())).collect();
        let live = match seen {
            Seen::Whole => target.live(&objects).await?,
            Seen::Marks => target.marks(&objects).await?,
        };
        for (object, live) in objects.iter().zip(&live) {
            if let Some(live) = live {
                check(target, object, live, claim, old.contains_key(&object.key()))?;
            }
        }
        Ok(Self { objects, live, before, claim, seen })
    }

    /// What the revision before had and this one has not.
    pub(crate) fn prune(&self) -> impl Iterator<Item = &Object> {
        self.before.iter().filter(|o| !self.objects.iter().any(|n| n.key() == o.key()))
    }

    /// Applies from the object `at` on, then prunes. Answers how many are applied where the call's time is too short
    /// for the rest.
    ///
    /// # Errors
    /// What the API server refuses, naming the object.
    pub(crate) async fn write(
        &self,
        target: &Target<'_>,
        manner: Manner,
        at: usize,
    ) -> Result<Option<usize>, Error> {
        let old: HashMap<_, &Object> = self.before.iter().map(|o| (o.key(), o)).collect();
        for (i, (object, live)) in self.objects.iter().zip(&self.live).enumerate().skip(at) {
            if i > at && target.call.left() < PAUSE {
                return Ok(Some(i));
            }
            let original = old.get(&object.key()).copied();
            match live {
                Some(live) if self.seen == Seen::Marks => {
                    self.as_seen(target, manner, object, live, original.is_some()).await?;
                }
                _ => one(target, manner, object, live.as_ref(), original).await?,
            }
        }
        for object in self.prune() {
            remove(target, object).await?;
        }
        Ok(None)
    }

    /// Applies an object of which only the marks were read, in the version that they were read of.
    async fn as_seen(
        &self,
        target: &Target<'_>,
        manner: Manner,
        object: &Object,
        live: &Value,
        known: bool,
    ) -> Result<(), Error> {
        let options = applying(manner.force);
        let mut live = Some(live.clone());
        for _ in 0..LOOKS {
            let mut wanted = target.decorated(object);
            if let (Some(live), Some(metadata)) =
                (&live, wanted.get_mut("metadata").and_then(Value::as_object_mut))
            {
                for field in ["uid", "resourceVersion"] {
                    metadata
                        .insert(field.into(), live.pointer(&format!("/metadata/{field}")).cloned().into());
                }
            }
            let failed = match target.cluster.apply(&wanted, &options).await {
                Ok(_) => return Ok(()),
                Err(e) => e,
            };
            let now = match &failed {
                KubeError::Conflict(fields) if fields.is_empty() => target.get(&object.reference).await?,
                KubeError::NotFound => None,
                _ => return Err(Error::kube(&object.shown(), failed)),
            };
            // Somebody wrote meanwhile, or it is gone.
            if let Some(now) = &now {
                check(target, object, now, self.claim, known)?;
            }
            live = now;
        }
        // A controller that writes all the time; whose the object is was looked at each time.
        one(target, manner, object, None, None).await
    }
}

/// Whether the release may write what lives there.
fn check(target: &Target<'_>, object: &Object, live: &Value, claim: Claim, known: bool) -> Result<(), Error> {
    target.check_ownership(object, live, known || claim == Claim::TakeBack, claim == Claim::Adopt)
}

async fn one(
    target: &Target<'_>,
    manner: Manner,
    object: &Object,
    live: Option<&Value>,
    original: Option<&Object>,
) -> Result<(), Error> {
    let failed = |e| Error::kube(&object.shown(), e);
    if !manner.server_side {
        return client_side::write(target, object, live, original).await;
    }
    if let (true, Some(live)) = (manner.migrates, live) {
        migrate(target, object, live).await?;
    }
    let options = applying(manner.force);
    target.cluster.apply(&target.decorated(object), &options).await.map(drop).map_err(failed)
}

/// Deletes one object of the release in the background. What is kept, gone or another's stays.
pub(crate) async fn remove(target: &Target<'_>, object: &Object) -> Result<(), Error> {
    let Some(live) = target.get(&object.reference).await? else { return Ok(()) };
    if kept(&live) {
        return Ok(());
    }
    if let Some(why) = foreign(&live, target.name, target.namespace) {
        tracing::warn!(event = "helm.remove.foreign", release = target.name, object = object.shown(), why);
        return Ok(());
    }
    delete(target, object, &live).await
}

/// Deletes the object that was looked at, in the background.
pub(crate) async fn delete(target: &Target<'_>, object: &Object, live: &Value) -> Result<(), Error> {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
    match target.cluster.delete(&object.reference, uid, Propagation::Background).await {
        Ok(()) | Err(KubeError::NotFound | KubeError::Other { code: "unknown-kind", .. }) => Ok(()),
        // Another object under the same name by now: not the one that was meant.
        Err(KubeError::Conflict(fields)) if !fields.is_empty() => Ok(()),
        // It is still there.
        Err(KubeError::Conflict(_)) => {
            Err(Error::Unavailable(format!("{}: the object changed meanwhile", object.shown())))
        }
        Err(e) => Err(Error::kube(&object.shown(), e)),
    }
}
