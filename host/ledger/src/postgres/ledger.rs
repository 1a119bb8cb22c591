//! The ledger that several hosts share. Its time is the server's, its races are decided by the server's keys.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sutler_model::{Application, Digest, OverQuota, Pair};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::address::Address;
use super::begin;
use super::broken::Broken;
use super::connections::Connections;
use super::open::{Hold, PostgresOptions};
use super::row::{self, Closed};
use super::{audit, check, claim, commit, export, hold, keep, listen, migrations, read, takes};
use crate::rules::{Behind, Found};
use crate::wake::Wake;
use crate::{
    Answer, Audit, AuditFilter, Begun, Claim, Depth, Event, Filter, Held, Job, JobId, Keys, Ledger,
    LedgerError, Millis, NewJob, Problem, Record, Takes, Write,
};

/// A ledger on a PostgreSQL server, 15 or newer. Everything that it spawns ends with it.
pub struct Postgres {
    connections: Arc<Connections>,
    keys: Keys,
    wake: Arc<Wake>,
    /// The tenant that was served last, by this host.
    last: Mutex<String>,
    /// The delay of a takeover, where more was due than was moved at once.
    behind: watch::Sender<Duration>,
    _beside: JoinSet<()>,
}

impl Postgres {
    /// Opens the ledger and brings its schema to this binary's version, unless told not to.
    ///
    /// # Errors
    /// `LedgerError::Open` where the URL or a file is wrong, the schema does not fit this binary, or others have it in
    /// use as `hold` does not suffer;
    /// `LedgerError::Unavailable` where the server cannot be reached; `LedgerError::MissingKey` where the key that the
    /// ledger was sealed with is missing.
    pub async fn open(url: &str, keys: Keys, options: PostgresOptions) -> Result<Self, LedgerError> {
        let address = Address::parse(url, options.ca_file.as_deref())?;
        let behind = if options.unmigrated { Behind::Refuse } else { Behind::Migrate };
        migrations::look(&address, behind).await?;
        let connections = Arc::new(Connections::new(&address, options.most())?);
        first_text(&connections, &keys).await.map_err(Broken::told)?;
        let wake = Arc::new(Wake::default());
        let (behind, more) = watch::channel(Duration::ZERO);
        let mut beside = JoinSet::new();
        if options.hold != Hold::Nothing {
            let (told, first) = oneshot::channel();
            beside.spawn(hold::hold(address.clone(), options.hold, connections.clone(), told));
            first.await.unwrap_or_else(|_| Err(LedgerError::Unavailable("it was not held".into())))?;
        }
        beside.spawn(listen::listen(address, wake.clone()));
        beside.spawn(go_on(connections.clone(), wake.clone(), more));
        Ok(Self { connections, keys, wake, last: Mutex::default(), behind, _beside: beside })
    }

    /// Whether a URL and a file of authorities can be used, without asking the server.
    ///
    /// # Errors
    /// `LedgerError::Open` with what is wrong.
    pub fn check(url: &str, ca_file: Option<&Path>) -> Result<(), LedgerError> {
        Address::parse(url, ca_file).map(drop)
    }

    /// Brings a ledger's schema to this binary's version.
    ///
    /// # Errors
    /// As [`Postgres::open`].
    pub async fn migrate(url: &str, ca_file: Option<&Path>) -> Result<(), LedgerError> {
        migrations::look(&Address::parse(url, ca_file)?, Behind::Migrate).await
    }

    fn open_all(&self, found: Vec<Closed>) -> Result<Vec<Job>, LedgerError> {
        found.into_iter().map(|c| c.open(&self.keys)).collect()
    }

    async fn claim_some(&self, claim: Claim) -> Result<Vec<Job>, LedgerError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let got = claim::claim(&self.connections, &claim, last).await.map_err(Broken::told)?;
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&got.last);
        if got.behind {
            self.behind.send_replace(claim.takeover_after);
        }
        // A job whose texts do not open is left to its lease, so that the others go on.
        let open = |row: Closed| {
            let id = row.job.id.clone();
            row.open(&self.keys)
                .inspect_err(|e| tracing::error!(event = "ledger-job-unreadable", job = %id, error = %e))
                .ok()
        };
        Ok(claim::taken(&got).into_iter().filter_map(open).collect())
    }
}

/// The wrong key file is found at the start, not at the first job.
async fn first_text(connections: &Connections, keys: &Keys) -> Result<(), Broken> {
    let rows = connections.read(row::select!("ORDER BY j.n LIMIT 1"), &[]).await?;
    if let Some(closed) = rows.first().map(row::closed).transpose()? {
        closed.open(keys)?;
    }
    Ok(())
}

/// Moves a crowd of due jobs on, beside the claims.
async fn go_on(connections: Arc<Connections>, wake: Arc<Wake>, mut more: watch::Receiver<Duration>) {
    while more.changed().await.is_ok() {
        let takeover_after = *more.borrow_and_update();
        loop {
            match claim::promote(&connections, takeover_after).await {
                Ok(promoted) => {
                    if promoted.moved {
                        wake.fire();
                    }
                    if !promoted.behind {
                        break;
                    }
                }
                Err(e) => {
                    tracing::warn!(event = "ledger-crowd-waits", error = %e.told());
                    break;
                }
            }
        }
    }
}

