//! The ledger as a host reaches it: over a network that delays and loses. A write that was sent is done or not,
//! whatever becomes of its sender.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sutler_ledger::{
    Answer, Audit, AuditFilter, Begun, Claim, Depth, Event, Filter, Held, Job, JobId, Ledger, LedgerError,
    Memory, Millis, NewJob, Problem, Record, Takes, Write,
};
use sutler_model::{Application, Digest, OverQuota, Pair};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::simulation::{World, chance, millis};

/// How long a host waits for the ledger.
const PATIENCE: Duration = Duration::from_secs(3);

/// When the ledger cannot be reached by anybody.
pub(crate) struct Weather {
    start: Instant,
    trouble: Duration,
    outages: Vec<(Duration, Duration)>,
}

impl Weather {
    pub(crate) fn new(trouble: Duration) -> Self {
        let outages = (0..fastrand::u32(0..3)).map(|_| {
            let from = millis(80_000);
            (from, from + millis(12_000))
        });
        Self { start: Instant::now(), trouble, outages: outages.collect() }
    }
    fn bad(&self) -> bool {
        self.start.elapsed() < self.trouble
    }
    fn down(&self) -> bool {
        let now = self.start.elapsed();
        self.outages.iter().any(|(from, to)| (*from..*to).contains(&now))
    }
}

/// What becomes of one request.
enum Fate {
    /// It does not get there.
    Lost(LedgerError),
    /// It gets there so much later; whether its sender hears of it.
    Arrives(Duration, bool),
}

pub(crate) struct Flaky {
    pub(crate) inner: Arc<Memory>,
    pub(crate) world: Arc<World>,
    pub(crate) weather: Arc<Weather>,
}

impl Flaky {
    fn fate(&self) -> Fate {
        if self.weather.down() {
            self.world.count("unavailable");
            return Fate::Lost(LedgerError::Unavailable("an outage".into()));
        }
        if !self.weather.bad() {
            return Fate::Arrives(millis(5), true);
        }
        match fastrand::u32(0..100) {
            0..=2 => {
                self.world.count("unavailable");
                Fate::Lost(LedgerError::Unavailable("refused".into()))
            }
            3..=4 => {
                self.world.count("unknown-not-done");
                Fate::Lost(LedgerError::Unknown("cut before".into()))
            }
            5..=6 => {
                self.world.count("unknown-done");
                Fate::Arrives(millis(50), false)
            }
            // So late that its sender has given up.
            7 => {
                self.world.count("late");
                Fate::Arrives(PATIENCE + millis(9000), true)
            }
            8..=15 => Fate::Arrives(millis(2000), true),
            _ => Fate::Arrives(millis(20), true),
        }
    }

    /// Sends an operation on its way, in a future that no host owns.
    fn send<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Arc<Memory>) -> BoxFuture<'static, Result<T, LedgerError>> + Send + 'static,
        arrived: impl FnOnce(&World, &T) + Send + 'static,
    ) -> Answer<'static, T> {
        let fate = self.fate();
        let (inner, world, start) = (self.inner.clone(), self.world.clone(), self.weather.start);
        Box::pin(async move {
            let (after, heard) = match fate {
                Fate::Lost(e) => {
                    tokio::time::sleep(millis(50)).await;
                    return Err(e);
                }
                Fate::Arrives(after, heard) => (after, heard),
            };
            let (to, answer) = oneshot::channel();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                let got = work(inner).await;
                world.trace(start, format!("{name} {}", if got.is_ok() { "ok" } else { "refused" }));
                if let Ok(t) = &got {
                    arrived(&world, t);
                }
                tokio::time::sleep(millis(5)).await;
                let _gone = to.send(got);
            });
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(Ok(got)) if heard => got,
                _ => Err(LedgerError::Unknown("no answer".into())),
            }
        })
    }
}

fn taken(world: &World, job: &Job) {
    let before = world.tokens.lock().unwrap().insert(job.id.clone(), job.token);
    if before.is_some_and(|b| b >= job.token) {
        world.wrong(format!("{} was claimed with token {} after {before:?}", job.id, job.token));
    }
}

