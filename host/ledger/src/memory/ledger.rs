//! The ledger in memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use sutler_model::{Application, Digest, OverQuota, Pair};

use crate::wake::Wake;
use crate::{
    Answer, Audit, AuditFilter, Begun, Claim, Clock, Depth, Event, Filter, Held, Job, JobId, Ledger,
    LedgerError, Millis, NewJob, Problem, Record, Takes, Write,
};

use super::state::State;

/// When a [`Hook`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// An error here means that nothing is done.
    Before,
    /// The operation is done; an error here only hides it from the caller.
    After,
}

/// Called around each operation with its method's name; an error that it gives is the operation's answer.
pub type Hook = Arc<dyn Fn(&'static str, Moment) -> Option<LedgerError> + Send + Sync>;

/// A ledger for tests and simulations. It keeps nothing beyond the process and seals nothing.
pub struct Memory {
    state: Mutex<State>,
    clock: Clock,
    hook: Option<Hook>,
    wake: Wake,
}

impl Memory {
    pub fn new(clock: Clock) -> Self {
        Self { state: Mutex::default(), clock, hook: None, wake: Wake::default() }
    }
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.hook = Some(hook);
        self
    }

    fn ask(&self, name: &'static str, moment: Moment) -> Result<(), LedgerError> {
        self.hook.as_ref().and_then(|h| h(name, moment)).map_or(Ok(()), Err)
    }

    /// Runs an operation under the lock when it is polled, with the hook around it.
    fn run<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        f: impl FnOnce(&mut State, Millis) -> Result<T, LedgerError> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            self.ask(name, Moment::Before)?;
            let got = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.latest = state.latest.max(self.clock.now());
                let now = state.latest;
                f(&mut state, now)?
            };
            self.ask(name, Moment::After)?;
            Ok(got)
        })
    }
}

impl Ledger for Memory {
    fn now(&self) -> Answer<'_, Millis> {
        self.run("now", |_, now| Ok(now))
    }
    fn begin(&self, new: NewJob) -> Answer<'_, Begun> {
        self.run("begin", move |s, now| {
            let begun = s.begin(&new, now);
            if let Begun::Created(job) = &begun {
                self.wake.written(job);
            }
            Ok(begun)
        })
    }
    fn asked<'a>(
        &'a self,
        caller: &'a str,
        route: &'a str,
        request_id: &'a str,
    ) -> Answer<'a, Option<(Job, [u8; 32])>> {
        self.run("asked", move |s, _| Ok(s.asked(caller, route, request_id)))
    }
    fn over_quota(
        &self,
        application: Application,
        pair: Pair,
        takes: Takes,
    ) -> Answer<'_, Option<OverQuota>> {
        self.run("over_quota", move |s, _| Ok(s.over_quota(&application, &pair, &takes)))
    }
    fn commit(&self, write: Write) -> Answer<'_, Job> {
        self.run("commit", move |s, now| s.commit(&write, now).inspect(|job| self.wake.written(job)))
    }
    fn claim(&self, claim: Claim) -> Answer<'_, Vec<Job>> {
        self.run("claim", move |s, now| Ok(s.claim(&claim, now)))
    }
    fn renew(&self, holder: Arc<str>, held: Vec<Held>) -> Answer<'_, Vec<JobId>> {
        self.run("renew", move |s, now| Ok(s.renew(&holder, &held, now)))
    }
    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        self.run("job", move |s, _| Ok(s.jobs.get(&id).map(|e| e.job.clone())))
    }
    fn brief(&self, id: JobId) -> Answer<'_, Option<Job>> {
        let brief = |job: &Job| {
            let state = if job.standing.status.is_final() { "".into() } else { job.state.clone() };
            Job { request: "".into(), state, ..job.clone() }
        };
        self.run("brief", move |s, _| Ok(s.jobs.get(&id).map(|e| brief(&e.job))))
    }
    fn jobs(&self, filter: Filter) -> Answer<'_, Vec<Job>> {
        self.run("jobs", move |s, _| Ok(s.jobs(&filter)))
    }
    fn events(&self, id: JobId, after: u64, limit: u32) -> Answer<'_, Vec<Event>> {
        self.run("events", move |s, _| Ok(s.events(&id, after, limit)))
    }
    fn keep_plugin(&self, digest: Digest, bytes: Bytes) -> Answer<'_, ()> {
        self.run("keep_plugin", move |s, now| {
            s.plugins.insert(digest, (bytes, now));
            Ok(())
        })
    }
    fn plugin(&self, digest: Digest) -> Answer<'_, Option<Bytes>> {
        self.run("plugin", move |s, _| Ok(s.plugins.get(&digest).map(|(b, _)| b.clone())))
    }
    fn woken(&self, at_most: Duration) -> BoxFuture<'_, ()> {
        self.wake.wait(at_most)
    }
    fn next_due(&self) -> Answer<'_, Option<Millis>> {
        self.run("next_due", |s, now| Ok(s.next_due(now)))
    }
    fn depth(&self) -> Answer<'_, Depth> {
        self.run("depth", |s, now| Ok(s.depth(now)))
    }
    fn purge(&self, final_for: Duration) -> Answer<'_, u64> {
        self.run("purge", move |s, now| Ok(s.purge(final_for, now)))
    }
    fn audit(&self, row: Audit) -> Answer<'_, ()> {
        self.run("audit", move |s, now| {
            s.append(Audit { at: now, ..row });
            Ok(())
        })
    }
    fn audited(&self, filter: AuditFilter) -> Answer<'_, Vec<Audit>> {
        self.run("audited", move |s, _| Ok(s.audited(&filter)))
    }
    fn forget_audited(&self, older_than: Duration) -> Answer<'_, u64> {
        self.run("forget_audited", move |s, now| Ok(s.forget_audited(older_than, now)))
    }
    fn check(&self) -> Answer<'_, Vec<Problem>> {
        self.run("check", |s, _| Ok(s.check()))
    }
    fn export(&self) -> BoxStream<'_, Result<Record, LedgerError>> {
        let records = self.run("export", |s, _| Ok(s.export()));
        stream::once(records)
            .flat_map(|got| match got {
                Ok(records) => stream::iter(records).map(Ok).boxed(),
                Err(e) => stream::once(async { Err(e) }).boxed(),
            })
            .boxed()
    }
    fn import(&self, record: Record) -> Answer<'_, ()> {
        self.run("import", move |s, now| s.import(record, now))
    }
}
