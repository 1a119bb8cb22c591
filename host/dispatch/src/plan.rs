//! A proposal, checked and made into what the caller sees.

use std::collections::HashSet;

use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use sutler_catalog::PairEntry;
use sutler_model::{
    Action, Identifier, Planned, Proposal, Request, by_member, canonical_into, field_changes, hex, member,
};
use sutler_runtime::Pins;

use crate::provisioner::{PlanView, PlannedField, PlannedView};

/// Fields of one resource that are told one by one; of more, the settings that hold them are told as a whole, so that
/// an answer is not many times what was asked.
pub(crate) const MOST_FIELDS: usize = 2_000;
/// Fields that a plugin names in one list of a plan.
const MOST_NAMED: usize = 1_000;

/// The warning about [`MOST_FIELDS`].
pub(crate) fn too_many(fields: usize) -> String {
    format!("{fields} fields differ, more than {MOST_FIELDS}: what holds them is told as a whole")
}

/// What a plan may not say. Words for the fault.
pub(crate) fn check(request: &Request, pair: &PairEntry, proposal: &Proposal) -> Result<(), String> {
    let asked: HashSet<&str> = request.changes.iter().map(|c| c.resource.as_str()).collect();
    let mut seen = HashSet::new();
    for c in &proposal.changes {
        let name = c.resource.as_str();
        if !asked.contains(name) {
            return Err(format!("it planned resource {name}, which the request does not name"));
        }
        if !seen.insert(name) {
            return Err(format!("it planned resource {name} twice"));
        }
        for (list, what) in [(&c.unknown, "unknown"), (&c.replace_because, "replace-because")] {
            if list.len() > MOST_NAMED {
                let n = list.len();
                return Err(format!("it named {n} fields of {name} as {what}; {MOST_NAMED} is the most"));
            }
        }
    }
    if let Some(missing) = asked.iter().find(|n| !seen.contains(*n)) {
        return Err(format!("it did not plan resource {missing}"));
    }
    match proposal.steps.iter().find(|s| pair.steps.iter().all(|d| d.name != **s)) {
        Some(s) => Err(format!("it planned step {s:?}, which it does not declare")),
        None => Ok(()),
    }
}

/// The caller's view, sensitive fields hidden.
pub(crate) fn view(
    request: &Request,
    pair: &PairEntry,
    proposal: &Proposal,
    pins: &Pins,
    key: &[u8; 32],
) -> PlanView {
    PlanView {
        plan_hash: hash(request, proposal, pins, key),
        changes: proposal.changes.iter().map(|c| planned(c, pair)).collect(),
        steps: pair.steps.iter().filter(|s| proposal.steps.contains(&s.name)).cloned().collect(),
    }
}

fn planned(c: &Planned, pair: &PairEntry) -> PlannedView {
    let (before, after) = (c.before.as_ref(), c.after.as_ref());
    let (mut changes, mut warnings) = (field_changes(before, after), c.warnings.clone());
    let mut replacing = HashSet::new();
    if changes.len() > MOST_FIELDS {
        warnings.push(too_many(changes.len()));
        let forcing = changes.iter().filter(|f| forces_replace(c, pair, &f.path));
        replacing.extend(forcing.map(|f| member(&f.path).to_owned()));
        changes = by_member(&changes, before, after);
    }
    let unknown: HashSet<&str> = c.unknown.iter().map(String::as_str).collect();
    let mut fields: Vec<PlannedField> = changes
        .into_iter()
        .map(|mut change| {
            let sides = (change.before.take(), change.after.take());
            let mut sensitive = pair.settings.sensitive(&change.path);
            let mut shown = |v: Option<Value>| {
                let left = v.as_ref().and_then(|v| pair.settings.shown(&change.path, v));
                sensitive |= left != v;
                left
            };
            let (before, after) = (shown(sides.0), shown(sides.1));
            (change.before, change.after) = (before, after);
            PlannedField {
                after_unknown: unknown.contains(change.path.as_str()),
                requires_replace: forces_replace(c, pair, &change.path) || replacing.contains(&change.path),
                sensitive,
                change,
            }
        })
        .collect();
    // What is known only once applied is told even where before and after look the same.
    let told: HashSet<String> = fields.iter().map(|f| f.change.path.clone()).collect();
    for path in c.unknown.iter().filter(|p| !told.contains(*p)) {
        fields.push(PlannedField {
            change: sutler_model::FieldChange { path: path.clone(), before: None, after: None },
            after_unknown: true,
            sensitive: pair.settings.sensitive(path),
            requires_replace: false,
        });
    }
    fields.sort_by(|a, b| a.change.path.cmp(&b.change.path));
    PlannedView { resource: c.resource.clone(), action: c.action, fields, warnings }
}

fn forces_replace(c: &Planned, pair: &PairEntry, path: &str) -> bool {
    c.before.is_some()
        && (pair.settings.requires_replace(path)
            || c.replace_because.iter().any(|r| {
                path.strip_prefix(r.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }))
}

/// The resources that the plan would replace.
pub(crate) fn replaced<'a>(pair: &PairEntry, proposal: &'a Proposal) -> Vec<&'a Planned> {
    let marked = |c: &Planned| {
        c.before.is_some()
            && c.after.is_some()
            && field_changes(c.before.as_ref(), c.after.as_ref())
                .iter()
                .any(|f| pair.settings.requires_replace(&f.path))
    };
    proposal
        .changes
        .iter()
        .filter(|c| c.action == Action::Replace || !c.replace_because.is_empty() || marked(c))
        .collect()
}

/// HMAC over everything the plan says but its warnings and titles.
pub(crate) fn hash(request: &Request, proposal: &Proposal, pins: &Pins, key: &[u8; 32]) -> String {
    let (a, mut out) = (&request.application, Vec::with_capacity(1024));
    // One canonical JSON value a line: no value holds a line feed, so equal bytes are equal plans.
    push(&mut out, request.pair.kind.as_str());
    push(&mut out, request.pair.type_name.as_str());
    push(&mut out, &a.instance.as_ref().map(Identifier::as_str));
    push(&mut out, &a.tenant.as_ref().map(Identifier::as_str));
    push(&mut out, a.environment.as_str());
    push(&mut out, a.id.as_str());
    for c in &proposal.changes {
        push(&mut out, c.resource.as_str());
        push(&mut out, c.action.as_str());
        for side in [&c.before, &c.after] {
            side.as_ref().inspect(|v| canonical_into(v, &mut out));
            out.push(b'\n');
        }
        push(&mut out, &c.unknown);
        push(&mut out, &c.replace_because);
    }
    push(&mut out, &proposal.steps);
    for pin in pins {
        push(&mut out, &pin);
    }
    // HMAC takes keys of every length; an empty hash matches no plan.
    let Ok(mut m) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    m.update(&out);
    hex(&m.finalize().into_bytes())
}

/// Writing into memory cannot fail.
fn push(out: &mut Vec<u8>, v: &(impl serde::Serialize + ?Sized)) {
    let _ = serde_json::to_writer(&mut *out, v);
    out.push(b'\n');
}
