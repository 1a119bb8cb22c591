//! Stopped, started and deleted, with what the application has stored.

use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Delete, Update};
use sutler_sdk::testing::{Session, world};

use crate::{NONE, session, settings, with};

fn sasl(over: Value) -> Value {
    let security = json!({"type": "sasl", "username": "u", "password": "TOP-SECRET"});
    with(with(settings(), json!({"storeSize": "1Gi", "kafka": {"security": security}})), over)
}
fn stopped() -> Value {
    sasl(json!({"running": false}))
}
fn running() -> Value {
    sasl(json!({}))
}

/// What the StatefulSet's controller makes, and what is not of this application.
fn claims(release: &str) {
    let claim = |name: &str, of: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata":
            {"name": name, "namespace": "ksml-acme", "labels": {"app.kubernetes.io/instance": of}}})
    };
    world(|w| {
        for (name, of) in [
            (format!("ksml-store-{release}-0"), release),
            (format!("ksml-store-{release}-1"), release),
            ("store-other-0".into(), "other"),
            ("labelled-by-hand".into(), release),
        ] {
            w.objects.insert(format!("PersistentVolumeClaim ksml-acme/{name}"), claim(&name, of));
        }
    });
}

fn kinds(kind: &str) -> Vec<String> {
    world(|w| w.objects.keys().filter(|k| k.starts_with(kind)).cloned().collect())
}

fn release(s: &Session<ksml::Ksml>) -> String {
    s.inspect(NONE, NONE).unwrap()["outputs"]["release"].as_str().unwrap().to_owned()
}

#[test]
fn a_stopped_application_keeps_its_state_and_starts_again() {
    let mut s = session();
    s.apply(Create, running(), NONE).unwrap();
    let name = release(&s);
    claims(&name);
    let plan = s.plan(Update, stopped(), running()).unwrap();
    assert_eq!((&plan["action"], &plan["steps"]), (&json!("Action::Update"), &json!(["release"])));
    let made = s.apply(Update, stopped(), running()).unwrap();
    assert_eq!(
        (&made["phase"], &made["revision"], &made["replicas"]),
        (&json!("Stopped"), &json!(0), &json!(0))
    );
    assert!(world(|w| w.releases.is_empty()));
    assert_eq!(kinds("PersistentVolumeClaim").len(), 4, "the state stays");
    assert_eq!(s.apply(Update, stopped(), running()).unwrap(), made, "repeated");

    let again = s.plan(Update, stopped(), stopped()).unwrap();
    assert_eq!((&again["action"], &again["steps"]), (&json!("Action::NoOp"), &json!([])));
    let seen = s.inspect(stopped(), made.clone()).unwrap();
    assert_eq!((&seen["presence"], &seen["outputs"]), (&json!("Presence::Present"), &made));
    assert_eq!(seen["differences"], json!([]));
    assert!(!seen.to_string().contains("TOP-SECRET"));
    assert!(!world(|w| w
        .objects
        .iter()
        .any(|(k, v)| k.ends_with("-stopped") && v.to_string().contains("TOP-SECRET"))));

    let plan = s.plan(Update, running(), stopped()).unwrap();
    assert_eq!((&plan["action"], &plan["steps"]), (&json!("Action::Update"), &json!(["release", "ready"])));
    let made = s.apply(Update, running(), stopped()).unwrap();
    assert_eq!((&made["phase"], &made["revision"]), (&json!("Running"), &json!(1)));
    assert_eq!(kinds("Secret"), [format!("Secret ksml-acme/{name}-kafka")], "nothing tells of the stop");
    assert_eq!(s.plan(Update, running(), NONE).unwrap()["action"], "Action::NoOp");
}

#[test]
fn what_changes_while_it_is_stopped_is_remembered() {
    let mut s = session();
    s.apply(Create, running(), NONE).unwrap();
    s.apply(Update, stopped(), running()).unwrap();
    let larger = sasl(json!({"running": false, "size": "L"}));
    assert_eq!(s.plan(Update, larger.clone(), stopped()).unwrap()["action"], "Action::Update");
    s.apply(Update, larger.clone(), stopped()).unwrap();
    assert_eq!(s.plan(Update, larger, NONE).unwrap()["action"], "Action::NoOp");
    let other = sasl(json!({"running": false, "size": "L", "kafka": {"security": {"password": "OTHER"}}}));
    assert_eq!(s.plan(Update, other, NONE).unwrap()["action"], "Action::Update", "a secret as well");
    assert!(world(|w| w.releases.is_empty()), "nothing runs meanwhile");
}

