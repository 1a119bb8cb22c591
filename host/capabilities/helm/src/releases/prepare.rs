//! What an install or upgrade would do, found out before anything is written.

use base64::Engine as _;
use serde_json::Value;

use super::lookup::look_up;
use super::record::{Record, Status};
use super::storage::{base, pending};
use super::target::Target;
use super::write::{Claim, Seen, Work};
use crate::engine::{RenderAnswer, TemplateEngine};
use crate::error::Error;
use crate::manifest::Object;

/// What the API server takes in one ConfigMap or Secret.
const DATA_LIMIT: usize = 1 << 20;

/// How a revision is rendered.
pub(crate) struct Rendering<'a> {
    pub(crate) engine: &'a dyn TemplateEngine,
    pub(crate) request: crate::engine::RenderRequest,
    pub(crate) limit: std::time::Duration,
}

pub(crate) struct Plan {
    pub(crate) history: Vec<Record>,
    /// The revision that this one follows; none for an install.
    pub(crate) base: Option<Record>,
    pub(crate) revision: u32,
    pub(crate) values: Value,
    pub(crate) answer: RenderAnswer,
    pub(crate) crds: Vec<Object>,
    pub(crate) work: Work,
}

impl Plan {
    pub(crate) const fn install(&self) -> bool {
        self.base.is_none()
    }
}

/// A chart that asks for more than this, one after the other, is not answered.
const ROUNDS: usize = 16;
const LOOKUPS: usize = 200;

/// Renders within the call's time; what templates look up is found out and told.
pub(crate) async fn render(target: &Target<'_>, mut rendering: Rendering<'_>) -> Result<RenderAnswer, Error> {
    for _ in 0..ROUNDS {
        let answer = once(target, &rendering).await?;
        if answer.lookups.is_empty() {
            return Ok(answer);
        }
        for wanted in answer.lookups {
            rendering.request.lookups.push(look_up(target, wanted).await?);
        }
        if rendering.request.lookups.len() > LOOKUPS {
            break;
        }
    }
    Err(Error::Render(format!(
        "the chart's templates look up too much in the cluster: at most {LOOKUPS} objects, and {ROUNDS} that follow from each other"
    )))
}

async fn once(target: &Target<'_>, rendering: &Rendering<'_>) -> Result<RenderAnswer, Error> {
    let left = target.call.left();
    let work = rendering.engine.render(rendering.request.clone());
    match tokio::time::timeout(left.min(rendering.limit), work).await {
        Ok(answer) => Ok(answer?),
        Err(_) if left <= rendering.limit => Err(Error::TimedOut),
        Err(_) => Err(Error::Render(format!(
            "the chart's templates took longer than {} s",
            rendering.limit.as_secs()
        ))),
    }
}

/// Renders and checks; writes nothing. Under an equal manifest the live objects are read as a whole in any case, since
/// there may be drift to mend.
pub(crate) async fn prepare(
    target: &Target<'_>,
    mut rendering: Rendering<'_>,
    history: Vec<Record>,
    take: bool,
    seen: Seen,
) -> Result<Plan, Error> {
    let base = start(&history)?.cloned();
    let revision = history.last().map_or(1, |last| last.version.saturating_add(1));
    rendering.request.revision = revision;
    rendering.request.upgrade = base.is_some();
    let values = rendering.request.values.clone();
    let answer = render(target, rendering).await?;
    let crds = if base.is_none() { target.definitions(&answer.crds)? } else { Vec::new() };
    let objects = target.objects(&answer.manifest, &crds).await?;
    objects.iter().try_for_each(check_size)?;
    target.hook_objects(&answer.hooks).await?;
    let before = match &base {
        Some(record) => target.old_objects(&record.manifest).await?,
        None => Vec::new(),
    };
    let claim = if take { Claim::Adopt } else { Claim::Known };
    let last = history.last().filter(|_| base.is_some());
    let server_side = [last, base.as_ref()].into_iter().flatten().all(Record::server_side);
    let same = last.is_some_and(|l| l.manifest == answer.manifest);
    let seen = if server_side && !same { seen } else { Seen::Whole };
    let work = Work::new(target, objects, before, claim, seen).await?;
    Ok(Plan { history, base, revision, values, answer, crds, work })
}

/// What a new revision follows.
fn start(history: &[Record]) -> Result<Option<&Record>, Error> {
    let Some(last) = history.last() else { return Ok(None) };
    match last.info.status {
        s if s.is_pending() || s == Status::Uninstalling => Err(pending(last)),
        Status::Uninstalled => Ok(None),
        _ => base(history).map(Some).ok_or_else(|| {
            Error::other(
                "broken-record",
                format!(
                    "release {} has no revision to go on from: the last is {}",
                    last.name,
                    last.info.status.as_str()
                ),
            )
        }),
    }
}

/// ConfigMaps and Secrets over 1 MiB are refused by the API server: better before the first write.
fn check_size(object: &Object) -> Result<(), Error> {
    if !matches!(
        (object.reference.api_version.as_str(), object.reference.kind.as_str()),
        ("v1", "ConfigMap" | "Secret")
    ) {
        return Ok(());
    }
    let text = |key: &str| object.value.get(key).and_then(Value::as_object).into_iter().flatten();
    let plain = |key: &str| text(key).filter_map(|(_, v)| v.as_str()).map(str::len).sum::<usize>();
    let encoded = |key: &str| text(key).filter_map(|(_, v)| v.as_str()).map(decoded_len).sum::<usize>();
    let size = if object.reference.kind == "Secret" {
        plain("stringData") + encoded("data")
    } else {
        plain("data") + encoded("binaryData")
    };
    if size <= DATA_LIMIT {
        return Ok(());
    }
    Err(Error::TooLarge(format!(
        "{} holds {size} bytes, and the API server takes {DATA_LIMIT}",
        object.shown()
    )))
}

fn decoded_len(text: &str) -> usize {
    base64::engine::general_purpose::STANDARD.decode(text).map_or(text.len(), |b| b.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::objects;

    #[test]
    fn sizes() {
        let check = |yaml: String| check_size(&objects(&yaml).unwrap()[0]).is_ok();
        let head = |kind: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: x}}\n");
        let big = "a".repeat(DATA_LIMIT);
        assert!(check(format!("{}data: {{a: \"{big}\"}}", head("ConfigMap"))));
        assert!(!check(format!("{}data: {{a: \"{big}\", b: x}}", head("ConfigMap"))));
        assert!(!check(format!("{}stringData: {{a: \"{big}\", b: x}}", head("Secret"))));
        // Base64 of less than 1 MiB.
        assert!(check(format!("{}data: {{a: \"{big}\"}}", head("Secret"))));
    }
}
