//! The rows and what is done with them under the lock. Each operation looks first and writes only then.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use sutler_model::{Application, Digest, OverQuota, Pair, Use};

use crate::{
    Audit, AuditFilter, Begun, Depth, Event, Filter, Held, Job, JobId, LedgerError, Millis, NewJob, Problem,
    Record, Taken, Takes, Write, audit, check, rules, takes,
};

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) job: Job,
    pub(super) route: String,
    pub(super) body: [u8; 32],
    pub(super) events: Vec<Event>,
}

/// Caller, route, request id.
type RequestKey = (String, String, String);

#[derive(Default)]
pub(super) struct State {
    pub(super) jobs: BTreeMap<JobId, Entry>,
    requests: BTreeMap<RequestKey, JobId>,
    resources: HashMap<(String, String), JobId>,
    /// By scope and resource.
    taken: BTreeMap<(String, String), Taken>,
    /// With when they were kept.
    pub(super) plugins: BTreeMap<Digest, (Bytes, Millis)>,
    audit: Vec<Audit>,
    /// Rows of the audit that there ever were.
    audited: u64,
    /// The tenant that was served last.
    pub(super) last: Option<String>,
    /// So that time never goes back.
    pub(super) latest: Millis,
}

/// The digits of an id sort by age; its prefix does not.
pub(super) fn age(id: &JobId) -> &str {
    id.as_str().rsplit('_').next().unwrap_or_default()
}

impl State {
    fn holders(&self, job: &Job) -> Vec<&JobId> {
        let scope = rules::scope(&job.application, &job.pair);
        let held = |r: &sutler_model::Identifier| self.resources.get(&(scope.clone(), r.to_string()));
        job.resources.iter().filter_map(held).filter(|id| **id != job.id).collect()
    }

    /// The later job that changed one of the job's resources last.
    fn later(&self, job: &Job) -> Option<&JobId> {
        let scope = rules::scope(&job.application, &job.pair);
        let last =
            |r: &sutler_model::Identifier| self.taken.get(&(scope.clone(), r.to_string()))?.job.as_ref();
        let there = |id: &&JobId| age(id) > age(&job.id) && self.jobs.contains_key(*id);
        job.resources.iter().filter_map(last).find(there)
    }

    /// Takes or frees the job's resources, as its status wants.
    fn settle(&mut self, job: &Job) {
        let scope = rules::scope(&job.application, &job.pair);
        for r in &job.resources {
            let key = (scope.clone(), r.to_string());
            if !job.standing.status.is_final() {
                self.resources.insert(key, job.id.clone());
            } else if self.resources.get(&key) == Some(&job.id) {
                self.resources.remove(&key);
            }
        }
    }

    pub(super) fn begin(&mut self, new: &NewJob, now: Millis) -> Begun {
        let job = rules::born(new, now);
        let key = (job.caller.clone(), new.route.to_owned(), job.request_id.clone());
        if let Some(entry) = self.requests.get(&key).and_then(|id| self.jobs.get(id)) {
            return if entry.body == new.body {
                Begun::Repeated(entry.job.clone())
            } else {
                Begun::Reused(entry.job.id.clone())
            };
        }
        if let Some(id) = self.holders(&job).first().copied().cloned() {
            let joined = self.jobs.get(&id).filter(|e| e.body == new.body && rules::joins(&e.job, &job));
            let Some(other) = joined.map(|e| e.job.clone()) else { return Begun::Busy(id) };
            self.requests.insert(key, id);
            return Begun::Joined(other);
        }
        if let Some(over) = self.over_quota(&job.application, &job.pair, &new.takes) {
            return Begun::OverQuota(over);
        }
        self.take(&job, &new.takes);
        self.requests.insert(key, job.id.clone());
        self.settle(&job);
        Audit::of_new(new, &job).into_iter().for_each(|row| self.append(row));
        let events = rules::events(0, &new.events, now);
        let entry = Entry { job: job.clone(), route: new.route.into(), body: new.body, events };
        self.jobs.insert(job.id.clone(), entry);
        Begun::Created(job)
    }

    pub(super) fn append(&mut self, row: Audit) {
        self.audited += 1;
        self.audit.push(Audit { n: self.audited, ..row });
    }

    pub(super) fn audited(&self, filter: &AuditFilter) -> Vec<Audit> {
        let mut found: Vec<&Audit> = self.audit.iter().filter(|row| filter.takes(row)).collect();
        found.sort_unstable_by_key(|row| Reverse(row.place()));
        found.into_iter().take(filter.limit as usize).cloned().collect()
    }

    pub(super) fn forget_audited(&mut self, older_than: Duration, now: Millis) -> u64 {
        let cutoff = audit::cutoff(now, older_than);
        let all = self.audit.len();
        self.audit.retain(|row| row.at.0 > cutoff);
        (all - self.audit.len()) as u64
    }

    fn counts(&self, taken: &Taken) -> Option<Use> {
        let job = taken.job.as_ref().and_then(|id| self.jobs.get(id));
        taken.counts(job.map(|e| e.job.standing.status))
    }

