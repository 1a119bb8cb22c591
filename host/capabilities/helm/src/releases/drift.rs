//! Drift of a release, and what an upgrade would change.

use futures::FutureExt as _;
use serde_json::{Value, json};
use sutler_model::DifferenceClass;

use super::compare::{Comparison, compare};
use super::prepare::Plan;
use super::record::Record;
use super::target::{Target, side_by_side};
use super::write::Work;
use crate::error::Error;
use crate::manifest::{Object, described, foreign, kept};

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

/// What an upgrade would do, object by object.
pub(crate) async fn preview(target: &Target<'_>, plan: &Plan) -> Result<Value, Error> {
    let work = &plan.work;
    let questions =
        work.objects.iter().zip(&work.live).map(|(o, l)| change(target, o, l.as_ref()).boxed()).collect();
    let changed = side_by_side(questions).await?;
    let mut objects = Vec::new();
    for crd in &plan.crds {
        let action = if target.get(&crd.reference).await?.is_some() { "none" } else { "create" };
        objects.push(
            json!({"object": described(&crd.reference), "action": action, "fields": [], "conflicts": []}),
        );
    }
    objects.extend(changed);
    for object in work.prune() {
        if let Some(live) = target.get(&object.reference).await? {
            let action = if kept(&live) { "keep" } else { "delete" };
            objects.push(json!({"object": described(&object.reference), "action": action, "fields": [], "conflicts": []}));
        }
    }
    Ok(json!({"install": plan.install(), "revision": plan.revision, "objects": objects}))
}

async fn change(target: &Target<'_>, object: &Object, live: Option<&Value>) -> Result<Value, Error> {
    let what = described(&object.reference);
    let Some(live) = live else {
        return Ok(json!({"object": what, "action": "create", "fields": [], "conflicts": []}));
    };
    let c = compare(target, object, live).await?;
    let fields: Vec<Value> = c
        .changes
        .into_iter()
        .map(|f| json!({"field": f.path, "before": f.before, "after": f.after}))
        .collect();
    let conflicts: Vec<Value> =
        c.conflicts.into_iter().map(|f| json!({"field": f.field, "manager": f.manager})).collect();
    let action = if fields.is_empty() && conflicts.is_empty() { "none" } else { "update" };
    let mut out = json!({"object": what, "action": action, "fields": fields, "conflicts": conflicts});
    if let (Some(problem), Some(o)) = (c.problem, out.as_object_mut()) {
        o.insert("problem".into(), problem.into());
    }
    Ok(out)
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
