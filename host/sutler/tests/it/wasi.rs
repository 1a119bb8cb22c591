//! WASI 0.2: linked with nothing in it, or refused.

use serde_json::{Value, json};
use sutler_testkit::http::SampleRequest;

use crate::support::Wanted;

#[tokio::test]
async fn there_is_nothing_in_wasi() {
    let world = Wanted::new().plugin("wasi").start().await;
    let body = SampleRequest::new("tool/wasi").create(json!({})).body();
    let answer = world.post("/plan", &body).await.json;
    assert_eq!(answer["code"], "looked", "{answer}");
    let found: Value = serde_json::from_str(answer["reason"].as_str().unwrap()).unwrap();
    for (what, nothing) in
        [("environment", json!(0)), ("arguments", json!(0)), ("folders", json!(0)), ("sockets", json!(false))]
    {
        assert_eq!(found[what], nothing, "{found}");
    }
    // 2026-01-01T00:00:00Z: clocks stand still in a plan, and random follows from the request.
    assert_eq!(found["seconds"], 1_767_225_600_u64);
    assert_eq!(answer["reason"], world.post("/plan", &body).await.json["reason"]);
    let printed = world.host.events("plugin-output");
    assert!(printed.iter().any(|e| e["message"] == "printed by the guest"), "{printed:?}");
}

#[tokio::test]
async fn the_operator_may_refuse_wasi() {
    let world = Wanted::new().plugin("wasi").config("[policy]\nwasi = \"none\"\n").start().await;
    let plugin = world.plugin("wasi").await;
    let reason = plugin["reason"].as_str().unwrap_or_default();
    assert_eq!(plugin["state"], "refused");
    assert!(reason.contains("wasi:") && reason.contains("[policy]"), "{reason}");
}
