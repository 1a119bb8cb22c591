//! The namespace plugin against a world in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use namespace::Namespace;
use sutler_sdk::Action::{Create, Delete, NoOp, Update};
use sutler_sdk::prelude::*;
use sutler_sdk::testing::{Session, reset, world};

fn session() -> Session<Namespace> {
    reset(json!({"name": "app-{application}"}));
    Session::new("orders", "prod", Some("acme"))
}
const NONE: Value = Value::Null;

#[test]
fn it_comes_stays_changes_and_goes() {
    let mut s = session();
    let small = json!({"labels": {"team": "a"}});
    let plan = s.plan(Create, small.clone(), NONE).unwrap();
    assert_eq!((&plan["action"], &plan["before"], &plan["after"]), (&json!("Action::Create"), &NONE, &small));
    let made = s.apply(Create, small.clone(), NONE).unwrap();
    assert_eq!(made, json!({"name": "app-orders", "uid": "uid-1"}));
    assert_eq!(s.apply(Create, small.clone(), NONE).unwrap(), made, "repeated");
    assert_eq!(s.plan(Update, small.clone(), small.clone()).unwrap()["action"], "Action::NoOp");
    let plan = s.plan(Update, json!({"labels": {"team": "b"}}), small.clone()).unwrap();
    assert_eq!((&plan["action"], &plan["before"]), (&json!("Action::Update"), &small));
    s.apply(Delete, NONE, small.clone()).unwrap();
    assert_eq!(s.apply(Delete, NONE, small.clone()).unwrap(), json!({}), "gone already");
    assert_eq!(s.inspect(small, NONE).unwrap()["presence"], "Presence::Absent");
    let _ = NoOp;
}

#[test]
fn inspect_tells_a_label_that_somebody_changed() {
    let mut s = session();
    let settings = json!({"labels": {"team": "a"}});
    s.apply(Create, settings.clone(), NONE).unwrap();
    assert_eq!(s.inspect(settings.clone(), NONE).unwrap()["settings"], settings);
    world(|w| {
        let labels = &mut w.objects.get_mut("Namespace /app-orders").unwrap()["metadata"]["labels"];
        labels["team"] = json!("mallory");
        labels["kubernetes.io/metadata.name"] = json!("app-orders");
    });
    assert_eq!(s.inspect(settings, NONE).unwrap()["settings"], json!({"labels": {"team": "mallory"}}));
}

#[test]
fn another_name_is_a_replacement() {
    let mut s = session();
    let one = json!({"name": "one"});
    s.apply(Create, one.clone(), NONE).unwrap();
    let plan = s.plan(Update, json!({"name": "two"}), one.clone()).unwrap();
    assert_eq!((&plan["action"], &plan["replaceBecause"]), (&json!("Action::Replace"), &json!(["/name"])));
    s.apply(Action::Replace, json!({"name": "two"}), one).unwrap();
    assert_eq!(world(|w| w.objects.keys().cloned().collect::<Vec<_>>()), ["Namespace /two"]);
}

#[test]
fn a_plan_writes_nothing_and_a_missing_grant_is_told() {
    let s = session();
    s.plan(Create, json!({}), NONE).unwrap();
    assert_eq!(world(|w| w.writes.clone()), Vec::<String>::new());
    world(|w| w.refused.insert("Namespace".into()));
    assert_eq!(s.plan(Create, json!({}), NONE).unwrap_err().code, "not-granted");
}
