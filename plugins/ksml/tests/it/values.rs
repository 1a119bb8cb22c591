//! The chart's values for settings of every kind.

use expect_test::expect_file;
use ksml::config::Config;
use ksml::values::{Input, of};
use serde_json::{Value, json};
use sutler_sdk::helm::ReleaseReference;

use crate::{settings, with};

fn values(config: Value, settings: Value, secret_version: Option<&str>) -> Value {
    let config: Config = serde_json::from_value(config).unwrap();
    of(&Input {
        config: &config,
        release: &ReleaseReference::new("ksml-acme", "orders-prod-12345678"),
        application: "orders",
        settings: &serde_json::from_value(settings.clone()).unwrap(),
        sent: &settings,
        secret_version,
    })
}

fn pretty(v: &Value) -> String {
    serde_json::to_string_pretty(v).unwrap() + "\n"
}

fn config() -> Value {
    json!({"chart": "oci://registry.example/charts/ksml"})
}

#[test]
fn a_statefulset_with_everything() {
    let settings = json!({
        "definitions": {
            "copy": "streams:\n  in: {topic: a}\n",
            "other.yaml": {"pipelines": {"p": {"from": "in"}}}
        },
        "schemas": {"Reading.avsc": "{}"},
        "size": "L", "storeSize": "2Gi", "replicas": 3,
        "kafka": {
            "bootstrapServers": "k1:9093,k2:9093", "applicationId": "io.orders",
            "security": {"type": "pem", "certificate": "CERT", "key": "TOP-SECRET", "ca": "CA"},
            "tenant": "acme", "instance": "emea", "environment": "prod",
            "topicPattern": "{tenant}-{topic}", "groupIdPattern": "{tenant}-{group.id}",
            "transactionalIdPattern": "{tenant}-{transactional.id}"
        }
    });
    let config = json!({
        "chart": "oci://registry.example/charts/ksml", "image": "registry.example:5000/ksml@sha256:abc",
        "values": {"networkPolicy": {"enabled": true}, "ksmlRunnerConfig": {"pipelinesEnabled": true}, "replicaCount": 9}
    });
    let text = pretty(&values(config, settings, Some("77")));
    assert!(!text.contains("TOP-SECRET"), "a secret in the values");
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/statefulset.json")].assert_eq(&text);
}

#[test]
fn a_job_with_a_password() {
    let settings = with(
        settings(),
        json!({"restartPolicy": "never", "storeSize": "2Gi", "kafka": {"security":
            {"type": "sasl", "username": "u", "password": "TOP-SECRET", "mechanism": "SCRAM-SHA-512"}}}),
    );
    let text = pretty(&values(config(), settings, Some("78")));
    assert!(!text.contains("TOP-SECRET"), "a secret in the values");
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/job.json")].assert_eq(&text);
}

#[test]
fn sizes() {
    for (size, cpu, memory) in
        [("XS", "500m", "2Gi"), ("S", "1", "4Gi"), ("M", "2", "8Gi"), ("L", "3", "12Gi"), ("XL", "4", "16Gi")]
    {
        let v = values(config(), with(settings(), json!({"size": size})), None);
        let quantities = json!({"cpu": cpu, "memory": memory});
        assert_eq!(v["resources"], json!({"limits": quantities, "requests": quantities}), "{size}");
    }
    assert_eq!(
        values(config(), settings(), None)["resources"]["limits"]["memory"],
        "4Gi",
        "S is the default"
    );
}

#[test]
fn images() {
    for (image, repository, tag) in [
        ("a.example/ksml:1", "a.example/ksml", json!("1")),
        ("a.example:5000/ksml", "a.example:5000/ksml", json!(null)),
        ("a.example/ksml@sha256:ff", "a.example/ksml@sha256", json!("ff")),
    ] {
        let v = values(json!({"chart": "oci://x/y", "image": image}), settings(), None);
        assert_eq!((&v["image"]["repository"], &v["image"]["tag"]), (&json!(repository), &tag), "{image}");
    }
}

#[test]
fn newer_charts_prefix_the_patterns() {
    let config = json!({"chart": "oci://x/y", "pattern-prefix": "axual."});
    let v = values(config, with(settings(), json!({"kafka": {"topicPattern": "{topic}"}})), None);
    assert_eq!(v["ksmlRunnerConfig"]["kafka"]["axual.topic.pattern"], "{topic}");
}
