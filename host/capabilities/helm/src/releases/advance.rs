//! Install, upgrade and rollback from the moment on that their record is written: hooks, objects, readiness, hooks, the
//! final record. Each stage can end the call with what it waits for; the same call goes on from there.

use chrono::Utc;

use super::hooks::{self, Ran};
use super::operation::{Asked, Kind, Operation, Stage};
use super::readiness::{Health, together};
use super::record::{Record, Status};
use super::rollback;
use super::storage::lost;
use super::target::Target;
use super::uninstall;
use super::write::{Claim, Manner, Seen, Work};
use crate::error::Error;
use crate::types::{Options, Outcome};

/// Helm's own time-out for readiness.
const LIMIT_SECONDS: i64 = 300;
/// Longer texts of the API server are cut in a record's description.
const DESCRIPTION: usize = 2000;

/// A revision under way.
pub(crate) struct Under<'a> {
    pub(crate) target: &'a Target<'a>,
    pub(crate) asked: &'a Asked,
    pub(crate) options: &'a Options,
    /// Every other revision.
    pub(crate) history: Vec<Record>,
    pub(crate) record: Record,
    /// What was found out before the record was written, where that was in this call.
    pub(crate) work: Option<Work>,
}

enum Next {
    Enter(Stage),
    Wait(String),
    Fail(Error),
}

