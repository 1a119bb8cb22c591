//! Drift of a release.

use futures::FutureExt as _;
use serde_json::{Value, json};
use sutler_model::DifferenceClass;

use super::compare::{Comparison, compare};
use super::record::Record;
use super::target::{Target, side_by_side};
use super::write::Work;
use crate::error::Error;
use crate::manifest::{Object, described, foreign};

/// Live objects against a recorded manifest: `{object, field, expected, actual, class}` each.
pub(crate) async fn drift(target: &Target<'_>, record: &Record) -> Result<Vec<Value>, Error> {
    let objects = target.old_objects(&record.manifest).await?;
    let live = target.live(&objects).await?;
    let questions =
        objects.iter().zip(&live).map(|(o, l)| of_object(target, o, l.as_ref()).boxed()).collect();
    Ok(side_by_side(questions).await?.concat())
}

fn entry(
    object: &Object,
    class: DifferenceClass,
    field: &str,
    expected: Option<Value>,
    actual: Option<Value>,
) -> Value {
    json!({
        "object": described(&object.reference), "field": field,
        "expected": expected, "actual": actual, "class": class.as_str(),
    })
}

async fn of_object(target: &Target<'_>, object: &Object, live: Option<&Value>) -> Result<Vec<Value>, Error> {
    let Some(live) = live else { return Ok(vec![entry(object, DifferenceClass::Missing, "", None, None)]) };
    if crate::manifest::claimed_by_other(live, target.name, target.namespace) {
        let why = foreign(live, target.name, target.namespace).map(Value::from);
        return Ok(vec![entry(object, DifferenceClass::ForeignOwner, "/metadata", None, why)]);
    }
    let Comparison { changes, .. } = compare(target, object, live).await?;
    Ok(changes
        .into_iter()
        .map(|c| entry(object, DifferenceClass::Drift, &c.path, c.after, c.before))
        .collect())
}

/// Whether anything that is to be applied differs from what lives.
pub(crate) async fn drifted(target: &Target<'_>, work: &Work) -> Result<bool, Error> {
    let questions =
        work.objects.iter().zip(&work.live).map(|(o, l)| differs(target, o, l.as_ref()).boxed()).collect();
    Ok(side_by_side(questions).await?.contains(&true))
}

/// Whether a revision's objects are as it wrote them.
pub(crate) async fn stands(target: &Target<'_>, record: &Record) -> Result<bool, Error> {
    let objects = target.old_objects(&record.manifest).await?;
    let live = target.live(&objects).await?;
    let questions = objects.iter().zip(&live).map(|(o, l)| differs(target, o, l.as_ref()).boxed()).collect();
    Ok(!side_by_side(questions).await?.contains(&true))
}

async fn differs(target: &Target<'_>, object: &Object, live: Option<&Value>) -> Result<bool, Error> {
    let Some(live) = live else { return Ok(true) };
    let c = compare(target, object, live).await?;
    Ok(!c.changes.is_empty() || c.problem.is_some())
}
