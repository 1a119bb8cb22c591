//! Whose the objects of a release are is told by a watch, and each write makes sure of it.

use std::time::Duration;

use serde_json::{Value, json};
use sutler_helm::Error;
use sutler_testkit::cluster::Fault;

use crate::support::{World, config_map, done};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn objects(value: &str) -> Vec<Value> {
    NAMES.iter().map(|name| config_map(name, value)).collect()
}

async fn upgrade(w: &World, value: &str) -> Result<(), Error> {
    w.renders(&objects(value));
    w.upgrade().await.map(|outcome| drop(done(outcome)))
}

fn value(w: &World, name: &str) -> Value {
    w.cluster.object("ConfigMap", "ns", name).unwrap()["data"]["key"].clone()
}

fn asked(w: &World, method: &str, part: &str) -> usize {
    let requests = w.cluster.requests();
    requests.iter().filter(|r| r.method == method && format!("{}?{}", r.path, r.query).contains(part)).count()
}

#[tokio::test]
async fn objects_are_not_asked_for_one_by_one() {
    let w = World::start().await;
    upgrade(&w, "1").await.unwrap();
    for (round, x) in [(1, "2"), (2, "3"), (3, "4")] {
        w.cluster.forget_requests();
        upgrade(&w, x).await.unwrap();
        assert_eq!(asked(&w, "GET", "/configmaps/"), 0, "round {round}");
        assert_eq!(asked(&w, "PATCH", "/configmaps/"), 3, "round {round}");
        assert_eq!(NAMES.map(|name| value(&w, name)), [x, x, x]);
        // Until the watch has told of it a write would have to look twice.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn a_watch_that_is_behind_leads_to_no_wrong_write() {
    let w = World::start().await;
    upgrade(&w, "1").await.unwrap();
    // Told once, and never again.
    w.cluster.fail_next_matching("watch=", Fault::Hold);
    upgrade(&w, "2").await.unwrap();
    upgrade(&w, "3").await.unwrap();
    assert_eq!(NAMES.map(|name| value(&w, name)), ["3", "3", "3"], "its own writes are behind too");

    let mut taken = w.cluster.object("ConfigMap", "ns", "b").unwrap();
    taken["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("other");
    w.cluster.seed(taken);
    let e = upgrade(&w, "4").await.unwrap_err();
    assert!(
        matches!(&e, Error::NotOwned(m) if m.contains("ConfigMap \"b\"") && m.contains("other")),
        "{e:?}"
    );
    assert_eq!(value(&w, "b"), "3");
    w.delete("/api/v1/namespaces/ns/configmaps/b").await;
    upgrade(&w, "5").await.unwrap();
    assert_eq!(NAMES.map(|name| value(&w, name)), ["5", "5", "5"], "what is gone is made again");
}

#[tokio::test]
async fn without_leave_to_watch_each_is_asked_for() {
    let w = World::start().await;
    w.cluster.deny("watch", "configmaps");
    w.cluster.deny("list", "configmaps");
    upgrade(&w, "1").await.unwrap();
    w.cluster.forget_requests();
    upgrade(&w, "2").await.unwrap();
    assert_eq!(NAMES.map(|name| value(&w, name)), ["2", "2", "2"]);
    assert_eq!(asked(&w, "GET", "/configmaps/"), 3);
}
