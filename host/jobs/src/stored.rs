//! What the jobs keep in the ledger as JSON: what was asked, the checkpoint, the final answer. It reads back exactly
//! as it was written; fields that are not known are ignored, so that an older host reads a newer one's.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sutler_ledger::Job;
use sutler_model::{
    Action, Application, Applied, Change, Failure, Identifier, InvalidName, Pair, Planned, Request, RequestId,
};

/// What was asked and planned.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub request: Request,
    /// What the plan said would come.
    pub planned: Vec<Planned>,
    /// The dispatcher's own: what the plan found (charts, images).
    pub pins: Value,
}

/// How the work ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    Succeeded(Vec<Applied>),
    /// With what was reached before, and the fault's id where a fault is behind it.
    Failed {
        failure: Failure,
        applied: Vec<Applied>,
        fault_id: Option<String>,
    },
}

impl Ended {
    /// Whether the same request goes on with the work instead of hearing this again.
    pub fn resumable(&self) -> bool {
        matches!(self, Self::Failed { failure, .. } if failure.retryable)
    }
}

/// A checkpoint beside the row's step and attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kept {
    /// The plugin's own.
    pub(crate) state: String,
    pub(crate) written_by: String,
    /// What the plugin last said it waits for.
    pub(crate) message: String,
    /// What was reached when an attempt last stopped.
    pub(crate) applied: Vec<Applied>,
}

impl Kept {
    pub(crate) fn start() -> Self {
        let at = sutler_model::Checkpoint::start();
        Self { state: at.state, written_by: at.written_by, message: String::new(), applied: vec![] }
    }
}

/// A stored text that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("its stored text is damaged or of a version that this host does not read: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// As deep as it was written: what callers and plugins may nest was measured before, and lies deeper in these texts.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

impl Asked {
    pub fn to_json(&self) -> String {
        let r = &self.request;
        let a = &r.application;
        let doc = AskedDoc {
            id: r.id.as_str().into(),
            pair: r.pair.to_string(),
            application: ApplicationDoc {
                id: a.id.clone(),
                environment: a.environment.clone(),
                tenant: a.tenant.clone(),
                instance: a.instance.clone(),
            },
            changes: r.changes.iter().map(ChangeDoc::from).collect(),
            planned: self.planned.iter().map(PlannedDoc::from).collect(),
            pins: self.pins.clone(),
        };
        text(&doc)
    }

    /// # Errors
    /// `StoredError` where the text is not what [`Asked::to_json`] writes.
    pub fn from_json(text: &str) -> Result<Self, StoredError> {
        let d: AskedDoc = read(text)?;
        let a = d.application;
        let request = Request {
            id: RequestId::parse(&d.id)?,
            pair: d.pair.parse::<Pair>()?,
            application: Application {
                id: a.id,
                environment: a.environment,
                tenant: a.tenant,
                instance: a.instance,
            },
            changes: d.changes.into_iter().map(Change::from).collect(),
        };
        Ok(Self { request, planned: d.planned.into_iter().map(Planned::from).collect(), pins: d.pins })
    }
}

impl Kept {
    pub(crate) fn to_json(&self) -> String {
        text(&KeptDoc {
            state: self.state.clone(),
            written_by: self.written_by.clone(),
            message: self.message.clone(),
            applied: docs(&self.applied),
        })
    }
    pub(crate) fn of(job: &Job) -> Result<Self, StoredError> {
        let d: KeptDoc = read(&job.state)?;
        Ok(Self { state: d.state, written_by: d.written_by, message: d.message, applied: applied(d.applied) })
    }
}

impl Ended {
    pub fn to_json(&self) -> String {
        text(&match self {
            Self::Succeeded(done) => EndedDoc::Succeeded { applied: docs(done) },
            Self::Failed { failure: f, applied, fault_id } => EndedDoc::Failed {
                code: f.code.clone(),
                reason: f.reason.clone(),
                resource: f.resource.clone(),
                path: f.path.clone(),
                retryable: f.retryable,
                details: f.details.clone(),
                applied: docs(applied),
                fault_id: fault_id.clone(),
            },
        })
    }

