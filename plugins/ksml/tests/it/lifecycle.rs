//! Plan, apply, inspect and delete.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Delete, Replace, Update};
use sutler_sdk::helm::{Drift, Health};
use sutler_sdk::testing::world;

use crate::{NONE, session, settings, with};

fn pem(key: &str) -> Value {
    with(
        settings(),
        json!({"kafka": {"security": {"type": "pem", "certificate": "C", "key": key, "ca": "A"}}}),
    )
}
fn registry(password: &str) -> Value {
    let security = json!({"type": "basic", "username": "r", "password": password});
    with(pem("KAFKA-KEY"), json!({"schemaRegistry": {"url": "https://registry:8081", "security": security}}))
}
fn sasl(password: &str) -> Value {
    with(settings(), json!({"kafka": {"security": {"type": "sasl", "username": "u", "password": password}}}))
}
fn secret() -> Value {
    world(|w| {
        w.objects.iter().find(|(k, _)| k.starts_with("Secret")).map(|(_, v)| v.clone()).unwrap_or_default()
    })
}

#[test]
fn it_comes_waits_stays_and_goes() {
    let mut s = session();
    world(|w| w.health.extend([Health::Progressing("0 of 1 replicas".into())]));
    let plan = s.plan(Create, settings(), NONE).unwrap();
    assert_eq!((&plan["action"], &plan["steps"]), (&json!("Action::Create"), &json!(["release", "ready"])));
    let made = s.apply(Create, settings(), NONE).unwrap();
    assert_eq!(s.trail, ["ready", "0 of 1 replicas"]);
    assert_eq!(
        (&made["namespace"], &made["revision"], &made["chartVersion"]),
        (&json!("ksml-acme"), &json!(1), &json!("1.2.3"))
    );
    assert_eq!(s.apply(Create, settings(), NONE).unwrap(), made, "repeated");
    let again = s.plan(Update, settings(), settings()).unwrap();
    assert_eq!((&again["action"], &again["steps"]), (&json!("Action::NoOp"), &json!([])));
    let seen = s.inspect(settings(), made.clone()).unwrap();
    assert_eq!(
        (&seen["presence"], &seen["settings"], &seen["outputs"]),
        (&json!("Presence::Present"), &settings(), &made)
    );
    assert_eq!(seen["differences"], json!([]));

    let larger = with(settings(), json!({"size": "M"}));
    let plan = s.plan(Update, larger.clone(), settings()).unwrap();
    assert_eq!((&plan["before"], &plan["after"]), (&settings(), &larger));
    assert_eq!(s.apply(Update, larger, settings()).unwrap()["revision"], 2);

    s.apply(Delete, NONE, settings()).unwrap();
    assert_eq!(s.apply(Delete, NONE, NONE).unwrap(), json!({}), "gone already");
    assert_eq!(s.inspect(settings(), NONE).unwrap()["presence"], "Presence::Absent");
}

#[test]
fn a_secret_goes_into_a_secret_and_nowhere_else() {
    let mut s = session();
    s.apply(Create, pem("TOP-SECRET"), NONE).unwrap();
    let everything =
        world(|w| format!("{:?} {:?}", w.releases.values().map(|r| &r.values).collect::<Vec<_>>(), w.log));
    assert!(!everything.contains("TOP-SECRET"));
    assert_eq!(secret()["data"]["keystore.pem"], "VE9QLVNFQ1JFVApDCg==");
    for answer in [
        s.plan(Update, pem("TOP-SECRET"), pem("TOP-SECRET")).unwrap(),
        s.inspect(pem("TOP-SECRET"), NONE).unwrap(),
    ] {
        assert!(!answer.to_string().contains("TOP-SECRET"), "{answer}");
    }
    assert_eq!(s.plan(Update, pem("TOP-SECRET"), NONE).unwrap()["action"], "Action::NoOp");
    assert_eq!(s.plan(Update, pem("OTHER"), NONE).unwrap()["action"], "Action::Update");
    let drift = s.inspect(pem("OTHER"), NONE).unwrap();
    assert_eq!(drift["differences"][0]["at"], "/kafka/security/key");
    assert_eq!(drift["settings"]["kafka"]["security"], json!({"type": "pem", "certificate": "C", "ca": "A"}));
}

