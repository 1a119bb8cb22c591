//! The hooks of one event, one after the other (parity statement 9). Nothing here blocks: where one has to be waited
//! for, the place is in the record and the same call comes again.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use sutler_kubernetes::Error as KubeError;
use sutler_model::Owner;

use super::operation::{Operation, Step};
use super::readiness::{Health, finished};
use super::record::{Record, now};
use super::storage::{MANAGER, applying, lost};
use super::tail::tail;
use super::target::Target;
use super::write::delete;
use crate::error::Error;
use crate::grant;
use crate::manifest::{MANAGED_BY, Object, RELEASE_NAME, RELEASE_NAMESPACE};

/// Helm's own time-out for one hook.
const LIMIT_SECONDS: i64 = 300;
const BEFORE_CREATION: &str = "before-hook-creation";
const SUCCEEDED: &str = "hook-succeeded";
const FAILED: &str = "hook-failed";

/// What running hooks came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Done,
    Waiting(String),
    /// The hook's record says so too; what is left is cleaning up.
    Failed(String),
}

fn text<'a>(hook: &'a Value, key: &str) -> &'a str {
    hook.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(hook: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    hook.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// `Job "x" (templates/x.yaml)`.
fn shown(hook: &Value) -> String {
    format!("{} {:?} ({})", text(hook, "kind"), text(hook, "name"), text(hook, "path"))
}

/// Where the hooks of an event are among all: by weight, then by name.
pub(crate) fn order(hooks: &[Value], event: &str) -> Vec<usize> {
    let wanted = |h: &Value| list(h, "events").any(|e| e == event);
    let mut out: Vec<usize> =
        hooks.iter().enumerate().filter(|(_, h)| wanted(h)).map(|(place, _)| place).collect();
    let key = |place: &usize| {
        let hook = hooks.get(*place);
        let weight = hook.and_then(|h| h.get("weight")).and_then(Value::as_i64).unwrap_or(0);
        (weight, hook.map(|h| text(h, "name").to_owned()).unwrap_or_default())
    };
    out.sort_by_key(key);
    out
}

/// Whether the record has hooks for an event.
pub(crate) fn any(record: &Record, event: &str) -> bool {
    !order(record.hooks(), event).is_empty()
}

/// Hooks as they were before anything ran: what two renderings are compared by.
pub(crate) fn unrun(hooks: &[Value]) -> Vec<Value> {
    let mut out = hooks.to_vec();
    for hook in out.iter_mut().filter_map(Value::as_object_mut) {
        hook.insert("last_run".into(), json!({"phase": ""}));
        let policies = hook.get("delete_policies").and_then(Value::as_array);
        if policies.is_none_or(|p| p.len() == 1 && p.first().and_then(Value::as_str) == Some(BEFORE_CREATION))
        {
            hook.remove("delete_policies");
        }
    }
    out
}

fn has_policy(hook: &Value, policy: &str) -> bool {
    // Deleting a definition would delete every object of its kind.
    text(hook, "kind") != "CustomResourceDefinition" && list(hook, "delete_policies").any(|p| p == policy)
}

/// The record's operation; hooks run only where there is one.
fn operation(record: &mut Record) -> Result<&mut Operation, Error> {
    if record.operation.is_none() {
        return Err(lost(record));
    }
    record.operation.as_mut().ok_or(Error::NotFound)
}

fn hook(record: &Record, place: usize) -> Value {
    record.hooks().get(place).cloned().unwrap_or(Value::Null)
}

fn hook_mut(record: &mut Record, place: usize) -> Option<&mut Map<String, Value>> {
    record.hooks.as_mut()?.get_mut(place)?.as_object_mut()
}

/// What holds for a hook that names no policy: from its first run on, its record names it.
fn name_policy(record: &mut Record, place: usize) {
    if let Some(hook) = hook_mut(record, place)
        && hook.get("delete_policies").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        hook.insert("delete_policies".into(), json!([BEFORE_CREATION]));
    }
}

