use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_ledger::contract::Rig;
use sutler_ledger::{Keys, Ledger, Postgres, PostgresOptions};
use tempfile::TempDir;

use sutler_testkit::postgres::{Server, sql};

pub(crate) const START: i64 = 1_800_000_000_000;

/// A ledger in a database of its own, whose clock stands still.
pub(crate) struct Shared {
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    pub(crate) ledger: Arc<Postgres>,
    now: AtomicI64,
}

pub(crate) fn keys(folder: &TempDir) -> Keys {
    let path = folder.path().join("ledger.key");
    if !path.exists() {
        Keys::rotate(&path).unwrap();
    }
    Keys::open(&path).unwrap()
}

pub(crate) async fn open(url: &str, folder: &TempDir) -> Arc<Postgres> {
    Arc::new(Postgres::open(url, keys(folder), PostgresOptions::default()).await.unwrap())
}

/// The one place where the schema asks for the time.
pub(crate) async fn set_clock(url: &str, now: i64) {
    let body = format!("RETURNS BIGINT LANGUAGE sql VOLATILE AS 'SELECT {now}::bigint'");
    sql(url, &format!("CREATE OR REPLACE FUNCTION ledger_now() {body}")).await;
}

pub(crate) async fn rig() -> Shared {
    let url = Server::shared().database().await;
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(&url, &folder).await;
    set_clock(&url, START).await;
    Shared { url, folder, ledger, now: AtomicI64::new(START) }
}

impl Shared {
    /// Another host on the same database.
    pub(crate) async fn host(&self) -> Arc<Postgres> {
        open(&self.url, &self.folder).await
    }
    pub(crate) async fn pass(&self, by: Duration) {
        let by = by.as_millis() as i64;
        set_clock(&self.url, self.now.fetch_add(by, Ordering::SeqCst) + by).await;
    }
}

impl Rig for Shared {
    fn ledger(&self) -> Arc<dyn Ledger> {
        self.ledger.clone()
    }
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.pass(by))
    }
    fn another(&self) -> BoxFuture<'_, Arc<dyn Ledger>> {
        Box::pin(async {
            let url = Server::shared().database().await;
            let other: Arc<dyn Ledger> = open(&url, &self.folder).await;
            set_clock(&url, self.now.load(Ordering::SeqCst)).await;
            other
        })
    }
}

sutler_ledger::contract_tests!(self::rig);
