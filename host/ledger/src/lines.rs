//! A ledger as text, one record a line: JSON between a first line with the format's version and a last one with the
//! count. What is sealed in a ledger is sealed here too, with the active key of the ledger that it comes from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sutler_model::{Application, Digest, Identifier, PluginName, Use};

use crate::{
    Audit, Event, Job, JobId, JobKind, JobMode, Keys, Lease, LedgerError, Millis, Phase, Record, Standing,
    Status, Taken,
};

/// Of the format.
const VERSION: u32 = 3;
/// The oldest one that is read; 2 added what resources take, 3 the audit.
const OLDEST: u32 = 1;

/// What a line holds.
#[derive(Debug)]
pub enum Line {
    /// The first one. `hashes` is the [`Keys::hashes_name`] of the ledger that it comes from.
    Head {
        hashes: String,
    },
    Record(Record),
    /// The last one: so many records, and so many that could not be read.
    End {
        records: u64,
        unreadable: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Doc {
    SutlerLedger { version: u32, hashes: String },
    Plugin { digest: String, bytes: String },
    Job(Box<JobDoc>),
    Request { caller: String, route: String, request_id: String, job: String },
    Taken(TakenDoc),
    Audit(AuditDoc),
    End { records: u64, unreadable: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JobDoc {
    id: String,
    kind: JobKind,
    mode: JobMode,
    subject_type: String,
    subject_id: String,
    pair: String,
    instance: Option<Identifier>,
    tenant: Option<Identifier>,
    environment: Identifier,
    application: Identifier,
    resources: Vec<Identifier>,
    plugin: PluginName,
    digest: String,
    caller: String,
    route: String,
    request_id: String,
    /// Of the body: an HMAC, base64.
    body: String,
    status: Status,
    phase: Phase,
    step: String,
    attempt: u32,
    cancel_requested: bool,
    due: Millis,
    lease: Option<LeaseDoc>,
    token: u64,
    revision: u64,
    deadline: Millis,
    created: Millis,
    updated: Millis,
    events: Vec<Event>,
    /// Sealed, base64.
    request: String,
    state: String,
    answer: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TakenDoc {
    instance: Option<Identifier>,
    tenant: Option<Identifier>,
    environment: Identifier,
    application: Identifier,
    pair: String,
    resource: Identifier,
    job: Option<String>,
    before: Option<UseDoc>,
    after: Option<UseDoc>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuditDoc {
    at: Millis,
    actor: String,
    action: String,
    resource_type: String,
    resource_id: String,
    application: Option<ApplicationDoc>,
    operation: Option<String>,
    request_id: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApplicationDoc {
    instance: Option<Identifier>,
    tenant: Option<Identifier>,
    environment: Identifier,
    id: Identifier,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UseDoc {
    milli_cpus: u64,
    memory_mib: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LeaseDoc {
    holder: String,
    until: Millis,
}

fn wrong(what: &str, e: impl std::fmt::Display) -> LedgerError {
    LedgerError::Unreadable(format!("{what} cannot be read: {e}"))
}

impl Line {
    /// The line, without its end. Texts are sealed with the active one of `keys`.
    ///
    /// # Errors
    /// `LedgerError::Unavailable` where nothing can be sealed, `LedgerError::Unreadable` for a plugin that is damaged.
    pub fn write(self, keys: &Keys) -> Result<String, LedgerError> {
        let doc = match self {
            Self::Head { hashes } => Doc::SutlerLedger { version: VERSION, hashes },
            Self::End { records, unreadable } => Doc::End { records, unreadable },
            Self::Record(Record::Plugin { digest, bytes }) => {
                genuine(digest, &bytes)?;
                Doc::Plugin { digest: digest.to_string(), bytes: STANDARD.encode(bytes) }
            }
            Self::Record(Record::Request { caller, route, request_id, job }) => {
                Doc::Request { caller, route, request_id, job: job.to_string() }
            }
            Self::Record(Record::Audit(row)) => Doc::Audit(AuditDoc::from(row)),
            Self::Record(Record::Taken(taken)) => Doc::Taken(TakenDoc::from(taken)),
            Self::Record(Record::Job { job, events, route, body }) => {
                Doc::Job(Box::new(JobDoc::of(*job, events, route, body, keys)?))
            }
        };
        serde_json::to_string(&doc).map_err(|e| LedgerError::Unavailable(e.to_string()))
    }

    /// # Errors
    /// `LedgerError::Unreadable` where the line is none of this version's, `LedgerError::MissingKey` where it is sealed
    /// with a key that is not there.
    pub fn read(text: &str, keys: &Keys) -> Result<Self, LedgerError> {
        // A newer version's first line says so before anything else in it is looked at.
        if let Some(version) = version(text).filter(|v| !(OLDEST..=VERSION).contains(v)) {
            return Err(LedgerError::Unreadable(format!(
                "the export has format {version} and this version of sutler reads {OLDEST} to {VERSION}; use the version that \
                 wrote it"
            )));
        }
        let doc = serde_json::from_str(text).map_err(|e| wrong("the line", e))?;
        Ok(match doc {
            Doc::SutlerLedger { hashes, .. } => Self::Head { hashes },
            Doc::End { records, unreadable } => Self::End { records, unreadable },
            Doc::Plugin { digest, bytes } => Self::Record(plugin(&digest, &bytes)?),
            Doc::Request { caller, route, request_id, job } => {
                let job = job.parse().map_err(|e| wrong("the line", e))?;
                Self::Record(Record::Request { caller, route, request_id, job })
            }
            Doc::Audit(doc) => Self::Record(Record::Audit(doc.row()?)),
            Doc::Taken(doc) => Self::Record(Record::Taken(doc.taken()?)),
            Doc::Job(doc) => Self::Record(doc.record(keys)?),
        })
    }
}

fn version(text: &str) -> Option<u32> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Head {
        sutler_ledger: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    // Other lines may be long: their beginning tells.
    let head = text.starts_with("{\"sutler-ledger\"").then(|| serde_json::from_str::<Head>(text).ok());
    head.flatten().map(|h| h.sutler_ledger.version)
}

fn plugin(digest: &str, bytes: &str) -> Result<Record, LedgerError> {
    let digest: Digest = digest.parse().map_err(|e| wrong("the plugin's digest", e))?;
    let bytes = STANDARD.decode(bytes).map_err(|e| wrong("the plugin's bytes", e))?;
    genuine(digest, &bytes)?;
    Ok(Record::Plugin { digest, bytes: Bytes::from(bytes) })
}

fn genuine(digest: Digest, bytes: &[u8]) -> Result<(), LedgerError> {
    if Digest::of(bytes) == digest {
        return Ok(());
    }
    Err(LedgerError::Unreadable(format!(
        "the plugin {digest} has other bytes than its digest says; it was changed"
    )))
}

impl From<Audit> for AuditDoc {
    fn from(row: Audit) -> Self {
        let doc = |a: Application| ApplicationDoc {
            instance: a.instance,
            tenant: a.tenant,
            environment: a.environment,
            id: a.id,
        };
        Self {
            at: row.at,
            actor: row.actor,
            action: row.action,
            resource_type: row.resource_type,
            resource_id: row.resource_id,
            application: row.application.map(doc),
            operation: row.operation.map(|id| id.to_string()),
            request_id: row.request_id,
        }
    }
}

impl AuditDoc {
    fn row(self) -> Result<Audit, LedgerError> {
        let back = |a: ApplicationDoc| Application {
            instance: a.instance,
            tenant: a.tenant,
            environment: a.environment,
            id: a.id,
        };
        Ok(Audit {
            n: 0,
            at: self.at,
            actor: self.actor,
            action: self.action,
            resource_type: self.resource_type,
            resource_id: self.resource_id,
            application: self.application.map(back),
            operation: self.operation.map(|id| id.parse()).transpose().map_err(|e| wrong("the line", e))?,
            request_id: self.request_id,
        })
    }
}

impl From<Taken> for TakenDoc {
    fn from(t: Taken) -> Self {
        let doc = |u: Use| UseDoc { milli_cpus: u.milli_cpus, memory_mib: u.memory_mib };
        Self {
            instance: t.application.instance,
            tenant: t.application.tenant,
            environment: t.application.environment,
            application: t.application.id,
            pair: t.pair.to_string(),
            resource: t.resource,
            job: t.job.map(|id| id.to_string()),
            before: t.before.map(doc),
            after: t.after.map(doc),
        }
    }
}

impl TakenDoc {
    fn taken(self) -> Result<Taken, LedgerError> {
        let back = |u: UseDoc| Use { milli_cpus: u.milli_cpus, memory_mib: u.memory_mib };
        Ok(Taken {
            application: Application {
                id: self.application,
                environment: self.environment,
                tenant: self.tenant,
                instance: self.instance,
            },
            pair: self.pair.parse().map_err(|e| wrong("the line", e))?,
            resource: self.resource,
            job: self.job.map(|id| id.parse()).transpose().map_err(|e| wrong("the line", e))?,
            before: self.before.map(back),
            after: self.after.map(back),
        })
    }
}

impl JobDoc {
    fn of(
        job: Job,
        events: Vec<Event>,
        route: String,
        body: [u8; 32],
        keys: &Keys,
    ) -> Result<Self, LedgerError> {
        let seal =
            |column, text: &str| keys.seal(column, &job.id, text).map(|sealed| STANDARD.encode(sealed));
        Ok(Self {
            request: seal("request", &job.request)?,
            state: seal("state", &job.state)?,
            answer: job.answer.as_ref().map(|a| seal("answer", a)).transpose()?,
            id: job.id.to_string(),
            kind: job.kind,
            mode: job.mode,
            subject_type: job.subject_type,
            subject_id: job.subject_id,
            pair: job.pair.to_string(),
            instance: job.application.instance,
            tenant: job.application.tenant,
            environment: job.application.environment,
            application: job.application.id,
            resources: job.resources,
            plugin: job.plugin,
            digest: job.digest.to_string(),
            caller: job.caller,
            route,
            request_id: job.request_id,
            body: STANDARD.encode(body),
            status: job.standing.status,
            phase: job.standing.phase,
            step: job.standing.step,
            attempt: job.standing.attempt,
            cancel_requested: job.standing.cancel_requested,
            due: job.due,
            lease: job.lease.map(|l| LeaseDoc { holder: l.holder.to_string(), until: l.until }),
            token: job.token,
            revision: job.revision,
            deadline: job.deadline,
            created: job.created,
            updated: job.updated,
            events,
        })
    }

    fn record(self, keys: &Keys) -> Result<Record, LedgerError> {
        let id: JobId = self.id.parse().map_err(|e| wrong("the line", e))?;
        let of = |what: &str| format!("the {what} of job {id}");
        let open = |column: &str, sealed: &str| {
            let sealed = STANDARD.decode(sealed).map_err(|e| wrong(&of(column), e))?;
            keys.open_text(column, &id, &sealed)
        };
        let body = STANDARD.decode(&self.body).map_err(|e| wrong(&of("body"), e))?;
        let job = Job {
            kind: self.kind,
            mode: self.mode,
            subject_type: self.subject_type,
            subject_id: self.subject_id,
            pair: self.pair.parse().map_err(|e| wrong(&of("pair"), e))?,
            application: Application {
                id: self.application,
                environment: self.environment,
                tenant: self.tenant,
                instance: self.instance,
            },
            resources: self.resources,
            plugin: self.plugin,
            digest: self.digest.parse().map_err(|e| wrong(&of("digest"), e))?,
            caller: self.caller,
            request_id: self.request_id,
            standing: Standing {
                status: self.status,
                phase: self.phase,
                step: self.step,
                attempt: self.attempt,
                cancel_requested: self.cancel_requested,
            },
            due: self.due,
            lease: self.lease.map(|l| Lease { holder: l.holder.into(), until: l.until }),
            token: self.token,
            revision: self.revision,
            deadline: self.deadline,
            created: self.created,
            updated: self.updated,
            request: open("request", &self.request)?,
            state: open("state", &self.state)?,
            answer: self.answer.as_deref().map(|a| open("answer", a)).transpose()?,
            id: id.clone(),
        };
        let body = body.try_into().map_err(|_| wrong(&of("body"), "it has not 32 bytes"))?;
        Ok(Record::Job { job: Box::new(job), events: self.events, route: self.route, body })
    }
}
