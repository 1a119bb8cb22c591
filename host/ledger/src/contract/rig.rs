//! The ledger under test, and jobs to put into it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_model::{Action, Application, Digest, Identifier, Pair, PluginName};

use crate::{
    Begun, Claim, Happened, Job, JobId, JobKind, JobMode, LeaseChange, Ledger, LedgerError, Limits, Millis,
    NewJob, Phase, Standing, Status, Takes, Write,
};

/// A ledger whose clock the suite can move.
pub trait Rig: Send + Sync {
    fn ledger(&self) -> Arc<dyn Ledger>;
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()>;
    /// Another, empty one of the same sort.
    fn another(&self) -> BoxFuture<'_, Arc<dyn Ledger>>;
}

/// A job to be made; each field is what a test wants to vary.
#[derive(Debug, Clone)]
pub struct Sample {
    pub caller: &'static str,
    pub request_id: String,
    pub tenant: String,
    pub application: String,
    pub plugin: &'static str,
    pub pair: &'static str,
    pub resources: Vec<&'static str>,
    pub body: u8,
    pub status: Status,
    pub lease: Option<(&'static str, u64)>,
    pub due_after: Duration,
    pub instance: Option<&'static str>,
    pub takes: Takes,
    /// Of the resources, for the audit; none are left out of it.
    pub actions: Vec<Action>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            caller: "axual",
            request_id: "r-1".into(),
            tenant: "acme".into(),
            application: "orders".into(),
            plugin: "topics",
            pair: "deployment/ksml",
            resources: vec!["main"],
            body: 1,
            status: Status::Queued,
            lease: None,
            due_after: Duration::ZERO,
            instance: None,
            takes: Takes::default(),
            actions: Vec::new(),
        }
    }
}

pub(super) fn id(s: &str) -> Identifier {
    Identifier::parse(s).unwrap()
}

impl Sample {
    /// A job like this one that shares neither request id nor application with another number's.
    pub fn nth(&self, n: usize) -> Self {
        Self { request_id: format!("r-{n}"), application: format!("app-{n}"), ..self.clone() }
    }
    pub fn tenant(&self, tenant: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), ..self.clone() }
    }

    pub fn new_job(&self) -> NewJob {
        let lease: Option<(Arc<str>, Duration)> =
            self.lease.map(|(h, secs)| (h.into(), Duration::from_secs(secs)));
        let mut events = vec![Happened::Submitted];
        if let Some((holder, _)) = &lease {
            events.push(Happened::Claimed { token: 1, holder: holder.to_string() });
            events.push(Happened::StepStarted { step: String::new(), attempt: 1 });
        }
        NewJob {
            job: self.job(),
            due_after: self.due_after,
            deadline_after: Duration::from_secs(86400),
            lease,
            route: "apply",
            body: [self.body; 32],
            events,
            takes: self.takes.clone(),
            actions: self.actions.clone(),
        }
    }

    fn job(&self) -> Job {
        let status = if self.lease.is_some() { Status::Running } else { self.status };
        Job {
            id: JobId::operation(),
            kind: JobKind::Provisioning,
            mode: JobMode::Create,
            subject_type: "application".into(),
            subject_id: self.application.clone(),
            pair: self.pair.parse::<Pair>().unwrap(),
            application: Application {
                id: id(&self.application),
                environment: id("prod"),
                tenant: (!self.tenant.is_empty()).then(|| id(&self.tenant)),
                instance: self.instance.map(id),
            },
            resources: self.resources.iter().map(|r| id(r)).collect(),
            plugin: PluginName::parse(self.plugin).unwrap(),
            digest: Digest::of(self.plugin.as_bytes()),
            caller: self.caller.into(),
            request_id: self.request_id.clone(),
            standing: Standing {
                status,
                phase: Phase::Forward,
                step: String::new(),
                attempt: 1,
                cancel_requested: false,
            },
            due: Millis(0),
            lease: None,
            token: 0,
            revision: 0,
            deadline: Millis(0),
            created: Millis(0),
            updated: Millis(0),
            request: format!("{{\"password\":\"{SECRET}\",\"n\":{}}}", self.body).into(),
            state: "{}".into(),
            answer: None,
        }
    }

    /// Makes the job, which must be a new one.
    pub async fn create(&self, ledger: &dyn Ledger) -> Job {
        match ledger.begin(self.new_job()).await.unwrap() {
            Begun::Created(job) => job,
            other => panic!("expected a new job, got {other:?}"),
        }
    }
}

/// Stands in every request of a sample, and must not be seen in a file.
pub const SECRET: &str = "only-the-plugin-may-know";

/// A write that changes nothing but the revision.
pub(super) fn write(job: &Job) -> Write {
    Write {
        id: job.id.clone(),
        revision: job.revision,
        token: Some(job.token),
        standing: job.standing.clone(),
        due_after: Duration::ZERO,
        lease: LeaseChange::Keep,
        state: None,
        answer: None,
        generation: None,
        deadline_after: None,
        events: vec![Happened::Saved],
        deed: None,
    }
}

/// A write that ends the job.
pub(super) fn end(job: &Job, status: Status) -> Write {
    let event = match status {
        Status::Completed => Happened::Completed,
        Status::Cancelled => Happened::Cancelled,
        _ => Happened::Failed { code: "quota-exceeded".into() },
    };
    let mut w = write(job);
    w.standing.status = status;
    w.answer = Some(Some("{\"outcome\":\"done\"}".into()));
    w.events = vec![event];
    w
}

/// A write that parks the job.
pub(super) fn park(job: &Job, pause: Duration) -> Write {
    let due = Millis(0).plus(pause);
    let mut w = write(job);
    w.standing.status = Status::Running;
    w.due_after = pause;
    w.lease = LeaseChange::Release;
    w.events = vec![Happened::Waiting { due }];
    w
}

pub(super) fn claim(holder: &str, places: u32) -> Claim {
    Claim {
        holder: holder.into(),
        places,
        lease_of: std::collections::BTreeMap::new(),
        lease: Duration::from_secs(30),
        takeover_after: Duration::from_secs(10),
        digests: None,
        limits: Limits::default(),
    }
}

pub(super) async fn claimed(ledger: &dyn Ledger, c: Claim) -> Vec<Job> {
    ledger.claim(c).await.unwrap()
}

pub(super) async fn row(ledger: &dyn Ledger, job: &Job) -> Job {
    ledger.job(job.id.clone()).await.unwrap().expect("the job is there")
}

pub(super) async fn history(ledger: &dyn Ledger, job: &Job) -> Vec<&'static str> {
    let events = ledger.events(job.id.clone(), 0, 1000).await.unwrap();
    for (n, e) in (1..).zip(&events) {
        assert_eq!(e.seq, n, "events of a job have no gaps");
    }
    events.iter().map(|e| e.what.name()).collect()
}

pub(super) fn is_stale(got: &Result<Job, LedgerError>) -> bool {
    matches!(got, Err(LedgerError::Stale(_)))
}
