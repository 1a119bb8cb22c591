//! What is different from what the caller believes in.

use std::collections::HashSet;

use serde_json::Value;
use sutler_catalog::{PairEntry, Schema};
use sutler_model::{
    Difference, DifferenceClass, Inquiry, Known, Observed, Presence, by_member, field_changes,
};

use crate::plan::{MOST_FIELDS, too_many};
use crate::provisioner::ObservedView;

/// Exactly the resources that were asked for, each once and with outputs as declared. Words for the fault.
pub(crate) fn check(inquiry: &Inquiry, observed: &[Observed], pair: &PairEntry) -> Result<(), String> {
    let asked: HashSet<&str> = inquiry.resources.iter().map(|k| k.resource.as_str()).collect();
    let mut seen = HashSet::new();
    for o in observed {
        let name = o.resource.as_str();
        if !asked.contains(name) {
            return Err(format!("it observed resource {name}, which was not asked for"));
        }
        if !seen.insert(name) {
            return Err(format!("it observed resource {name} twice"));
        }
        // What is there may break the settings' schema: somebody changed it. Outputs are the plugin's own words.
        if let Some(Err(v)) = o.outputs.as_ref().map(|out| pair.outputs.check(out)) {
            return Err(format!("the outputs of {name} break its own schema at {:?}: {}", v.path, v.message));
        }
    }
    match asked.iter().find(|n| !seen.contains(*n)) {
        Some(missing) => Err(format!("it did not observe resource {missing}")),
        None => Ok(()),
    }
}

pub(crate) fn view(known: &Known, mut o: Observed, pair: &PairEntry) -> ObservedView {
    let mut drift = host_differences(known, &mut o, pair);
    let mut known_places: HashSet<String> = drift.iter().map(|d| d.at.clone()).collect();
    for d in o.differences {
        if known_places.insert(d.at.clone()) {
            drift.push(d);
        }
    }
    for d in &mut drift {
        let (schema, at) = match d.at.strip_prefix("/outputs").filter(|r| r.is_empty() || r.starts_with('/'))
        {
            Some(rest) => (&pair.outputs, rest),
            None => (&pair.settings, d.at.as_str()),
        };
        for side in [&mut d.expected, &mut d.actual] {
            *side = side.as_ref().and_then(|v| schema.shown(at, v));
        }
    }
    drift.sort_by(|a, b| a.at.cmp(&b.at));
    ObservedView {
        resource: o.resource,
        presence: o.presence,
        settings: o.settings.as_ref().map(|s| pair.settings.public(s)),
        outputs: o.outputs.as_ref().map(|s| pair.outputs.public(s)),
        drift,
        warnings: o.warnings,
    }
}

/// The host's own comparison: settings by their pointer, outputs under `/outputs`.
fn host_differences(known: &Known, o: &mut Observed, pair: &PairEntry) -> Vec<Difference> {
    let expects = known.settings.is_some() || known.outputs.is_some();
    match o.presence {
        Presence::Absent if expects => {
            return vec![Difference {
                at: String::new(),
                class: DifferenceClass::Missing,
                expected: None,
                actual: None,
            }];
        }
        Presence::Absent | Presence::Unknown => return vec![],
        Presence::Present => {}
    }
    let warnings = &mut o.warnings;
    let mut out = compare(known.settings.as_ref(), o.settings.as_ref(), &pair.settings, "", warnings);
    out.extend(compare(known.outputs.as_ref(), o.outputs.as_ref(), &pair.outputs, "/outputs", warnings));
    out
}

fn compare(
    expected: Option<&Value>,
    actual: Option<&Value>,
    schema: &Schema,
    prefix: &str,
    warnings: &mut Vec<String>,
) -> Vec<Difference> {
    let (Some(e), Some(a)) = (expected, actual) else { return vec![] };
    let mut changes: Vec<_> = field_changes(Some(e), Some(a))
        .into_iter()
        // A secret that the plugin does not show, a field left out that has its default, and what tells of a moment
        // are not differences.
        .filter(|c| !schema.volatile(&c.path))
        .filter(|c| !(c.after.is_none() && schema.sensitive(&c.path)))
        .filter(|c| !(c.before.is_none() && c.after.as_ref() == schema.default_of(&c.path)))
        .collect();
    if changes.len() > MOST_FIELDS {
        warnings.push(too_many(changes.len()));
        changes = by_member(&changes, Some(e), Some(a));
    }
    changes
        .into_iter()
        .map(|c| Difference {
            class: if c.after.is_none() { DifferenceClass::Missing } else { DifferenceClass::Drift },
            at: format!("{prefix}{}", c.path),
            expected: c.before,
            actual: c.after,
        })
        .collect()
}
