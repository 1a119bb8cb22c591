//! The chart's values for settings of every kind.

use expect_test::expect_file;
use ksml::config::Config;
use ksml::secrets::Mounted;
use ksml::values::{Input, mount, of, recorded};
use serde_json::{Value, json};
use sutler_sdk::helm::ReleaseReference;

use crate::{settings, with};

fn values(config: Value, settings: Value, secret_version: Option<&str>) -> Value {
    let config: Config = serde_json::from_value(config).unwrap();
    let mut values = of(&Input {
        config: &config,
        release: &ReleaseReference::new("ksml-acme", "orders-prod-12345678"),
        application: "orders",
        settings: &serde_json::from_value(settings.clone()).unwrap(),
        sent: &settings,
    });
    if let Some(version) = secret_version {
        mount(&mut values, &Mounted { name: "orders-prod-12345678-kafka".into(), version: version.into() });
    }
    values
}

/// No secret stands in the values, and they are what the file says.
fn golden(name: &str, values: &Value) {
    let text = serde_json::to_string_pretty(values).unwrap() + "\n";
    assert!(!text.contains("TOP-SECRET"), "a secret in the values");
    expect_file![format!("{}/tests/it/golden/{name}.json", env!("CARGO_MANIFEST_DIR"))].assert_eq(&text);
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
    golden("statefulset", &values(config, settings, Some("77")));
}

#[test]
fn a_job_with_a_password() {
    let settings = with(
        settings(),
        json!({"restartPolicy": "never", "storeSize": "2Gi", "kafka": {"security":
            {"type": "sasl", "username": "u", "password": "TOP-SECRET", "mechanism": "SCRAM-SHA-512"}}}),
    );
    golden("job", &values(config(), settings, Some("78")));
}

#[test]
fn sizes_and_restart_policies() {
    for size in ["XS", "S", "M", "L", "XL"] {
        for policy in ["on_exit", "never"] {
            let settings =
                with(settings(), json!({"size": size, "restartPolicy": policy, "storeSize": "8Gi"}));
            golden(&format!("sizes/{size}-{policy}"), &values(config(), settings, None));
        }
    }
    let sized = with(settings(), json!({"size": "S", "restartPolicy": "on_exit"}));
    let (mut left_out, mut told) = (values(config(), settings(), None), values(config(), sized, None));
    for v in [&mut left_out, &mut told] {
        v["global"] = json!(null);
    }
    assert_eq!(left_out, told, "the defaults");
}

#[test]
fn each_setting_that_may_be_left_out() {
    let registry =
        |security: Value| json!({"schemaRegistry": {"url": "https://registry:8081", "security": security}});
    let pem = json!({"type": "pem", "certificate": "CERT", "key": "TOP-SECRET", "ca": "CA"});
    let basic = json!({"type": "basic", "username": "u", "password": "TOP-SECRET", "ca": "CA"});
    for (name, over) in [
        ("registry", json!({"schemaRegistry": {"url": "http://registry:8081"}})),
        ("registry-basic", registry(basic)),
        ("registry-pem", registry(pem)),
        (
            "logging",
            json!({"logging": {"level": "WARN", "format": "json", "loggers": {"org.apache.kafka": "DEBUG"}}}),
        ),
        ("logging-text", json!({"logging": {"format": "text"}})),
        ("metrics", json!({"metrics": {"enabled": true}})),
        (
            "metrics-monitored",
            json!({"metrics": {"enabled": true, "port": 9998,
                "serviceMonitor": {"enabled": true, "interval": "15s", "labels": {"release": "prometheus"}}}}),
        ),
        (
            "network-policy",
            json!({"networkPolicy": {"enabled": true,
                "ingress": [{"ports": [{"port": 9999}]}], "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]}}),
        ),
        (
            "error-handling",
            json!({"errorHandling": {
                "consume": {"log": true, "logPayload": true, "loggerName": "Bad", "stopOnError": false},
                "produce": {"stopOnError": false}}}),
        ),
        ("running", json!({"running": true})),
    ] {
        let version = name.starts_with("registry-").then_some("79");
        golden(&format!("settings/{name}"), &values(config(), with(settings(), over), version));
    }
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

/// Texts stand in the values once, and what is read back is what was sent.
#[test]
fn the_record_holds_no_text_twice() {
    let sent = with(
        settings(),
        json!({
            "definitions": {"copy": "TEXT-OF-IT", "b.yaml": {"streams": {}}, "c.yml": "streams: {}"},
            "schemas": {"A.avsc": "SCHEMA-OF-IT", "b.b": "{}"},
        }),
    );
    let mut made = values(config(), sent.clone(), None);
    assert_eq!(recorded(&made), Some(sent.clone()));
    for text in ["TEXT-OF-IT", "SCHEMA-OF-IT"] {
        assert_eq!(made.to_string().matches(text).count(), 1, "{made}");
    }
    // A text that somebody changed or took away is told as it is.
    made["ksmlDefinitions"]["copy.yaml"] = json!("OTHER");
    made["schemaDefinitions"].as_object_mut().unwrap().remove("A.avsc");
    let told = recorded(&made).unwrap();
    assert_eq!((&told["definitions"]["copy"], &told["schemas"]), (&json!("OTHER"), &json!({"b.b": "{}"})));
    // A release of before holds everything itself.
    made["global"]["sutler"]["settings"] = sent.clone();
    assert_eq!(recorded(&made), Some(sent));
    assert_eq!(recorded(&json!({"ksmlDefinitions": {}})), None, "of somebody else");
}

#[test]
fn equal_applications_have_names_of_their_own_in_kafka() {
    let id = |over: Value| {
        values(config(), with(settings(), json!({ "kafka": over })), None)["ksmlRunnerConfig"]["kafka"]
            ["application.id"]
            .clone()
    };
    assert_eq!(id(json!({})), "orders-prod-12345678");
    assert_eq!(id(json!({"topicPattern": "{tenant}-{topic}"})), "orders-prod-12345678");
    assert_eq!(id(json!({"groupIdPattern": "{tenant}-{group.id}"})), "orders");
    assert_eq!(id(json!({"applicationId": "mine", "groupIdPattern": "{tenant}-{group.id}"})), "mine");
}
