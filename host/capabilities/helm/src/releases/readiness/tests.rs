//! Each rule of readiness by what objects report.

use super::*;
use serde_json::json;

fn check(object: Value, expected: &str) {
    let got = match of_object(&object) {
        Health::Ready => "ready".to_owned(),
        Health::Progressing(w) => format!("progressing: {w}"),
        Health::Failed(w) => format!("failed: {w}"),
    };
    assert_eq!(got, expected, "{object}");
}

fn apps(kind: &str, spec: Value, status: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"generation": 2}, "spec": spec, "status": status})
}

#[test]
fn workloads() {
    let full = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
    let two = json!({"replicas": 2});
    let with = |key: &str, value: Value| {
        let mut v = full.clone();
        v[key] = value;
        v
    };
    check(apps("Deployment", two.clone(), full.clone()), "ready");
    check(apps("Deployment", two.clone(), json!({})), "progressing: its controller has not seen it");
    check(
        apps("Deployment", two.clone(), with("observedGeneration", json!(1))),
        "progressing: its controller has not seen the newest change",
    );
    check(
        apps("Deployment", two.clone(), with("updatedReplicas", json!(1))),
        "progressing: 1 of 2 replicas are updated",
    );
    check(
        apps("Deployment", two.clone(), with("replicas", json!(3))),
        "progressing: 1 old replicas are still there",
    );
    check(
        apps("Deployment", two.clone(), with("availableReplicas", json!(0))),
        "progressing: 0 of 2 replicas are available",
    );
    check(apps("Deployment", json!({"replicas": 2, "paused": true}), json!({})), "ready");
    check(apps("Deployment", json!({"replicas": 0}), json!({"observedGeneration": 2})), "ready");
    let late = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too long"}]);
    check(
        apps("Deployment", two.clone(), with("conditions", late)),
        "failed: ProgressDeadlineExceeded: too long",
    );
    check(apps("StatefulSet", two.clone(), full.clone()), "ready");
    check(
        apps("StatefulSet", two.clone(), with("readyReplicas", json!(1))),
        "progressing: 1 of 2 replicas are ready",
    );
    check(
        apps("StatefulSet", two.clone(), with("updateRevision", json!("b"))),
        "progressing: the update is rolling out",
    );
    let partition = json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}});
    check(
        apps("StatefulSet", partition, with("updatedReplicas", json!(0))),
        "progressing: 0 of 1 replicas are updated",
    );
    check(
        apps("StatefulSet", json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}}), json!({})),
        "ready",
    );
    let daemon = json!({"observedGeneration": 2, "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1, "numberReady": 2});
    check(apps("DaemonSet", json!({}), daemon), "progressing: 1 of 2 pods are available");
    check(apps("ReplicaSet", two, json!({"readyReplicas": 1})), "progressing: 1 of 2 replicas are ready");
}

#[test]
fn what_has_to_end() {
    let of = |kind: &str, status: Value| finished(&json!({"kind": kind, "metadata": {}, "status": status}));
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "reason": "Why"}]});
    assert_eq!(of("Job", condition("Complete")), Health::Ready);
    assert_eq!(of("Job", condition("Failed")), Health::Failed("Why".into()));
    assert_eq!(of("Job", json!({"startTime": "t"})), waiting("it runs"));
    assert_eq!(of("Pod", json!({"phase": "Succeeded"})), Health::Ready);
    assert_eq!(of("Pod", json!({"phase": "Running"})), waiting("it runs"));
    let code = json!([{"name": "c", "state": {"terminated": {"exitCode": 3}}}]);
    assert_eq!(
        of("Pod", json!({"phase": "Failed", "containerStatuses": code})),
        Health::Failed("container c ended with 3".into())
    );
}

#[test]
fn everything_else() {
    let object = |api: &str, kind: &str, spec: Value, status: Value| json!({"apiVersion": api, "kind": kind, "metadata": {}, "spec": spec, "status": status});
    let condition = |kind: &str, status: &str| json!({"conditions": [{"type": kind, "status": status, "reason": "Why", "message": "so"}]});
    for (api, kind, spec, status, expected) in [
        ("batch/v1", "Job", json!({}), json!({}), "progressing: it has not started"),
        ("batch/v1", "Job", json!({}), json!({"startTime": "t", "active": 1}), "ready"),
        ("batch/v1", "Job", json!({"suspend": true}), json!({}), "ready"),
        ("batch/v1", "Job", json!({}), condition("Complete", "True"), "ready"),
        ("batch/v1", "Job", json!({}), condition("Failed", "True"), "failed: Why: so"),
        ("v1", "Pod", json!({}), json!({"phase": "Succeeded"}), "ready"),
        ("v1", "Pod", json!({}), json!({"phase": "Failed", "reason": "Evicted"}), "failed: Evicted"),
        ("v1", "Pod", json!({}), json!({"phase": "Pending"}), "progressing: it is pending"),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({}),
            json!({"phase": "Pending"}),
            "progressing: it is Pending, not Bound",
        ),
        ("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Bound"}), "ready"),
        ("v1", "Service", json!({"clusterIP": "10.0.0.1"}), json!({}), "ready"),
        ("v1", "Service", json!({"clusterIP": "None"}), json!({}), "ready"),
        ("v1", "Service", json!({"type": "ExternalName"}), json!({}), "ready"),
        (
            "v1",
            "Service",
            json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"}),
            json!({}),
            "progressing: it has no load balancer",
        ),
        ("v1", "ConfigMap", json!({}), json!({}), "ready"),
        (
            "apiregistration.k8s.io/v1",
            "APIService",
            json!({}),
            condition("Available", "False"),
            "progressing: its server is not available",
        ),
        ("x.example/v1", "Thing", json!({}), condition("Ready", "False"), "progressing: Why: so"),
        ("x.example/v1", "Thing", json!({}), condition("Stalled", "True"), "failed: Why: so"),
        ("x.example/v1", "Thing", json!({}), condition("Ready", "True"), "ready"),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({}),
            json!({}),
            "progressing: it is not established",
        ),
    ] {
        check(object(api, kind, spec, status), expected);
    }
    check(json!({"metadata": {"deletionTimestamp": "t"}}), "progressing: it is being deleted");
}
