//! Server-side apply over HTTP.

use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_conflict_names_the_manager_and_the_field_and_force_takes_it() {
    let (_emulator, caller) = cluster().await;
    let one = config_map("a", &json!({"size": "1"}));
    assert_eq!(apply(&caller, "configmaps", &one, "fieldManager=one").await.status, 201);
    let two = config_map("a", &json!({"size": "2"}));
    let refused = apply(&caller, "configmaps", &two, "fieldManager=two").await;
    assert_eq!((refused.status, &refused.json["reason"]), (409, &json!("Conflict")));
    let cause = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.size"}]);
    assert_eq!(refused.json["details"]["causes"], cause);
    let forced = apply(&caller, "configmaps", &two, "fieldManager=two&force=true").await;
    assert_eq!((forced.status, &forced.json["data"]["size"]), (200, &json!("2")));
    let managers: Vec<&Value> =
        forced.json["metadata"]["managedFields"].as_array().unwrap().iter().map(|m| &m["manager"]).collect();
    assert_eq!(managers, [&json!("two")]);
}

#[tokio::test]
async fn a_conflict_with_an_update_says_so() {
    let (_emulator, caller) = cluster().await;
    caller.post(&format!("{CONFIG_MAPS}?fieldManager=edit"), &config_map("a", &json!({"size": "1"}))).await;
    let refused =
        apply(&caller, "configmaps", &config_map("a", &json!({"size": "2"})), "fieldManager=two").await;
    assert_eq!(refused.json["details"]["causes"][0]["message"], "conflict with \"edit\" using v1");
}

#[tokio::test]
async fn the_same_again_makes_no_new_version_and_a_dropped_field_goes() {
    let (emulator, caller) = cluster().await;
    let both = config_map("a", &json!({"x": "1", "y": "2"}));
    apply(&caller, "configmaps", &both, "fieldManager=one").await;
    let version = emulator.resource_version();
    assert_eq!(apply(&caller, "configmaps", &both, "fieldManager=one").await.status, 200);
    assert_eq!(emulator.resource_version(), version);
    let less = apply(&caller, "configmaps", &config_map("a", &json!({"x": "1"})), "fieldManager=one").await;
    assert_eq!(less.json["data"], json!({"x": "1"}));
    assert!(emulator.resource_version() > version);
}

#[tokio::test]
async fn a_dry_run_answers_and_stores_nothing() {
    let (emulator, caller) = cluster().await;
    let version = emulator.resource_version();
    let object = config_map("a", &json!({"x": "1"}));
    let tried = apply(&caller, "configmaps", &object, "fieldManager=one&dryRun=All").await;
    assert_eq!((tried.status, &tried.json["data"]["x"]), (201, &json!("1")));
    assert_eq!(emulator.resource_version(), version);
    assert_eq!(caller.get(&format!("{CONFIG_MAPS}/a")).await.status, 404);

    apply(&caller, "configmaps", &object, "fieldManager=one").await;
    let other = config_map("a", &json!({"x": "2"}));
    let tried = apply(&caller, "configmaps", &other, "fieldManager=one&dryRun=All").await;
    assert_eq!((tried.status, &tried.json["data"]["x"]), (200, &json!("2")));
    let refused = apply(&caller, "configmaps", &other, "fieldManager=two&dryRun=All").await;
    assert_eq!(refused.status, 409);
    assert_eq!(caller.get(&format!("{CONFIG_MAPS}/a")).await.json["data"]["x"], "1");
    let dropped = caller.send(Method::DELETE, &format!("{CONFIG_MAPS}/a?dryRun=All"), "", None).await;
    assert_eq!(dropped.status, 200);
    assert_eq!(caller.get(&format!("{CONFIG_MAPS}/a")).await.status, 200);
}

#[tokio::test]
async fn an_apply_may_be_yaml_and_must_have_a_manager_and_the_right_name() {
    let (_emulator, caller) = cluster().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"1\"\n";
    let send = async |query: &str, name: &str, body: &str| {
        let path = format!("{CONFIG_MAPS}/{name}{query}");
        caller.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(body.into())).await
    };
    assert_eq!(send("?fieldManager=one", "a", yaml).await.json["data"]["x"], "1");
    assert_eq!(send("", "a", yaml).await.status, 422);
    assert_eq!(send("?fieldManager=one", "b", yaml).await.status, 400);
    assert_eq!(send("?fieldManager=one", "a", "}{").await.status, 400);
    let managed = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{"manager":"x"}]}}"#;
    assert_eq!(send("?fieldManager=one", "a", managed).await.status, 400);
}

#[tokio::test]
async fn an_apply_of_an_identity_that_is_gone_makes_nothing() {
    let (_emulator, caller) = cluster().await;
    let mut object = config_map("a", &json!({}));
    object["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    assert_eq!(apply(&caller, "configmaps", &object, "fieldManager=one").await.status, 409);
    assert_eq!(caller.get(&format!("{CONFIG_MAPS}/a")).await.status, 404);
}

#[tokio::test]
async fn managed_fields_can_be_handed_over() {
    // As Helm does when it goes from client-side to server-side apply.
    let (_emulator, caller) = cluster().await;
    caller
        .post(&format!("{CONFIG_MAPS}?fieldManager=helm"), &config_map("a", &json!({"x": "1", "y": "2"})))
        .await;
    let live = caller.get(&format!("{CONFIG_MAPS}/a")).await.json;
    assert_eq!(live["metadata"]["managedFields"][0]["operation"], "Update");
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Apply"},
    ]);
    let path = format!("{CONFIG_MAPS}/a");
    let patched =
        caller.send(Method::PATCH, &path, "application/json-patch+json", Some(patch.to_string())).await;
    assert_eq!(patched.json["metadata"]["managedFields"][0]["operation"], "Apply", "{}", patched.text);
    let less = apply(&caller, "configmaps", &config_map("a", &json!({"x": "1"})), "fieldManager=helm").await;
    assert_eq!(less.json["data"], json!({"x": "1"}));
}
