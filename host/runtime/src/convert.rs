//! Between the model's words and the generated types. What a guest answers is checked here, once.

use std::time::Duration;

use serde_json::Value;
use sutler_logs::{LogSource, Source};
use sutler_model as m;

use crate::bindings::logs::exports::sutler::provisioner::log_sources as l;
use crate::bindings::plugin::exports::sutler::provisioner::provisioner as p;
use crate::bindings::plugin::sutler::provisioner::types as t;

/// What a plugin answered that the contract does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(pub(crate) String);

type Checked<T> = Result<T, Broken>;

/// A checkpoint's state (WIT).
const STATE_MAX: usize = 1 << 20;

fn broken<T>(text: impl Into<String>) -> Checked<T> {
    Err(Broken(text.into()))
}

const fn kind_out(k: m::Kind) -> t::Kind {
    match k {
        m::Kind::Target => t::Kind::Target,
        m::Kind::Tool => t::Kind::Tool,
        m::Kind::Deployment => t::Kind::Deployment,
        m::Kind::ManagedResource => t::Kind::ManagedResource,
        m::Kind::ConsumedResource => t::Kind::ConsumedResource,
    }
}

const fn kind_in(k: t::Kind) -> m::Kind {
    match k {
        t::Kind::Target => m::Kind::Target,
        t::Kind::Tool => m::Kind::Tool,
        t::Kind::Deployment => m::Kind::Deployment,
        t::Kind::ManagedResource => m::Kind::ManagedResource,
        t::Kind::ConsumedResource => m::Kind::ConsumedResource,
    }
}

const fn action_out(a: m::Action) -> t::Action {
    match a {
        m::Action::Create => t::Action::Create,
        m::Action::Update => t::Action::Update,
        m::Action::Replace => t::Action::Replace,
        m::Action::Delete => t::Action::Delete,
        m::Action::NoOp => t::Action::NoOp,
    }
}

const fn action_in(a: t::Action) -> m::Action {
    match a {
        t::Action::Create => m::Action::Create,
        t::Action::Update => m::Action::Update,
        t::Action::Replace => m::Action::Replace,
        t::Action::Delete => m::Action::Delete,
        t::Action::NoOp => m::Action::NoOp,
    }
}

fn pair_out(p: &m::Pair) -> t::Pair {
    t::Pair { kind: kind_out(p.kind), type_: p.type_name.to_string() }
}

fn application_out(a: &m::Application) -> t::Application {
    t::Application {
        id: a.id.to_string(),
        environment: a.environment.to_string(),
        tenant: a.tenant.as_ref().map(ToString::to_string),
        instance: a.instance.as_ref().map(ToString::to_string),
    }
}

fn text(v: Option<&Value>) -> Option<String> {
    v.map(Value::to_string)
}

pub(crate) fn request_out(r: &m::Request, context: &str) -> t::Request {
    t::Request {
        id: r.id.as_str().into(),
        pair: pair_out(&r.pair),
        application: application_out(&r.application),
        changes: r
            .changes
            .iter()
            .map(|c| t::Change {
                resource: c.resource.to_string(),
                action: action_out(c.action),
                settings: text(c.settings.as_ref()),
                previous_settings: text(c.previous_settings.as_ref()),
                previous_outputs: text(c.previous_outputs.as_ref()),
            })
            .collect(),
        context: context.into(),
    }
}

pub(crate) fn inquiry_out(i: &m::Inquiry, context: &str) -> t::Inquiry {
    t::Inquiry {
        id: i.id.as_str().into(),
        pair: pair_out(&i.pair),
        application: application_out(&i.application),
        resources: i
            .resources
            .iter()
            .map(|k| t::Known {
                resource: k.resource.to_string(),
                settings: text(k.settings.as_ref()),
                outputs: text(k.outputs.as_ref()),
            })
            .collect(),
        context: context.into(),
    }
}

pub(crate) fn checkpoint_out(c: &m::Checkpoint) -> p::Checkpoint {
    p::Checkpoint {
        step: c.step.clone(),
        state: c.state.clone(),
        attempt: c.attempt,
        written_by: c.written_by.clone(),
    }
}