    /// # Errors
    /// `StoredError` where the text is not what [`Ended::to_json`] writes.
    pub fn from_json(text: &str) -> Result<Self, StoredError> {
        Ok(match read(text)? {
            EndedDoc::Succeeded { applied: done } => Self::Succeeded(applied(done)),
            EndedDoc::Failed {
                code,
                reason,
                resource,
                path,
                retryable,
                details,
                applied: done,
                fault_id,
            } => {
                let failure = Failure { code, reason, resource, path, retryable, details };
                Self::Failed { failure, applied: applied(done), fault_id }
            }
        })
    }

    pub(crate) fn of(job: &Job) -> Result<Option<Self>, StoredError> {
        job.answer.as_deref().map(Self::from_json).transpose()
    }
}

/// Strings, numbers and JSON values: nothing that cannot be written.
fn text(doc: &impl Serialize) -> String {
    serde_json::to_string(doc).unwrap_or_default()
}

/// A value that is there is kept as it is, `null` too.
fn some<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(d).map(Some)
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedDoc {
    id: String,
    pair: String,
    application: ApplicationDoc,
    changes: Vec<ChangeDoc>,
    planned: Vec<PlannedDoc>,
    #[serde(default)]
    pins: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApplicationDoc {
    id: Identifier,
    environment: Identifier,
    tenant: Option<Identifier>,
    instance: Option<Identifier>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangeDoc {
    resource: Identifier,
    action: Action,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    settings: Option<Value>,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    previous_settings: Option<Value>,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    previous_outputs: Option<Value>,
}

impl From<&Change> for ChangeDoc {
    fn from(c: &Change) -> Self {
        Self {
            resource: c.resource.clone(),
            action: c.action,
            settings: c.settings.clone(),
            previous_settings: c.previous_settings.clone(),
            previous_outputs: c.previous_outputs.clone(),
        }
    }
}
impl From<ChangeDoc> for Change {
    fn from(c: ChangeDoc) -> Self {
        Self {
            resource: c.resource,
            action: c.action,
            settings: c.settings,
            previous_settings: c.previous_settings,
            previous_outputs: c.previous_outputs,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlannedDoc {
    resource: Identifier,
    action: Action,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    before: Option<Value>,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    after: Option<Value>,
    #[serde(default)]
    unknown: Vec<String>,
    #[serde(default)]
    replace_because: Vec<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

impl From<&Planned> for PlannedDoc {
    fn from(p: &Planned) -> Self {
        Self {
            resource: p.resource.clone(),
            action: p.action,
            before: p.before.clone(),
            after: p.after.clone(),
            unknown: p.unknown.clone(),
            replace_because: p.replace_because.clone(),
            warnings: p.warnings.clone(),
        }
    }
}
impl From<PlannedDoc> for Planned {
    fn from(p: PlannedDoc) -> Self {
        Self {
            resource: p.resource,
            action: p.action,
            before: p.before,
            after: p.after,
            unknown: p.unknown,
            replace_because: p.replace_because,
            warnings: p.warnings,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptDoc {
    state: String,
    written_by: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    applied: Vec<AppliedDoc>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AppliedDoc {
    resource: Identifier,
    outputs: Value,
    secret_outputs: Value,
}

fn docs(of: &[Applied]) -> Vec<AppliedDoc> {
    let doc = |a: &Applied| AppliedDoc {
        resource: a.resource.clone(),
        outputs: a.outputs.clone(),
        secret_outputs: a.secret_outputs.clone(),
    };
    of.iter().map(doc).collect()
}

fn applied(of: Vec<AppliedDoc>) -> Vec<Applied> {
    let back = |d: AppliedDoc| Applied {
        resource: d.resource,
        outputs: d.outputs,
        secret_outputs: d.secret_outputs,
    };
    of.into_iter().map(back).collect()
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum EndedDoc {
    Succeeded {
        applied: Vec<AppliedDoc>,
    },
    Failed {
        code: String,
        reason: String,
        resource: Option<String>,
        path: Option<String>,
        retryable: bool,
        #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
        details: Option<Value>,
        applied: Vec<AppliedDoc>,
        fault_id: Option<String>,
    },
}
