//! What every ledger does alike, as functions of values: how a row looks after a write, and when it may be claimed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use sutler_model::{Application, Digest, OverQuota, Pair, PluginName};

use crate::{
    Begun, Claim, Event, Happened, Job, JobId, Lease, LeaseChange, LedgerError, Limits, Millis, NewJob,
    Status, Write,
};

/// Whose resources a job works on: resources of two scopes never meet. Identifiers hold no slash.
pub(crate) fn scope(application: &Application, pair: &Pair) -> String {
    let a = application;
    format!("{}/{}/{}/{pair}", tenancy(a), a.environment, a.id)
}

/// Who takes turns with whom in claims: the tenants of all instances, and those without one.
pub(crate) fn tenancy(application: &Application) -> String {
    let text = |i: &Option<sutler_model::Identifier>| i.as_ref().map_or("", |i| i.as_str()).to_owned();
    format!("{}/{}", text(&application.instance), text(&application.tenant))
}

/// Numbers that count never reach the half that is cut off.
pub(crate) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// `queue` and `wake` of a row as it is written; claims alone make a job ready.
pub(crate) fn queue(job: &Job) -> (i16, i64) {
    match (in_queue(job.standing.status), &job.lease) {
        (false, _) => (3, 0),
        (true, Some(lease)) => (1, lease.until.0),
        (true, None) => (0, job.due.0),
    }
}

/// What is wrong with the queue that a job stands in.
pub(crate) fn misplaced(job: &Job, (queue, wake): (i64, i64)) -> Option<String> {
    let (expected, until) = self::queue(job);
    let expected = (i64::from(expected), until);
    let ready = queue == 2 && expected.0 < 2 && wake == expected.1;
    let wrong = !ready && (queue, wake) != expected;
    wrong.then(|| format!("waits in queue {queue} until {wake} instead of {expected:?}"))
}

/// What came of wanting a job, as `Begun`, with the texts of a found row still sealed.
#[expect(clippy::large_enum_variant, reason = "one at a time, on its way to the caller")]
pub(crate) enum Found<Row> {
    Created(Job),
    Repeated(Row),
    Reused(JobId),
    Joined(Row),
    Busy(JobId),
    OverQuota(OverQuota),
}

impl<Row> Found<Row> {
    pub(crate) fn open(self, open: impl Fn(Row) -> Result<Job, LedgerError>) -> Result<Begun, LedgerError> {
        Ok(match self {
            Self::Created(job) => Begun::Created(job),
            Self::Repeated(row) => Begun::Repeated(open(row)?),
            Self::Joined(row) => Begun::Joined(open(row)?),
            Self::Reused(id) => Begun::Reused(id),
            Self::Busy(id) => Begun::Busy(id),
            Self::OverQuota(over) => Begun::OverQuota(over),
        })
    }
}

/// Whether a new job is what an unfinished one with an equal body does already. Another caller's has to bear the
/// same request id too: whoever only tries bodies does not find out what is in them.
pub(crate) fn joins(there: &Job, new: &Job) -> bool {
    fn set(job: &Job) -> HashSet<&sutler_model::Identifier> {
        job.resources.iter().collect()
    }
    set(there) == set(new) && (there.caller == new.caller || there.request_id == new.request_id)
}

/// The row of a new job.
pub(crate) fn born(new: &NewJob, now: Millis) -> Job {
    let mut job = new.job.clone();
    job.due = now.plus(new.due_after);
    job.deadline = now.plus(new.deadline_after);
    job.lease = new.lease.as_ref().map(|(holder, d)| Lease { holder: holder.clone(), until: now.plus(*d) });
    job.token = u64::from(job.lease.is_some());
    job.revision = 1;
    job.created = now;
    job.updated = now;
    job
}

/// The row after a write, or why the write is not done. The row's texts are not looked at.
pub(crate) fn written(row: &Job, write: &Write, now: Millis) -> Result<Job, LedgerError> {
    if row.revision != write.revision || write.token.is_some_and(|t| t != row.token) {
        return Err(LedgerError::Stale(row.id.clone()));
    }
    let mut job = row.clone();
    match write.lease {
        LeaseChange::Keep => {}
        LeaseChange::Release => job.lease = None,
        LeaseChange::Extend(by) => match &mut job.lease {
            Some(lease) => lease.until = now.plus(by),
            None => return Err(LedgerError::Stale(row.id.clone())),
        },
    }
    job.standing = write.standing.clone();
    if job.standing.status.is_final() {
        job.lease = None;
    }
    job.due = now.plus(write.due_after);
    if let Some(state) = &write.state {
        job.state = state.clone();
    }
    if let Some(answer) = &write.answer {
        job.answer.clone_from(answer);
    }
    if let Some((plugin, digest)) = &write.generation {
        job.plugin = plugin.clone();
        job.digest = *digest;
    }
    if let Some(d) = write.deadline_after {
        job.deadline = now.plus(d);
    }
    job.revision += 1;
    job.updated = now;
    Ok(job)
}

