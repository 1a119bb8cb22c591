//! What a ledger can do. SQLite, PostgreSQL and the one in memory pass the same contract suite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sutler_model::{Action, Application, Digest, OverQuota, Pair, PluginName};

use crate::{
    Audit, AuditFilter, Deed, Event, Happened, Job, JobId, LedgerError, Millis, Standing, Status, Taken,
    Takes,
};

pub type Answer<'a, T> = BoxFuture<'a, Result<T, LedgerError>>;

/// A job to be made. The ledger adds token, revision and times.
#[derive(Clone)]
pub struct NewJob {
    /// With `token`, `revision`, `created` and `updated` of no meaning, `deadline` and `due` counted from now.
    pub job: Job,
    pub due_after: Duration,
    pub deadline_after: Duration,
    /// Claimed in the same commit: the host that makes the job works on it. `None` leaves it to whoever claims it.
    pub lease: Option<(Arc<str>, Duration)>,
    /// The repeat's key besides the caller: which route, and the HMAC of the canonical body.
    pub route: &'static str,
    pub body: [u8; 32],
    pub events: Vec<Happened>,
    /// What it makes of what its application takes, and the quotas that must allow it.
    pub takes: Takes,
    /// What is to be done to each of the job's resources, in their order: for the audit.
    pub actions: Vec<Action>,
}

/// What came of wanting a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It is in the ledger.
    Created(Job),
    /// The caller has asked for exactly this before, under this request id.
    Repeated(Job),
    /// The caller has used this request id for another body.
    Reused(JobId),
    /// An unfinished job with an equal body covers exactly this; no other was made. It is another caller's where that
    /// one gave it the same request id.
    Joined(Job),
    /// An unfinished job with another body touches one of the resources.
    Busy(JobId),
    /// It would take more than a quota leaves; nothing was written.
    OverQuota(OverQuota),
}

/// What a write leaves of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseChange {
    Keep,
    /// Until now plus this.
    Extend(Duration),
    /// Nobody holds the job any more; another host may take it at once.
    Release,
}

/// One change of one job: row and events in one transaction, or nothing.
#[derive(Debug, Clone)]
pub struct Write {
    pub id: JobId,
    /// The row as the writer knows it; a row that moved on makes the write `Stale`.
    pub revision: u64,
    /// The writer's fencing token; `None` for what needs no lease (a caller's cancel or retry).
    pub token: Option<u64>,
    pub standing: Standing,
    /// When it may be claimed next, from now.
    pub due_after: Duration,
    pub lease: LeaseChange,
    /// `None` leaves what is stored.
    pub state: Option<Arc<str>>,
    /// The outer `None` leaves what is stored.
    pub answer: Option<Option<Arc<str>>>,
    /// Moves the job to another generation (retry takes the current one).
    pub generation: Option<(PluginName, Digest)>,
    /// A new deadline, from now.
    pub deadline_after: Option<Duration>,
    /// Times in them that are to be counted from now hold the distance; the ledger adds its now.
    pub events: Vec<Happened>,
    /// Whose wish it is, where it is somebody's: for the audit.
    pub deed: Option<Deed>,
}

/// How many jobs may run at once, over all hosts of the ledger. What is not named is not limited.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    pub plugins: BTreeMap<PluginName, u32>,
    pub pairs: BTreeMap<Pair, u32>,
    /// For each tenant alike; jobs without a tenant count as one.
    pub each_tenant: Option<u32>,
}

/// What a host wants to work on.
#[derive(Debug, Clone)]
pub struct Claim {
    pub holder: Arc<str>,
    /// At most so many.
    pub places: u32,
    /// The lease's length, by pair; others get `lease`.
    pub lease_of: BTreeMap<Pair, Duration>,
    pub lease: Duration,
    /// A lease that has run out is taken over only so much later: the longest request that a stale worker may still
    /// have on its way.
    pub takeover_after: Duration,
    /// The digests that this host can run; `None` for all.
    pub digests: Option<Vec<Digest>>,
    pub limits: Limits,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub id: JobId,
    pub token: u64,
    pub lease: Duration,
}

/// Which jobs a list shows, the newest first.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub caller: Option<String>,
    pub status: Option<Status>,
    pub pair: Option<Pair>,
    pub instance: Option<String>,
    pub tenant: Option<String>,
    pub application: Option<String>,
    pub environment: Option<String>,
    /// Older than this one: where the page before ended.
    pub before: Option<JobId>,
    /// At most so many.
    pub limit: u32,
}

/// Something that `check` found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A job, a table or a file.
    pub at: String,
    /// What is wrong and what to do.
    pub message: String,
    /// The key that is not in the key file, where nothing else is wrong.
    pub missing_key: Option<String>,
}

impl Problem {
    pub fn new(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self { at: at.into(), message: message.into(), missing_key: None }
    }

    pub(crate) fn of(at: impl Into<String>, error: &LedgerError) -> Self {
        let missing_key = match error {
            LedgerError::MissingKey { key, .. } => Some(key.clone()),
            _ => None,
        };
        Self { missing_key, ..Self::new(at, error.to_string()) }
    }
}

