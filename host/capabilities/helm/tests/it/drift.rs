//! Drift, previews and readiness.

use serde_json::{Value, json};
use sutler_helm::{Health, Options};
use sutler_model::Mode;
use sutler_testkit::cluster::Readiness;

use crate::support::{World, call, config_map, deployment, of};

fn edit(w: &World, kind: &str, name: &str, change: impl FnOnce(&mut Value)) {
    let mut live = w.cluster.object(kind, "ns", name).unwrap();
    change(&mut live);
    w.cluster.seed(live);
}

async fn drift(w: &World) -> Value {
    w.helm.drift(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap()
}

#[tokio::test]
async fn what_drifted() {
    let w = World::start().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    w.installed(&[config_map("a", "1"), config_map("b", "1"), deployment("d", 1), secret]).await;
    assert_eq!(drift(&w).await, json!([]), "what the server adds does not count");

    edit(&w, "ConfigMap", "a", |o| o["data"]["key"] = json!("edited"));
    edit(&w, "Deployment", "d", |o| o["spec"]["replicas"] = json!(7));
    edit(&w, "Secret", "s", |o| o["data"]["password"] = json!("b3RoZXI="));
    edit(&w, "ConfigMap", "b", |o| {
        o["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("other")
    });
    w.cluster.forget_requests();
    let found = drift(&w).await;
    assert_eq!(w.writes(), Vec::<String>::new());
    let entry =
        |kind: &str| found.as_array().unwrap().iter().find(|e| e["object"]["kind"] == kind).unwrap().clone();
    assert_eq!(
        entry("ConfigMap"),
        json!({
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "a"},
            "field": "/data/key", "expected": "1", "actual": "edited", "class": "drift",
        })
    );
    assert_eq!(
        (entry("Deployment")["field"].clone(), entry("Deployment")["actual"].clone()),
        (json!("/spec/replicas"), json!(7))
    );
    assert!(!found.to_string().contains("hunter2") && !found.to_string().contains("b3RoZXI"), "{found}");
    assert_eq!(entry("Secret")["field"], "/data/password");
    let taken = found.as_array().unwrap().iter().find(|e| e["object"]["name"] == "b").unwrap();
    assert_eq!(taken["class"], "foreign-owner");
}

#[tokio::test]
async fn what_is_missing() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    // Deleted behind Helm's back.
    w.delete("/api/v1/namespaces/ns/configmaps/a").await;
    assert_eq!(drift(&w).await[0]["class"], "missing");
}

#[tokio::test]
async fn without_leave_for_dry_runs() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1"), deployment("d", 1)]).await;
    w.cluster.deny("patch", "*");
    assert_eq!(drift(&w).await, json!([]));
    edit(&w, "ConfigMap", "a", |o| o["data"]["key"] = json!("edited"));
    assert_eq!(drift(&w).await[0]["field"], "/data/key");
}

#[tokio::test]
async fn what_an_upgrade_would_change() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1")]);
    let preview = async || {
        w.cluster.forget_requests();
        let got = w
            .helm
            .preview(&call(Mode::Plan), &w.grants, &w.chart, &of("app"), "{}", Options::default())
            .await
            .unwrap();
        assert_eq!(w.writes(), Vec::<String>::new(), "a preview writes nothing");
        got
    };
    let first = preview().await;
    assert_eq!((&first["install"], &first["revision"]), (&json!(true), &json!(1)));
    assert_eq!(first["objects"][0]["action"], "create");

    w.installed(&[config_map("a", "1"), config_map("b", "1"), config_map("c", "1")]).await;
    edit(&w, "ConfigMap", "c", |o| o["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep"));
    w.renders(&[config_map("a", "2"), config_map("new", "1")]);
    let second = preview().await;
    assert_eq!(second["install"], false);
    let actions: Vec<String> = second["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| format!("{} {}", o["action"].as_str().unwrap(), o["object"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(actions, ["update a", "create new", "delete b", "keep c"]);
    assert_eq!(second["objects"][0]["fields"], json!([{"field": "/data/key", "before": "1", "after": "2"}]));
    assert_eq!(preview().await, second, "twice the same");
}

#[tokio::test]
async fn readiness_of_a_release() {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Never);
    w.installed(&[config_map("a", "1"), deployment("d", 1)]).await;
    let ask = async || w.helm.readiness(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap();
    let waiting = ask().await;
    assert!(
        matches!(&waiting, Health::Progressing(m) if m.contains("Deployment \"d\" in namespace \"ns\"")),
        "{waiting:?}"
    );
    w.cluster.set_readiness(Readiness::Failing);
    assert!(matches!(ask().await, Health::Failed(_)));
    w.cluster.set_readiness(Readiness::Instant);
    assert_eq!(ask().await, Health::Ready);
}
