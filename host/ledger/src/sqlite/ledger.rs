//! The ledger in a SQLite file. Texts are sealed and opened here, where the writer does not wait for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sutler_model::{Application, Digest, OverQuota, Pair};

use super::commit::Brought;
use super::desk::{Desk, Time};
use super::open::{Lock, SqliteOptions};
use super::place::{Place, resolved};
use super::readers::Readers;
use super::row::{Closed, Stored};
use super::writer::{Opener, Writer};
use super::{audit, begin, check, claim, commit, export, keep, migrations, open, read, row, takes};
use crate::seal::Sealed;
use crate::wake::Wake;
use crate::{
    Answer, Audit, AuditFilter, Begun, Claim, Clock, Depth, Event, Filter, Held, Job, JobId, Keys, Ledger,
    LedgerError, Millis, NewJob, Problem, Record, Takes, Write,
};

/// A ledger in one file. One thread writes, with group commit; readers read beside it.
pub struct Sqlite {
    /// Before the writer: the last connection to be closed has to be one that can bring the write-ahead log into
    /// the file, so that a stopped ledger is one file.
    readers: Readers,
    writer: Writer,
    keys: Keys,
    time: Arc<Time>,
    wake: Arc<Wake>,
    place: Place,
    #[cfg(feature = "testing")]
    trouble: Arc<super::trouble::Trouble>,
    /// After the writer: the next host begins when nothing is written any more.
    _lock: Option<Lock>,
}

impl Sqlite {
    /// Opens a ledger's file, or makes it where there is none. Blocks while the file is looked through.
    ///
    /// # Errors
    /// `LedgerError::Open` where another host serves it, it is another program's, or it is newer than this binary;
    /// `LedgerError::Unreadable` where it is damaged, `LedgerError::MissingKey` where the key it was sealed with is
    /// missing.
    pub fn open(path: &Path, keys: Keys, options: SqliteOptions) -> Result<Self, LedgerError> {
        let place = Place::of(path, options.damaged);
        let lock = options.serving.then(|| open::lock(&place.path)).transpose()?;
        let conn = open::first(&place, &options)?;
        if !options.damaged
            && let Some(blob) = keep::sealed(&conn, "sealed_requests", 0, 1).map_err(|e| e.told())?.first()
        {
            // The wrong key file is found now, not at the first job.
            keys.open_text("request", &blob.id, &blob.sealed)?;
        }
        let newest = match open::newest(&conn) {
            // What is readable is wanted, not the time.
            Err(_) if options.damaged => Millis(0),
            newest => newest?,
        };
        let clock = options.clock.clone().unwrap_or_else(|| Clock::steady(newest));
        let time = Arc::new(Time::new(clock, newest));
        if options.serving {
            open::end_leases(&conn, time.now())?;
        }
        let wake = Arc::new(Wake::default());
        #[cfg(feature = "testing")]
        let trouble = Arc::new(super::trouble::Trouble::default());
        let opener: Opener = {
            let (place, busy) = (place.clone(), options.busy());
            #[cfg(feature = "testing")]
            let trouble = trouble.clone();
            Box::new(move || {
                let conn = open::writer(&place, busy)?;
                #[cfg(feature = "testing")]
                trouble.apply(&conn).map_err(|e| super::broken::told(&e))?;
                Ok(conn)
            })
        };
        let writer = Writer::start(conn, opener, Desk::new(time.clone()), wake.clone())?;
        Ok(Self {
            writer,
            readers: Readers::new(place.clone()),
            keys,
            time,
            wake,
            place,
            #[cfg(feature = "testing")]
            trouble,
            _lock: lock,
        })
    }

    /// The version of a file's schema, and the one that this binary works with. 0: there is no ledger yet.
    ///
    /// # Errors
    /// `LedgerError::Unreadable` where the file is no database or damaged.
    pub fn schema(path: &Path) -> Result<(i64, i64), LedgerError> {
        let place = Place::of(path, true);
        let found = if path.exists() { migrations::version(&open::reader(&place)?) } else { Ok(0) };
        Ok((found.map_err(|e| place.told(&e))?, migrations::known()))
    }

    /// The file that a path means, by whichever link it is called: its lock and its key file are beside it.
    pub fn resolved(path: &Path) -> PathBuf {
        resolved(path)
    }

    /// Makes the next writes fail as on a full or read-only disk, until it is lifted.
    ///
    /// # Errors
    /// Where the writer cannot be reached.
    #[cfg(feature = "testing")]
    pub async fn trouble(&self, full: bool, read_only: bool) -> Result<(), LedgerError> {
        let trouble = self.trouble.clone();
        trouble.set(full, read_only);
        self.writer.run(move |conn, _| Ok(trouble.apply(conn)?)).await
    }