#[test]
fn what_ksml_would_not_read_can_be_stopped_and_not_started() {
    let mut s = session();
    s.apply(Create, running(), NONE).unwrap();
    let broken = |on: bool| sasl(json!({"running": on, "definitions": {"main": "streams: ["}}));
    assert_eq!(s.apply(Update, broken(false), running()).unwrap()["phase"], "Stopped");
    for code in [
        s.plan(Update, broken(true), broken(false)).unwrap_err().code,
        s.apply(Update, broken(true), broken(false)).unwrap_err().code,
    ] {
        assert_eq!(code, "invalid-definition");
    }
}

#[test]
fn it_may_be_made_stopped() {
    let mut s = session();
    assert_eq!(s.plan(Create, stopped(), NONE).unwrap()["action"], "Action::Create");
    assert_eq!(s.apply(Create, stopped(), NONE).unwrap()["phase"], "Stopped");
    assert!(world(|w| w.releases.is_empty()));
    s.cancel(&[("main", Create, stopped(), NONE)]).unwrap();
    assert_eq!(s.inspect(stopped(), NONE).unwrap()["presence"], "Presence::Absent");
    assert!(world(|w| w.objects.is_empty()));
}

#[test]
fn what_is_deleted_takes_its_state_along_and_nothing_else() {
    for stop_first in [false, true] {
        let mut s = session();
        s.apply(Create, running(), NONE).unwrap();
        let name = release(&s);
        claims(&name);
        if stop_first {
            s.apply(Update, stopped(), running()).unwrap();
        }
        let plan = s.plan(Delete, NONE, running()).unwrap();
        let told = plan["warnings"].to_string();
        assert!(
            told.contains(&format!("ksml-store-{name}-0")) && !told.contains("labelled-by-hand"),
            "{told}"
        );
        s.apply(Delete, NONE, running()).unwrap();
        assert_eq!(
            kinds(""),
            [
                "PersistentVolumeClaim ksml-acme/labelled-by-hand",
                "PersistentVolumeClaim ksml-acme/store-other-0"
            ]
        );
        s.apply(Delete, NONE, running()).unwrap();
        let seen = s.inspect(running(), NONE).unwrap();
        assert_eq!(
            (&seen["presence"], &seen["outputs"]["phase"]),
            (&json!("Presence::Absent"), &json!("Undeployed"))
        );
    }
}

#[test]
fn without_a_grant_the_state_stays_and_the_plan_says_so() {
    let mut s = session();
    s.apply(Create, running(), NONE).unwrap();
    claims(&release(&s));
    world(|w| w.refused.insert("PersistentVolumeClaim".into()));
    let plan = s.plan(Delete, NONE, running()).unwrap();
    assert!(plan["warnings"].to_string().contains("claims of the state volumes stay"), "{plan}");
    s.apply(Delete, NONE, running()).unwrap();
    assert_eq!(kinds("PersistentVolumeClaim").len(), 4);
}

#[test]
fn a_stop_without_the_right_to_remember_it_stops_nothing() {
    let mut s = session();
    s.apply(Create, settings(), NONE).unwrap();
    world(|w| w.refused.insert("Secret".into()));
    let stop = with(settings(), json!({"running": false}));
    assert_eq!(s.apply(Update, stop, settings()).unwrap_err().code, "not-granted");
    assert_eq!(world(|w| w.releases.len()), 1);
}

#[test]
fn a_start_that_is_taken_back_is_a_stop_and_a_stop_cannot_be() {
    let mut s = session();
    s.apply(Create, running(), NONE).unwrap();
    s.apply(Update, stopped(), running()).unwrap();
    s.apply(Update, running(), stopped()).unwrap();
    s.cancel(&[("main", Update, running(), stopped())]).unwrap();
    let seen = s.inspect(stopped(), NONE).unwrap();
    assert_eq!((&seen["outputs"]["phase"], &seen["differences"]), (&json!("Stopped"), &json!([])));
    let e = s.cancel(&[("main", Update, stopped(), running())]).unwrap_err();
    assert_eq!(e.code, "cannot-cancel");
}
