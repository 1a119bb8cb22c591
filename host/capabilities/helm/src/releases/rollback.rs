//! Rollback: a new revision with chart, values, manifest and hooks of an old one.

use super::advance::Under;
use super::operation::{Asked, Kind, Standing};
use super::record::{Fresh, Record, Status};
use super::storage::make_room;
use super::target::Target;
use crate::error::Error;
use crate::types::{Options, Outcome};

/// To a revision, 0 for the one before the newest. A revision that another tool left pending is no hindrance: this is
/// its cure, in Helm too.
pub(crate) async fn rollback(
    target: &Target<'_>,
    asked: &Asked,
    revision: u32,
    options: &Options,
) -> Result<Outcome<Record>, Error> {
    let mut history = target.history().await?;
    let Some(last) = history.last_mut() else { return Err(Error::NotFound) };
    match target.standing(asked, last).await? {
        Standing::Ours if last.info.status == Status::PendingRollback => {
            let Some(record) = history.pop() else { return Err(Error::NotFound) };
            return Under { target, asked, options, history, record, work: None }.advance().await;
        }
        Standing::Ended => return Ok(Outcome::Done(last.clone())),
        Standing::Dead => target.heal(&mut history).await?,
        _ => {}
    }
    begin(target, asked, options, history, revision, None).await
}

pub(crate) async fn begin(
    target: &Target<'_>,
    asked: &Asked,
    options: &Options,
    mut history: Vec<Record>,
    revision: u32,
    undoes: Option<String>,
) -> Result<Outcome<Record>, Error> {
    let Some(current) = history.last() else { return Err(Error::NotFound) };
    let to = if revision == 0 { current.version.saturating_sub(1) } else { revision };
    let Some(previous) = history.iter().find(|r| r.version == to) else {
        let kept: Vec<String> = history.iter().map(|r| r.version.to_string()).collect();
        return Err(Error::other(
            "no-such-revision",
            format!("release {} has no revision {to}; there are {}", target.name, kept.join(", ")),
        ));
    };
    // What cannot be applied is told before the first write.
    target.objects(&previous.manifest, &[]).await?;
    target.hook_objects(previous.hooks()).await?;
    let mut labels = previous.labels.clone();
    labels.extend(target.labels());
    let mut operation = asked.operation(Kind::Rollback, current.version);
    operation.undoes = undoes;
    let mut record = Record::new(Fresh {
        name: target.name.into(),
        namespace: target.namespace.into(),
        version: current.version.saturating_add(1),
        status: Status::PendingRollback,
        description: format!("Rollback to {to}"),
        chart: previous.chart.clone(),
        config: previous.config(),
        manifest: previous.manifest.clone(),
        hooks: previous.hooks().to_vec(),
        notes: previous.info.notes.clone(),
        labels,
        first_deployed: current.info.first_deployed.clone(),
        rollback_revision: Some(to),
        server_side: previous.server_side(),
        operation: Some(operation),
    });
    record.secret(false)?;
    make_room(target, &mut history, options).await?;
    target.storage.create(&mut record).await?;
    Under { target, asked, options, history, record, work: None }.advance().await
}
