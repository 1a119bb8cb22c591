//! Workloads that are ready because the emulator says so, and the pods that stand for them.
//!
//! Pods belong to their Deployment directly: there is no ReplicaSet between them, and nothing schedules or runs.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::kinds::KindInfo;
use super::managed::Owners;
use super::resource::{fields, meta, now, owner_uids};
use super::store::{Entry, Key, State};

/// What becomes of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readiness {
    /// Ready, or for a Job succeeded, as soon as it is written.
    #[default]
    Instant,
    /// Pods stay pending.
    Never,
    /// Deployments exceed their progress deadline, Jobs fail.
    Failing,
}

/// A condition that holds or not.
fn condition(kind: &str, holds: bool, reason: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now(), "message": reason})
}

/// The pods that a workload wants.
fn wanted(kind: &KindInfo, object: &Value) -> u64 {
    let spec = &object["spec"];
    match kind.kind.as_str() {
        "Deployment" | "StatefulSet" | "ReplicaSet" => spec["replicas"].as_u64().unwrap_or(1),
        "Job" if spec["suspend"] == true => 0,
        "Job" => spec["completions"].as_u64().or_else(|| spec["parallelism"].as_u64()).unwrap_or(1),
        _ => 1,
    }
}

/// The status of an object whose generation is new; `None` for kinds that have none here.
pub(crate) fn status(kind: &KindInfo, object: &Value, readiness: Readiness) -> Option<Value> {
    let generation = object["metadata"]["generation"].as_u64().unwrap_or(1);
    let count = wanted(kind, object);
    let ready = if readiness == Readiness::Instant { count } else { 0 };
    let fine = readiness == Readiness::Instant;
    Some(match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment") => {
            let progressing = match readiness {
                Readiness::Instant => condition("Progressing", true, "NewReplicaSetAvailable"),
                Readiness::Never => condition("Progressing", true, "ReplicaSetUpdated"),
                Readiness::Failing => condition("Progressing", false, "ProgressDeadlineExceeded"),
            };
            json!({
                "observedGeneration": generation, "replicas": count, "updatedReplicas": count,
                "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": count - ready,
                "conditions": [condition("Available", fine, if fine { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" }), progressing],
            })
        }
        ("apps", "StatefulSet") => {
            let revision = format!("{}-{}", meta(object, "name"), template_hash(object));
            json!({
                "observedGeneration": generation, "replicas": count, "currentReplicas": count,
                "updatedReplicas": count, "readyReplicas": ready, "availableReplicas": ready,
                "currentRevision": revision, "updateRevision": revision,
            })
        }
        ("apps", "DaemonSet") => json!({
            "observedGeneration": generation, "desiredNumberScheduled": count, "currentNumberScheduled": count,
            "updatedNumberScheduled": count, "numberReady": ready, "numberAvailable": ready, "numberMisscheduled": 0,
        }),
        ("apps", "ReplicaSet") => json!({
            "observedGeneration": generation, "replicas": count, "fullyLabeledReplicas": count,
            "readyReplicas": ready, "availableReplicas": ready,
        }),
        ("batch", "Job") => job(object, count, readiness),
        ("", "Pod") => pod_status(object, phase(false, readiness)),
        ("", "Namespace") => json!({"phase": "Active"}),
        ("", "PersistentVolumeClaim") => json!({"phase": if fine { "Bound" } else { "Pending" }}),
        ("", "Service") if object["spec"]["type"] == "LoadBalancer" && fine => {
            json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}]}})
        }
        ("", "Service") => json!({"loadBalancer": {}}),
        ("policy", "PodDisruptionBudget") => json!({
            "observedGeneration": generation, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
            "disruptionsAllowed": 0,
        }),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => json!({
            "conditions": [condition("NamesAccepted", true, "NoConflicts"), condition("Established", true, "InitialNamesAccepted")],
            "acceptedNames": object["spec"]["names"], "storedVersions": ["v1"],
        }),
        _ => return None,
    })
}

fn job(object: &Value, count: u64, readiness: Readiness) -> Value {
    let started = now();
    match readiness {
        _ if object["spec"]["suspend"] == true => {
            json!({"conditions": [condition("Suspended", true, "JobSuspended")]})
        }
        Readiness::Instant => json!({
            "startTime": started, "completionTime": now(), "succeeded": count, "ready": 0,
            "conditions": [condition("SuccessCriteriaMet", true, "CompletionsReached"), condition("Complete", true, "CompletionsReached")],
        }),
        Readiness::Never => json!({"startTime": started, "active": count, "ready": 0}),
        Readiness::Failing => json!({
            "startTime": started, "failed": count, "ready": 0,
            "conditions": [condition("Failed", true, "BackoffLimitExceeded")],
        }),
    }
}

const fn phase(of_job: bool, readiness: Readiness) -> &'static str {
    match (of_job, readiness) {
        (true, Readiness::Instant) => "Succeeded",
        (false, Readiness::Instant) => "Running",
        (_, Readiness::Never) => "Pending",
        (_, Readiness::Failing) => "Failed",
    }
}