/// The row after a claim, with its event.
pub(crate) fn claimed(row: &Job, claim: &Claim, now: Millis) -> (Job, Happened) {
    let mut job = row.clone();
    let length = claim.lease_of.get(&job.pair).copied().unwrap_or(claim.lease);
    job.lease = Some(Lease { holder: claim.holder.clone(), until: now.plus(length) });
    job.token += 1;
    job.revision += 1;
    job.updated = now;
    if job.standing.status == Status::Queued {
        job.standing.status = Status::Running;
    }
    let event = Happened::Claimed { token: job.token, holder: claim.holder.to_string() };
    (job, event)
}

/// Whether workers have to do with the job at all.
pub(crate) const fn in_queue(status: Status) -> bool {
    matches!(status, Status::Queued | Status::Running)
}

/// When the job may be claimed; `None` where it may not be at all.
pub(crate) fn claimable_from(job: &Job, takeover_after: Duration) -> Option<Millis> {
    in_queue(job.standing.status).then(|| match &job.lease {
        Some(lease) => lease.until.plus(takeover_after),
        None => job.due,
    })
}

/// The events as they are stored: distances from now become times.
pub(crate) fn events(after: u64, what: &[Happened], now: Millis) -> Vec<Event> {
    let from_now = |d: Millis| Millis(now.0.saturating_add(d.0));
    (after + 1..)
        .zip(what.iter().cloned())
        .map(|(seq, what)| {
            let what = match what {
                Happened::Waiting { due } => Happened::Waiting { due: from_now(due) },
                Happened::Released { due } => Happened::Released { due: from_now(due) },
                Happened::StepFailed { code, due } => Happened::StepFailed { code, due: from_now(due) },
                other => other,
            };
            Event { seq, at: now, what }
        })
        .collect()
}

/// Jobs that can be claimed alike: the same limits hold for them and the same hosts can run them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub(crate) plugin: PluginName,
    pub(crate) pair: Pair,
    pub(crate) digest: Digest,
}

impl Lane {
    pub(crate) fn of(job: &Job) -> Self {
        Self { plugin: job.plugin.clone(), pair: job.pair.clone(), digest: job.digest }
    }
}

/// How many jobs are being worked on, against the limits. A lease counts until it may be taken over.
#[derive(Debug, Default)]
pub(crate) struct Places {
    limits: Limits,
    digests: Option<Vec<Digest>>,
    plugins: HashMap<PluginName, u32>,
    pairs: HashMap<Pair, u32>,
    tenants: HashMap<Arc<str>, u32>,
}

impl Places {
    pub(crate) fn new(claim: &Claim) -> Self {
        Self { limits: claim.limits.clone(), digests: claim.digests.clone(), ..Self::default() }
    }
    /// Whether leases need to be counted.
    pub(crate) fn limited(&self) -> bool {
        let l = &self.limits;
        !l.plugins.is_empty() || !l.pairs.is_empty() || l.each_tenant.is_some()
    }
    pub(crate) fn add(&mut self, tenancy: &str, plugin: &PluginName, pair: &Pair) {
        *self.plugins.entry(plugin.clone()).or_default() += 1;
        *self.pairs.entry(pair.clone()).or_default() += 1;
        *self.tenants.entry(tenancy.into()).or_default() += 1;
    }
    pub(crate) fn tenant_has_room(&self, tenancy: &str) -> bool {
        let used = self.tenants.get(tenancy).copied().unwrap_or(0);
        self.limits.each_tenant.is_none_or(|most| used < most)
    }
    pub(crate) fn lane_has_room(&self, lane: &Lane) -> bool {
        let below = |limit: Option<&u32>, used: Option<&u32>| {
            limit.is_none_or(|most| used.copied().unwrap_or(0) < *most)
        };
        self.digests.as_ref().is_none_or(|d| d.contains(&lane.digest))
            && below(self.limits.plugins.get(&lane.plugin), self.plugins.get(&lane.plugin))
            && below(self.limits.pairs.get(&lane.pair), self.pairs.get(&lane.pair))
    }
}

/// Whether a schema that is behind is brought forward or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    Migrate,
    Refuse,
}

/// The ledger `at` is of an older version, and nobody asked to change that.
pub(crate) fn older(at: &str, found: i64, known: i64) -> LedgerError {
    LedgerError::Open(format!(
        "the ledger {at} has schema {found} and this version of sutler needs {known}; run `sutler ledger migrate`"
    ))
}

/// A record was imported before.
pub(crate) fn already(id: &crate::JobId) -> LedgerError {
    LedgerError::Unreadable(format!("job {id} is in the ledger already; import into an empty one"))
}