fn set_run(record: &mut Record, place: usize, phase: &str) {
    let Some(hook) = hook_mut(record, place) else { return };
    if phase == "Running" {
        hook.insert("last_run".into(), json!({"started_at": now(), "phase": phase}));
    } else if let Some(run) = hook.get_mut("last_run").and_then(Value::as_object_mut) {
        run.insert("completed_at".into(), now().into());
        run.insert("phase".into(), phase.into());
    }
}

/// Goes on with the hooks of the operation's event.
///
/// # Errors
/// What may be different when the same call comes again; what will not is [`Ran::Failed`].
pub(crate) async fn run(target: &Target<'_>, record: &mut Record) -> Result<Ran, Error> {
    let event = operation(record)?.event();
    let places = order(record.hooks(), event);
    if let Some(why) = operation(record)?.why.clone() {
        clean_after_failure(target, record, &places).await?;
        return Ok(Ran::Failed(why));
    }
    loop {
        let at = operation(record)?.at;
        let Some(place) = places.get(at).copied() else { break };
        let ran = match one(target, record, place).await {
            Err(e) if e.passes() => return Err(e),
            Err(e) => Ran::Failed(e.to_string()),
            Ok(ran) => ran,
        };
        match ran {
            Ran::Done => {
                set_run(record, place, "Succeeded");
                let o = operation(record)?;
                o.at += 1;
                o.first_step();
                if o.at == places.len() {
                    target.storage.update(record).await?;
                }
            }
            Ran::Waiting(why) => return Ok(Ran::Waiting(why)),
            Ran::Failed(why) => return fail(target, record, place, &places, &why).await,
        }
    }
    for place in places.iter().rev() {
        let hook = hook(record, *place);
        if has_policy(&hook, SUCCEEDED)
            && let Err(e) = remove(target, &hook).await
        {
            if e.passes() {
                return Err(e);
            }
            return Ok(Ran::Failed(format!("{event} hook {}: {e}", shown(&hook))));
        }
    }
    Ok(Ran::Done)
}

/// The failure goes into the record before anything is cleaned up.
async fn fail(
    target: &Target<'_>,
    record: &mut Record,
    place: usize,
    places: &[usize],
    why: &str,
) -> Result<Ran, Error> {
    let failed = hook(record, place);
    let event = operation(record)?.event();
    set_run(record, place, "Failed");
    // Before it watches, nothing under the hook's name need be the hook's.
    let made = operation(record)?.step == Step::Watch;
    let wrote = if made { tail(target, &failed).await } else { String::new() };
    let why = format!("{event} hook {} failed: {why}{wrote}", shown(&failed));
    operation(record)?.why = Some(why.clone());
    target.storage.update(record).await?;
    clean_after_failure(target, record, places).await?;
    Ok(Ran::Failed(why))
}

/// Only after one that ran: where one could not be made, what is there under its name may be an earlier run's, and
/// everything stays (Helm 4, `execHookWithDelayedShutdown`).
async fn clean_after_failure(
    target: &Target<'_>,
    record: &mut Record,
    places: &[usize],
) -> Result<(), Error> {
    if operation(record)?.step != Step::Watch {
        return Ok(());
    }
    let at = operation(record)?.at;
    for (i, place) in places.iter().enumerate().take(at + 1) {
        let hook = hook(record, *place);
        if has_policy(&hook, if i == at { FAILED } else { SUCCEEDED }) {
            match remove(target, &hook).await {
                Err(e) if e.passes() => return Err(e),
                // The hook's own failure is what has to be told.
                Err(e) => tracing::warn!(event = "helm.hook.kept", release = target.name, error = %e),
                Ok(_) => {}
            }
        }
    }
    Ok(())
}

