//! Which of our operations a revision is and how far it came: an annotation on the record's Secret, so that the call
//! that comes again, on this host or another, finds its place. Helm itself copies labels from revision to revision, but
//! never annotations: what Helm wrote carries none.

use chrono::Utc;
use serde::{Deserialize, Serialize};
use sutler_model::{Call, Digest};

use super::record::{Record, Status};
use crate::types::Options;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
    Test,
}

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// The hooks before the objects.
    Before,
    /// The objects: applied, or removed.
    Objects,
    /// Until they are ready, where that is asked for.
    Ready,
    /// The hooks after them.
    After,
    Done,
}

/// Where the hook at work stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// What an earlier run left is removed.
    #[default]
    Clear,
    /// Its objects are created; its run is recorded.
    Create,
    /// Its objects are there and run.
    Watch,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Hash of the owner who asked.
    pub(crate) owner: String,
    /// Digest of what was asked.
    pub(crate) request: String,
    /// Digest of the call's own id: the same job asks again.
    pub(crate) call: String,
    /// The job at work: an operation of the provisioner API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) stage: Stage,
    /// The revision whose objects were there before; 0 for none.
    pub(crate) base: u32,
    /// How many hooks or objects of the stage are done.
    #[serde(default)]
    pub(crate) at: usize,
    #[serde(default)]
    pub(crate) step: Step,
    /// Which of the objects of the hook at work were seen to end well: some of them are gone soon after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended: Vec<usize>,
    /// When the stage, or its hook, began: Unix seconds.
    #[serde(default)]
    pub(crate) since: i64,
    /// Why the hook at work failed: only cleaning up is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// This takes an operation back that failed: why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) undoes: Option<String>,
}

/// What a call asks of a release; two are the same where all of it is.
pub(crate) struct Asked {
    pub(crate) owner: String,
    pub(crate) request: String,
    pub(crate) call: String,
    pub(crate) job: Option<String>,
}

fn digest(parts: &[&str]) -> String {
    let mut text = String::new();
    for p in parts {
        use std::fmt::Write as _;
        let _ = write!(text, "{}:{p}", p.len());
    }
    Digest::of(text.as_bytes()).hex().chars().take(32).collect()
}

impl Asked {
    /// `what` names function and arguments: a chart's digest and its values, or a revision.
    pub(crate) fn new(call: &Call, what: &[&str], o: &Options) -> Self {
        let options = format!(
            "{}{}{}{}{}/{}",
            o.create_namespace, o.take_ownership, o.force_conflicts, o.atomic, o.wait_for_jobs, o.history_max
        );
        let owner = call.owner.hash();
        let parts: Vec<&str> = [owner.as_str(), &options].into_iter().chain(what.iter().copied()).collect();
        let request = digest(&parts);
        let job = call.job.as_deref().map(str::to_owned);
        let call = digest(&[&owner, &call.request_id]);
        Self { owner, request, call, job }
    }

    pub(crate) fn operation(&self, kind: Kind, base: u32) -> Operation {
        Operation {
            owner: self.owner.clone(),
            request: self.request.clone(),
            call: self.call.clone(),
            job: self.job.clone(),
            kind,
            stage: Stage::Before,
            base,
            at: 0,
            step: Step::Clear,
            ended: Vec::new(),
            since: Utc::now().timestamp(),
            why: None,
            undoes: None,
        }
    }
}

/// What the newest revision means for a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is under way.
    Free,
    /// This very call is under way: it goes on.
    Ours,
    /// The same owner began something else.
    Dead,
    /// Somebody else holds the release.
    Held,
    /// This very call ended with this revision.
    Ended,
}

impl Asked {
    pub(crate) fn standing(&self, last: &Record) -> Standing {
        let held = last.info.status.is_pending() || last.info.status == Status::Uninstalling;
        let mine = last.operation.as_ref().filter(|o| o.owner == self.owner && o.stage != Stage::Done);
        let same = mine.is_some_and(|o| o.request == self.request);
        let undone = last.info.status == Status::Failed && mine.is_some_and(|o| o.undoes.is_some());
        let tests = mine.is_some_and(|o| o.kind == Kind::Test);
        let ended = last.operation.as_ref().is_some_and(|o| {
            o.stage == Stage::Done && o.request == self.request && o.call == self.call && o.undoes.is_none()
        });
        match (held, mine.is_some(), same) {
            (true, _, true) => Standing::Ours,
            (true, true, false) => Standing::Dead,
            (true, false, _) => Standing::Held,
            (false, _, true) if undone || tests => Standing::Ours,
            _ if ended && last.info.status == Status::Deployed => Standing::Ended,
            _ => Standing::Free,
        }
    }
}

impl Operation {
    pub(crate) const ANNOTATION: &'static str = "sutler.dev/operation";

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn of_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// To the next stage, from its beginning.
    pub(crate) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.at = 0;
        self.first_step();
        self.since = Utc::now().timestamp();
    }

    /// To the first step of a hook.
    pub(crate) fn first_step(&mut self) {
        self.step = Step::Clear;
        self.ended.clear();
    }

    /// The event whose hooks the stage runs.
    pub(crate) const fn event(&self) -> &'static str {
        match (self.kind, self.stage) {
            (Kind::Install, Stage::Before) => "pre-install",
            (Kind::Install, _) => "post-install",
            (Kind::Upgrade, Stage::Before) => "pre-upgrade",
            (Kind::Upgrade, _) => "post-upgrade",
            (Kind::Rollback, Stage::Before) => "pre-rollback",
            (Kind::Rollback, _) => "post-rollback",
            (Kind::Uninstall, Stage::Before) => "pre-delete",
            (Kind::Uninstall, _) => "post-delete",
            (Kind::Test, _) => "test",
        }
    }

    /// `install`, as messages call it.
    pub(crate) const fn word(&self) -> &'static str {
        match self.kind {
            Kind::Install => "install",
            Kind::Upgrade => "upgrade",
            Kind::Rollback => "rollback",
            Kind::Uninstall => "uninstall",
            Kind::Test => "test",
        }
    }
}
