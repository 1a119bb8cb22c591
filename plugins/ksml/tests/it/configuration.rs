//! What the operator says.

use serde_json::{Value, json};
use sutler_sdk::Action::Create;
use sutler_sdk::testing::{Session, reset, world};

use crate::{NONE, settings, with};

fn refused(config: Value) -> String {
    reset(config);
    let mut s: Session<ksml::Ksml> = Session::new("orders", "prod", Some("acme"));
    let e = s.plan(Create, settings(), NONE).unwrap_err();
    assert_eq!(e.code, "invalid-config");
    assert_eq!(s.apply(Create, settings(), NONE).unwrap_err(), e);
    assert_eq!(world(|w| w.writes.clone()), Vec::<String>::new());
    e.reason
}

#[test]
fn only_oci_registries_have_charts() {
    for chart in [
        "https://nexus.example/repository/helm/ksml",
        "http://charts.example/index.yaml",
        "ksml/ksml",
        "https://user:hunter2@nexus.example/repository/helm",
    ] {
        let reason = refused(json!({ "chart": chart }));
        assert!(reason.contains("helm push") && reason.contains("oci://REGISTRY/PATH/NAME"), "{reason}");
        assert!(!reason.contains("hunter2"), "{reason}");
    }
}

#[test]
fn another_cluster_is_refused_with_words() {
    let reason = refused(json!({"chart": "oci://r.example/ksml", "cluster": "eu-west"}));
    assert!(reason.contains("eu-west") && reason.contains("the cluster that the host runs in"), "{reason}");
    reset(json!({"chart": "oci://r.example/ksml"}));
    let s: Session<ksml::Ksml> = Session::new("orders", "prod", Some("acme"));
    let e = s.plan(Create, with(settings(), json!({"cluster": "eu-west"})), NONE).unwrap_err();
    assert!(
        e.reason.contains("eu-west") && e.reason.contains("the provisioner of that cluster"),
        "{}",
        e.reason
    );
    s.plan(Create, with(settings(), json!({"cluster": "default"})), NONE).unwrap();
}

#[test]
fn the_chart_is_the_one_that_is_pinned() {
    let digest = format!("sha256:{}", "a".repeat(64));
    reset(json!({"chart": "oci://r.example/charts/ksml", "version": "1.3.0", "digest": digest}));
    let mut s: Session<ksml::Ksml> = Session::new("orders", "prod", Some("acme"));
    let made = s.apply(Create, settings(), NONE).unwrap();
    assert_eq!((&made["chart"], &made["chartVersion"]), (&json!("ksml"), &json!("1.3.0")));
}

#[test]
fn settings_win_over_values_and_values_over_their_file() {
    reset(json!({
        "chart": "oci://r.example/ksml",
        "values-file": {"a": "file", "b": "file", "replicaCount": 7, "nodeSelector": {"x": "file", "y": "file"}, "tolerations": [1, 2]},
        "values": {"b": "table", "replicaCount": 8, "nodeSelector": {"y": "table"}, "tolerations": [3], "affinity": null},
    }));
    let mut s: Session<ksml::Ksml> = Session::new("orders", "prod", Some("acme"));
    s.apply(Create, with(settings(), json!({"replicas": 2})), NONE).unwrap();
    let values: Value = world(|w| serde_json::from_str(&w.releases.values().next().unwrap().values).unwrap());
    assert_eq!(
        (&values["a"], &values["b"], &values["replicaCount"]),
        (&json!("file"), &json!("table"), &json!(2))
    );
    assert_eq!(values["nodeSelector"], json!({"x": "file", "y": "table"}), "tables are merged");
    assert_eq!(values["tolerations"], json!([3]), "lists are not");
    assert!(
        values.as_object().unwrap().contains_key("affinity"),
        "a null is Helm's to read: it takes a default away"
    );
}