/// One hook, from the step it stands at.
async fn one(target: &Target<'_>, record: &mut Record, place: usize) -> Result<Ran, Error> {
    name_policy(record, place);
    let hook = hook(record, place);
    let objects = target.objects(text(&hook, "manifest"), &[]).await?;
    if operation(record)?.step == Step::Clear {
        if has_policy(&hook, BEFORE_CREATION) && !remove(target, &hook).await? {
            target.storage.update(record).await?;
            return Ok(Ran::Waiting(format!("hook {} of an earlier run is being deleted", shown(&hook))));
        }
        set_run(record, place, "Running");
        operation(record)?.step = Step::Create;
        target.storage.update(record).await?;
    }
    if operation(record)?.step == Step::Create {
        for object in &objects {
            create(target, record, &hook, object).await?;
        }
        if !objects.iter().any(runs) {
            return Ok(Ran::Done);
        }
        operation(record)?.step = Step::Watch;
        target.storage.update(record).await?;
    }
    watch(target, record, &hook, &objects).await
}

/// Only Jobs and Pods are waited for.
fn runs(object: &Object) -> bool {
    matches!((object.reference.group(), object.reference.kind.as_str()), ("batch", "Job") | ("", "Pod"))
}

async fn create(target: &Target<'_>, record: &Record, hook: &Value, object: &Object) -> Result<(), Error> {
    let live = target.get(&object.reference).await?;
    if let Some(live) = &live {
        check(target, object, live)?;
    }
    let uninstall = record.operation.as_ref().is_some_and(|o| o.event().ends_with("-delete"));
    let writer = &target.cluster;
    let done = if uninstall || record.server_side() {
        let options = applying(false);
        writer.apply(&object.value, &options).await
    } else {
        writer.create(&object.value, MANAGER, false).await
    };
    match done {
        Ok(_) => Ok(()),
        // Where it was cleared away before, this is what the call before made.
        Err(KubeError::AlreadyExists) if has_policy(hook, BEFORE_CREATION) => Ok(()),
        Err(e) => Err(Error::kube(&object.shown(), e)),
    }
}

async fn watch(
    target: &Target<'_>,
    record: &mut Record,
    hook: &Value,
    objects: &[Object],
) -> Result<Ran, Error> {
    let (mut waiting, mut seen) = (None, false);
    // All of them, since one that has ended may be gone by the next look.
    for (i, object) in objects.iter().enumerate().filter(|(_, o)| runs(o)) {
        if operation(record)?.ended.contains(&i) {
            continue;
        }
        let health = match target.get(&object.reference).await? {
            Some(live) => finished(&live),
            None => Health::Failed(vanished(object)),
        };
        match health {
            Health::Ready => {
                operation(record)?.ended.push(i);
                seen = true;
            }
            Health::Failed(why) => return Ok(Ran::Failed(format!("{}: {why}", object.shown()))),
            Health::Progressing(why) if since(hook) > LIMIT_SECONDS => {
                return Ok(Ran::Failed(format!(
                    "{}: it did not end within {LIMIT_SECONDS} s: {why}",
                    object.shown()
                )));
            }
            Health::Progressing(why) => waiting = waiting.or(Some(why)),
        }
    }
    let Some(why) = waiting else { return Ok(Ran::Done) };
    if seen {
        target.storage.update(record).await?;
    }
    Ok(Ran::Waiting(format!("hook {}: {why}", shown(hook))))
}

/// Why a Job or Pod of a hook is not there, as far as it can be told, and what to do.
fn vanished(object: &Object) -> String {
    let kind = &object.reference.kind;
    match object.value.pointer("/spec/ttlSecondsAfterFinished").and_then(Value::as_i64) {
        Some(seconds) => format!(
            "it is gone before its end was seen, so whether it succeeded is not known: either it ended and its \
             ttlSecondsAfterFinished of {seconds} s removed it, or somebody deleted it; take ttlSecondsAfterFinished out \
             of the hook (the annotation helm.sh/hook-delete-policy: hook-succeeded cleans up as well), then try again"
        ),
        None => format!(
            "it is gone before its end was seen, so whether it succeeded is not known: it has no \
             ttlSecondsAfterFinished, so somebody or a controller deleted it; leave the {kind}s of hooks alone while \
             they run, then try again"
        ),
    }
}

