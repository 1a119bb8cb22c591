//! Uninstall: objects in their own order, then the records, the newest last.

use super::record::{Record, Status};
use super::target::Target;
use super::upgrade::{mark_deleted, remove};
use crate::engine::operation_hooks;
use crate::error::Error;
use crate::manifest::kept;
use crate::order::{UNINSTALL, sort_by_kind};
use crate::types::Outcome;

pub(crate) async fn uninstall(target: &Target<'_>, keep_history: bool) -> Result<Outcome<Record>, Error> {
    let history = target.history().await?;
    let Some(last) = history.last() else { return Err(Error::NotFound) };
    let mut last = last.clone();
    if last.info.status == Status::Uninstalled {
        if !keep_history {
            purge(target, &history).await?;
        }
        return Ok(Outcome::Done(last));
    }
    let hooks = operation_hooks(last.hooks());
    if hooks.iter().any(|_| has_delete_hook(&last)) {
        return Err(Error::other(
            "hooks-not-supported",
            format!(
                "release {} runs hooks when it is uninstalled ({}), which this version of sutler does not",
                last.name,
                hooks.join(", ")
            ),
        ));
    }
    let mut objects = target.old_objects(&last.manifest).await?;
    // The annotation in the manifest counts here, as in Helm; the live one too, in `remove`.
    objects.retain(|o| !kept(&o.value));
    sort_by_kind(&mut objects, &UNINSTALL, |o| &o.reference.kind);
    mark_deleted(&mut last);
    last.set(Status::Uninstalling, "Deletion in progress (or silently failed)");
    target.storage.update(&last).await?;
    let worker = target.cluster.until(target.working_deadline());
    for object in &objects {
        remove(target, &worker, object).await?;
    }
    last.set(Status::Uninstalled, "Uninstallation complete");
    if keep_history {
        target.storage.update(&last).await?;
        for old in history.iter().filter(|r| r.info.status == Status::Deployed && r.version != last.version) {
            let mut old = old.clone();
            old.info.status = Status::Superseded;
            target.storage.update(&old).await?;
        }
    } else {
        purge(target, &history).await?;
    }
    Ok(Outcome::Done(last))
}

fn has_delete_hook(record: &Record) -> bool {
    record.hooks().iter().any(|h| {
        let events = h.get("events").and_then(serde_json::Value::as_array);
        events.into_iter().flatten().any(|e| matches!(e.as_str(), Some("pre-delete" | "post-delete")))
    })
}

/// Oldest first: while the newest is there, an uninstall that was cut off can be repeated.
async fn purge(target: &Target<'_>, history: &[Record]) -> Result<(), Error> {
    for record in history {
        target.storage.delete(record).await?;
    }
    Ok(())
}