fn json(what: &str, text: &str) -> Checked<Value> {
    serde_json::from_str(text).or_else(|e| broken(format!("{what} is not JSON: {e}")))
}

fn optional(what: &str, text: Option<&String>) -> Checked<Option<Value>> {
    text.map(|s| json(what, s)).transpose()
}

fn object(what: &str, text: &str) -> Checked<Value> {
    match json(what, text)? {
        v @ Value::Object(_) => Ok(v),
        _ => broken(format!("{what} is not a JSON object")),
    }
}

fn resource(what: &str, name: &str) -> Checked<m::Identifier> {
    m::Identifier::parse(name).or_else(|e| broken(format!("{what} names a resource wrongly: {e}")))
}

fn pointer(what: &str, p: String) -> Checked<String> {
    if p.is_empty() || p.starts_with('/') {
        Ok(p)
    } else {
        broken(format!("{what} holds {p:?}, which is no JSON Pointer"))
    }
}

fn pointers(what: &str, ps: Vec<String>) -> Checked<Vec<String>> {
    ps.into_iter().map(|p| pointer(what, p)).collect()
}

pub(crate) fn descriptor_in(d: p::Descriptor) -> Checked<m::Descriptor> {
    let pairs = d.pairs.into_iter().map(pair_descriptor_in).collect::<Checked<Vec<_>>>()?;
    Ok(m::Descriptor { name: d.name, version: d.version, summary: d.summary, pairs })
}

fn pair_descriptor_in(d: p::PairDescriptor) -> Checked<m::PairDescriptor> {
    let kind = kind_in(d.pair.kind);
    let type_name = m::Identifier::parse(&d.pair.type_)
        .or_else(|e| broken(format!("the type of a pair of kind {kind} is not usable: {e}")))?;
    let pair = m::Pair::new(kind, type_name);
    object(&format!("extras of {pair}"), &d.extras)?;
    Ok(m::PairDescriptor {
        settings_schema: json(&format!("the settings schema of {pair}"), &d.settings_schema)?,
        outputs_schema: json(&format!("the outputs schema of {pair}"), &d.outputs_schema)?,
        summary: d.summary,
        steps: d
            .steps
            .into_iter()
            .map(|s| m::Step { name: s.name, title: s.title, timeout_seconds: s.timeout_seconds })
            .collect(),
        pair,
    })
}

pub(crate) fn failure_in(f: t::Failure) -> Checked<m::Failure> {
    if m::host_code(&f.code) {
        return broken(format!("it answered the failure code {:?}, which only the host may use", f.code));
    }
    let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if f.code.is_empty() || f.code.len() > 64 || !f.code.chars().all(kebab) {
        return broken(format!(
            "its failure code {:?} is not kebab-case",
            f.code.chars().take(80).collect::<String>()
        ));
    }
    Ok(m::Failure {
        details: optional("the failure's details", f.details.as_ref())?,
        path: f.at.map(|p| pointer("the failure's place", p)).transpose()?,
        code: f.code,
        reason: f.reason,
        resource: f.resource,
        retryable: f.retryable,
    })
}

pub(crate) fn proposal_in(p: p::Proposal) -> Checked<m::Proposal> {
    let changes = p.changes.into_iter().map(planned_in).collect::<Checked<Vec<_>>>()?;
    Ok(m::Proposal { changes, steps: p.steps })
}

fn planned_in(c: p::Planned) -> Checked<m::Planned> {
    let of = &c.resource;
    Ok(m::Planned {
        before: optional(&format!("before of {of}"), c.before.as_ref())?,
        after: optional(&format!("after of {of}"), c.after.as_ref())?,
        unknown: pointers("unknown", c.unknown)?,
        replace_because: pointers("replace-because", c.replace_because)?,
        resource: resource("the plan", of)?,
        action: action_in(c.action),
        warnings: c.warnings,
    })
}