#[test]
fn each_of_two_secrets_is_compared_for_itself() {
    let mut s = session();
    s.apply(Create, registry("REGISTRY-PW"), NONE).unwrap();
    let file = STANDARD.decode(secret()["data"]["registry.properties"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(file).unwrap(), "basic.auth.user.info=r:REGISTRY-PW\n");
    assert!(secret()["data"]["keystore.pem"].is_string());
    let everything =
        world(|w| format!("{:?} {:?}", w.releases.values().map(|r| &r.values).collect::<Vec<_>>(), w.log));
    assert!(!everything.contains("REGISTRY-PW") && !everything.contains("KAFKA-KEY"));
    assert_eq!(s.plan(Update, registry("REGISTRY-PW"), NONE).unwrap()["action"], "Action::NoOp");
    let other = s.plan(Update, registry("OTHER"), NONE).unwrap();
    assert_eq!(other["action"], "Action::Update");
    assert!(
        !other.to_string().contains("REGISTRY-PW") && !other.to_string().contains("KAFKA-KEY"),
        "{other}"
    );
    let drift = s.inspect(registry("OTHER"), NONE).unwrap();
    let places: Vec<&Value> = drift["differences"].as_array().unwrap().iter().map(|d| &d["at"]).collect();
    assert_eq!(places, ["/schemaRegistry/security/password"]);
}

#[test]
fn a_caller_that_keeps_no_secrets_sees_no_drift() {
    let mut s = session();
    s.apply(Create, pem("TOP-SECRET"), NONE).unwrap();
    let mut kept = pem("TOP-SECRET");
    kept["kafka"]["security"].as_object_mut().unwrap().remove("key");
    let seen = s.inspect(kept.clone(), NONE).unwrap();
    assert_eq!((&seen["settings"], &seen["differences"]), (&kept, &json!([])));
}

#[test]
fn a_new_secret_starts_the_pods_anew_and_an_equal_one_does_not() {
    let mut s = session();
    assert_eq!(s.apply(Create, pem("a"), NONE).unwrap()["revision"], 1);
    assert_eq!(s.apply(Update, pem("a"), NONE).unwrap()["revision"], 1);
    assert_eq!(s.apply(Update, pem("b"), NONE).unwrap()["revision"], 2);
    s.apply(Update, settings(), NONE).unwrap();
    assert_eq!(secret(), NONE, "a secret that is not needed any more");
}

#[test]
fn passwords_are_quoted_for_jaas_and_for_properties() {
    let mut s = session();
    s.apply(Create, sasl("a\"b\\c"), NONE).unwrap();
    let file = STANDARD.decode(secret()["data"]["kafka.properties"].as_str().unwrap()).unwrap();
    assert_eq!(
        String::from_utf8(file).unwrap(),
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
         username=\"u\" password=\"a\\\\\"b\\\\\\\\c\";\n"
    );
}

#[test]
fn the_secret_comes_before_the_release_and_goes_after_it() {
    let mut s = session();
    s.apply(Create, pem("k"), NONE).unwrap();
    s.apply(Delete, NONE, pem("k")).unwrap();
    let verbs: Vec<String> =
        world(|w| w.writes.iter().map(|w| w.split('/').next().unwrap().to_owned()).collect());
    assert_eq!(
        verbs,
        ["apply Secret ksml-acme", "upgrade ksml-acme", "uninstall ksml-acme", "delete Secret ksml-acme"]
    );
}

#[test]
fn a_job_that_changes_is_deleted_and_runs_again() {
    let mut s = session();
    let job = with(settings(), json!({"restartPolicy": "never"}));
    s.apply(Create, job.clone(), NONE).unwrap();
    s.apply(Update, job.clone(), NONE).unwrap();
    let other = with(job.clone(), json!({"size": "M"}));
    assert!(s.plan(Update, other.clone(), job.clone()).unwrap()["warnings"].to_string().contains("Job"));
    assert_eq!(s.apply(Update, other, job).unwrap()["revision"], 1);
    let uninstalls = world(|w| w.writes.iter().filter(|w| w.starts_with("uninstall")).count());
    assert_eq!(uninstalls, 1, "only where something changed");
}

#[test]
fn another_store_size_is_a_replacement() {
    let mut s = session();
    let small = with(settings(), json!({"storeSize": "1Gi"}));
    let large = with(settings(), json!({"storeSize": "2Gi"}));
    s.apply(Create, small.clone(), NONE).unwrap();
    let plan = s.plan(Update, large.clone(), small.clone()).unwrap();
    assert_eq!(
        (&plan["action"], &plan["replaceBecause"]),
        (&json!("Action::Replace"), &json!(["/storeSize"]))
    );
    assert_eq!(s.apply(Replace, large.clone(), small.clone()).unwrap()["revision"], 1);
    assert_eq!(s.apply(Replace, large, small).unwrap()["revision"], 1, "repeated");
    assert_eq!(world(|w| w.writes.iter().filter(|w| w.starts_with("uninstall")).count()), 1);
}

/// A claim of the application's release, of this size.
fn claim(release: &str, number: u32, size: &str) {
    let name = format!("store-{release}-{number}");
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ksml-acme", "labels": {"app.kubernetes.io/instance": release}},
        "spec": {"resources": {"requests": {"storage": size}}},
    });
    world(|w| w.objects.insert(format!("PersistentVolumeClaim ksml-acme/{name}"), claim));
}

