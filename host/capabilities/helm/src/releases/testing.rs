//! `helm test`: the hooks of the event `test`, on the newest revision, whose status stays as it is.

use super::hooks::{self, Ran};
use super::operation::{Asked, Kind, Stage, Standing};
use super::record::Record;
use super::storage::pending;
use super::target::Target;
use crate::error::Error;
use crate::types::Outcome;

pub(crate) async fn test(target: &Target<'_>, asked: &Asked) -> Result<Outcome<Record>, Error> {
    let Some(mut last) = target.history().await?.pop() else { return Err(Error::NotFound) };
    match target.standing(asked, &mut last).await? {
        Standing::Ours => {}
        Standing::Ended => return Ok(Outcome::Done(last)),
        Standing::Held | Standing::Dead => return Err(pending(&last)),
        Standing::Free => {
            target.hook_objects(last.hooks()).await?;
            let mut operation = asked.operation(Kind::Test, last.version);
            operation.stage = Stage::After;
            last.operation = Some(operation);
        }
    }
    match hooks::run(target, &mut last).await? {
        Ran::Waiting(why) => Ok(Outcome::InProgress(why)),
        Ran::Done => {
            end(target, &mut last).await?;
            Ok(Outcome::Done(last))
        }
        Ran::Failed(why) => {
            last.operation = None;
            end(target, &mut last).await?;
            Err(Error::other("hook-failed", why))
        }
    }
}

/// A test says nothing about the revision itself.
async fn end(target: &Target<'_>, last: &mut Record) -> Result<(), Error> {
    if let Some(o) = last.operation.as_mut() {
        o.enter(Stage::Done);
    }
    target.storage.update(last).await
}
