//! The plugin against a world in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Delete, Replace, Update};
use sutler_sdk::testing::{Session, reset, world};

const NONE: Value = Value::Null;

fn session(config: Value) -> Session<kafka_connect::KafkaConnect> {
    reset(config);
    Session::new("orders", "prod", Some("acme"))
}

fn strimzi() -> Session<kafka_connect::KafkaConnect> {
    session(json!({"namespaces": ["connect-{tenant}"], "preset": "strimzi"}))
}

fn pod(namespace: &str, name: &str, labels: Value, ready: &str, restarts: u32) {
    let pod = json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"restartCount": restarts}, {"restartCount": 1}]},
    });
    world(|w| w.objects.insert(format!("Pod {namespace}/{name}"), pod));
}

#[test]
fn where_the_logs_are() {
    let name = json!({"name": "my-connect"});
    for (config, settings, selector) in [
        (json!({"preset": "strimzi"}), &NONE, "strimzi.io/kind=KafkaConnect"),
        (json!({"preset": "strimzi"}), &name, "strimzi.io/kind=KafkaConnect,strimzi.io/cluster=my-connect"),
        (
            json!({"preset": "strimzi", "name": "{tenant}-connect"}),
            &NONE,
            "strimzi.io/kind=KafkaConnect,strimzi.io/cluster=acme-connect",
        ),
        (
            json!({"preset": "axual", "name": "{tenant}"}),
            &name,
            "app.kubernetes.io/name=axual-connect,app.kubernetes.io/instance=my-connect",
        ),
        (
            json!({"selector": "app=connect,team={tenant},stage in (a,{environment})"}),
            &NONE,
            "app=connect,team=acme,stage in (a,prod)",
        ),
    ] {
        let mut all = json!({"namespaces": ["connect-{tenant}", "connect-shared"], "container": "worker"});
        all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let sources = session(all).locate(settings.clone()).unwrap();
        let places: Vec<&str> = sources.iter().map(|s| s.namespace.as_str()).collect();
        assert_eq!(places, ["connect-acme", "connect-shared"]);
        assert!(sources.iter().all(|s| s.label_selector == selector), "{sources:?}");
        assert!(sources.iter().all(|s| s.container.as_deref() == Some("worker") && s.cluster.is_none()));
    }
}

#[test]
fn a_configuration_that_would_select_anything_is_refused() {
    for (config, said) in [
        (json!({"namespaces": [], "preset": "strimzi"}), "namespaces names none"),
        (json!({"namespaces": ["a"]}), "either preset"),
        (json!({"namespaces": ["a"], "selector": " "}), "either preset"),
        (json!({"namespaces": ["a"], "selector": "a=b", "preset": "axual"}), "either preset"),
        (json!({"namespaces": ["a"], "preset": "unknown"}), "unknown variant"),
        (json!({"namespaces": ["{tenant}-{environment}"], "preset": "axual"}), "add {hash}"),
    ] {
        let e = session(config).locate(NONE).unwrap_err();
        assert!(e.code == "invalid-config" && e.reason.contains(said), "{e:?}");
    }
    let e =
        session(json!({"namespaces": ["a"], "selector": "a=b"})).locate(json!({"name": "x"})).unwrap_err();
    assert_eq!(e.code, "unsupported-settings");
    let mut s = strimzi();
    s.application.tenant = None;
    assert_eq!(s.locate(NONE).unwrap_err().code, "tenant-required");
}

#[test]
fn workers_are_told_and_others_are_not() {
    let mut s = strimzi();
    let labels = json!({"strimzi.io/kind": "KafkaConnect", "strimzi.io/cluster": "a"});
    assert_eq!(s.inspect(json!({}), NONE).unwrap()["presence"], "Presence::Absent");
    pod("connect-acme", "a-1", labels.clone(), "False", 4);
    pod("connect-acme", "a-0", labels.clone(), "True", 0);
    pod("connect-acme", "broker", json!({"strimzi.io/kind": "Kafka"}), "True", 0);
    pod("connect-globex", "b-0", labels, "True", 0);
    let seen = s.inspect(json!({}), NONE).unwrap();
    let worker = |pod: &str, ready: bool, restarts: u32| json!({"namespace": "connect-acme", "pod": pod, "phase": "Running", "ready": ready, "restarts": restarts});
    let outputs = json!({"workers": [worker("a-0", true, 1), worker("a-1", false, 5)], "ready": 1});
    assert_eq!((&seen["presence"], &seen["outputs"]), (&json!("Presence::Present"), &outputs));
    assert_eq!(s.apply(Create, json!({}), NONE).unwrap(), outputs);
    assert_eq!(s.inspect(json!({"name": "b"}), NONE).unwrap()["presence"], "Presence::Absent");
}

#[test]
fn nothing_is_ever_changed() {
    let mut s = strimzi();
    for (action, settings) in
        [(Create, json!({})), (Update, json!({"name": "a"})), (Replace, json!({})), (Delete, NONE)]
    {
        let plan = s.plan(action, settings.clone(), NONE).unwrap();
        assert_eq!((&plan["action"], &plan["steps"]), (&json!("Action::NoOp"), &json!([])), "{action:?}");
        assert_eq!(plan["before"], plan["after"]);
        assert!(plan["warnings"].to_string().contains("only their logs are read"), "{plan}");
        s.apply(action, settings.clone(), NONE).unwrap();
        s.cancel(&[("main", action, settings, NONE)]).unwrap();
    }
    assert_eq!(world(|w| w.writes.clone()), Vec::<String>::new());
}

#[test]
fn what_is_not_granted_is_told() {
    let mut s = strimzi();
    world(|w| w.refused.insert("Pod".into()));
    assert_eq!(s.inspect(json!({}), NONE).unwrap_err().code, "not-granted");
    assert_eq!(s.apply(Create, json!({}), NONE).unwrap_err().code, "not-granted");
}

#[test]
fn settings_are_closed_and_outputs_are_of_a_moment() {
    let (settings, outputs, steps) = strimzi().described();
    assert_eq!((&settings["additionalProperties"], steps.len()), (&json!(false), 0));
    assert!(
        outputs["properties"]["workers"]["x-volatile"] == true
            && outputs["properties"]["ready"]["x-volatile"] == true
    );
}