fn pod_status(pod: &Value, phase: &str) -> Value {
    let running = phase == "Running";
    let code = u8::from(phase == "Failed");
    let container_state = match phase {
        "Running" => json!({"running": {"startedAt": now()}}),
        "Pending" => json!({"waiting": {"reason": "ContainerCreating"}}),
        _ => {
            json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "finishedAt": now()}})
        }
    };
    let containers: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            json!({
                "name": c["name"], "image": c["image"], "imageID": "", "ready": running, "started": running,
                "restartCount": 0, "state": container_state,
            })
        })
        .collect();
    json!({
        "phase": phase, "startTime": now(), "podIP": "192.0.2.20", "hostIP": "192.0.2.1",
        "conditions": [condition("PodScheduled", true, ""), condition("Ready", running, ""), condition("ContainersReady", running, "")],
        "containerStatuses": containers,
    })
}

fn template_hash(object: &Value) -> String {
    let digest = Sha256::digest(object["spec"]["template"].to_string());
    digest.iter().take(5).map(|b| format!("{b:02x}")).collect()
}

const fn is_workload(kind: &KindInfo) -> bool {
    matches!(kind.kind.as_bytes(), b"Deployment" | b"StatefulSet" | b"DaemonSet" | b"ReplicaSet" | b"Job")
}

/// Makes the pods of a workload fit it: those of an older template and the surplus go, the missing come.
pub(crate) fn settle(state: &mut State, key: &Key) {
    let Some(owner) = state.objects.get(key).cloned() else { return };
    if !is_workload(&owner.kind) || !meta(&owner.object, "deletionTimestamp").is_empty() {
        return;
    }
    let Some(pods) = state.find("", "Pod") else { return };
    let uid = meta(&owner.object, "uid").to_owned();
    let hash = template_hash(&owner.object);
    let count = wanted(&owner.kind, &owner.object);
    let phase = phase(owner.kind.kind == "Job", state.readiness);
    let mine: Vec<(Key, bool)> = state
        .of_kind(&pods, &key.namespace)
        .filter(|(_, pod)| owner_uids(&pod.object).any(|o| o == uid))
        .map(|(k, pod)| {
            let current = pod.object["metadata"]["annotations"][HASH] == hash.as_str();
            (k.clone(), current && pod.object["status"]["phase"] == phase)
        })
        .collect();
    let mut kept = Vec::new();
    for (pod, current) in mine {
        if current && (kept.len() as u64) < count {
            kept.push(pod.name);
        } else {
            state.remove(&pod, false);
        }
    }
    for index in 0..count {
        let fixed = format!("{}-{index}", key.name);
        let named = owner.kind.kind == "StatefulSet";
        if (named && kept.contains(&fixed)) || (!named && index < kept.len() as u64) {
            continue;
        }
        state.counter += 1;
        let name = match owner.kind.kind.as_str() {
            "StatefulSet" => fixed,
            "Deployment" => format!("{}-{hash}-{:05x}", key.name, state.counter),
            _ => format!("{}-{:05x}", key.name, state.counter),
        };
        let pod = pod(&owner, &name, &hash, phase);
        state.put(
            &Key::new(&pods, &key.namespace, &name),
            Entry { kind: pods.clone(), object: pod, owners: Owners::new() },
        );
    }
}

/// Which template a pod was made of.
const HASH: &str = "sutler.test/template-hash";

fn pod(owner: &Entry, name: &str, hash: &str, phase: &str) -> Value {
    let object = &owner.object;
    let template = &object["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": meta(object, "namespace"), "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now(), "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [{
                "apiVersion": owner.kind.api_version(), "kind": owner.kind.kind, "name": meta(object, "name"),
                "uid": meta(object, "uid"), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
    });
    let labels = fields(&mut pod["metadata"]["labels"]);
    let own = match owner.kind.kind.as_str() {
        "Job" => {
            vec![("job-name", meta(object, "name")), ("batch.kubernetes.io/job-name", meta(object, "name"))]
        }
        "StatefulSet" => {
            vec![("statefulset.kubernetes.io/pod-name", name), ("controller-revision-hash", hash)]
        }
        "DaemonSet" => vec![("controller-revision-hash", hash)],
        _ => vec![("pod-template-hash", hash)],
    };
    labels.extend(own.into_iter().map(|(k, v)| (k.to_owned(), v.into())));
    fields(&mut pod["metadata"]["annotations"]).insert(HASH.into(), hash.into());
    pod["status"] = pod_status(&pod, phase);
    pod
}

/// Gives every object the status that follows from the readiness now asked for.
pub(crate) fn settle_all(state: &mut State) {
    let all: Vec<(Key, Arc<KindInfo>)> =
        state.objects.iter().map(|(k, e)| (k.clone(), e.kind.clone())).collect();
    for (key, kind) in all {
        let owned = kind.kind == "Pod";
        let Some(mut entry) = state.objects.get(&key).cloned() else { continue };
        if owned && owner_uids(&entry.object).next().is_some() {
            continue;
        }
        if let Some(status) = status(&kind, &entry.object, state.readiness) {
            entry.object["status"] = status;
            state.put(&key, entry);
        }
        settle(state, &key);
    }
}

/// After a pod went: its workload makes another one.
pub(crate) fn replace_pod(state: &mut State, gone: &Value) {
    let uids: Vec<&str> = owner_uids(gone).collect();
    let owner =
        state.objects.iter().find(|(_, e)| uids.contains(&meta(&e.object, "uid"))).map(|(k, _)| k.clone());
    if let Some(owner) = owner {
        settle(state, &owner);
    }
}
