//! Jobs as rows, and back.

use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, params};
use sutler_model::{Application, Identifier};

use super::broken::{Broken, unreadable};
use crate::seal::{Keys, Sealed};
use crate::{Job, JobId, Lease, LedgerError, Millis, Standing, rules};

/// A row without its sealed texts.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) n: i64,
    /// Its texts are empty.
    pub(super) job: Job,
    pub(super) route: String,
    pub(super) body: [u8; 32],
    pub(super) last_event: u64,
}

/// A row with its sealed texts, to be opened where the database does not wait for it.
#[derive(Debug, Clone)]
pub(super) struct Closed {
    pub(super) stored: Stored,
    pub(super) texts: Sealed,
}

impl Closed {
    pub(super) fn open(self, keys: &Keys) -> Result<Job, LedgerError> {
        self.texts.open(self.stored.job, keys)
    }

    /// Without the request, and without the state of one that has ended.
    pub(super) fn brief(self, keys: &Keys) -> Result<Job, LedgerError> {
        self.texts.brief(self.stored.job, keys)
    }
}

/// The columns of a row, in the order in which [`stored`] reads them.
macro_rules! columns {
    () => {
        "j.n, j.id, j.kind, j.mode, j.subject_type, j.subject_id, j.pair, j.instance, j.tenant, j.environment, \
         j.application, j.resources, j.plugin, j.digest, j.caller, j.route, j.request_id, j.body, j.status, j.phase, \
         j.step, j.attempt, j.cancel_requested, j.due, j.lease_holder, j.lease_until, j.token, j.revision, j.deadline, \
         j.created, j.updated, j.last_event"
    };
}
/// A whole row with its texts; conditions follow.
macro_rules! select_closed {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            $crate::sqlite::row::columns!(),
            ", q.sealed, s.sealed, a.sealed FROM provisioning_jobs j \
             LEFT JOIN sealed_requests q ON q.job = j.n LEFT JOIN sealed_states s ON s.job = j.n \
             LEFT JOIN sealed_answers a ON a.job = j.n ",
            $rest
        )
    };
}
pub(super) use {columns, select_closed};

/// Reads the columns one after the other.
struct Reader<'a, 'b> {
    row: &'a Row<'b>,
    at: usize,
}

impl Reader<'_, '_> {
    fn next<T: rusqlite::types::FromSql>(&mut self) -> Result<T, rusqlite::Error> {
        self.at += 1;
        self.row.get(self.at - 1)
    }
    /// A text of a type of ours.
    fn word<T>(&mut self, what: &str) -> Result<T, Broken>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        self.text(what)?.unwrap_or_default().parse().map_err(|e| unreadable(&format!("a job's {what}"), e))
    }
    fn optional(&mut self, what: &str) -> Result<Option<Identifier>, Broken> {
        let text = self.text(what)?;
        text.map(|t| Identifier::parse(t).map_err(|e| unreadable(&format!("a job's {what}"), e))).transpose()
    }
    fn text(&mut self, what: &str) -> Result<Option<&str>, Broken> {
        self.at += 1;
        let text = self.row.get_ref(self.at - 1)?.as_str_or_null();
        let other = |_| rusqlite::Error::InvalidColumnType(self.at - 1, what.to_owned(), Type::Text);
        Ok(text.map_err(other)?)
    }
    fn count(&mut self) -> Result<u64, rusqlite::Error> {
        Ok(self.next::<i64>()?.unsigned_abs())
    }
    fn millis(&mut self) -> Result<Millis, rusqlite::Error> {
        self.next().map(Millis)
    }
}

/// A row as [`columns`] selects it.
pub(super) fn stored(row: &Row<'_>) -> Result<Stored, Broken> {
    let mut r = Reader { row, at: 0 };
    let n = r.next()?;
    let (id, kind, mode) = (r.word("id")?, r.word("kind")?, r.word("mode")?);
    let (subject_type, subject_id, pair) = (r.next()?, r.next()?, r.word("pair")?);
    let (instance, tenant) = (r.optional("instance")?, r.optional("tenant")?);
    let (environment, application) = (r.word("environment")?, r.word("application")?);
    let application = Application { id: application, environment, tenant, instance };
    let resources = r.text("resources")?.unwrap_or_default();
    let resources = serde_json::from_str(resources).map_err(|e| unreadable("a job's resources", e))?;
    let (plugin, digest, caller) = (r.word("plugin")?, r.word("digest")?, r.next()?);
    let (route, request_id, body) = (r.next()?, r.next()?, r.next()?);
    let standing = Standing {
        status: r.word("status")?,
        phase: r.word("phase")?,
        step: r.next()?,
        attempt: r.next()?,
        cancel_requested: r.next()?,
    };
    let due = r.millis()?;
    let (holder, until): (Option<Arc<str>>, Option<i64>) = (r.next()?, r.next()?);
    let lease = holder.zip(until).map(|(holder, until)| Lease { holder, until: Millis(until) });
    let (token, revision, deadline) = (r.count()?, r.count()?, r.millis()?);
    let (created, updated, last_event) = (r.millis()?, r.millis()?, r.count()?);
    let (request, state, answer): (Arc<str>, Arc<str>, _) = ("".into(), "".into(), None);
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
        request,
        state,
        answer,
    };
    Ok(Stored { n, job, route, body, last_event })
}