fn applied_in(a: p::Applied) -> Checked<m::Applied> {
    let of = &a.resource;
    Ok(m::Applied {
        outputs: object(&format!("the outputs of {of}"), &a.outputs)?,
        // What is wrong in a secret text is not repeated.
        secret_outputs: object(&format!("the secret outputs of {of}"), &a.secret_outputs)
            .map_err(|_| Broken(format!("the secret outputs of {of} are not a JSON object")))?,
        resource: resource("apply", of)?,
    })
}

fn all_applied(a: Vec<p::Applied>) -> Checked<Vec<m::Applied>> {
    a.into_iter().map(applied_in).collect()
}

fn state_in(s: String) -> Checked<String> {
    if s.len() > STATE_MAX {
        return broken(format!("its state has {} bytes; at most {STATE_MAX} are kept", s.len()));
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(&s) {
        Ok(_) if s.trim_start().starts_with('{') => Ok(s),
        _ => broken("its state is not a JSON object"),
    }
}

pub(crate) fn progress_in(p: p::Progress) -> Checked<m::Progress> {
    Ok(match p {
        p::Progress::Done(a) => m::Progress::Done(all_applied(a)?),
        p::Progress::Next(n) => m::Progress::Next(m::NextStep { step: n.step, state: state_in(n.state)? }),
        p::Progress::Save(s) => m::Progress::Save(state_in(s)?),
        p::Progress::Wait(w) => m::Progress::Wait(m::Pause {
            state: state_in(w.state)?,
            after: Duration::from_millis(u64::from(w.after_milliseconds)),
            message: w.message,
        }),
    })
}

pub(crate) fn stopped_in(s: p::Stopped) -> Checked<m::Stopped> {
    Ok(m::Stopped {
        failure: failure_in(s.failure)?,
        applied: all_applied(s.applied)?,
        state: state_in(s.state)?,
    })
}

pub(crate) fn observed_in(o: Vec<p::Observed>) -> Checked<Vec<m::Observed>> {
    o.into_iter().map(one_observed).collect()
}

fn one_observed(o: p::Observed) -> Checked<m::Observed> {
    let of = o.resource.clone();
    Ok(m::Observed {
        resource: resource("inspect", &of)?,
        presence: match o.presence {
            p::Presence::Present => m::Presence::Present,
            p::Presence::Absent => m::Presence::Absent,
            p::Presence::Unknown => m::Presence::Unknown,
        },
        settings: optional(&format!("the settings of {of}"), o.settings.as_ref())?,
        outputs: optional(&format!("the outputs of {of}"), o.outputs.as_ref())?,
        differences: o.differences.into_iter().map(|d| difference_in(&of, d)).collect::<Checked<Vec<_>>>()?,
        warnings: o.warnings,
    })
}

fn difference_in(of: &str, d: p::Difference) -> Checked<m::Difference> {
    Ok(m::Difference {
        class: match d.class {
            p::DifferenceClass::Drift => m::DifferenceClass::Drift,
            p::DifferenceClass::Normalized => m::DifferenceClass::Normalized,
            p::DifferenceClass::Missing => m::DifferenceClass::Missing,
            p::DifferenceClass::ForeignOwner => m::DifferenceClass::ForeignOwner,
        },
        expected: optional(&format!("an expected value of {of}"), d.expected.as_ref())?,
        actual: optional(&format!("an actual value of {of}"), d.actual.as_ref())?,
        at: pointer("a difference", d.at)?,
    })
}

/// How a plugin names the Docker daemon where a cluster is named (WIT).
const DOCKER: &str = "docker:";

pub(crate) fn source_in(s: l::Source) -> Checked<Source> {
    if s.cluster.as_deref() != Some(DOCKER) {
        return Ok(Source::Pods(LogSource {
            cluster: s.cluster,
            namespace: s.namespace,
            label_selector: s.label_selector,
            container: s.container,
        }));
    }
    match s.container {
        Some(name) if s.namespace.is_empty() && s.label_selector.is_empty() => Ok(Source::Container(name)),
        _ => broken("a log source of docker: names a container, and neither a namespace nor labels"),
    }
}
