//! A cluster that fails: what the caller hears.

use serde_json::json;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::SampleRequest;

use crate::support::{GRANTS, Wanted};

#[tokio::test]
async fn a_cluster_that_fails_is_a_failure_with_its_reason() {
    let world = Wanted::new().plugin("namespace").config(GRANTS).start().await;
    let body =
        SampleRequest::new("target/kubernetes-namespace").create(json!({"labels": {"team": "a"}})).body();
    for (fault, code, retryable) in [
        (Fault::Forbidden, "forbidden", false),
        (Fault::Status(500), "unavailable", true),
        (Fault::Status(429), "unavailable", true),
        (Fault::Drop, "unavailable", true),
    ] {
        let what = format!("{fault:?}");
        // What may pass is asked again a few times.
        for _ in 0..if retryable { 4 } else { 1 } {
            world.cluster.fail_next_matching("namespaces", fault);
        }
        let answer = world.post("/plan", &body).await.json;
        assert_eq!(answer["outcome"], "failed", "{what}: {answer}");
        assert_eq!(
            (answer["code"].as_str(), &answer["retryable"]),
            (Some(code), &json!(retryable)),
            "{what}: {answer}"
        );
    }
    let applied = world.post("/apply", &body).await.json;
    assert_eq!(applied["outcome"], "succeeded", "{applied}");
}

#[tokio::test]
async fn a_cluster_that_is_away_is_no_fault_of_the_plugin() {
    let config = format!("{GRANTS}\n[plugins.namespace.limits]\nwall-seconds = 20\n");
    let world = Wanted::new().plugin("namespace").config(&config).start().await;
    let body = SampleRequest::new("target/kubernetes-namespace").create(json!({})).body();
    drop(world.cluster);
    let api = sutler_testkit::http::Caller::new(&world.host.url);
    let answer = api.post("/plan", &body).await.json;
    assert_eq!(
        (answer["outcome"].as_str(), &answer["retryable"]),
        (Some("failed"), &json!(true)),
        "{answer}"
    );
    assert_eq!(api.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn what_somebody_else_made_is_left_alone() {
    let world = Wanted::new().plugin("namespace").config(GRANTS).start().await;
    world.cluster.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs", "labels": {"team": "b"}}}));
    let body = SampleRequest::new("target/kubernetes-namespace")
        .create(json!({"name": "theirs", "labels": {"team": "a"}}))
        .body();
    let answer = world.post("/apply", &body).await.json;
    assert_eq!(
        (answer["outcome"].as_str(), answer["code"].as_str()),
        (Some("failed"), Some("not-granted")),
        "{answer}"
    );
    let now = world.cluster.objects().into_iter().find(|o| o["metadata"]["name"] == "theirs").unwrap();
    assert_eq!(now["metadata"]["labels"], json!({"team": "b"}));
}

/// Nobody holds a field: another write came at the same time.
#[tokio::test]
async fn a_conflict_with_nobody_is_tried_again_and_says_so() {
    let operations = "\n[operations]\nattempts = 2\nfirst-backoff-milliseconds = 10\n";
    let world = Wanted::new().plugin("namespace").config(&format!("{GRANTS}{operations}")).start().await;
    let body = SampleRequest::new("target/kubernetes-namespace").create(json!({})).body();
    for (times, outcome) in [(1, "succeeded"), (2, "failed")] {
        for _ in 0..times {
            world.cluster.fail_next_matching("PATCH", Fault::Status(409));
        }
        let answer = world.post("/apply", &body).await.json;
        assert_eq!(answer["outcome"], outcome, "{answer}");
        if outcome == "failed" {
            assert_eq!(
                (&answer["code"], &answer["retryable"]),
                (&json!("conflict"), &json!(true)),
                "{answer}"
            );
            assert!(answer["reason"].as_str().unwrap().contains("changed meanwhile"), "{answer}");
        }
    }
}
