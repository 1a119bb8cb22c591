//! Install and upgrade up to the moment that their record is written (parity statements 3 to 8).

use serde_json::{Value, json};
use sutler_kubernetes::Reference;

use super::advance::{Under, take_back};
use super::drift::{drifted, stands};
use super::hooks::unrun;
use super::operation::{Asked, Kind, Standing};
use super::prepare::Plan;
use super::record::{Fresh, Record, Status};
use super::storage::{applying, make_room, pending};
use super::target::Target;
use super::uninstall;
use crate::error::Error;
use crate::grant;
use crate::types::{Options, Outcome};

/// What a call finds before it renders anything.
pub(crate) enum Resumed {
    /// It was under way, or had ended already.
    Outcome(Box<Outcome<Record>>),
    /// It begins here, with these revisions.
    Fresh(Vec<Record>),
}

/// Goes on with the same call of before, where there was one.
///
/// # Errors
/// `Pending` where somebody else holds the release.
pub(crate) async fn resume(target: &Target<'_>, asked: &Asked, options: &Options) -> Result<Resumed, Error> {
    let mut history = target.history().await?;
    let Some(last) = history.last_mut() else { return Ok(Resumed::Fresh(history)) };
    let outcome = match target.standing(asked, last).await? {
        Standing::Free => return Ok(Resumed::Fresh(history)),
        Standing::Held => return Err(pending(last)),
        Standing::Dead => {
            target.heal(&mut history).await?;
            return Ok(Resumed::Fresh(history));
        }
        Standing::Ended if stands(target, last).await? => Outcome::Done(last.clone()),
        Standing::Ended => return Ok(Resumed::Fresh(history)),
        Standing::Ours if last.info.status == Status::Failed => take_back(target, asked, options).await?,
        Standing::Ours => {
            let Some(record) = history.pop() else { return Err(Error::NotFound) };
            if record.info.status == Status::Uninstalling {
                uninstall::go_on(target, history, record, false).await?
            } else if record.info.status.is_pending() {
                Under { target, asked, options, history, record, work: None }.advance().await?
            } else {
                history.push(record);
                return Ok(Resumed::Fresh(history));
            }
        }
    };
    Ok(Resumed::Outcome(Box::new(outcome)))
}

/// Begins with a plan. An equal plan without drift is the revision that is there.
pub(crate) async fn begin(
    target: &Target<'_>,
    asked: &Asked,
    mut plan: Plan,
    options: &Options,
) -> Result<Outcome<Record>, Error> {
    if let Some(same) = unchanged(target, &plan).await? {
        return Ok(Outcome::Done(same));
    }
    let mut record = fresh(target, asked, &plan);
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
    make_room(target, &mut plan.history, options).await?;
    target.storage.create(&mut record).await.map_err(|e| namespace_missing(target, e))?;
    let Plan { history, work, .. } = plan;
    Under { target, asked, options, history, record, work: Some(work) }.advance().await
}

/// The deployed revision, where this plan would write the same again and nothing drifted.
async fn unchanged(target: &Target<'_>, plan: &Plan) -> Result<Option<Record>, Error> {
    let Some(last) = plan.history.last() else { return Ok(None) };
    let same = last.info.status == Status::Deployed
        && last.chart == plan.answer.chart
        && last.config() == plan.values
        && last.manifest == plan.answer.manifest
        && unrun(last.hooks()) == unrun(&plan.answer.hooks)
        && plan.work.prune().next().is_none();
    if !same || drifted(target, &plan.work).await? { Ok(None) } else { Ok(Some(last.clone())) }
}

fn fresh(target: &Target<'_>, asked: &Asked, plan: &Plan) -> Record {
    let (kind, status, description) = match plan.base {
        None => (Kind::Install, Status::PendingInstall, "Initial install underway"),
        Some(_) => (Kind::Upgrade, Status::PendingUpgrade, "Preparing upgrade"),
    };
    let last = plan.history.last().filter(|_| plan.base.is_some());
    let mut labels = last.map(|b| b.labels.clone()).unwrap_or_default();
    labels.extend(target.labels());
    Record::new(Fresh {
        name: target.name.into(),
        namespace: target.namespace.into(),
        version: plan.revision,
        status,
        description: description.into(),
        chart: plan.answer.chart.clone(),
        config: plan.values.clone(),
        manifest: plan.answer.manifest.clone(),
        hooks: plan.answer.hooks.clone(),
        notes: plan.answer.notes.clone(),
        labels,
        first_deployed: plan.base.as_ref().and_then(|b| b.info.first_deployed.clone()),
        rollback_revision: None,
        // An upgrade goes on as the revision before did.
        server_side: last.is_none_or(Record::server_side),
        operation: Some(asked.operation(kind, plan.base.as_ref().map_or(0, |b| b.version))),
    })
}

/// The Namespace of the release, as Helm makes it.
async fn create_namespace(target: &Target<'_>) -> Result<(), Error> {
    let of = cluster_scoped("v1", "Namespace", target.namespace);
    let granted = grant::cluster_scoped(target.grants, target.owner(), "Namespace", target.namespace);
    match target.get(&of).await {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => granted?,
        // An account with rights in its namespaces alone may not look. Whether this one is there, the record tells.
        Err(Error::Other { code: "forbidden", .. }) if granted.is_err() => return Ok(()),
        Err(e) => return Err(e),
    }
    let manifest = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": target.namespace, "labels": {"name": target.namespace}},
    });
    apply_new(target, &format!("namespace {}", target.namespace), &manifest).await.map(drop)
}

async fn apply_new(target: &Target<'_>, what: &str, manifest: &Value) -> Result<Value, Error> {
    let options = applying(false);
    target.cluster.apply(manifest, &options).await.map_err(|e| Error::kube(what, e))
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
            None => apply_new(target, &crd.shown(), &crd.value).await?,
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
