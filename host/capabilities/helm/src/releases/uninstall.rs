//! Uninstall: hooks, objects in their own order, hooks, then the records, the newest last.

use super::hooks::{self, Ran};
use super::operation::{Asked, Kind, Stage, Standing};
use super::record::{Record, Status, now};
use super::storage::lost;
use super::target::Target;
use super::write::remove;
use crate::error::Error;
use crate::manifest::kept;
use crate::order::{UNINSTALL, sort_by_kind};
use crate::types::Outcome;

pub(crate) async fn uninstall(
    target: &Target<'_>,
    asked: &Asked,
    keep_history: bool,
) -> Result<Outcome<Record>, Error> {
    let mut history = target.history().await?;
    let Some(mut last) = history.pop() else { return Err(Error::NotFound) };
    if last.info.status == Status::Uninstalled {
        if !keep_history {
            history.push(last.clone());
            purge(target, &history).await?;
        }
        return Ok(Outcome::Done(last));
    }
    if target.standing(asked, &mut last).await? == Standing::Ours && last.info.status == Status::Uninstalling
    {
        return go_on(target, history, last, keep_history).await;
    }
    begin_with(target, asked, history, last, None, keep_history).await
}

/// Takes an install back that failed.
pub(crate) async fn begin(
    target: &Target<'_>,
    asked: &Asked,
    history: Vec<Record>,
    last: Record,
    undoes: Option<String>,
) -> Result<Outcome<Record>, Error> {
    begin_with(target, asked, history, last, undoes, false).await
}

async fn begin_with(
    target: &Target<'_>,
    asked: &Asked,
    history: Vec<Record>,
    mut last: Record,
    undoes: Option<String>,
    keep_history: bool,
) -> Result<Outcome<Record>, Error> {
    // What the grants do not reach is told before the first write.
    target.old_objects(&last.manifest).await?;
    target.hook_objects(last.hooks()).await?;
    last.info.deleted = Some(now());
    last.set(Status::Uninstalling, "Deletion in progress (or silently failed)");
    let mut operation = asked.operation(Kind::Uninstall, last.version);
    operation.undoes = undoes;
    last.operation = Some(operation);
    target.storage.update(&mut last).await?;
    go_on(target, history, last, keep_history).await
}

/// From the place that the record tells.
pub(crate) async fn go_on(
    target: &Target<'_>,
    mut history: Vec<Record>,
    mut last: Record,
    keep_history: bool,
) -> Result<Outcome<Record>, Error> {
    let mut after = None;
    loop {
        let stage = last.operation.as_ref().ok_or_else(|| lost(&last))?.stage;
        let next = match stage {
            Stage::Before | Stage::After => match hooks::run(target, &mut last).await? {
                Ran::Waiting(why) => return Ok(Outcome::InProgress(why)),
                Ran::Failed(why) if stage == Stage::Before => return stop(target, last, why).await,
                // The objects are gone: the release ends, and the failure is told.
                Ran::Failed(why) => {
                    after = Some(why);
                    Stage::Done
                }
                Ran::Done if stage == Stage::Before => Stage::Objects,
                Ran::Done => Stage::Done,
            },
            Stage::Objects | Stage::Ready => {
                objects(target, &last).await?;
                Stage::After
            }
            Stage::Done => break,
        };
        let written = hooks::any(&last, last.operation.as_ref().map_or("", |o| o.event()));
        if let Some(o) = last.operation.as_mut() {
            o.enter(next);
        }
        let event = last.operation.as_ref().map_or("", |o| o.event());
        if next != Stage::Done && (written || hooks::any(&last, event)) {
            target.storage.update(&mut last).await?;
        }
    }
    let undoes = last.operation.as_ref().and_then(|o| o.undoes.clone());
    last.set(Status::Uninstalled, "Uninstallation complete");
    if keep_history {
        target.storage.update(&mut last).await?;
        for old in history.iter_mut().filter(|r| r.info.status == Status::Deployed) {
            old.info.status = Status::Superseded;
            target.storage.update(old).await?;
        }
    } else {
        history.push(last.clone());
        purge(target, &history).await?;
    }
    match (undoes, after) {
        (Some(why), _) => Err(Error::other(
            "taken-back",
            format!("release {} failed and has been uninstalled: {why}", target.name),
        )),
        (None, Some(why)) => {
            Err(Error::other("hook-failed", format!("release {} is uninstalled, but {why}", target.name)))
        }
        (None, None) => Ok(Outcome::Done(last)),
    }
}

/// A hook before the deletion failed: nothing is deleted, and the next uninstall begins again.
async fn stop(target: &Target<'_>, mut last: Record, why: String) -> Result<Outcome<Record>, Error> {
    let undoes = last.operation.as_ref().and_then(|o| o.undoes.clone());
    last.operation = None;
    target.storage.update(&mut last).await?;
    Err(match undoes {
        Some(first) => Error::other(
            "taken-back",
            format!("release {} failed ({first}), and so did uninstalling it: {why}", target.name),
        ),
        None => Error::other("hook-failed", why),
    })
}

async fn objects(target: &Target<'_>, last: &Record) -> Result<(), Error> {
    let mut objects = target.old_objects(&last.manifest).await?;
    // The annotation in the manifest counts here, as in Helm; the live one too, in `remove`.
    objects.retain(|o| !kept(&o.value));
    sort_by_kind(&mut objects, &UNINSTALL, |o| &o.reference.kind);
    for object in &objects {
        remove(target, object).await?;
    }
    Ok(())
}

/// Oldest first: while the newest is there, an uninstall that was cut off can be repeated.
async fn purge(target: &Target<'_>, history: &[Record]) -> Result<(), Error> {
    for record in history {
        target.storage.delete(record).await?;
    }
    Ok(())
}