    fn open_all(&self, found: Vec<Closed>) -> Result<Vec<Job>, LedgerError> {
        found.into_iter().map(|c| c.open(&self.keys)).collect()
    }

    /// `before` texts of other tables were sealed again already.
    async fn reseal_table(
        &self,
        (column, table): (&'static str, &'static str),
        before: u64,
        told: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<u64, LedgerError> {
        let (mut after, mut count) = (0, before);
        loop {
            let page = self.readers.run(move |conn| keep::sealed(conn, table, after, 100)).await?;
            let Some(last) = page.last().map(|b| b.n) else { return Ok(count) };
            after = last;
            let again = |blob: keep::Blob| {
                let text = self.keys.open_text(column, &blob.id, &blob.sealed)?;
                let sealed = self.keys.seal(column, &blob.id, &text)?;
                Ok((blob, sealed))
            };
            let old = page.into_iter().filter(|b| !self.keys.is_active(&b.sealed));
            let texts = old.map(again).collect::<Result<Vec<_>, LedgerError>>()?;
            if !texts.is_empty() {
                count += self.writer.run(move |conn, _| keep::reseal(conn, table, &texts)).await?;
                told(count);
            }
        }
    }

    async fn import_record(&self, record: Record) -> Result<(), LedgerError> {
        match record {
            Record::Plugin { digest, bytes } => self.keep_plugin(digest, bytes).await,
            Record::Audit(row) => {
                self.writer.run(move |conn, _| audit::append(conn, std::slice::from_ref(&row))).await
            }
            Record::Taken(taken) => self.writer.run(move |conn, _| takes::import(conn, &taken)).await,
            Record::Request { caller, route, request_id, job } => {
                let work =
                    move |conn: &_, _: &mut _| keep::import_request(conn, &caller, &route, &request_id, &job);
                self.writer.run(work).await
            }
            Record::Job { job, events, route, body } => {
                let texts = Sealed::of(&job, &self.keys)?;
                let last_event = events.last().map_or(0, |e| e.seq);
                let new = Stored { n: 0, job: *job, route, body, last_event };
                self.writer.run(move |conn, desk| keep::import(conn, desk, &new, &texts, &events)).await
            }
        }
    }
}

impl Ledger for Sqlite {
    fn now(&self) -> Answer<'_, Millis> {
        Box::pin(async { Ok(self.time.now()) })
    }

