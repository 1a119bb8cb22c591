//! What a test can make go wrong.

use std::time::{Duration, Instant};

use serde_json::json;
use sutler_testkit::cluster::Fault;

use super::*;

#[tokio::test]
async fn the_next_request_meets_the_fault_and_the_one_after_does_not() {
    let (emulator, caller) = cluster().await;
    emulator.fail_next(Fault::Status(503));
    let failed = caller.get(CONFIG_MAPS).await;
    assert_eq!((failed.status, &failed.json["reason"]), (503, &json!("ServiceUnavailable")));
    assert_eq!(failed.headers["retry-after"], "1");
    assert_eq!(caller.get(CONFIG_MAPS).await.status, 200);

    emulator.fail_next(Fault::Forbidden);
    assert_eq!(caller.get(CONFIG_MAPS).await.json["reason"], "Forbidden");

    emulator.fail_next(Fault::Delay(Duration::from_millis(200)));
    let start = Instant::now();
    assert_eq!(caller.get(CONFIG_MAPS).await.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_dropped_connection_has_no_answer() {
    let (emulator, caller) = cluster().await;
    emulator.fail_next_matching("PATCH", Fault::Drop);
    assert_eq!(caller.get(CONFIG_MAPS).await.status, 200);
    let url = format!("{}{CONFIG_MAPS}/a", emulator.url());
    let lost = sutler_testkit::http::client().patch(url).body("{}").send().await;
    assert!(lost.is_err_and(|e| !e.is_timeout()));
    assert_eq!(caller.get(CONFIG_MAPS).await.status, 200);
}

#[tokio::test]
async fn requests_are_remembered() {
    let (emulator, caller) = cluster().await;
    caller.clone().with_token("t").get("/version").await;
    apply(&caller, "configmaps", &config_map("a", &json!({"x": "1"})), "fieldManager=one&dryRun=All").await;
    apply(&caller, "configmaps", &config_map("a", &json!({"x": "1"})), "fieldManager=one").await;
    let seen = emulator.requests();
    assert_eq!(seen.iter().map(|r| r.writes()).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((seen[0].authorization.as_str(), &seen[2].body["data"]["x"]), ("Bearer t", &json!("1")));
    emulator.forget_requests();
    assert!(emulator.requests().is_empty());
}

#[tokio::test]
async fn the_server_ends_with_its_handle() {
    let (emulator, caller) = cluster().await;
    assert_eq!(caller.get("/readyz").await.text, "ok");
    let url = emulator.url();
    drop(emulator);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(sutler_testkit::http::client().get(url).send().await.is_err());
}

#[tokio::test]
async fn the_kubeconfig_leads_to_it() {
    let (emulator, _) = cluster().await;
    let config: serde_json::Value = serde_saphyr::from_str(&emulator.kubeconfig()).unwrap();
    assert_eq!(config["clusters"][0]["cluster"]["server"], emulator.url());
    assert_eq!(config["contexts"][0]["name"], config["current-context"]);
}
