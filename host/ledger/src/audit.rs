//! The audit: who asked for which change, and when. Rows are added and, when they are old, forgotten; none changes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sutler_model::{Action, Application, Identifier, InvalidName, Pair};

use crate::{InvalidJobId, Job, JobId, Millis, NewJob, Write};

/// At most so many rows are forgotten at once.
pub(crate) const FORGOTTEN: i64 = 1000;

/// A row of the audit. It holds names only: no settings, outputs or secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Grows with every row; the ledger gives it.
    pub n: u64,
    /// The ledger gives it.
    pub at: Millis,
    /// The name of the caller's or operator's token.
    pub actor: String,
    /// `create`, `update`, `replace` or `delete` of a resource; `retry` or `cancel` of an operation; what operators do.
    pub action: String,
    /// The pair of a resource, `operation` or `host`.
    pub resource_type: String,
    pub resource_id: String,
    /// Where it belongs; `None` for what is the whole host's.
    pub application: Option<Application>,
    pub operation: Option<JobId>,
    /// The caller's name for its call.
    pub request_id: Option<String>,
}

/// Somebody who changes a job, and how the audit calls what is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    pub actor: String,
    pub action: &'static str,
}

/// What the audit calls a job as a resource.
pub(crate) const OPERATION: &str = "operation";
/// What the audit calls a host as a resource.
pub(crate) const HOST: &str = "host";
/// What the audit calls what is done.
const ACTIONS: [&str; 7] = ["create", "update", "replace", "delete", "retry", "cancel", "reload"];

/// Names that may be seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Names {
    /// Every one, and none at all.
    #[default]
    All,
    /// These. Empty: only what has no such name.
    Only(Vec<String>),
}

impl Names {
    fn allows(&self, name: Option<&str>) -> bool {
        match (self, name) {
            (Self::All, _) => true,
            (Self::Only(names), Some(name)) => names.iter().any(|n| n == name),
            (Self::Only(names), None) => names.is_empty(),
        }
    }
}

/// Where a row stands in the audit, which is in the order of its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditPlace {
    pub at: Millis,
    /// Tells rows of one millisecond apart.
    pub n: u64,
}

/// Words that are no place in the audit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place in the audit; give the one that ended the page before")]
pub struct InvalidAuditPlace(pub String);

impl fmt::Display for AuditPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.0, self.n)
    }
}

impl FromStr for AuditPlace {
    type Err = InvalidAuditPlace;
    fn from_str(s: &str) -> Result<Self, InvalidAuditPlace> {
        let place = s.split_once('-').and_then(|(at, n)| Some((at.parse().ok()?, n.parse().ok()?)));
        let wrong = || InvalidAuditPlace(s.chars().take(80).collect());
        place.map(|(at, n)| Self { at: Millis(at), n }).ok_or_else(wrong)
    }
}

/// Which rows are listed, the newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// What the asker may see at all.
    pub instances: Names,
    pub tenants: Names,
    /// Only what belongs to an application, not what operators do to a host.
    pub of_applications: bool,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub resource_type: Option<String>,
    pub resource_id: Option<String>,
    pub instance: Option<String>,
    pub tenant: Option<String>,
    pub environment: Option<String>,
    pub application: Option<String>,
    pub operation: Option<JobId>,
    /// Not before.
    pub from: Option<Millis>,
    /// Before.
    pub to: Option<Millis>,
    /// Older than this one: where the page before ended.
    pub before: Option<AuditPlace>,
    /// At most so many.
    pub limit: u32,
}

impl AuditFilter {
    /// Whether a row is among those that are listed, whatever their number.
    pub(crate) fn takes(&self, row: &Audit) -> bool {
        let a = row.application.as_ref();
        let instance = a.and_then(|a| a.instance.as_ref()).map(Identifier::as_str);
        let tenant = a.and_then(|a| a.tenant.as_ref()).map(Identifier::as_str);
        let is = |wanted: &Option<String>, has: Option<&str>| wanted.is_none() || wanted.as_deref() == has;
        self.instances.allows(instance)
            && self.tenants.allows(tenant)
            && (a.is_some() || !self.of_applications)
            && is(&self.actor, Some(&row.actor))
            && is(&self.action, Some(&row.action))
            && is(&self.resource_type, Some(&row.resource_type))
            && is(&self.resource_id, Some(&row.resource_id))
            && is(&self.instance, instance)
            && is(&self.tenant, tenant)
            && is(&self.environment, a.map(|a| a.environment.as_str()))
            && is(&self.application, a.map(|a| a.id.as_str()))
            && (self.operation.is_none() || self.operation == row.operation)
            && self.from.is_none_or(|from| row.at >= from)
            && self.to.is_none_or(|to| row.at < to)
            && self.before.is_none_or(|before| row.place() < before)
    }

