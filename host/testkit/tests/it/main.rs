#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod cluster_apply;
mod cluster_faults;
mod cluster_logs;
mod cluster_objects;
mod cluster_watch;
mod control_plane;
mod registry;

use http::Method;
use serde_json::{Value, json};
use sutler_testkit::cluster::Emulator;
use sutler_testkit::http::{Answered, Caller};

/// The emulator and a caller of it.
async fn cluster() -> (Emulator, Caller) {
    let emulator = Emulator::start().await;
    let caller = Caller::new(emulator.url());
    (emulator, caller)
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

fn deployment(name: &str, replicas: u64) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}},
        },
    })
}

/// Server-side apply of an object of a kind with this plural.
async fn apply(caller: &Caller, plural: &str, object: &Value, query: &str) -> Answered {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let name = object["metadata"]["name"].as_str().unwrap();
    let path = format!("/{root}/{version}/namespaces/default/{plural}/{name}?{query}");
    caller.send(Method::PATCH, &path, "application/apply-patch+yaml", Some(object.to_string())).await
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect()
}

/// A GET whose answer is read piece by piece.
async fn fetch(url: impl reqwest::IntoUrl) -> reqwest::Response {
    sutler_testkit::http::client().get(url).send().await.unwrap()
}