/// A row as [`select_closed`] selects it.
pub(super) fn closed(row: &Row<'_>) -> Result<Closed, Broken> {
    let stored = stored(row)?;
    let id = stored.job.id.clone();
    let text = |at: usize, what: &str| match row.get::<_, Option<Vec<u8>>>(at) {
        Ok(Some(sealed)) => Ok(sealed),
        Ok(None) => Err(unreadable(&format!("the {what} of {id}"), "it is missing")),
        Err(e) => Err(e.into()),
    };
    let (request, state) = (text(32, "request")?, text(33, "state")?);
    Ok(Closed { texts: Sealed { request, state, answer: row.get(34)? }, stored })
}

/// The one row that a statement finds.
pub(super) fn one<T>(
    mut statement: CachedStatement<'_>,
    params: impl rusqlite::Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Broken>,
) -> Result<Option<T>, Broken> {
    let mut rows = statement.query(params)?;
    rows.next()?.map(read).transpose()
}

pub(super) fn closed_by_n(conn: &Connection, n: i64) -> Result<Option<Closed>, Broken> {
    one(conn.prepare_cached(select_closed!("WHERE j.n = ?1"))?, [n], closed)
}

pub(super) fn closed_by_id(conn: &Connection, id: &JobId) -> Result<Option<Closed>, Broken> {
    let sql = select_closed!("WHERE substr(j.id, -32) = ?2 AND j.id = ?1");
    one(conn.prepare_cached(sql)?, [id.as_str(), digits(id)], closed)
}

/// The same with an empty request.
pub(super) fn brief_by_id(conn: &Connection, id: &JobId) -> Result<Option<Closed>, Broken> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", x'', s.sealed, a.sealed FROM provisioning_jobs j LEFT JOIN sealed_states s ON s.job = j.n \
         LEFT JOIN sealed_answers a ON a.job = j.n WHERE substr(j.id, -32) = ?2 AND j.id = ?1"
    );
    one(conn.prepare_cached(sql)?, [id.as_str(), digits(id)], closed)
}

/// What an id is indexed by.
pub(super) fn digits(id: &JobId) -> &str {
    id.as_str().rsplit('_').next().unwrap_or_default()
}

pub(super) fn id_of(conn: &Connection, n: i64) -> Result<Option<JobId>, Broken> {
    let mut statement = conn.prepare_cached("SELECT id FROM provisioning_jobs WHERE n = ?1")?;
    let text: Option<String> = statement.query_row([n], |r| r.get(0)).optional()?;
    text.map(|t| t.parse().map_err(|e| unreadable("a job's id", e))).transpose()
}

/// A new row; answers its number.
pub(super) fn insert(conn: &Connection, new: &Stored) -> Result<i64, Broken> {
    let Stored { job: j, route, body, last_event, .. } = new;
    let text = |i: &Option<Identifier>| i.as_ref().map(ToString::to_string);
    let resources = serde_json::to_string(&j.resources).map_err(|e| unreadable("a job's resources", e))?;
    let (queue, wake) = rules::queue(j);
    let lease = j.lease.as_ref();
    let mut statement = conn.prepare_cached(
        "INSERT INTO provisioning_jobs (id, kind, mode, subject_type, subject_id, pair, instance, tenant, environment, \
         application, resources, plugin, digest, caller, route, request_id, body, status, phase, step, attempt, \
         cancel_requested, due, lease_holder, lease_until, token, revision, deadline, created, updated, last_event, \
         tenancy, queue, wake) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
         ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34)",
    )?;
    statement.execute(params![
        j.id.as_str(),
        j.kind.as_str(),
        j.mode.as_str(),
        j.subject_type,
        j.subject_id,
        j.pair.to_string(),
        text(&j.application.instance),
        text(&j.application.tenant),
        j.application.environment.as_str(),
        j.application.id.as_str(),
        resources,
        j.plugin.as_str(),
        j.digest.to_string(),
        j.caller,
        route,
        j.request_id,
        &body[..],
        j.standing.status.as_str(),
        j.standing.phase.as_str(),
        j.standing.step,
        j.standing.attempt,
        j.standing.cancel_requested,
        j.due.0,
        lease.map(|l| &*l.holder),
        lease.map(|l| l.until.0),
        rules::int(j.token),
        rules::int(j.revision),
        j.deadline.0,
        j.created.0,
        j.updated.0,
        rules::int(*last_event),
        rules::tenancy(&j.application),
        queue,
        wake,
    ])?;
    Ok(conn.last_insert_rowid())
}

/// What a write or a claim can change. Plugin and digest are left: they seldom change and cost an index.
pub(super) fn update(conn: &Connection, new: &Stored) -> Result<(), Broken> {
    let Stored { n, job: j, last_event, .. } = new;
    let (queue, wake) = rules::queue(j);
    let lease = j.lease.as_ref();
    let mut statement = conn.prepare_cached(
        "UPDATE provisioning_jobs SET status = ?2, phase = ?3, step = ?4, attempt = ?5, cancel_requested = ?6, \
         due = ?7, lease_holder = ?8, lease_until = ?9, token = ?10, revision = ?11, deadline = ?12, updated = ?13, \
         last_event = ?14, queue = ?15, wake = ?16 WHERE n = ?1",
    )?;
    statement.execute(params![
        n,
        j.standing.status.as_str(),
        j.standing.phase.as_str(),
        j.standing.step,
        j.standing.attempt,
        j.standing.cancel_requested,
        j.due.0,
        lease.map(|l| &*l.holder),
        lease.map(|l| l.until.0),
        rules::int(j.token),
        rules::int(j.revision),
        j.deadline.0,
        j.updated.0,
        rules::int(*last_event),
        queue,
        wake,
    ])?;
    Ok(())
}