/// Seconds since the hook began.
fn since(hook: &Value) -> i64 {
    let started = hook.pointer("/last_run/started_at").and_then(Value::as_str).unwrap_or_default();
    DateTime::parse_from_rfc3339(started).map_or(0, |t| (Utc::now() - t.to_utc()).num_seconds())
}

/// Deletes a hook's objects; whether they are gone.
async fn remove(target: &Target<'_>, hook: &Value) -> Result<bool, Error> {
    let mut gone = true;
    for object in target.old_objects(text(hook, "manifest")).await? {
        let Some(live) = target.get(&object.reference).await? else { continue };
        check(target, &object, &live)?;
        if live.pointer("/metadata/deletionTimestamp").is_none() {
            delete(target, &object, &live).await?;
        }
        gone &= target.get(&object.reference).await?.is_none();
    }
    Ok(gone)
}

/// Hooks carry no marks, so what is there under a hook's name is replaced only where Helm made it and no release and
/// no other owner claims it.
fn check(target: &Target<'_>, object: &Object, live: &Value) -> Result<(), Error> {
    let label = |k: &str| live.pointer("/metadata/labels").and_then(|m| m.get(k)).and_then(Value::as_str);
    let note = |k: &str| live.pointer("/metadata/annotations").and_then(|m| m.get(k)).and_then(Value::as_str);
    let claimed = note(RELEASE_NAME).is_some_and(|n| n != target.name)
        || note(RELEASE_NAMESPACE).is_some_and(|n| n != target.namespace)
        || (label(MANAGED_BY) == Some("Helm")
            && note(RELEASE_NAME).is_none()
            && !written(object, MANAGED_BY))
        || label(Owner::LABEL).is_some_and(|o| o != target.owner().hash());
    let managers = live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let helm = managers.filter_map(|m| m.get("manager")).any(|m| m == MANAGER);
    if grant::unowned(target.grants) || (helm && !claimed) {
        return Ok(());
    }
    Err(Error::NotOwned(format!(
        "{} is in the way of a hook of release {} and was not made by one: delete or rename it, or allow it with helm.unowned = true",
        object.shown(),
        target.name
    )))
}

/// Whether the chart itself wrote this label.
fn written(object: &Object, label: &str) -> bool {
    object.value.pointer("/metadata/labels").is_some_and(|l| l.get(label).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_then_name() {
        let hook = |name: &str, weight: i64, events: Value| json!({"name": name, "weight": weight, "events": events});
        let hooks = [
            hook("c", 0, json!(["pre-install"])),
            hook("b", 5, json!(["pre-install", "pre-upgrade"])),
            hook("a", 0, json!(["pre-install"])),
            hook("z", -1, json!(["pre-install"])),
            hook("other", 0, json!(["post-install"])),
        ];
        assert_eq!(order(&hooks, "pre-install"), [3, 2, 0, 1]);
        assert_eq!(order(&hooks, "pre-upgrade"), [1]);
        assert_eq!(order(&hooks, "test"), Vec::<usize>::new());
    }

    #[test]
    fn runs_do_not_count_when_hooks_are_compared() {
        let rendered = json!({"name": "a", "events": ["test"], "last_run": {"phase": ""}});
        let mut ran = rendered.clone();
        ran["last_run"] = json!({"phase": "Succeeded", "started_at": "t"});
        ran["delete_policies"] = json!([BEFORE_CREATION]);
        assert_eq!(unrun(&[ran]), unrun(std::slice::from_ref(&rendered)));
        let mut other = rendered.clone();
        other["delete_policies"] = json!([SUCCEEDED]);
        assert_ne!(unrun(&[other]), unrun(&[rendered]));
    }
}
