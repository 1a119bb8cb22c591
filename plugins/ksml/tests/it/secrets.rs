//! What runs keeps its Secret until what comes after it is ready.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Delete, Update};
use sutler_sdk::helm::Health;
use sutler_sdk::testing::{Session, world};

use crate::{NONE, session, settings, with};

fn pem(key: &str) -> Value {
    with(
        settings(),
        json!({"kafka": {"security": {"type": "pem", "certificate": "C", "key": key, "ca": "A"}}}),
    )
}

/// The end of each Secret's name, and its key.
fn keys() -> Vec<(String, String)> {
    let key = |o: &Value| {
        let file = STANDARD.decode(o["data"]["keystore.pem"].as_str().unwrap_or_default()).unwrap();
        String::from_utf8(file).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    let end = |name: &str| name.split_once("-kafka").map(|(_, end)| format!("kafka{end}"));
    world(|w| w.objects.iter().filter_map(|(name, o)| Some((end(name)?, key(o)))).collect())
}

/// The end of the name of the Secret that the release mounts.
fn mounted() -> Option<String> {
    let values: Value = world(|w| serde_json::from_str(&w.releases.values().next()?.values).ok())?;
    let name = values.pointer("/volumes/0/secret/secretName")?.as_str()?.to_owned();
    Some(format!("kafka{}", name.split_once("-kafka")?.1))
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, key)| ((*name).to_owned(), (*key).to_owned())).collect()
}

fn refuse(verb: &str) {
    world(|w| w.refused.insert(verb.into()));
}

fn started(key: &str) -> Session<ksml::Ksml> {
    let mut s = session();
    s.apply(Create, pem(key), NONE).unwrap();
    s
}

#[test]
fn an_update_that_is_refused_leaves_the_secret_of_what_runs() {
    for next in [pem("two"), settings()] {
        let mut s = started("one");
        refuse("upgrade");
        s.apply(Update, next.clone(), pem("one")).unwrap_err();
        assert_eq!(mounted().as_deref(), Some("kafka"));
        assert!(keys().contains(&("kafka".into(), "one".into())), "{:?}", keys());
        // Taken back, there is nothing else left.
        s.cancel(&[("main", Update, next, pem("one"))]).unwrap();
        assert_eq!(keys(), pairs(&[("kafka", "one")]));
        assert_eq!(s.plan(Update, pem("one"), NONE).unwrap()["action"], "Action::NoOp");
    }
}

#[test]
fn an_update_that_never_is_ready_leaves_the_secret_of_what_ran() {
    let mut s = started("one");
    for (key, name, there) in [
        ("two", "kafka-2", &[("kafka", "one"), ("kafka-2", "two")][..]),
        ("three", "kafka-3", &[("kafka", "one"), ("kafka-2", "two"), ("kafka-3", "three")][..]),
    ] {
        world(|w| w.health.push_back(Health::Failed("CrashLoopBackOff".into())));
        s.apply(Update, pem(key), pem("one")).unwrap_err();
        assert_eq!((mounted().as_deref(), keys()), (Some(name), pairs(there)));
    }
    // One that is there already is taken.
    let before = world(|w| w.writes.len());
    s.apply(Update, pem("one"), pem("three")).unwrap();
    assert_eq!((mounted().as_deref(), keys()), (Some("kafka"), pairs(&[("kafka", "one")])));
    let again = world(|w| w.writes.iter().skip(before).any(|w| w.starts_with("apply Secret")));
    assert!(!again, "an equal Secret was written again");
}

#[test]
fn what_became_ready_has_one_secret() {
    let mut s = started("one");
    s.apply(Update, pem("two"), pem("one")).unwrap();
    assert_eq!((mounted().as_deref(), keys()), (Some("kafka-2"), pairs(&[("kafka-2", "two")])));
    assert_eq!(s.plan(Update, pem("two"), NONE).unwrap()["action"], "Action::NoOp");
    assert_eq!(s.plan(Update, pem("one"), NONE).unwrap()["action"], "Action::Update");
    let seen = s.inspect(pem("one"), NONE).unwrap();
    assert_eq!(seen["differences"][0]["at"], "/kafka/security/key");
    s.apply(Delete, NONE, pem("two")).unwrap();
    assert!(world(|w| w.objects.is_empty()));
}

#[test]
fn equal_secrets_are_no_new_revision_however_they_came_there() {
    let mut s = started("one");
    s.apply(Update, pem("two"), pem("one")).unwrap();
    // As a cancelled update leaves it: the same contents, written anew.
    world(|w| {
        for (name, object) in &mut w.objects {
            if name.ends_with("-kafka-2") {
                object["metadata"]["resourceVersion"] = json!("999");
            }
        }
    });
    assert_eq!(s.apply(Update, pem("two"), pem("two")).unwrap()["revision"], 2);
}

#[test]
fn a_stop_that_fails_leaves_the_secret_of_what_runs() {
    let mut s = started("one");
    let still = with(pem("two"), json!({"running": false}));
    refuse("uninstall");
    s.apply(Update, still.clone(), pem("one")).unwrap_err();
    assert!(keys().contains(&("kafka".into(), "one".into())), "{:?}", keys());
    s.cancel(&[("main", Update, still.clone(), pem("one"))]).unwrap();
    assert_eq!(keys(), pairs(&[("kafka", "one")]));
    world(|w| w.refused.clear());
    s.apply(Update, still.clone(), pem("one")).unwrap();
    assert_eq!(keys(), pairs(&[("kafka-2", "two")]), "it is compared with while nothing runs");
    assert_eq!(s.plan(Update, still.clone(), NONE).unwrap()["action"], "Action::NoOp");
    // A start that is refused leaves it stopped, and one that is not takes the Secret that is there.
    refuse("upgrade");
    s.apply(Update, pem("two"), still.clone()).unwrap_err();
    assert_eq!(s.inspect(still.clone(), NONE).unwrap()["outputs"]["phase"], "Stopped");
    world(|w| w.refused.clear());
    s.apply(Update, pem("two"), still).unwrap();
    assert_eq!((mounted().as_deref(), keys()), (Some("kafka-2"), pairs(&[("kafka-2", "two")])));
    assert!(!world(|w| w.objects.keys().any(|name| name.ends_with("-stopped"))));
}

#[test]
fn what_an_earlier_version_stopped_is_read() {
    let mut s = session();
    let still = with(pem("one"), json!({"running": false}));
    s.apply(Create, still.clone(), NONE).unwrap();
    let mut sent = still.clone();
    sent["kafka"]["security"].as_object_mut().unwrap().remove("key");
    world(|w| {
        let record = w.objects.iter_mut().find(|(name, _)| name.ends_with("-stopped")).unwrap().1;
        record["data"] = json!({"settings.json": STANDARD.encode(sent.to_string())});
    });
    assert_eq!(s.plan(Update, still, NONE).unwrap()["action"], "Action::NoOp");
}
