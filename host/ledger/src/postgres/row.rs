//! Jobs as rows, and back.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use sutler_model::{Application, Identifier};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::broken::{Broken, unreadable};
use super::connections::Connections;
use crate::seal::{Keys, Sealed};
use crate::{Event, Job, JobId, Lease, LedgerError, Millis, Standing};

/// A row with its texts still sealed.
#[derive(Debug, Clone)]
pub(super) struct Closed {
    pub(super) n: i64,
    /// Its texts are empty.
    pub(super) job: Job,
    pub(super) route: String,
    pub(super) body: [u8; 32],
    pub(super) last_event: u64,
    texts: Sealed,
}

impl Closed {
    pub(super) fn open(self, keys: &Keys) -> Result<Job, LedgerError> {
        self.texts.open(self.job, keys)
    }

    /// Without the request, and without the state of one that has ended.
    pub(super) fn brief(self, keys: &Keys) -> Result<Job, LedgerError> {
        self.texts.brief(self.job, keys)
    }
}

/// The columns of a row, in the order in which [`closed`] reads them.
macro_rules! columns {
    () => {
        "j.n, j.id, j.kind, j.mode, j.subject_type, j.subject_id, j.pair, j.instance, j.tenant, j.environment, \
         j.application, j.resources, j.plugin, j.digest, j.caller, j.route, j.request_id, j.body, j.status, j.phase, \
         j.step, j.attempt, j.cancel_requested, j.due, j.lease_holder, j.lease_until, j.token, j.revision, j.deadline, \
         j.created, j.updated, j.last_event, j.request, j.state, j.answer"
    };
}
/// How many columns [`columns`] are; what a statement answers besides follows them.
pub(super) const COLUMNS: usize = 35;

/// A whole row; conditions follow.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT ", $crate::postgres::row::columns!(), " FROM provisioning_jobs j ", $rest)
    };
}
pub(super) use {columns, select};

/// Reads the columns one after the other.
struct Reader<'a> {
    row: &'a Row,
    at: usize,
}

impl<'a> Reader<'a> {
    fn next<T: FromSql<'a>>(&mut self) -> Result<T, Broken> {
        self.at += 1;
        get(self.row, self.at - 1)
    }
    /// A text of a type of ours.
    fn word<T: FromStr<Err: Display>>(&mut self, what: &str) -> Result<T, Broken> {
        self.next::<&str>()?.parse().map_err(|e| unreadable(&format!("a job's {what}"), e))
    }
    fn optional(&mut self, what: &str) -> Result<Option<Identifier>, Broken> {
        let text: Option<&str> = self.next()?;
        text.map(|t| Identifier::parse(t).map_err(|e| unreadable(&format!("a job's {what}"), e))).transpose()
    }
    fn count(&mut self) -> Result<u64, Broken> {
        Ok(self.next::<i64>()?.unsigned_abs())
    }
    fn millis(&mut self) -> Result<Millis, Broken> {
        self.next().map(Millis)
    }
}

/// A column; one that cannot be read is damage.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Broken> {
    row.try_get(at).map_err(|e| unreadable("a column", e))
}

/// A row as [`columns`] selects it.
pub(super) fn closed(row: &Row) -> Result<Closed, Broken> {
    let mut r = Reader { row, at: 0 };
    let n = r.next()?;
    let (id, kind, mode) = (r.word("id")?, r.word("kind")?, r.word("mode")?);
    let (subject_type, subject_id, pair) = (r.next()?, r.next()?, r.word("pair")?);
    let (instance, tenant) = (r.optional("instance")?, r.optional("tenant")?);
    let (environment, application) = (r.word("environment")?, r.word("application")?);
    let application = Application { id: application, environment, tenant, instance };
    let resources: Vec<&str> = r.next()?;
    let resources = resources.into_iter().map(Identifier::parse).collect::<Result<_, _>>();
    let resources = resources.map_err(|e| unreadable("a job's resources", e))?;
    let (plugin, digest, caller) = (r.word("plugin")?, r.word("digest")?, r.next()?);
    let (route, request_id) = (r.next()?, r.next()?);
    let body = r.next::<&[u8]>()?.try_into().map_err(|e| unreadable("a request's body", e))?;
    let standing = Standing {
        status: r.word("status")?,
        phase: r.word("phase")?,
        step: r.next()?,
        attempt: u32::try_from(r.next::<i64>()?).map_err(|e| unreadable("a job's attempt", e))?,
        cancel_requested: r.next()?,
    };
    let due = r.millis()?;
    let (holder, until): (Option<&str>, Option<i64>) = (r.next()?, r.next()?);
    let lease =
        holder.zip(until).map(|(holder, until)| Lease { holder: holder.into(), until: Millis(until) });
    let (token, revision, deadline) = (r.count()?, r.count()?, r.millis()?);
    let (created, updated, last_event) = (r.millis()?, r.millis()?, r.count()?);
    let (empty, no): (Arc<str>, _) = ("".into(), None);
    let job = Job {
        id,
        kind,
        mode,
        subject_type,
        subject_id,
        pair,
        application,
        resources,
        plugin,
        digest,
        caller,
        request_id,
        standing,
        due,
        lease,
        token,
        revision,
        deadline,
        created,
        updated,
        request: empty.clone(),
        state: empty,
        answer: no,
    };
    let texts = Sealed { request: r.next()?, state: r.next()?, answer: r.next()? };
    Ok(Closed { n, job, route, body, last_event, texts })
}

pub(super) async fn by_n(connections: &Connections, n: i64) -> Result<Option<Closed>, Broken> {
    let rows = connections.read(select!("WHERE j.n = $1"), &[&n]).await?;
    rows.first().map(closed).transpose()
}

pub(super) async fn by_id(connections: &Connections, id: &JobId) -> Result<Option<Closed>, Broken> {
    let sql = select!("WHERE right(j.id, 32) = right($1, 32) AND j.id = $1");
    connections.read(sql, &[&id.as_str()]).await?.first().map(closed).transpose()
}

/// In milliseconds; so long that nobody waits for it, and that a time plus it is still a number.
pub(super) fn distance(d: std::time::Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

/// An event from its number, time and text.
pub(super) fn event(row: &Row, at: usize) -> Result<Event, Broken> {
    let (seq, time, what): (i64, i64, &str) = (get(row, at)?, get(row, at + 1)?, get(row, at + 2)?);
    let what = serde_json::from_str(what).map_err(|e| unreadable("an event", e))?;
    Ok(Event { seq: seq.unsigned_abs(), at: Millis(time), what })
}
