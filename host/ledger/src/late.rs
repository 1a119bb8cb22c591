//! A ledger whose server was away at the start of its host: unavailable until it has been opened.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use sutler_model::{Application, Digest, OverQuota, Pair};

use crate::{
    Answer, Audit, AuditFilter, Begun, Claim, Depth, Event, Filter, Held, Job, JobId, Ledger, LedgerError,
    Millis, NewJob, Problem, Record, Takes, Write,
};

/// Stands for a ledger until it can be opened, and for good afterwards.
#[derive(Default)]
pub struct Late(OnceLock<Arc<dyn Ledger>>);

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Late").field("there", &self.0.get().is_some()).finish()
    }
}

impl Late {
    /// From now on everything goes to this ledger. Only the first one counts.
    pub fn opened(&self, ledger: Arc<dyn Ledger>) {
        let _first_stays = self.0.set(ledger);
    }

    fn there(&self) -> Result<&dyn Ledger, LedgerError> {
        let away = || LedgerError::Unavailable("it has not been reached since this host started".into());
        self.0.get().map(AsRef::as_ref).ok_or_else(away)
    }
}

/// Each method with its parameters, handed on.
macro_rules! hand_on {
    ($($name:ident($($parameter:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($parameter: $type),*) -> Answer<'_, $answer> {
            Box::pin(async move { self.there()?.$name($($parameter),*).await })
        })+
    };
}

impl Ledger for Late {
    hand_on! {
        now() -> Millis;
        begin(new: NewJob) -> Begun;
        over_quota(application: Application, pair: Pair, takes: Takes) -> Option<OverQuota>;
        commit(write: Write) -> Job;
        claim(claim: Claim) -> Vec<Job>;
        renew(holder: Arc<str>, held: Vec<Held>) -> Vec<JobId>;
        job(id: JobId) -> Option<Job>;
        brief(id: JobId) -> Option<Job>;
        jobs(filter: Filter) -> Vec<Job>;
        events(id: JobId, after: u64, limit: u32) -> Vec<Event>;
        keep_plugin(digest: Digest, bytes: Bytes) -> ();
        plugin(digest: Digest) -> Option<Bytes>;
        next_due() -> Option<Millis>;
        depth() -> Depth;
        purge(final_for: Duration) -> u64;
        audit(row: Audit) -> ();
        audited(filter: AuditFilter) -> Vec<Audit>;
        forget_audited(older_than: Duration) -> u64;
        probe() -> ();
        check() -> Vec<Problem>;
        reseal() -> u64;
        import(record: Record) -> ();
    }

    fn asked<'a>(
        &'a self,
        caller: &'a str,
        route: &'a str,
        request_id: &'a str,
    ) -> Answer<'a, Option<(Job, [u8; 32])>> {
        Box::pin(async move { self.there()?.asked(caller, route, request_id).await })
    }

    fn woken(&self, at_most: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self.there() {
                Ok(ledger) => ledger.woken(at_most).await,
                Err(_) => tokio::time::sleep(at_most).await,
            }
        })
    }

    fn export(&self) -> BoxStream<'_, Result<Record, LedgerError>> {
        match self.there() {
            Ok(ledger) => ledger.export(),
            Err(e) => stream::once(async { Err(e) }).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, Memory};

    #[tokio::test]
    async fn it_is_away_until_it_comes() {
        let late = Late::default();
        assert!(matches!(late.now().await, Err(LedgerError::Unavailable(_))));
        assert!(matches!(late.export().next().await, Some(Err(LedgerError::Unavailable(_)))));
        late.opened(Arc::new(Memory::new(ManualClock::new(Millis(7)).clock())));
        assert_eq!(late.now().await.unwrap(), Millis(7));
        late.opened(Arc::new(Memory::new(ManualClock::new(Millis(8)).clock())));
        assert_eq!(late.now().await.unwrap(), Millis(7));
        assert!(late.export().next().await.is_none());
    }
}