    pub(super) fn over_quota(
        &self,
        application: &Application,
        pair: &Pair,
        takes: &Takes,
    ) -> Option<OverQuota> {
        let scope = rules::scope(application, pair);
        let mut before = takes::Counted::default();
        let (mut all, mut of_tenant) = (HashSet::new(), HashSet::new());
        for ((at, resource), taken) in &self.taken {
            let (Some(used), a) = (self.counts(taken), &taken.application) else { continue };
            if a.instance != application.instance {
                continue;
            }
            before.instance.used = before.instance.used + used;
            all.insert((&a.tenant, &a.environment, &a.id));
            if a.tenant == application.tenant {
                before.tenant.used = before.tenant.used + used;
                of_tenant.insert((&a.environment, &a.id));
            }
            if *at == scope {
                before.own.insert(resource.clone(), used);
            }
        }
        before.application = of_tenant.contains(&(&application.environment, &application.id));
        before.instance.applications = all.len() as u64;
        before.tenant.applications = of_tenant.len() as u64;
        takes::over(takes, &before)
    }

    fn take(&mut self, job: &Job, takes: &Takes) {
        let scope = rules::scope(&job.application, &job.pair);
        for (resource, after) in &takes.resources {
            let key = (scope.clone(), resource.to_string());
            let before = self.taken.get(&key).and_then(|t| self.counts(t));
            if before.is_none() && after.is_none() {
                continue;
            }
            let taken = Taken {
                application: job.application.clone(),
                pair: job.pair.clone(),
                resource: resource.clone(),
                job: Some(job.id.clone()),
                before,
                after: *after,
            };
            self.taken.insert(key, taken);
        }
    }

    pub(super) fn asked(&self, caller: &str, route: &str, request_id: &str) -> Option<(Job, [u8; 32])> {
        let id = self.requests.get(&(caller.into(), route.into(), request_id.into()))?;
        self.jobs.get(id).map(|e| (e.job.clone(), e.body))
    }

    pub(super) fn commit(&mut self, write: &Write, now: Millis) -> Result<Job, LedgerError> {
        let entry = self.jobs.get(&write.id).ok_or_else(|| LedgerError::NotFound(write.id.clone()))?;
        let job = rules::written(&entry.job, write, now)?;
        if !job.standing.status.is_final()
            && let Some(other) = self.holders(&job).first()
        {
            return Err(LedgerError::Busy((*other).clone()));
        }
        if entry.job.standing.status.is_final()
            && !job.standing.status.is_final()
            && let Some(later) = self.later(&job)
        {
            return Err(LedgerError::Superseded(later.clone()));
        }
        self.settle(&job);
        self.put(job.clone(), &write.events, now);
        Audit::of_write(write, &job).into_iter().for_each(|row| self.append(row));
        Ok(job)
    }

    /// The row as it is now, and what happened to it.
    pub(super) fn put(&mut self, job: Job, what: &[crate::Happened], now: Millis) {
        if let Some(entry) = self.jobs.get_mut(&job.id) {
            let last = entry.events.last().map_or(0, |e| e.seq);
            entry.events.extend(rules::events(last, what, now));
            entry.job = job;
        }
    }

    pub(super) fn renew(&mut self, holder: &str, held: &[Held], now: Millis) -> Vec<JobId> {
        let mut lost = Vec::new();
        for h in held {
            let row = self.jobs.get_mut(&h.id).map(|e| &mut e.job).filter(|j| j.token == h.token);
            match row.and_then(|j| j.lease.as_mut()).filter(|l| *l.holder == *holder) {
                Some(lease) => lease.until = now.plus(h.lease),
                None => lost.push(h.id.clone()),
            }
        }
        lost
    }

    pub(super) fn jobs(&self, filter: &Filter) -> Vec<Job> {
        let a = |j: &Job| j.application.clone();
        let text = |i: &Option<sutler_model::Identifier>| i.as_ref().map(ToString::to_string);
        let mut found: Vec<&Job> = self
            .jobs
            .values()
            .map(|e| &e.job)
            .filter(|j| filter.caller.as_ref().is_none_or(|c| *c == j.caller))
            .filter(|j| filter.status.is_none_or(|s| s == j.standing.status))
            .filter(|j| filter.pair.as_ref().is_none_or(|p| *p == j.pair))
            .filter(|j| filter.instance.is_none() || filter.instance == text(&a(j).instance))
            .filter(|j| filter.tenant.is_none() || filter.tenant == text(&a(j).tenant))
            .filter(|j| filter.application.as_ref().is_none_or(|x| x == a(j).id.as_str()))
            .filter(|j| filter.environment.as_ref().is_none_or(|x| x == a(j).environment.as_str()))
            .filter(|j| filter.before.as_ref().is_none_or(|b| age(&j.id) < age(b)))
            .collect();
        found.sort_by(|x, y| age(&y.id).cmp(age(&x.id)));
        found.into_iter().take(filter.limit as usize).cloned().collect()
    }