impl Ledger for Flaky {
    fn now(&self) -> Answer<'_, Millis> {
        self.inner.now()
    }
    fn begin(&self, new: NewJob) -> Answer<'_, Begun> {
        let work = |l: Arc<Memory>| -> BoxFuture<'static, _> { Box::pin(async move { l.begin(new).await }) };
        self.send("begin", work, |world, begun| {
            if let Begun::Created(job) = begun {
                taken(world, job);
            }
        })
    }
    fn over_quota(
        &self,
        application: Application,
        pair: Pair,
        takes: Takes,
    ) -> Answer<'_, Option<OverQuota>> {
        self.inner.over_quota(application, pair, takes)
    }
    fn asked<'a>(
        &'a self,
        caller: &'a str,
        route: &'a str,
        request_id: &'a str,
    ) -> Answer<'a, Option<(Job, [u8; 32])>> {
        let (caller, route, id) = (caller.to_owned(), route.to_owned(), request_id.to_owned());
        let work = |l: Arc<Memory>| -> BoxFuture<'static, _> {
            Box::pin(async move { l.asked(&caller, &route, &id).await })
        };
        self.send("asked", work, |_, _| {})
    }
    fn commit(&self, write: Write) -> Answer<'_, Job> {
        let token = write.token;
        let work =
            |l: Arc<Memory>| -> BoxFuture<'static, _> { Box::pin(async move { l.commit(write).await }) };
        self.send("commit", work, move |world, job| {
            let newest = world.tokens.lock().unwrap().get(&job.id).copied();
            if token.is_some() && token != newest {
                world.wrong(format!(
                    "{}: a write with token {token:?} was taken, the newest is {newest:?}",
                    job.id
                ));
            }
        })
    }
    fn claim(&self, claim: Claim) -> Answer<'_, Vec<Job>> {
        let work =
            |l: Arc<Memory>| -> BoxFuture<'static, _> { Box::pin(async move { l.claim(claim).await }) };
        self.send("claim", work, |world, jobs| jobs.iter().for_each(|j| taken(world, j)))
    }
    fn renew(&self, holder: Arc<str>, held: Vec<Held>) -> Answer<'_, Vec<JobId>> {
        let work = |l: Arc<Memory>| -> BoxFuture<'static, _> {
            Box::pin(async move { l.renew(holder, held).await })
        };
        self.send("renew", work, |_, _| {})
    }
    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        let work = |l: Arc<Memory>| -> BoxFuture<'static, _> { Box::pin(async move { l.job(id).await }) };
        self.send("job", work, |_, _| {})
    }
    fn brief(&self, id: JobId) -> Answer<'_, Option<Job>> {
        let work = |l: Arc<Memory>| -> BoxFuture<'static, _> { Box::pin(async move { l.brief(id).await }) };
        self.send("brief", work, |_, _| {})
    }
    fn jobs(&self, filter: Filter) -> Answer<'_, Vec<Job>> {
        self.inner.jobs(filter)
    }
    fn events(&self, id: JobId, after: u64, limit: u32) -> Answer<'_, Vec<Event>> {
        self.inner.events(id, after, limit)
    }
    fn keep_plugin(&self, digest: Digest, bytes: Bytes) -> Answer<'_, ()> {
        self.inner.keep_plugin(digest, bytes)
    }
    fn plugin(&self, digest: Digest) -> Answer<'_, Option<Bytes>> {
        self.inner.plugin(digest)
    }
    fn woken(&self, at_most: Duration) -> BoxFuture<'_, ()> {
        // Half of the wake-ups get lost.
        if chance(50) { self.inner.woken(at_most) } else { Box::pin(tokio::time::sleep(at_most)) }
    }
    fn next_due(&self) -> Answer<'_, Option<Millis>> {
        self.inner.next_due()
    }
    fn depth(&self) -> Answer<'_, Depth> {
        self.inner.depth()
    }
    fn purge(&self, _final_for: Duration) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }
    fn audit(&self, row: Audit) -> Answer<'_, ()> {
        self.inner.audit(row)
    }
    fn audited(&self, filter: AuditFilter) -> Answer<'_, Vec<Audit>> {
        self.inner.audited(filter)
    }
    fn forget_audited(&self, _older_than: Duration) -> Answer<'_, u64> {
        Box::pin(async { Ok(0) })
    }
    fn check(&self) -> Answer<'_, Vec<Problem>> {
        self.inner.check()
    }
    fn export(&self) -> BoxStream<'_, Result<Record, LedgerError>> {
        self.inner.export()
    }
    fn import(&self, record: Record) -> Answer<'_, ()> {
        self.inner.import(record)
    }
}