impl Ledger for Postgres {
    fn now(&self) -> Answer<'_, Millis> {
        Box::pin(async { read::now(&self.connections).await.map_err(Broken::told) })
    }

    fn begin(&self, new: NewJob) -> Answer<'_, Begun> {
        Box::pin(async move {
            let found = begin::begin(&self.connections, &self.keys, &new).await.map_err(Broken::told)?;
            if let Found::Created(job) = &found {
                self.wake.written(job);
            }
            found.open(|row| row.open(&self.keys))
        })
    }

    fn over_quota(
        &self,
        application: Application,
        pair: Pair,
        takes: Takes,
    ) -> Answer<'_, Option<OverQuota>> {
        Box::pin(async move {
            let found = takes::over_quota(&self.connections, &application, &pair, &takes).await;
            found.map_err(Broken::told)
        })
    }

    fn asked<'a>(
        &'a self,
        caller: &'a str,
        route: &'a str,
        request_id: &'a str,
    ) -> Answer<'a, Option<(Job, [u8; 32])>> {
        Box::pin(async move {
            let found = read::asked(&self.connections, caller, route, request_id).await;
            let Some(row) = found.map_err(Broken::told)? else { return Ok(None) };
            let body = row.body;
            Ok(Some((row.open(&self.keys)?, body)))
        })
    }

    fn commit(&self, write: Write) -> Answer<'_, Job> {
        Box::pin(async move {
            let row = commit::commit(&self.connections, &self.keys, &write).await.map_err(Broken::told)?;
            self.wake.written(&row.job);
            row.open(&self.keys)
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Vec<Job>> {
        Box::pin(self.claim_some(claim))
    }

    fn renew(&self, holder: Arc<str>, held: Vec<Held>) -> Answer<'_, Vec<JobId>> {
        Box::pin(async move { commit::renew(&self.connections, &holder, &held).await.map_err(Broken::told) })
    }

    fn job(&self, id: JobId) -> Answer<'_, Option<Job>> {
        Box::pin(async move {
            let found = row::by_id(&self.connections, &id).await.map_err(Broken::told)?;
            found.map(|c| c.open(&self.keys)).transpose()
        })
    }

    fn brief(&self, id: JobId) -> Answer<'_, Option<Job>> {
        Box::pin(async move {
            let found = row::by_id(&self.connections, &id).await.map_err(Broken::told)?;
            found.map(|c| c.brief(&self.keys)).transpose()
        })
    }

    fn jobs(&self, filter: Filter) -> Answer<'_, Vec<Job>> {
        Box::pin(async move {
            let found = read::jobs(&self.connections, &filter).await.map_err(Broken::told)?;
            self.open_all(found)
        })
    }

    fn events(&self, id: JobId, after: u64, limit: u32) -> Answer<'_, Vec<Event>> {
        Box::pin(
            async move { read::events(&self.connections, &id, after, limit).await.map_err(Broken::told) },
        )
    }

    fn keep_plugin(&self, digest: Digest, bytes: Bytes) -> Answer<'_, ()> {
        Box::pin(
            async move { keep::keep_plugin(&self.connections, digest, &bytes).await.map_err(Broken::told) },
        )
    }

    fn plugin(&self, digest: Digest) -> Answer<'_, Option<Bytes>> {
        Box::pin(async move { read::plugin(&self.connections, digest).await.map_err(Broken::told) })
    }

    fn woken(&self, at_most: Duration) -> BoxFuture<'_, ()> {
        self.wake.wait(at_most)
    }

    fn next_due(&self) -> Answer<'_, Option<Millis>> {
        Box::pin(async { read::next_due(&self.connections).await.map_err(Broken::told) })
    }

    fn depth(&self) -> Answer<'_, Depth> {
        Box::pin(async { read::depth(&self.connections).await.map_err(Broken::told) })
    }

    fn purge(&self, final_for: Duration) -> Answer<'_, u64> {
        Box::pin(async move { keep::purge(&self.connections, final_for).await.map_err(Broken::told) })
    }

    fn audit(&self, row: Audit) -> Answer<'_, ()> {
        Box::pin(async move { audit::append(&self.connections, &row, None).await.map_err(Broken::told) })
    }

    fn audited(&self, filter: AuditFilter) -> Answer<'_, Vec<Audit>> {
        Box::pin(async move { audit::list(&self.connections, &filter).await.map_err(Broken::told) })
    }

    fn forget_audited(&self, older_than: Duration) -> Answer<'_, u64> {
        Box::pin(async move { audit::forget(&self.connections, older_than).await.map_err(Broken::told) })
    }

    fn probe(&self) -> Answer<'_, ()> {
        Box::pin(async { keep::probe(&self.connections).await.map_err(Broken::told) })
    }

    fn check(&self) -> Answer<'_, Vec<Problem>> {
        Box::pin(async { check::check(&self.connections, &self.keys).await.map_err(Broken::told) })
    }

    fn reseal(&self) -> Answer<'_, u64> {
        Box::pin(async {
            self.keys.reload()?;
            let mut count = 0;
            for column in keep::SEALED {
                count += keep::reseal(&self.connections, &self.keys, column).await.map_err(Broken::told)?;
            }
            Ok(count)
        })
    }

    fn export(&self) -> BoxStream<'_, Result<Record, LedgerError>> {
        export::export(self.connections.clone(), self.keys.clone())
    }

    fn import(&self, record: Record) -> Answer<'_, ()> {
        Box::pin(async move {
            keep::import(&self.connections, &self.keys, &record).await.map_err(Broken::told)?;
            self.wake.fire();
            Ok(())
        })
    }
}