    /// Whether any row could be like that: what is asked of an audit must not be answered by nothing for a slip.
    ///
    /// # Errors
    /// The name of the field, and why no row is like that.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let field = |name, text: &Option<String>, right: &dyn Fn(&str) -> Result<(), String>| {
            text.as_deref().map_or(Ok(()), |t| right(t).map_err(|why| (name, why)))
        };
        let name = |t: &str| Identifier::parse(t).map(|_| ()).map_err(|e| e.to_string());
        let printable = |t: &str| match t.chars().find(|c| c.is_control()) {
            Some(c) => Err(format!("{t:?} has the control character {c:?}")),
            None => Ok(()),
        };
        field("actor", &self.actor, &printable)?;
        field("action", &self.action, &|t| match ACTIONS.contains(&t) {
            true => Ok(()),
            false => Err(format!("{t:?} is no action; there are {}", ACTIONS.join(", "))),
        })?;
        field("resourceType", &self.resource_type, &|t| match t {
            OPERATION | HOST => Ok(()),
            _ => t.parse::<Pair>().map(|_| ()).map_err(|e| format!("{e}; or write operation or host")),
        })?;
        field("resourceId", &self.resource_id, &printable)?;
        for (at, text) in [
            ("instance", &self.instance),
            ("tenant", &self.tenant),
            ("environment", &self.environment),
            ("application", &self.application),
        ] {
            field(at, text, &name)?;
        }
        match (self.from, self.to) {
            (Some(from), Some(to)) if from >= to => Err(("from", "it is not before to".into())),
            _ => Ok(()),
        }
    }

    /// The conditions on single columns, for ledgers on a database.
    pub(crate) fn texts(&self) -> [(&'static str, Option<&str>); 9] {
        [
            ("actor", self.actor.as_deref()),
            ("action", self.action.as_deref()),
            ("resource_type", self.resource_type.as_deref()),
            ("resource_id", self.resource_id.as_deref()),
            ("instance", self.instance.as_deref()),
            ("tenant", self.tenant.as_deref()),
            ("environment", self.environment.as_deref()),
            ("application", self.application.as_deref()),
            ("operation", self.operation.as_ref().map(JobId::as_str)),
        ]
    }
}

/// The columns of a row but its number, for ledgers on a database.
macro_rules! columns {
    () => {
        "at, actor, action, resource_type, resource_id, instance, tenant, environment, application, operation, \
         request_id"
    };
}
pub(crate) use columns;

/// A row as ledgers on a database keep it: texts in the order of [`columns`] after the time.
pub(crate) struct Texts<'a>(pub(crate) [Option<&'a str>; 10]);

impl Audit {
    pub const fn place(&self) -> AuditPlace {
        AuditPlace { at: self.at, n: self.n }
    }

    pub(crate) fn texts(&self) -> Texts<'_> {
        let a = self.application.as_ref();
        Texts([
            Some(&self.actor),
            Some(&self.action),
            Some(&self.resource_type),
            Some(&self.resource_id),
            a.and_then(|a| a.instance.as_ref()).map(Identifier::as_str),
            a.and_then(|a| a.tenant.as_ref()).map(Identifier::as_str),
            a.map(|a| a.environment.as_str()),
            a.map(|a| a.id.as_str()),
            self.operation.as_ref().map(JobId::as_str),
            self.request_id.as_deref(),
        ])
    }

    /// # Errors
    /// In words, for a name or an id that is none.
    pub(crate) fn read(n: u64, at: Millis, Texts(texts): Texts<'_>) -> Result<Self, String> {
        let [
            actor,
            action,
            resource_type,
            resource_id,
            instance,
            tenant,
            environment,
            application,
            operation,
            request,
        ] = texts;
        let must = |what: &str, text: Option<&str>| {
            text.map(str::to_owned).ok_or_else(|| format!("it has no {what}"))
        };
        let name = |text: &str| Identifier::parse(text).map_err(|e: InvalidName| e.to_string());
        let application = match (environment, application) {
            (None, None) => None,
            (Some(environment), Some(id)) => Some(Application {
                id: name(id)?,
                environment: name(environment)?,
                tenant: tenant.map(name).transpose()?,
                instance: instance.map(name).transpose()?,
            }),
            _ => return Err("it has only one of environment and application".into()),
        };
        Ok(Self {
            n,
            at,
            actor: must("actor", actor)?,
            action: must("action", action)?,
            resource_type: must("type of resource", resource_type)?,
            resource_id: must("resource", resource_id)?,
            application,
            operation: operation.map(|id| id.parse().map_err(|e: InvalidJobId| e.to_string())).transpose()?,
            request_id: request.map(str::to_owned),
        })
    }

    /// What an operator does to a host; number and time are the ledger's to give.
    pub fn of_host(actor: &str, action: &str, host: &str) -> Self {
        Self {
            n: 0,
            at: Millis(0),
            actor: actor.to_owned(),
            action: action.to_owned(),
            resource_type: HOST.to_owned(),
            resource_id: host.to_owned(),
            application: None,
            operation: None,
            request_id: None,
        }
    }

    /// What a new job is going to do to its resources.
    pub(crate) fn of_new(new: &NewJob, job: &Job) -> Vec<Self> {
        let resources = job.resources.iter().zip(&new.actions);
        resources
            .filter(|(_, action)| **action != Action::NoOp)
            .map(|(resource, action)| Self {
                n: 0,
                at: job.created,
                actor: job.caller.clone(),
                action: action.as_str().into(),
                resource_type: job.pair.to_string(),
                resource_id: resource.to_string(),
                application: Some(job.application.clone()),
                operation: Some(job.id.clone()),
                request_id: Some(job.request_id.clone()),
            })
            .collect()
    }

    /// What somebody did to a job.
    pub(crate) fn of_write(write: &Write, job: &Job) -> Option<Self> {
        write.deed.as_ref().map(|deed| Self {
            n: 0,
            at: job.updated,
            actor: deed.actor.clone(),
            action: deed.action.into(),
            resource_type: OPERATION.into(),
            resource_id: job.id.to_string(),
            application: Some(job.application.clone()),
            operation: Some(job.id.clone()),
            request_id: None,
        })
    }
}

/// Rows of before this are old.
pub(crate) fn cutoff(now: Millis, older_than: Duration) -> i64 {
    now.0.saturating_sub(Millis(0).plus(older_than).0)
}