    pub(super) fn events(&self, id: &JobId, after: u64, limit: u32) -> Vec<Event> {
        let all = self.jobs.get(id).map(|e| e.events.as_slice()).unwrap_or_default();
        all.iter().filter(|e| e.seq > after).take(limit as usize).cloned().collect()
    }

    pub(super) fn depth(&self, now: Millis) -> Depth {
        let mut depth = Depth::default();
        for job in self.jobs.values().map(|e| &e.job) {
            *depth.jobs.entry(job.standing.status.as_str()).or_default() += 1;
            if let Some(due) = rules::claimable_from(job, Duration::ZERO).filter(|due| *due <= now) {
                depth.due += 1;
                depth.oldest_due = depth.oldest_due.max(now.since(due));
            }
        }
        depth
    }

    pub(super) fn next_due(&self, now: Millis) -> Option<Millis> {
        let due = self.jobs.values().filter_map(|e| rules::claimable_from(&e.job, Duration::ZERO));
        due.filter(|due| *due > now).min()
    }

    pub(super) fn purge(&mut self, final_for: Duration, now: Millis) -> u64 {
        let old = |e: &&Entry| e.job.standing.status.is_final() && e.job.updated.plus(final_for) <= now;
        let gone: HashSet<JobId> =
            self.jobs.values().filter(old).take(300).map(|e| e.job.id.clone()).collect();
        self.forget_takes(&gone);
        self.jobs.retain(|id, _| !gone.contains(id));
        self.requests.retain(|_, id| !gone.contains(id));
        let used: HashSet<Digest> = self.jobs.values().map(|e| e.job.digest).collect();
        self.plugins.retain(|d, (_, kept)| used.contains(d) || kept.plus(final_for) > now);
        gone.len() as u64
    }

    /// What counted while the jobs were there counts on without them.
    fn forget_takes(&mut self, gone: &HashSet<JobId>) {
        let is_gone = |t: &Taken| t.job.as_ref().is_some_and(|id| gone.contains(id));
        let settled: Vec<_> = self.taken.iter().filter(|(_, t)| is_gone(t)).collect();
        let settled: Vec<_> = settled.into_iter().map(|(k, t)| (k.clone(), self.counts(t))).collect();
        for (key, counts) in settled {
            match (counts, self.taken.get_mut(&key)) {
                (Some(_), Some(t)) => (t.job, t.before, t.after) = (None, counts, counts),
                _ => drop(self.taken.remove(&key)),
            }
        }
    }

    pub(super) fn check(&self) -> Vec<Problem> {
        self.jobs.values().flat_map(|e| check::job(&e.job, &e.events)).collect()
    }

    pub(super) fn export(&self) -> Vec<Record> {
        let plugins = self.plugins.iter().map(|(d, (b, _))| Record::Plugin { digest: *d, bytes: b.clone() });
        let mut entries: Vec<&Entry> = self.jobs.values().collect();
        entries.sort_by(|x, y| age(&x.job.id).cmp(age(&y.job.id)));
        let jobs = entries.into_iter().map(|e| Record::Job {
            job: Box::new(e.job.clone()),
            events: e.events.clone(),
            route: e.route.clone(),
            body: e.body,
        });
        let own =
            |(key, id): &(&RequestKey, &JobId)| self.jobs.get(*id).is_some_and(|e| e.job.request_id == key.2);
        let others = self.requests.iter().filter(|x| !own(x)).map(|((caller, route, request_id), id)| {
            let (caller, route, request_id) = (caller.clone(), route.clone(), request_id.clone());
            Record::Request { caller, route, request_id, job: id.clone() }
        });
        let taken = self.taken.values().cloned().map(Record::Taken);
        let audit = self.audit.iter().cloned().map(Record::Audit);
        plugins.chain(jobs).chain(others).chain(taken).chain(audit).collect()
    }

    pub(super) fn import(&mut self, record: Record, now: Millis) -> Result<(), LedgerError> {
        match record {
            Record::Plugin { digest, bytes } => {
                self.plugins.insert(digest, (bytes, now));
            }
            Record::Taken(taken) => {
                let scope = rules::scope(&taken.application, &taken.pair);
                self.taken.insert((scope, taken.resource.to_string()), taken);
            }
            Record::Audit(row) => self.append(row),
            Record::Request { caller, route, request_id, job } => {
                if !self.jobs.contains_key(&job) {
                    return Err(LedgerError::NotFound(job));
                }
                self.requests.insert((caller, route, request_id), job);
            }
            Record::Job { job, events, route, body } => {
                if self.jobs.contains_key(&job.id) {
                    return Err(rules::already(&job.id));
                }
                if !job.standing.status.is_final()
                    && let Some(other) = self.holders(&job).first()
                {
                    return Err(LedgerError::Busy((*other).clone()));
                }
                let key = (job.caller.clone(), route.clone(), job.request_id.clone());
                self.requests.insert(key, job.id.clone());
                self.settle(&job);
                self.jobs.insert(job.id.clone(), Entry { job: *job, route, body, events });
            }
        }
        Ok(())
    }
}
