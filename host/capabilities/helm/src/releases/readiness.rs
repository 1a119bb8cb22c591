//! Whether objects are ready, from what they report of themselves (rules as kstatus, which Helm 4 waits by).

use serde_json::Value;

use super::record::{Record, Status};
use super::target::Target;
use crate::error::Error;
use crate::manifest::{Object, shown};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Ready,
    Progressing(String),
    Failed(String),
}

/// The release's objects now; never waits.
pub(crate) async fn readiness(target: &Target<'_>, record: &Record) -> Result<Health, Error> {
    match record.info.status {
        Status::Failed => return Ok(Health::Failed(record.info.description.clone())),
        Status::Deployed => {}
        s => return Ok(Health::Progressing(format!("revision {} is {}", record.version, s.as_str()))),
    }
    let objects = target.old_objects(&record.manifest).await?;
    together(target, &objects, false).await
}

/// All objects now; with `jobs` a Job is ready when it has ended.
pub(crate) async fn together(target: &Target<'_>, objects: &[Object], jobs: bool) -> Result<Health, Error> {
    let live = target.live(objects).await?;
    let mut progressing = Vec::new();
    for (object, live) in objects.iter().zip(live) {
        let health = match &live {
            None => Health::Progressing("it does not exist".into()),
            Some(v) if jobs && object.reference.kind == "Job" => finished(v),
            Some(v) => of_object(v),
        };
        match health {
            Health::Ready => {}
            Health::Failed(why) => return Ok(Health::Failed(format!("{}: {why}", shown(&object.reference)))),
            Health::Progressing(why) => progressing.push(format!("{}: {why}", shown(&object.reference))),
        }
    }
    match progressing.len() {
        0 => Ok(Health::Ready),
        n => {
            let more = if n > 3 { format!("; and {} more", n - 3) } else { String::new() };
            progressing.truncate(3);
            Ok(Health::Progressing(progressing.join("; ") + &more))
        }
    }
}

fn number(v: &Value, pointer: &str) -> i64 {
    v.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn text<'a>(v: &'a Value, pointer: &str) -> &'a str {
    v.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn condition<'a>(v: &'a Value, kind: &str) -> Option<&'a Value> {
    v.pointer("/status/conditions")?.as_array()?.iter().find(|c| text(c, "/type") == kind)
}

fn is(v: &Value, kind: &str, status: &str) -> bool {
    condition(v, kind).is_some_and(|c| text(c, "/status") == status)
}

fn waiting(why: impl Into<String>) -> Health {
    Health::Progressing(why.into())
}

fn message(v: &Value, kind: &str) -> String {
    let c = condition(v, kind);
    let part = |p: &str| c.map_or("", |c| text(c, p)).to_owned();
    [part("/reason"), part("/message")].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(": ")
}

/// One live object.
pub(crate) fn of_object(v: &Value) -> Health {
    if v.pointer("/metadata/deletionTimestamp").is_some() {
        return waiting("it is being deleted");
    }
    let observed = v.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if observed.is_some_and(|o| o < number(v, "/metadata/generation")) {
        return waiting("its controller has not seen the newest change");
    }
    let api = text(v, "/apiVersion");
    match (api.split_once('/').map_or("", |(g, _)| g), text(v, "/kind")) {
        ("apps", "Deployment") => deployment(v),
        ("apps", "StatefulSet") => stateful_set(v),
        ("apps", "DaemonSet") => daemon_set(v),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replica_set(v),
        ("batch", "Job") => job(v),
        ("", "Pod") => pod(v),
        ("", "PersistentVolumeClaim") => claim(v),
        ("", "Service") => service(v),
        ("apiextensions.k8s.io", "CustomResourceDefinition") if !is(v, "Established", "True") => {
            waiting("it is not established")
        }
        ("apiregistration.k8s.io", "APIService") if !is(v, "Available", "True") => {
            waiting("its server is not available")
        }
        _ => generic(v),
    }
}

