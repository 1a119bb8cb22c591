//! The connections to the server, and the time that each of them is given.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use tokio::time::error::Elapsed;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::address::{Address, CONNECT};
use super::broken::{Broken, Effect, words};
use crate::{LedgerError, Millis, failpoint};

/// How long a free connection is waited for.
const WAIT: Duration = Duration::from_secs(5);
/// Above the server's own limit for a statement, for a server that does not answer at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// What each session is told first. The server ends what takes too long, and what a stopped host left open. The
/// tables are planned as large ones even while the server takes them for empty, and once for a connection. A server
/// that would answer before a commit is on the disk is told otherwise.
pub(super) const SESSION: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '5s'; SET default_transaction_isolation = 'read committed'; \
     SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan; \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

pub(super) struct Connections {
    pool: Pool,
    shown: String,
    /// The newest time that the server has told: time does not go back, not even after a failover.
    floor: AtomicI64,
    /// While it is not sure that others keep off, nothing is read or written.
    barred: AtomicBool,
}

impl Connections {
    pub(super) fn new(address: &Address, most: usize) -> Result<Self, LedgerError> {
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config.clone(), address.tls.clone(), how);
        let first = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
            Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
        });
        let pool = Pool::builder(manager)
            .max_size(most)
            .wait_timeout(Some(WAIT))
            .create_timeout(Some(CONNECT))
            .recycle_timeout(Some(CONNECT))
            .runtime(Runtime::Tokio1)
            .post_create(first)
            .build()
            .map_err(|e| LedgerError::Open(format!("the ledger's connections cannot be set up: {e}")))?;
        Ok(Self {
            pool,
            shown: address.shown.clone(),
            floor: AtomicI64::new(0),
            barred: AtomicBool::new(false),
        })
    }

    /// Below this the ledger's time does not fall.
    pub(super) fn floor(&self) -> i64 {
        self.floor.load(Ordering::SeqCst)
    }
    pub(super) fn seen(&self, now: i64) -> Millis {
        Millis(self.floor.fetch_max(now, Ordering::SeqCst).max(now))
    }

    pub(super) fn bar(&self, barred: bool) {
        self.barred.store(barred, Ordering::SeqCst);
    }

    pub(super) async fn get(&self) -> Result<Connection, Broken> {
        if self.barred.load(Ordering::SeqCst) {
            let why = "the session that keeps hosts and imports apart was lost";
            return Err(Broken::Refused(LedgerError::Unavailable(format!("{}: {why}", self.shown))));
        }
        let object = self.pool.get().await.map_err(|e| {
            let why = match e {
                PoolError::Timeout(TimeoutType::Wait) => "all connections are busy".to_owned(),
                PoolError::Timeout(_) => format!("no answer within {} s", CONNECT.as_secs()),
                PoolError::Backend(e) | PoolError::PostCreateHook(HookError::Backend(e)) => words(&e),
                other => other.to_string(),
            };
            Broken::Refused(LedgerError::Unavailable(format!("{}: {why}", self.shown)))
        })?;
        Ok(Connection { object: Some(object), midst: false, patience: PATIENCE })
    }

    /// Reads. A connection that broke while nobody looked, as by a restart of the server, is replaced by another.
    pub(super) async fn read(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Broken> {
        match self.get().await?.query(sql, params, Effect::None).await {
            Err(Broken::Lost(_)) => self.get().await?.query(sql, params, Effect::None).await,
            got => got,
        }
    }

    /// As [`Self::read`], of a statement that has many forms: no connection remembers it.
    pub(super) async fn read_once(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Broken> {
        match self.get().await?.query_once(sql, params).await {
            Err(Broken::Lost(_)) => self.get().await?.query_once(sql, params).await,
            got => got,
        }
    }

    /// One statement that commits by itself.
    pub(super) async fn write(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Broken> {
        self.get().await?.query(sql, params, Effect::Commits).await
    }
}

/// A connection in use. One that broke, or that is left in the midst of something, does not go back to the others.
pub(super) struct Connection {
    object: Option<Object>,
    midst: bool,
    patience: Duration,
}

impl Connection {
    fn gone() -> Broken {
        Broken::Lost(LedgerError::Unavailable("the connection is gone".into()))
    }

    pub(super) async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        effect: Effect,
    ) -> Result<Vec<Row>, Broken> {
        let got = tokio::time::timeout(self.patience, self.send(sql, params, effect)).await;
        self.judge(got, effect)
    }

    async fn query_once(&mut self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Broken> {
        let object = self.object.as_ref().ok_or_else(Self::gone)?;
        let got = async {
            let statement = object.prepare(sql).await?;
            object.query(&statement, params).await
        };
        let got = tokio::time::timeout(self.patience, got).await;
        self.judge(got.map(|g| g.map_err(|e| Broken::of(&e, Effect::None))), Effect::None)
    }

    /// A connection that broke, or does not answer, is given up.
    fn judge<T>(&mut self, got: Result<Result<T, Broken>, Elapsed>, effect: Effect) -> Result<T, Broken> {
        let got = got.unwrap_or_else(|_| Err(Broken::Lost(effect.lost("the server does not answer".into()))));
        if matches!(got, Err(Broken::Lost(_))) {
            self.part();
        }
        got
    }

    async fn send(&self, sql: &str, params: &[Param<'_>], effect: Effect) -> Result<Vec<Row>, Broken> {
        // What cannot be prepared is not done.
        let statement = self.prepare(sql).await?;
        self.run(&statement, params, effect).await
    }

    /// Each connection prepares a statement once.
    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement, Broken> {
        let object = self.object.as_ref().ok_or_else(Self::gone)?;
        object.prepare_cached(sql).await.map_err(|e| Broken::of(&e, Effect::None))
    }

    /// Without a time-out, so that several can be on their way at once; they are sent as they are first polled.
    pub(super) async fn run(
        &self,
        statement: &Statement,
        params: &[Param<'_>],
        effect: Effect,
    ) -> Result<Vec<Row>, Broken> {
        let object = self.object.as_ref().ok_or_else(Self::gone)?;
        if effect == Effect::Commits {
            failpoint("postgres-before-write");
        }
        let got = object.query(statement, params).await.map_err(|e| Broken::of(&e, effect));
        if effect == Effect::Commits {
            failpoint("postgres-after-write");
        }
        got
    }

    /// As [`Self::run`], for what is not prepared.
    pub(super) async fn say(&self, sql: &str, effect: Effect) -> Result<(), Broken> {
        let object = self.object.as_ref().ok_or_else(Self::gone)?;
        object.batch_execute(sql).await.map_err(|e| Broken::of(&e, effect))
    }

    /// A snapshot of everything, for a reader that takes its time: large tables are read as a whole, and each answer
    /// may take long. The connection ends with it.
    pub(super) async fn snapshot(&mut self) -> Result<(), Broken> {
        self.in_the_midst();
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                     SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = '10min'; \
                     SET LOCAL enable_seqscan = on; SET LOCAL plan_cache_mode = auto";
        let silent = |_| Err(Broken::Lost(Effect::None.lost("the server does not answer".into())));
        let begun = tokio::time::timeout(self.patience, self.say(begin, Effect::None)).await;
        self.patience = Duration::from_secs(11 * 60);
        begun.unwrap_or_else(silent)
    }

    /// From here until [`Self::done`] nobody else can use the connection if this one stops.
    pub(super) const fn in_the_midst(&mut self) {
        self.midst = true;
    }
    pub(super) const fn done(&mut self) {
        self.midst = false;
    }

    fn part(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.midst {
            self.part();
        }
    }
}
