//! What inspect and apply tell of an application.

use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Update};
use sutler_sdk::helm::{Health, Status};
use sutler_sdk::testing::{Session, world};

use crate::{NONE, session, settings, with};

fn pod(name: &str, of: &str, phase: &str, ready: bool, container: Value) {
    let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    let pod = json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/instance": of}},
        "status": {"phase": phase, "conditions": [condition], "containerStatuses": [container]},
    });
    world(|w| w.objects.insert(format!("Pod ksml-acme/{name}"), pod));
}

fn running(restarts: u32) -> Value {
    json!({"name": "ksml", "ready": true, "started": true, "restartCount": restarts, "state": {"running": {}}})
}

fn outputs(s: &Session<ksml::Ksml>) -> Value {
    s.inspect(settings(), NONE).unwrap()["outputs"].clone()
}

fn made(over: Value) -> (Session<ksml::Ksml>, String) {
    let mut s = session();
    let name = s.apply(Create, with(settings(), over), NONE).unwrap()["release"].as_str().unwrap().to_owned();
    (s, name)
}

#[test]
fn replicas_restarts_probes_and_the_last_end() {
    let (mut s, name) = made(json!({"replicas": 2}));
    pod("a-0", &name, "Running", true, running(0));
    let ended =
        json!({"terminated": {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-01-02T03:04:05Z"}});
    let earlier =
        json!({"terminated": {"reason": "Error", "exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}});
    let mut second = running(3);
    (second["lastState"], second["ready"], second["started"]) = (earlier, json!(false), json!(false));
    pod("a-1", &name, "Running", false, second.clone());
    pod("x-0", "another-release", "Running", true, running(40));
    let seen = outputs(&s);
    assert_eq!((&seen["replicas"], &seen["phase"]), (&json!(2), &json!("Running")));
    assert_eq!(
        seen["pods"],
        json!({"ready": 1, "restarts": 3,
            "lastTermination": {"pod": "a-1", "reason": "Error", "exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"},
            "probes": {"startup": false, "ready": false, "live": true}})
    );
    second["state"] = ended;
    pod("a-1", &name, "Running", false, second);
    let seen = outputs(&s);
    assert_eq!(seen["pods"]["lastTermination"]["exitCode"], 137, "the newest");
    assert_eq!(seen["pods"]["probes"]["live"], false);
    let applied = s.apply(Update, with(settings(), json!({"replicas": 2})), NONE).unwrap();
    assert_eq!(applied["pods"], seen["pods"], "an apply tells the same");
}

#[test]
fn without_a_grant_for_pods_the_rest_is_told() {
    let (s, _) = made(json!({}));
    world(|w| w.refused.insert("Pod".into()));
    let seen = outputs(&s);
    assert_eq!((&seen["pods"], &seen["phase"], &seen["ready"]), (&NONE, &json!("Running"), &json!(true)));
}

#[test]
fn the_phase_in_one_word() {
    let looping =
        json!({"name": "ksml", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
    let progressing = || Health::Progressing("0 of 1".into());
    let job = json!({"restartPolicy": "never"});
    let none = json!({});
    for (over, status, health, pods, phase) in [
        (&none, Status::Deployed, Health::Ready, vec![("Running", running(0))], "Running"),
        (&none, Status::Deployed, progressing(), vec![("Pending", json!({}))], "Deploying"),
        (&none, Status::Deployed, progressing(), vec![("Running", looping)], "Failed"),
        (&none, Status::Deployed, Health::Failed("x".into()), vec![], "Failed"),
        (&none, Status::PendingUpgrade, progressing(), vec![], "Deploying"),
        (&none, Status::Failed, Health::Ready, vec![], "Failed"),
        (&job, Status::Deployed, Health::Ready, vec![("Running", running(0))], "Running"),
        (&job, Status::Deployed, Health::Ready, vec![("Succeeded", json!({}))], "Completed"),
        (&job, Status::Deployed, Health::Failed("x".into()), vec![("Failed", json!({}))], "Failed"),
    ] {
        let (s, name) = made(over.clone());
        for (i, (phase, container)) in pods.into_iter().enumerate() {
            pod(&format!("p-{i}"), &name, phase, false, container);
        }
        world(|w| {
            w.releases.values_mut().for_each(|r| r.status = status);
            w.health.push_back(health.clone());
        });
        let seen = outputs(&s);
        assert_eq!(seen["phase"], phase, "{status:?} {health:?}");
        if over == &job {
            assert_eq!(seen["pods"]["probes"], NONE, "a Job has no probes");
        }
    }
}

#[test]
fn what_changes_by_itself_is_marked() {
    let (_, outputs, _) = session().described();
    for (name, volatile) in [("phase", true), ("pods", true), ("ready", false), ("revision", false)] {
        assert_eq!(outputs["properties"][name]["x-volatile"] == true, volatile, "{name}: {outputs}");
    }
}