fn claims() -> usize {
    world(|w| w.objects.keys().filter(|k| k.starts_with("PersistentVolumeClaim")).count())
}

#[test]
fn a_replacement_takes_the_volumes_of_the_old_size_along() {
    let sized = |size: &str| with(settings(), json!({ "storeSize": size }));
    let mut s = session();
    let made = s.apply(Create, sized("1024Mi"), NONE).unwrap();
    let release = made["release"].as_str().unwrap().to_owned();
    claim(&release, 0, "1Gi");
    claim(&release, 1, "1Gi");
    assert_eq!(s.inspect(sized("1024Mi"), NONE).unwrap()["differences"], json!([]), "another unit");
    s.apply(Update, with(sized("1024Mi"), json!({"size": "M"})), NONE).unwrap();
    assert_eq!(claims(), 2, "an update keeps them");
    let plan = s.plan(Update, sized("2Gi"), sized("1024Mi")).unwrap();
    let told = plan["warnings"].to_string();
    assert!(told.contains("deleted with its old volumes") && told.contains("-0"), "{told}");
    let before = world(|w| w.writes.len());
    s.apply(Replace, sized("2Gi"), sized("1024Mi")).unwrap();
    let verbs: Vec<String> =
        world(|w| w.writes.iter().skip(before).map(|w| w.split('/').next().unwrap().to_owned()).collect());
    let gone = "delete PersistentVolumeClaim ksml-acme";
    assert_eq!(verbs, ["uninstall ksml-acme", gone, gone, "upgrade ksml-acme"]);
    claim(&release, 0, "2Gi");
    s.apply(Replace, sized("2Gi"), sized("1024Mi")).unwrap();
    assert_eq!(claims(), 1, "repeated, those of the new size stay");
    // It is cut off once the release is gone.
    world(|w| w.refused.insert("upgrade".into()));
    s.apply(Replace, sized("3Gi"), sized("2Gi")).unwrap_err();
    claim(&release, 0, "2Gi");
    world(|w| w.refused.clear());
    s.apply(Replace, sized("3Gi"), sized("2Gi")).unwrap();
    assert_eq!(claims(), 0);
}

#[test]
fn volumes_that_may_not_be_deleted_are_told_with_their_size() {
    let sized = |size: &str| with(settings(), json!({ "storeSize": size }));
    let mut s = session();
    let made = s.apply(Create, sized("1Gi"), NONE).unwrap();
    let release = made["release"].as_str().unwrap().to_owned();
    world(|w| w.refused.insert("PersistentVolumeClaim".into()));
    let plan = s.plan(Update, sized("2Gi"), sized("1Gi")).unwrap();
    assert!(plan["warnings"].to_string().contains("gets them again"), "{plan}");
    s.apply(Replace, sized("2Gi"), sized("1Gi")).unwrap();
    world(|w| w.refused.clear());
    claim(&release, 0, "1Gi");
    let seen = s.inspect(sized("2Gi"), NONE).unwrap();
    assert_eq!(
        seen["differences"],
        json!([{"at": "/storeSize", "class": "DifferenceClass::Drift", "expected": "2Gi", "actual": "1Gi"}])
    );
}

#[test]
fn another_name_in_kafka_is_told() {
    let mut s = session();
    let named = |id: &str| with(settings(), json!({"kafka": {"applicationId": id}}));
    s.apply(Create, named("orders"), NONE).unwrap();
    let plan = s.plan(Update, settings(), named("orders")).unwrap();
    assert!(plan["warnings"].to_string().contains("write orders as kafka.applicationId"), "{plan}");
    let plan = s.plan(Update, with(named("orders"), json!({"size": "M"})), NONE).unwrap();
    assert_eq!(plan["warnings"], json!([]));
}

