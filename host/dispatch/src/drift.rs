//! What is different from what the caller believes in.

use serde_json::Value;
use sutler_catalog::{PairEntry, Schema};
use sutler_model::{Difference, DifferenceClass, Inquiry, Known, Observed, Presence, field_changes};

use crate::provisioner::ObservedView;

/// Exactly the resources that were asked for, each once. Words for the fault.
pub(crate) fn check(inquiry: &Inquiry, observed: &[Observed]) -> Result<(), String> {
    for k in &inquiry.resources {
        let n = observed.iter().filter(|o| o.resource == k.resource).count();
        if n != 1 {
            return Err(format!("it observed resource {} {n} times instead of once", k.resource));
        }
    }
    match observed.iter().find(|o| inquiry.resources.iter().all(|k| k.resource != o.resource)) {
        Some(o) => Err(format!("it observed resource {}, which was not asked for", o.resource)),
        None => Ok(()),
    }
}

pub(crate) fn view(known: &Known, o: Observed, pair: &PairEntry) -> ObservedView {
    let mut drift = host_differences(known, &o, pair);
    for d in o.differences {
        if drift.iter().all(|h| h.at != d.at) {
            drift.push(d);
        }
    }
    for d in &mut drift {
        let place = d.at.strip_prefix("/outputs").filter(|r| r.starts_with('/'));
        if place.map_or_else(|| pair.settings.sensitive(&d.at), |p| pair.outputs.sensitive(p)) {
            (d.expected, d.actual) = (None, None);
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
fn host_differences(known: &Known, o: &Observed, pair: &PairEntry) -> Vec<Difference> {
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
    let mut out = compare(known.settings.as_ref(), o.settings.as_ref(), &pair.settings, "");
    out.extend(compare(known.outputs.as_ref(), o.outputs.as_ref(), &pair.outputs, "/outputs"));
    out
}

fn compare(
    expected: Option<&Value>,
    actual: Option<&Value>,
    schema: &Schema,
    prefix: &str,
) -> Vec<Difference> {
    let (Some(e), Some(a)) = (expected, actual) else { return vec![] };
    field_changes(Some(e), Some(a))
        .into_iter()
        // A secret that the plugin does not show, and a field left out that has its default, are not differences.
        .filter(|c| !(c.after.is_none() && schema.sensitive(&c.path)))
        .filter(|c| !(c.before.is_none() && c.after.as_ref() == schema.default_of(&c.path)))
        .map(|c| Difference {
            class: if c.after.is_none() { DifferenceClass::Missing } else { DifferenceClass::Drift },
            at: format!("{prefix}{}", c.path),
            expected: c.before,
            actual: c.after,
        })
        .collect()
}