fn wanted(v: &Value) -> i64 {
    v.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn deployment(v: &Value) -> Health {
    if v.pointer("/spec/paused") == Some(&Value::Bool(true)) {
        return Health::Ready;
    }
    if condition(v, "Progressing").is_some_and(|c| text(c, "/reason") == "ProgressDeadlineExceeded") {
        return Health::Failed(message(v, "Progressing"));
    }
    if condition(v, "ReplicaFailure").is_some_and(|c| text(c, "/status") == "True")
        && number(v, "/status/replicas") == 0
    {
        return waiting(message(v, "ReplicaFailure"));
    }
    if v.pointer("/status/observedGeneration").is_none() {
        return waiting("its controller has not seen it");
    }
    let n = wanted(v);
    let at = |field: &str| number(v, &format!("/status/{field}"));
    let (all, updated, ready, available) =
        (at("replicas"), at("updatedReplicas"), at("readyReplicas"), at("availableReplicas"));
    if updated < n {
        waiting(format!("{updated} of {n} replicas are updated"))
    } else if all > updated {
        waiting(format!("{} old replicas are still there", all - updated))
    } else if available < n {
        waiting(format!("{available} of {n} replicas are available"))
    } else if ready < n {
        waiting(format!("{ready} of {n} replicas are ready"))
    } else if n > 0 && is(v, "Available", "False") {
        waiting(message(v, "Available"))
    } else {
        Health::Ready
    }
}

fn stateful_set(v: &Value) -> Health {
    if text(v, "/spec/updateStrategy/type") == "OnDelete" {
        return Health::Ready;
    }
    if v.pointer("/status/observedGeneration").is_none() {
        return waiting("its controller has not seen it");
    }
    let n = wanted(v);
    let at = |field: &str| number(v, &format!("/status/{field}"));
    let partition = number(v, "/spec/updateStrategy/rollingUpdate/partition");
    if at("replicas") < n {
        return waiting(format!("{} of {n} replicas exist", at("replicas")));
    }
    if at("readyReplicas") < n {
        return waiting(format!("{} of {n} replicas are ready", at("readyReplicas")));
    }
    if partition > 0 {
        let updated = at("updatedReplicas");
        return if updated < n - partition {
            waiting(format!("{updated} of {} replicas are updated", n - partition))
        } else {
            Health::Ready
        };
    }
    if at("replicas") > n {
        return waiting(format!("{} replicas are to go", at("replicas") - n));
    }
    if text(v, "/status/currentRevision") != text(v, "/status/updateRevision") {
        return waiting("the update is rolling out");
    }
    Health::Ready
}

fn daemon_set(v: &Value) -> Health {
    if text(v, "/spec/updateStrategy/type") == "OnDelete" {
        return Health::Ready;
    }
    if v.pointer("/status/observedGeneration").is_none() {
        return waiting("its controller has not seen it");
    }
    let at = |field: &str| number(v, &format!("/status/{field}"));
    let n = at("desiredNumberScheduled");
    for (field, what) in [
        ("currentNumberScheduled", "scheduled"),
        ("updatedNumberScheduled", "updated"),
        ("numberAvailable", "available"),
        ("numberReady", "ready"),
    ] {
        if at(field) < n {
            return waiting(format!("{} of {n} pods are {what}", at(field)));
        }
    }
    Health::Ready
}

fn replica_set(v: &Value) -> Health {
    let (n, ready) = (wanted(v), number(v, "/status/readyReplicas"));
    if ready < n { waiting(format!("{ready} of {n} replicas are ready")) } else { Health::Ready }
}

/// A Job that runs is ready: that it ends is for those who wait for Jobs.
fn job(v: &Value) -> Health {
    if is(v, "Failed", "True") {
        return Health::Failed(message(v, "Failed"));
    }
    if is(v, "Complete", "True") || v.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
        return Health::Ready;
    }
    if v.pointer("/status/startTime").is_none() { waiting("it has not started") } else { Health::Ready }
}

/// A Job or Pod that has to end.
pub(crate) fn finished(v: &Value) -> Health {
    // What has ended has ended, also where it is being deleted by now.
    let pod = text(v, "/kind") == "Pod";
    let ended = |phase: &str, condition: &str| {
        if pod { text(v, "/status/phase") == phase } else { is(v, condition, "True") }
    };
    if ended("Succeeded", "Complete") {
        Health::Ready
    } else if ended("Failed", "Failed") {
        Health::Failed(if pod { failed_pod(v) } else { message(v, "Failed") })
    } else if v.pointer("/metadata/deletionTimestamp").is_some() {
        waiting("it is being deleted")
    } else {
        waiting("it runs")
    }
}

fn failed_pod(v: &Value) -> String {
    let said = [text(v, "/status/reason"), text(v, "/status/message")].join(" ").trim().to_owned();
    let ended = v.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    let codes: Vec<String> = ended
        .filter_map(|c| Some((text(c, "/name"), c.pointer("/state/terminated/exitCode")?.as_i64()?)))
        .filter(|(_, code)| *code != 0)
        .map(|(name, code)| format!("container {name} ended with {code}"))
        .collect();
    if said.is_empty() && codes.is_empty() { "it failed".into() } else { [said, codes.join(", ")].concat() }
}

fn pod(v: &Value) -> Health {
    let stuck = v.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    let stuck = stuck.map(|c| text(c, "/state/waiting/reason")).find(|r| *r == "CrashLoopBackOff");
    match text(v, "/status/phase") {
        "Succeeded" => Health::Ready,
        "Failed" => Health::Failed(failed_pod(v)),
        "Running" if is(v, "Ready", "True") => Health::Ready,
        "Running" if stuck.is_some() => Health::Failed("a container crashes again and again".into()),
        "Running" => waiting("its containers are not ready"),
        _ => waiting(if is(v, "PodScheduled", "False") {
            message(v, "PodScheduled")
        } else {
            "it is pending".into()
        }),
    }
}

fn claim(v: &Value) -> Health {
    match text(v, "/status/phase") {
        "Bound" => Health::Ready,
        "" => waiting("it is not bound"),
        phase => waiting(format!("it is {phase}, not Bound")),
    }
}

fn service(v: &Value) -> Health {
    let some = |p: &str| v.pointer(p).and_then(Value::as_array).is_some_and(|a| !a.is_empty());
    match text(v, "/spec/type") {
        "ExternalName" => Health::Ready,
        _ if text(v, "/spec/clusterIP").is_empty() => waiting("it has no cluster address"),
        "LoadBalancer" if !some("/status/loadBalancer/ingress") && !some("/spec/externalIPs") => {
            waiting("it has no load balancer")
        }
        _ => Health::Ready,
    }
}

/// Custom resources by the usual conditions.
fn generic(v: &Value) -> Health {
    if is(v, "Stalled", "True") {
        Health::Failed(message(v, "Stalled"))
    } else if is(v, "Reconciling", "True") {
        waiting(message(v, "Reconciling"))
    } else if condition(v, "Ready").is_some_and(|c| text(c, "/status") != "True") {
        waiting(message(v, "Ready"))
    } else {
        Health::Ready
    }
}

#[cfg(test)]
mod tests;