/// One thing of a ledger on its way into another one.
#[derive(Debug, Clone)]
pub enum Record {
    Job {
        job: Box<Job>,
        events: Vec<Event>,
        route: String,
        body: [u8; 32],
    },
    Plugin {
        digest: Digest,
        bytes: Bytes,
    },
    /// A further request id that a job answers to: its caller asked for the same under another one.
    Request {
        caller: String,
        route: String,
        request_id: String,
        job: JobId,
    },
    /// What a resource takes; after the jobs.
    Taken(Taken),
    /// A row of the audit, the oldest first; its number is not kept.
    Audit(Audit),
}

/// Counts for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Depth {
    /// By status.
    pub jobs: BTreeMap<&'static str, u64>,
    /// Jobs that may be claimed now and are not.
    pub due: u64,
    /// How long the one that is due longest has waited.
    pub oldest_due: Duration,
}

/// Jobs, their events, leases and repeats. All methods are atomic; after `Ok` the change survives a loss of power.
pub trait Ledger: Send + Sync + 'static {
    /// The ledger's clock. It never goes back while the ledger is open, whatever the machine's clock does.
    fn now(&self) -> Answer<'_, Millis>;

    /// Looks for a repeat or an overlap and, where there is neither, makes the job and takes its resources.
    /// A repeat is looked for first. Of several jobs that want the last of a quota, one gets it.
    fn begin(&self, new: NewJob) -> Answer<'_, Begun>;

    /// What would keep a job from being begun now; `begin` decides.
    fn over_quota(&self, application: Application, pair: Pair, takes: Takes)
    -> Answer<'_, Option<OverQuota>>;

    /// The job that a caller asked for under a request id, with the HMAC of its body.
    fn asked<'a>(
        &'a self,
        caller: &'a str,
        route: &'a str,
        request_id: &'a str,
    ) -> Answer<'a, Option<(Job, [u8; 32])>>;

    /// Changes a job and answers it as it is then. A job that leaves a final status takes its resources again;
    /// one that reaches a final status gives them back.
    ///
    /// `LedgerError::Stale` where revision or token are no longer the row's; `LedgerError::Busy` where another job
    /// has the resources; `LedgerError::Superseded` where a later one had them: what a job that has ended made is not
    /// what is there now.
    fn commit(&self, write: Write) -> Answer<'_, Job>;

    /// Takes jobs that are due, fairly by tenant: each gets a new token and lease and a `Claimed` event.
    /// A running job whose lease has run out longer than `takeover_after` ago is due.
    fn claim(&self, claim: Claim) -> Answer<'_, Vec<Job>>;

    /// Extends leases to now plus their length. Answers those that are lost: another holds them, or nobody.
    fn renew(&self, holder: Arc<str>, held: Vec<Held>) -> Answer<'_, Vec<JobId>>;

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>>;
    /// As [`Ledger::job`], but with an empty `request`, and with an empty `state` where it has ended: what is told of
    /// a job needs no more.
    fn brief(&self, id: JobId) -> Answer<'_, Option<Job>>;
    fn jobs(&self, filter: Filter) -> Answer<'_, Vec<Job>>;
    /// Those after `after`, in order, at most `limit`.
    fn events(&self, id: JobId, after: u64, limit: u32) -> Answer<'_, Vec<Event>>;

    /// Keeps a plugin's bytes, so that every host can go on with the jobs that began with it.
    fn keep_plugin(&self, digest: Digest, bytes: Bytes) -> Answer<'_, ()>;
    fn plugin(&self, digest: Digest) -> Answer<'_, Option<Bytes>>;

    /// Waits until jobs may have become due through another's writes, at most so long.
    fn woken(&self, at_most: Duration) -> BoxFuture<'_, ()>;
    /// When the next job that is not due becomes due, at the latest.
    fn next_due(&self) -> Answer<'_, Option<Millis>>;
    fn depth(&self) -> Answer<'_, Depth>;

    /// Forgets jobs that have been final for so long, with their events and request ids, and the plugins that no
    /// job refers to and that were kept longer ago than this. Answers how many jobs. At most a few hundred at once,
    /// so that nobody waits for it.
    fn purge(&self, final_for: Duration) -> Answer<'_, u64>;

    /// Adds a row to the audit, of what no job is for. Number and time of `row` have no meaning.
    fn audit(&self, row: Audit) -> Answer<'_, ()>;
    /// The newest first.
    fn audited(&self, filter: AuditFilter) -> Answer<'_, Vec<Audit>>;
    /// Forgets the audit's rows that are as old. Answers how many; at most a thousand at once.
    fn forget_audited(&self, older_than: Duration) -> Answer<'_, u64>;

    /// Writes as much as an operation may need and takes it back: whether the ledger can be written now. Nothing of it
    /// is ever seen.
    fn probe(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Reads everything and says what is wrong with the ledger's own; what the texts of jobs say is theirs to judge.
    fn check(&self) -> Answer<'_, Vec<Problem>>;
    /// Seals again, with the active key, what another key has sealed. Answers how many texts.
    fn reseal(&self) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }
    /// As [`Ledger::reseal`]; `told` hears now and then how many texts it were so far.
    fn reseal_telling<'a>(&'a self, _told: &'a (dyn Fn(u64) + Send + Sync)) -> Answer<'a, u64> {
        self.reseal()
    }
    /// Everything, to be written into another ledger.
    fn export(&self) -> BoxStream<'_, Result<Record, LedgerError>>;
    /// Writes one record as it is: ids, times, tokens and all.
    fn import(&self, record: Record) -> Answer<'_, ()>;
}
