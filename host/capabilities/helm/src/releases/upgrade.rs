//! Install and upgrade (parity statements 3 to 8).

use serde_json::{Value, json};
use sutler_kubernetes::{Cluster, Error as KubeError, Propagation, Reference};

use super::drift::drifted;
use super::migrate::migrate;
use super::prepare::Plan;
use super::record::{Fresh, Record, Status, now};
use super::storage::{MANAGER, surplus};
use super::target::Target;
use crate::error::Error;
use crate::manifest::{Object, foreign, kept};
use crate::types::{Options, Outcome};

/// Longer texts of the API server are cut in a record's description.
const DESCRIPTION: usize = 2000;

/// Applies a plan. An equal plan without drift is the revision that is there.
pub(crate) async fn upgrade(
    target: &Target<'_>,
    plan: Plan,
    options: &Options,
) -> Result<Outcome<Record>, Error> {
    if let Some(same) = unchanged(target, &plan).await? {
        return Ok(Outcome::Done(same));
    }
    let mut record = fresh(target, &plan);
    // Too large is told before the first write.
    record.secret(false)?;
    if plan.install() {
        if options.create_namespace {
            create_namespace(target).await?;
        }
        if let Some(waiting) = install_definitions(target, &plan).await? {
            return Ok(Outcome::InProgress(waiting));
        }
    }
    make_room(target, &plan, options).await?;
    target.storage.create(&record).await.map_err(|e| namespace_missing(target, e))?;
    let worker = target.cluster.until(target.working_deadline());
    match work(target, &worker, &plan, options).await {
        Ok(()) => {
            supersede(target, &plan).await?;
            record
                .set(Status::Deployed, if plan.install() { "Install complete" } else { "Upgrade complete" });
            target.storage.update(&record).await?;
            Ok(Outcome::Done(record))
        }
        Err(e) => {
            let kind = if plan.install() { "Release" } else { "Upgrade" };
            let why: String = e.to_string().chars().take(DESCRIPTION).collect();
            record.set(Status::Failed, format!("{kind} {:?} failed: {why}", target.name));
            // The reason of the failure matters more than that it could not be written down.
            if let Err(second) = target.storage.update(&record).await {
                tracing::warn!(event = "helm.record.failed", release = target.name, error = %second);
            }
            Err(e)
        }
    }
}

/// The deployed revision, where this plan would write the same again and nothing drifted.
async fn unchanged(target: &Target<'_>, plan: &Plan) -> Result<Option<Record>, Error> {
    let Some(last) = plan.history.last() else { return Ok(None) };
    let same = last.info.status == Status::Deployed
        && last.apply_method == "ssa"
        && last.chart == plan.answer.chart
        && last.config() == plan.values
        && last.manifest == plan.answer.manifest
        && last.hooks() == plan.answer.hooks
        && plan.prune.is_empty();
    if !same || drifted(target, plan).await? { Ok(None) } else { Ok(Some(last.clone())) }
}

fn fresh(target: &Target<'_>, plan: &Plan) -> Record {
    let (status, description) = match plan.base {
        None => (Status::PendingInstall, "Initial install underway"),
        Some(_) => (Status::PendingUpgrade, "Preparing upgrade"),
    };
    let mut labels = plan.base.as_ref().map(|b| b.labels.clone()).unwrap_or_default();
    labels.extend(target.labels());
    Record::new(Fresh {
        name: target.name.into(),
        namespace: target.namespace.into(),
        version: plan.revision,
        status,
        description,
        chart: plan.answer.chart.clone(),
        config: plan.values.clone(),
        manifest: plan.answer.manifest.clone(),
        hooks: plan.answer.hooks.clone(),
        notes: plan.answer.notes.clone(),
        labels,
        first_deployed: plan.base.as_ref().and_then(|b| b.info.first_deployed.clone()),
    })
}

/// The Namespace of the release, as Helm makes it.
async fn create_namespace(target: &Target<'_>) -> Result<(), Error> {
    let of = cluster_scoped("v1", "Namespace", target.namespace);
    if target.get(&of).await?.is_some() {
        return Ok(());
    }
    target.grants.check(|g| g.cluster_scoped("Namespace", target.namespace))?;
    let manifest = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": target.namespace, "labels": {"name": target.namespace}},
    });
    match target.cluster.create(&manifest, MANAGER, false).await {
        Ok(_) | Err(KubeError::AlreadyExists) => Ok(()),
        Err(e) => Err(Error::kube(&format!("namespace {}", target.namespace), e)),
    }
}