    fn begin(&self, new: NewJob) -> Answer<'_, Begun> {
        Box::pin(async move {
            let texts = Sealed::of(&new.job, &self.keys)?;
            let found = self.writer.run(move |conn, desk| begin::begin(conn, desk, &new, &texts)).await?;
            found.open(|row| row.open(&self.keys))
        })
    }

    fn over_quota(
        &self,
        application: Application,
        pair: Pair,
        takes: Takes,
    ) -> Answer<'_, Option<OverQuota>> {
        Box::pin(self.readers.run(move |conn| takes::over_quota(conn, &application, &pair, &takes)))
    }

    fn asked<'a>(
        &'a self,
        caller: &'a str,
        route: &'a str,
        request_id: &'a str,
    ) -> Answer<'a, Option<(Job, [u8; 32])>> {
        Box::pin(async move {
            let (caller, route, id) = (caller.to_owned(), route.to_owned(), request_id.to_owned());
            let found = self.readers.run(move |conn| read::asked(conn, &caller, &route, &id)).await?;
            found
                .map(|c| {
                    let body = c.stored.body;
                    c.open(&self.keys).map(|job| (job, body))
                })
                .transpose()
        })
    }

    fn commit(&self, write: Write) -> Answer<'_, Job> {
        Box::pin(async move {
            let seal = |column, text: &Arc<str>| self.keys.seal(column, &write.id, text);
            let state = write.state.as_ref().map(|s| seal("state", s)).transpose()?;
            let answer = match &write.answer {
                Some(Some(a)) => Some(Some(seal("answer", a)?)),
                Some(None) => Some(None),
                None => None,
            };
            let brought = Brought { state, answer };
            let row = self.writer.run(move |conn, desk| commit::commit(conn, desk, &write, &brought)).await?;
            row.open(&self.keys)
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Vec<Job>> {
        Box::pin(async move {
            let found = self.writer.run(move |conn, desk| claim::claim(conn, desk, &claim)).await?;
            // A job whose texts do not open is left to its lease, so that the others go on.
            let open = |row: Closed| {
                let id = row.stored.job.id.clone();
                row.open(&self.keys)
                    .inspect_err(|e| tracing::error!(event = "ledger-job-unreadable", job = %id, error = %e))
                    .ok()
            };
            Ok(found.into_iter().filter_map(open).collect())
        })
    }

    fn renew(&self, holder: Arc<str>, held: Vec<Held>) -> Answer<'_, Vec<JobId>> {
        Box::pin(self.writer.run(move |conn, desk| commit::renew(conn, desk, &holder, &held)))
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        Box::pin(async move {
            let found = self.readers.one(move |conn| row::closed_by_id(conn, &id)).await?;
            found.map(|c| c.open(&self.keys)).transpose()
        })
    }

    fn brief(&self, id: JobId) -> Answer<'_, Option<Job>> {
        Box::pin(async move {
            let found = self.readers.one(move |conn| row::brief_by_id(conn, &id)).await?;
            found.map(|c| c.brief(&self.keys)).transpose()
        })
    }

    fn jobs(&self, filter: Filter) -> Answer<'_, Vec<Job>> {
        Box::pin(async move {
            let found = self.readers.one(move |conn| read::jobs(conn, &filter)).await?;
            self.open_all(found)
        })
    }

    fn events(&self, id: JobId, after: u64, limit: u32) -> Answer<'_, Vec<Event>> {
        Box::pin(self.readers.run(move |conn| read::events(conn, &id, after, limit)))
    }

    fn keep_plugin(&self, digest: Digest, bytes: Bytes) -> Answer<'_, ()> {
        Box::pin(async move {
            let now = self.time.now();
            if self.readers.one(move |conn| keep::is_fresh(conn, digest, now)).await? {
                return Ok(());
            }
            self.writer.run(move |conn, desk| keep::keep_plugin(conn, desk, digest, &bytes)).await
        })
    }

    fn plugin(&self, digest: Digest) -> Answer<'_, Option<Bytes>> {
        Box::pin(self.readers.one(move |conn| read::plugin(conn, digest)))
    }

    fn woken(&self, at_most: Duration) -> BoxFuture<'_, ()> {
        self.wake.wait(at_most)
    }

    fn next_due(&self) -> Answer<'_, Option<Millis>> {
        let now = self.time.now();
        Box::pin(self.readers.run(move |conn| read::next_due(conn, now)))
    }

    fn depth(&self) -> Answer<'_, Depth> {
        let now = self.time.now();
        Box::pin(self.readers.run(move |conn| read::depth(conn, now)))
    }

    fn purge(&self, final_for: Duration) -> Answer<'_, u64> {
        Box::pin(self.writer.run(move |conn, desk| keep::purge(conn, desk, final_for)))
    }

    fn audit(&self, row: Audit) -> Answer<'_, ()> {
        let work =
            move |conn: &_, desk: &mut Desk| audit::append(conn, &[Audit { at: desk.now(), ..row.clone() }]);
        Box::pin(self.writer.run(work))
    }

    fn audited(&self, filter: AuditFilter) -> Answer<'_, Vec<Audit>> {
        Box::pin(self.readers.run(move |conn| audit::list(conn, &filter)))
    }

    fn forget_audited(&self, older_than: Duration) -> Answer<'_, u64> {
        Box::pin(self.writer.run(move |conn, desk| audit::forget(conn, desk.now(), older_than)))
    }

    fn probe(&self) -> Answer<'_, ()> {
        Box::pin(self.writer.run(|conn, _| keep::probe(conn)))
    }

    fn check(&self) -> Answer<'_, Vec<Problem>> {
        Box::pin(async move {
            let (place, keys) = (self.place.clone(), self.keys.clone());
            let stopped = |_| LedgerError::Unavailable("the host is stopping".into());
            tokio::task::spawn_blocking(move || check::check(&place, &keys)).await.map_err(stopped)?
        })
    }

    fn reseal(&self) -> Answer<'_, u64> {
        self.reseal_telling(&|_| {})
    }

    fn reseal_telling<'a>(&'a self, told: &'a (dyn Fn(u64) + Send + Sync)) -> Answer<'a, u64> {
        Box::pin(async move {
            self.keys.reload()?;
            let mut count = 0;
            for place in keep::SEALED {
                count = self.reseal_table(place, count, told).await?;
            }
            Ok(count)
        })
    }

    fn export(&self) -> BoxStream<'_, Result<Record, LedgerError>> {
        export::export(self.place.clone(), self.keys.clone())
    }

    fn import(&self, record: Record) -> Answer<'_, ()> {
        Box::pin(self.import_record(record))
    }
}