#[test]
fn drift_of_the_releases_objects_is_told() {
    let mut s = session();
    s.apply(Create, settings(), NONE).unwrap();
    world(|w| {
        w.drift.push(Drift {
            object: json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x", "namespace": "ksml-acme"}),
            field: Some("/spec/replicas".into()),
            expected: Some(json!(1)),
            actual: Some(json!(0)),
            class: "drift".into(),
        });
    });
    assert_eq!(
        s.inspect(settings(), NONE).unwrap()["differences"],
        json!([{"at": "/release/StatefulSet/x/spec/replicas", "class": "DifferenceClass::Drift", "expected": 1, "actual": 0}])
    );
}

#[test]
fn what_cannot_work_is_refused_before_any_write() {
    let large = format!("# {}\n", "x".repeat(1_000_001));
    let half = format!("# {}\n", "x".repeat(500_001));
    for (over, code) in [
        (json!({"definitions": {"main": large}}), "too-large"),
        (json!({"definitions": {"main": half}, "schemas": {"a.avsc": half}}), "too-large"),
        (json!({"definitions": {"main": "streams: ["}}), "invalid-definition"),
        (json!({"restartPolicy": "never", "replicas": 2}), "unsupported-settings"),
        (json!({"metrics": {"enabled": false, "serviceMonitor": {"enabled": true}}}), "unsupported-settings"),
        (json!({"cluster": "eu-west"}), "unsupported-settings"),
    ] {
        let mut s = session();
        assert_eq!(s.plan(Create, with(settings(), over.clone()), NONE).unwrap_err().code, code);
        assert_eq!(s.apply(Create, with(settings(), over), NONE).unwrap_err().code, code);
        assert_eq!(world(|w| w.writes.clone()), Vec::<String>::new());
    }
}

#[test]
fn a_call_without_a_tenant_says_what_it_needs() {
    let mut s = session();
    s.application.tenant = None;
    assert_eq!(s.apply(Create, settings(), NONE).unwrap_err().code, "tenant-required");
}

#[test]
fn a_release_that_fails_is_a_failure_and_cancel_takes_it_away() {
    let mut s = session();
    world(|w| w.health.extend([Health::Failed("CrashLoopBackOff".into())]));
    let failed = s.apply(Create, pem("k"), NONE).unwrap_err();
    assert_eq!(failed.code, "not-ready");
    assert!(failed.reason.contains("CrashLoopBackOff"), "{}", failed.reason);
    s.cancel(&[("main", Create, pem("k"), NONE)]).unwrap();
    assert!(world(|w| w.releases.is_empty() && w.objects.is_empty()));
}

#[test]
fn logs_are_of_this_release_only() {
    let s = session();
    let sources = s.locate(settings()).unwrap();
    assert_eq!(
        (sources.len(), sources[0].namespace.as_str(), sources[0].container.as_deref()),
        (1, "ksml-acme", Some("ksml"))
    );
    assert!(sources[0].label_selector.starts_with("app.kubernetes.io/instance=orders-prod-"));
}

#[test]
fn secrets_are_marked_and_unknown_settings_refused() {
    let (settings, outputs, steps) = session().described();
    let text = settings.to_string();
    assert_eq!(text.matches("\"writeOnly\":true").count(), 4);
    // What these let through is tested where a host holds settings against them.
    for bounded in [
        "Kafka/properties/applicationId/pattern",
        "Kafka/properties/bootstrapServers/pattern",
        "Kafka/properties/groupIdPattern/pattern",
        "Kafka/properties/topicPattern/pattern",
        "Kafka/properties/transactionalIdPattern/pattern",
        "Kafka/properties/tenant/pattern",
        "SchemaRegistry/properties/url/pattern",
        "ServiceMonitor/properties/labels/propertyNames/pattern",
        "ServiceMonitor/properties/labels/additionalProperties/pattern",
        "NetworkPolicy/properties/ingress/items/properties/from",
        "NetworkPolicy/properties/egress/items/properties/to",
    ] {
        assert!(settings.pointer(&format!("/$defs/{bounded}")).is_some(), "{bounded}: {text}");
    }
    assert_eq!(settings["additionalProperties"], false);
    assert!(text.contains(r#""required":["type","certificate","key","ca"]"#), "{text}");
    assert!(text.len() < 64 << 10);
    assert_eq!(outputs["required"].as_array().unwrap().len(), 8);
    assert_eq!(steps, ["release", "ready"]);
}