impl Under<'_> {
    fn operation(&self) -> Result<&Operation, Error> {
        self.record.operation.as_ref().ok_or_else(|| lost(&self.record))
    }

    fn base(&self) -> Option<&Record> {
        let base = self.record.operation.as_ref().map_or(0, |o| o.base);
        self.history.iter().find(|r| r.version == base)
    }

    /// Goes on as far as it comes without waiting.
    pub(crate) async fn advance(mut self) -> Result<Outcome<Record>, Error> {
        loop {
            let stage = self.operation()?.stage;
            let next = match stage {
                Stage::Before | Stage::After => self.hooks().await,
                Stage::Objects => self.objects().await,
                Stage::Ready => self.ready().await,
                Stage::Done => return self.finish().await,
            };
            match next {
                Ok(Next::Enter(stage)) => self.enter(stage).await?,
                Ok(Next::Wait(why)) => return Ok(Outcome::InProgress(why)),
                Err(e) if e.passes() => return Err(e),
                Ok(Next::Fail(e)) | Err(e) => return self.fail(e).await,
            }
        }
    }

    /// The place is written down where something was done that must not be done again, or that is waited for.
    async fn enter(&mut self, stage: Stage) -> Result<(), Error> {
        let Some(o) = self.record.operation.as_mut() else { return Err(lost(&self.record)) };
        let from = o.event();
        let left = o.stage;
        o.enter(stage);
        let event = o.event();
        let worth = match left {
            Stage::Before => hooks::any(&self.record, from),
            Stage::Objects => stage == Stage::Ready || hooks::any(&self.record, event),
            Stage::Ready => hooks::any(&self.record, event),
            Stage::After | Stage::Done => false,
        };
        if worth {
            self.target.storage.update(&mut self.record).await?;
        }
        Ok(())
    }

    async fn hooks(&mut self) -> Result<Next, Error> {
        let after = self.operation()?.stage == Stage::After;
        Ok(match hooks::run(self.target, &mut self.record).await? {
            Ran::Done => Next::Enter(if after { Stage::Done } else { Stage::Objects }),
            Ran::Waiting(why) => Next::Wait(why),
            Ran::Failed(why) => Next::Fail(Error::other("hook-failed", why)),
        })
    }

    async fn objects(&mut self) -> Result<Next, Error> {
        let work = match self.work.take() {
            // Hooks may have changed what lives.
            Some(work) if !hooks::any(&self.record, &format!("pre-{}", self.operation()?.word())) => work,
            _ => self.look().await?,
        };
        let manner = self.manner()?;
        let at = self.operation()?.at;
        if let Some(done) = work.write(self.target, manner, at).await? {
            if let Some(o) = self.record.operation.as_mut() {
                o.at = done;
            }
            self.target.storage.update(&mut self.record).await?;
            return Ok(Next::Wait(format!("{done} of {} objects are applied", work.objects.len())));
        }
        self.work = Some(work);
        Ok(Next::Enter(if self.options.atomic { Stage::Ready } else { Stage::After }))
    }

    async fn look(&self) -> Result<Work, Error> {
        let before = match self.base() {
            Some(base) => self.target.old_objects(&base.manifest).await?,
            None => Vec::new(),
        };
        let objects = self.target.objects(&self.record.manifest, &[]).await?;
        let undoes = self.operation()?.undoes.is_some();
        let claim = match (self.options.take_ownership, undoes) {
            (true, _) => Claim::Adopt,
            (false, true) => Claim::TakeBack,
            (false, false) => Claim::Known,
        };
        let manner = self.manner()?;
        let seen = if manner.server_side && !manner.migrates { Seen::Marks } else { Seen::Whole };
        Work::new(self.target, objects, before, claim, seen).await
    }

    fn manner(&self) -> Result<Manner, Error> {
        let server_side = self.record.server_side();
        let was_client_side = self.base().is_some_and(|b| !b.server_side());
        let migrates = match self.operation()?.kind {
            Kind::Upgrade => was_client_side,
            _ => true,
        };
        Ok(Manner { server_side, migrates, force: self.options.force_conflicts })
    }

    async fn ready(&mut self) -> Result<Next, Error> {
        let objects = match &self.work {
            Some(work) => &work.objects,
            None => &self.target.objects(&self.record.manifest, &[]).await?,
        };
        let waited = Utc::now().timestamp() - self.operation()?.since;
        Ok(match together(self.target, objects, self.options.wait_for_jobs).await? {
            Health::Ready => Next::Enter(Stage::After),
            Health::Failed(why) => Next::Fail(Error::other("not-ready", why)),
            Health::Progressing(why) if waited > LIMIT_SECONDS => Next::Fail(Error::other(
                "not-ready",
                format!("it did not become ready within {LIMIT_SECONDS} s: {why}"),
            )),
            Health::Progressing(why) => Next::Wait(why),
        })
    }

    /// Old revisions are superseded first, so that there are never two that are deployed.
    async fn finish(mut self) -> Result<Outcome<Record>, Error> {
        let kind = self.operation()?.kind;
        let base = self.operation()?.base;
        let undoes = self.operation()?.undoes.clone();
        for old in &mut self.history {
            let failed_base =
                old.version == base && old.info.status == Status::Failed && kind == Kind::Upgrade;
            if old.info.status == Status::Deployed || failed_base {
                old.info.status = Status::Superseded;
                self.target.storage.update(old).await?;
            }
        }
        let description = match kind {
            Kind::Install => "Install complete".to_owned(),
            Kind::Rollback => format!("Rollback to {}", self.record.info.rollback_revision.unwrap_or(0)),
            _ => "Upgrade complete".to_owned(),
        };
        self.record.set(Status::Deployed, description);
        self.target.storage.update(&mut self.record).await?;
        match undoes {
            None => Ok(Outcome::Done(self.record)),
            Some(why) => Err(Error::other(
                "taken-back",
                format!(
                    "release {} failed and has been rolled back to revision {}: {why}",
                    self.target.name,
                    self.record.info.rollback_revision.unwrap_or(0)
                ),
            )),
        }
    }

    async fn fail(mut self, e: Error) -> Result<Outcome<Record>, Error> {
        let operation = self.operation()?.clone();
        let word = match operation.kind {
            Kind::Install => "Release",
            Kind::Rollback => "Rollback",
            _ => "Upgrade",
        };
        let why: String = e.to_string().chars().take(DESCRIPTION).collect();
        self.record.set(Status::Failed, format!("{word} {:?} failed: {why}", self.target.name));
        let undo = self.options.atomic && operation.undoes.is_none() && operation.kind != Kind::Rollback;
        if let Some(o) = self.record.operation.as_mut() {
            o.why = None;
            o.enter(Stage::Done);
            if undo {
                o.enter(Stage::Before);
                o.undoes = Some(why.clone());
            }
        }
        // As Helm does when a rollback's objects cannot be applied.
        if operation.kind == Kind::Rollback
            && operation.stage == Stage::Objects
            && let Some(current) = self.history.iter_mut().find(|r| r.version == operation.base)
        {
            current.info.status = Status::Superseded;
            self.target.storage.update(current).await?;
        }
        self.target.storage.update(&mut self.record).await?;
        match operation.undoes {
            Some(first) => Err(Error::other(
                "taken-back",
                format!("release {} failed ({first}), and so did taking it back: {why}", self.target.name),
            )),
            None if undo => take_back(self.target, self.asked, self.options).await,
            None => Err(e),
        }
    }
}

/// What atomic does after a failure that the newest record tells: an install is uninstalled, an upgrade rolled back to
/// the last revision that was deployed.
pub(crate) async fn take_back(
    target: &Target<'_>,
    asked: &Asked,
    options: &Options,
) -> Result<Outcome<Record>, Error> {
    let mut history = target.history().await?;
    let Some(failed) = history.pop() else { return Err(Error::NotFound) };
    let operation = failed.operation.clone().ok_or_else(|| lost(&failed))?;
    let why = operation.undoes.clone().unwrap_or_default();
    if operation.kind == Kind::Install {
        return uninstall::begin(target, asked, history, failed, Some(why)).await;
    }
    let good = [Status::Superseded, Status::Deployed];
    let Some(to) = history.iter().rev().find(|r| good.contains(&r.info.status)).map(|r| r.version) else {
        return Err(Error::other(
            "taken-back",
            format!("release {} failed ({why}), and no revision is left to roll back to", target.name),
        ));
    };
    history.push(failed);
    Box::pin(rollback::begin(target, asked, options, history, to, Some(why))).await
}