pub(crate) fn cluster_scoped(api_version: &str, kind: &str, name: &str) -> Reference {
    Reference {
        cluster: None,
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: None,
        name: name.into(),
    }
}

fn namespace_missing(target: &Target<'_>, e: Error) -> Error {
    match e {
        Error::Other { code: "not-found", .. } => Error::other(
            "not-found",
            format!("namespace {} does not exist; make it, or set create-namespace", target.namespace),
        ),
        e => e,
    }
}

/// Installs `crds/`; those that are there stay as they are. Answers what is not yet served: the chart has to be
/// rendered again once it is.
async fn install_definitions(target: &Target<'_>, plan: &Plan) -> Result<Option<String>, Error> {
    let mut waiting = Vec::new();
    for crd in &plan.crds {
        let live = match target.get(&crd.reference).await? {
            Some(live) => live,
            None => match target.cluster.create(&crd.value, MANAGER, false).await {
                Ok(live) => live,
                Err(KubeError::AlreadyExists) => Value::Null,
                Err(e) => return Err(Error::kube(&crd.shown(), e)),
            },
        };
        let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
        let established = conditions.into_iter().flatten().any(|c| {
            c.get("type").and_then(Value::as_str) == Some("Established")
                && c.get("status").and_then(Value::as_str) == Some("True")
        });
        if !established {
            waiting.push(crd.reference.name.as_str());
        }
    }
    Ok((!waiting.is_empty()).then(|| format!("waiting until the cluster serves {}", waiting.join(", "))))
}

/// Old revisions go before the new one is written; a release that was uninstalled with its history is superseded.
async fn make_room(target: &Target<'_>, plan: &Plan, options: &Options) -> Result<(), Error> {
    let most = if options.history_max == 0 { 10 } else { options.history_max };
    for old in surplus(&plan.history, most) {
        target.storage.delete(old).await?;
    }
    if let Some(last) = plan.history.last().filter(|l| l.info.status == Status::Uninstalled)
        && !surplus(&plan.history, most).iter().any(|s| s.version == last.version)
    {
        let mut last = last.clone();
        last.set(Status::Superseded, "superseded by new release");
        target.storage.update(&last).await?;
    }
    Ok(())
}

async fn work(target: &Target<'_>, cluster: &Cluster, plan: &Plan, options: &Options) -> Result<(), Error> {
    let client_side = plan.base.as_ref().is_some_and(|b| b.apply_method != "ssa");
    for (object, live) in plan.objects.iter().zip(&plan.live) {
        if let (true, Some(live)) = (client_side, live) {
            migrate(target, object, live).await?;
        }
        target
            .apply(cluster, object, options.force_conflicts, false)
            .await
            .map_err(|e| Error::kube(&object.shown(), e))?;
    }
    for object in &plan.prune {
        remove(target, cluster, object).await?;
    }
    Ok(())
}

/// Deletes one object of the release in the background. What is kept, gone or another's stays.
pub(crate) async fn remove(target: &Target<'_>, cluster: &Cluster, object: &Object) -> Result<(), Error> {
    let Some(live) = target.get(&object.reference).await? else { return Ok(()) };
    if kept(&live) {
        return Ok(());
    }
    if let Some(why) = foreign(&live, target.name, target.namespace) {
        tracing::warn!(event = "helm.remove.foreign", release = target.name, object = object.shown(), why);
        return Ok(());
    }
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
    match cluster.delete(&object.reference, uid, Propagation::Background).await {
        // Another object under the same name by now: not the release's.
        Ok(()) | Err(KubeError::NotFound | KubeError::Conflict(_)) => Ok(()),
        Err(e) => Err(Error::kube(&object.shown(), e)),
    }
}

async fn supersede(target: &Target<'_>, plan: &Plan) -> Result<(), Error> {
    for old in plan.history.iter().filter(|r| r.info.status == Status::Deployed) {
        let mut old = old.clone();
        old.info.status = Status::Superseded;
        target.storage.update(&old).await?;
    }
    // An upgrade from a failed first install supersedes that one, as Helm does.
    if let Some(base) = plan.base.as_ref().filter(|b| b.info.status == Status::Failed) {
        let mut base = base.clone();
        base.info.status = Status::Superseded;
        target.storage.update(&base).await?;
    }
    Ok(())
}

/// When a revision was taken away.
pub(crate) fn mark_deleted(record: &mut Record) {
    record.info.deleted = Some(now());
}
