//! Logs of pods.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::*;

/// An emulator with one pod `web`'s deployment and its pod's name.
async fn with_pod() -> (Emulator, Caller, String) {
    let (emulator, caller) = cluster().await;
    apply(&caller, "deployments", &deployment("web", 1), "fieldManager=one").await;
    let pods = caller.get(PODS).await.json;
    let name = names(&pods)[0].to_owned();
    (emulator, caller, name)
}

/// The next piece of a stream.
async fn piece(stream: &mut reqwest::Response) -> Option<String> {
    let piece =
        tokio::time::timeout(Duration::from_secs(5), stream.chunk()).await.expect("a piece in time").unwrap();
    piece.map(|p| String::from_utf8(p.to_vec()).unwrap())
}

#[tokio::test]
async fn logs_are_cut_to_the_options() {
    let (_emulator, caller, pod) = with_pod().await;
    let log = async |query: &str| caller.get(&format!("{PODS}/{pod}/log?{query}")).await;
    assert_eq!(log("").await.text.lines().count(), 10);
    let two = log("tailLines=2&container=main").await.text;
    assert_eq!(two, "main says line 8\nmain says line 9\n");
    let stamped = log("tailLines=1&timestamps=true").await.text;
    let time = DateTime::parse_from_rfc3339(stamped.split(' ').next().unwrap()).unwrap();
    assert!(stamped.ends_with(" main says line 9\n"));
    let since = time.to_utc().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true);
    assert_eq!(log(&format!("sinceTime={since}")).await.text, "main says line 9\n");
    assert_eq!(log("sinceSeconds=0").await.text, "");
    assert_eq!(log("limitBytes=5").await.text, "main ");
    assert_eq!(log(&format!("sinceTime={since}&sinceSeconds=1")).await.status, 422);
    assert_eq!(log("container=other").await.status, 400);
    assert_eq!(log("previous=true").await.status, 400);
    assert_eq!(caller.get(&format!("{PODS}/nobody/log")).await.status, 404);
}

#[tokio::test]
async fn a_container_must_be_named_where_there_are_several() {
    let (emulator, caller) = cluster().await;
    emulator.seed(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
    }));
    let refused = caller.get(&format!("{PODS}/p/log")).await;
    assert_eq!(refused.json["message"], "a container name must be specified for pod p, choose one of: [a b]");
    assert_eq!(caller.get(&format!("{PODS}/p/log?container=b&tailLines=1")).await.text, "b says line 9\n");
}

#[tokio::test]
async fn a_followed_log_grows_until_the_pod_goes() {
    let (emulator, caller, pod) = with_pod().await;
    let url = format!("{}{PODS}/{pod}/log?follow=true&tailLines=1", emulator.url());
    let mut stream = fetch(url).await;
    assert_eq!(piece(&mut stream).await.unwrap(), "main says line 9\n");
    assert!(piece(&mut stream).await.unwrap().starts_with("tick 10"));
    assert!(piece(&mut stream).await.unwrap().starts_with("tick 11"));
    emulator.quiet_logs();
    emulator.write_log("default", &pod, "main", "written by the test");
    let mut text = String::new();
    while !text.ends_with("written by the test\n") {
        text.push_str(&piece(&mut stream).await.unwrap());
    }
    // What was followed is what is there to read.
    let all = caller.get(&format!("{PODS}/{pod}/log")).await.text;
    assert!(all.contains("tick 11\n") && all.ends_with("written by the test\n"));
    caller.send(Method::DELETE, &format!("{PODS}/{pod}"), "", None).await;
    assert_eq!(piece(&mut stream).await, None);
}

#[tokio::test]
async fn a_followed_log_can_be_cut_rotated_and_restarted() {
    let (emulator, caller, pod) = with_pod().await;
    emulator.quiet_logs();
    let url = format!("{}{PODS}/{pod}/log?follow=true&tailLines=0", emulator.url());
    let mut stream = fetch(&url).await;
    emulator.cut_logs();
    assert!(
        tokio::time::timeout(Duration::from_secs(5), stream.chunk()).await.unwrap().is_err(),
        "a broken stream"
    );

    let mut stream = fetch(&url).await;
    let time = Utc::now() + TimeDelta::seconds(1);
    emulator.write_log_at("default", &pod, "main", time, "one");
    emulator.write_log_at("default", &pod, "main", time, "two");
    let mut text = String::new();
    while text.lines().count() < 2 {
        text.push_str(&piece(&mut stream).await.unwrap());
    }
    assert_eq!(text, "one\ntwo\n");
    emulator.rotate_log("default", &pod, "main");
    assert_eq!(caller.get(&format!("{PODS}/{pod}/log")).await.text, "");
    emulator.write_log("default", &pod, "main", "after");
    assert_eq!(piece(&mut stream).await.unwrap(), "after\n");

    emulator.restart_container("default", &pod, "main");
    assert_eq!(piece(&mut stream).await, None);
    assert_eq!(caller.get(&format!("{PODS}/{pod}/log?previous=true")).await.text, "after\n");
    let status = caller.get(&format!("{PODS}/{pod}")).await.json;
    assert_eq!(status["status"]["containerStatuses"][0]["restartCount"], 1);
}
