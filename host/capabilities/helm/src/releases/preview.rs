//! What an install or upgrade would change, found out without changing anything.

use futures::FutureExt as _;
use serde_json::{Value, json};
use sutler_kubernetes::Error as KubeError;

use super::compare::{compare, untried};
use super::hooks;
use super::prepare::Plan;
use super::record::Record;
use super::target::{Target, side_by_side};
use crate::error::Error;
use crate::manifest::{Object, described, foreign, kept};
use crate::types::Options;

/// `{install, revision, objects, hooks}`. Objects in the order in which they are applied, then those that go:
///
/// `{object, action, fields: [{field, before, after}], conflicts: [{field, manager}]}`, where the action is `create`,
/// `update`, `replace` (a field cannot change: `replaceBecause`, JSON pointers), `none`, `delete` or `keep`; with
/// `problem` where applying it would fail, and with `warning` where the API server could not be asked.
///
/// Hooks in their order: `{event, kind, name, path, weight}`.
pub(crate) async fn preview(target: &Target<'_>, plan: &Plan, options: &Options) -> Result<Value, Error> {
    let work = &plan.work;
    // Client-side, nobody's fields are in the way.
    let server_side = plan.base.as_ref().is_none_or(Record::server_side);
    let questions = work
        .objects
        .iter()
        .zip(&work.live)
        .map(|(o, l)| change(target, o, l.as_ref(), server_side, options.force_conflicts).boxed())
        .collect();
    let changed = side_by_side(questions).await?;
    let mut objects = Vec::new();
    for crd in &plan.crds {
        let there = target.get(&crd.reference).await?.is_some();
        objects.push(entry(crd, if there { "none" } else { "create" }));
    }
    objects.extend(changed);
    for object in work.prune() {
        let Some(live) = target.get(&object.reference).await? else { continue };
        let foreign = foreign(&live, target.name, target.namespace);
        let mut one = entry(object, if kept(&live) || foreign.is_some() { "keep" } else { "delete" });
        tell(&mut one, "warning", foreign);
        objects.push(one);
    }
    Ok(json!({
        "install": plan.install(), "revision": plan.revision, "objects": objects, "hooks": hooks_of(plan),
    }))
}

fn entry(object: &Object, action: &str) -> Value {
    json!({"object": described(&object.reference), "action": action, "fields": [], "conflicts": []})
}

fn tell(of: &mut Value, key: &str, text: Option<impl Into<Value>>) {
    if let (Some(text), Some(map)) = (text, of.as_object_mut()) {
        map.insert(key.into(), text.into());
    }
}

/// An object that is not there yet: the API server is asked whether it would take it.
async fn made(target: &Target<'_>, object: &Object) -> Result<Value, Error> {
    let mut out = entry(object, "create");
    let Err(e) = target.try_apply(object, false).await else { return Ok(out) };
    let untried = untried(&e).map(|why| match e {
        KubeError::Other { .. } => format!("{why}: it was not tried out"),
        _ => why,
    });
    match e {
        KubeError::TimedOut => return Err(Error::TimedOut),
        KubeError::Unavailable(_) => return Err(Error::kube(&object.shown(), e)),
        KubeError::Invalid(_) | KubeError::Forbidden(_) if untried.is_none() => {
            tell(&mut out, "problem", Some(e.to_string()));
        }
        // Where it is neither, its namespace or its kind comes with the release.
        _ => tell(&mut out, "warning", untried),
    }
    Ok(out)
}

async fn change(
    target: &Target<'_>,
    object: &Object,
    live: Option<&Value>,
    server_side: bool,
    force: bool,
) -> Result<Value, Error> {
    let Some(live) = live else { return made(target, object).await };
    let mut c = compare(target, object, live).await?;
    if !server_side {
        c.conflicts.clear();
    }
    let action = match (c.fixed.is_empty(), c.changes.is_empty() && c.conflicts.is_empty()) {
        (false, _) => "replace",
        (true, true) => "none",
        (true, false) => "update",
    };
    if !force && c.problem.is_none() && !c.conflicts.is_empty() {
        let e = KubeError::Conflict(c.conflicts.clone());
        c.problem = Some(Error::kube(&object.shown(), e).to_string());
    }
    let fields: Vec<Value> = c
        .changes
        .into_iter()
        .map(|f| json!({"field": f.path, "before": f.before, "after": f.after}))
        .collect();
    let conflicts: Vec<Value> =
        c.conflicts.into_iter().map(|f| json!({"field": f.field, "manager": f.manager})).collect();
    let mut out = entry(object, action);
    tell(&mut out, "fields", Some(fields));
    tell(&mut out, "conflicts", Some(conflicts));
    tell(&mut out, "replaceBecause", (!c.fixed.is_empty()).then_some(c.fixed));
    tell(&mut out, "problem", c.problem);
    tell(&mut out, "warning", c.warning);
    Ok(out)
}

/// Those that would run, in their order.
fn hooks_of(plan: &Plan) -> Vec<Value> {
    let all = &plan.answer.hooks;
    let events =
        if plan.install() { ["pre-install", "post-install"] } else { ["pre-upgrade", "post-upgrade"] };
    let of_event =
        |event| hooks::order(all, event).into_iter().filter_map(move |at| Some((event, all.get(at)?)));
    let shown = |(event, hook): (&str, &Value)| {
        let of = |key: &str| hook.get(key).cloned().unwrap_or_default();
        let weight = hook.get("weight").and_then(Value::as_i64).unwrap_or(0);
        json!({"event": event, "kind": of("kind"), "name": of("name"), "path": of("path"), "weight": weight})
    };
    events.into_iter().flat_map(of_event).map(shown).collect()
}
