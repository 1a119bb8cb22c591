//! Streams of changes.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// Reads lines of JSON until there are `count`.
async fn events(response: &mut reqwest::Response, count: usize) -> Vec<Value> {
    let mut text = String::new();
    while text.lines().count() < count || !text.ends_with('\n') {
        let piece =
            tokio::time::timeout(Duration::from_secs(5), response.chunk()).await.expect("an event in time");
        text.push_str(std::str::from_utf8(&piece.unwrap().expect("an open stream")).unwrap());
    }
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn summary(events: &[Value]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|e| (e["type"].as_str().unwrap(), e["object"]["metadata"]["name"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_watch_tells_what_changes_after_a_version() {
    let (emulator, caller) = cluster().await;
    caller.post(CONFIG_MAPS, &config_map("before", &json!({}))).await;
    let version = emulator.resource_version();
    caller.post(CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let url = format!("{}{CONFIG_MAPS}?watch=true&resourceVersion={version}", emulator.url());
    let mut stream = fetch(url).await;
    let first = events(&mut stream, 1).await;
    assert_eq!(summary(&first), [("ADDED", "a")]);
    apply(&caller, "configmaps", &config_map("a", &json!({"x": "1"})), "fieldManager=one").await;
    assert_eq!(summary(&events(&mut stream, 1).await), [("MODIFIED", "a")]);
    caller.send(Method::DELETE, &format!("{CONFIG_MAPS}/a"), "", None).await;
    assert_eq!(summary(&events(&mut stream, 1).await), [("DELETED", "a")]);
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_is_there() {
    let (emulator, caller) = cluster().await;
    caller.post(CONFIG_MAPS, &config_map("a", &json!({}))).await;
    let base = format!("{}{CONFIG_MAPS}?watch=true&timeoutSeconds=1", emulator.url());
    let mut stream = fetch(&base).await;
    assert_eq!(summary(&events(&mut stream, 1).await), [("ADDED", "a")]);
    assert_eq!(stream.chunk().await.unwrap(), None, "the time is over");
    let mut stream = fetch(format!("{base}&sendInitialEvents=true")).await;
    let initial = events(&mut stream, 2).await;
    assert_eq!(initial[1]["type"], "BOOKMARK");
    assert_eq!(initial[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn an_object_that_no_longer_fits_the_selector_is_deleted_from_the_watch() {
    let (emulator, caller) = cluster().await;
    let mut object = config_map("a", &json!({}));
    object["metadata"]["labels"] = json!({"in": "yes"});
    let url = format!("{}{CONFIG_MAPS}?watch=true&labelSelector=in%3Dyes", emulator.url());
    let mut stream = fetch(url).await;
    caller.post(CONFIG_MAPS, &config_map("other", &json!({}))).await;
    caller.post(CONFIG_MAPS, &object).await;
    assert_eq!(summary(&events(&mut stream, 1).await), [("ADDED", "a")]);
    let patch = json!({"metadata": {"labels": {"in": "no"}}}).to_string();
    caller
        .send(Method::PATCH, &format!("{CONFIG_MAPS}/a"), "application/merge-patch+json", Some(patch))
        .await;
    assert_eq!(summary(&events(&mut stream, 1).await), [("DELETED", "a")]);
}
