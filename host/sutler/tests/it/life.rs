//! The life of a KSML application on emulated parts: the host's own logic, never proof of a real cluster's.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_testkit::http::{SampleRequest, client};

use crate::support::{Wanted, World};

pub(crate) const KSML: &str = r#"
[plugins.ksml.config]
chart = "oci://REGISTRY/charts/ksml"

[plugins.ksml.grants.helm]
charts = ["oci://REGISTRY/charts/*"]
namespaces = ["ksml-{tenant}"]
cluster-scoped-kinds = ["Namespace"]

[[plugins.ksml.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Secret"]
namespaces = ["ksml-{tenant}"]

[[plugins.ksml.grants.kubernetes]]
verbs = ["create"]
kinds = ["Namespace"]
names = ["ksml-{tenant}"]

[[plugins.ksml.grants.kubernetes]]
verbs = ["list"]
kinds = ["Pod"]
namespaces = ["ksml-{tenant}"]

[[plugins.ksml.grants.kubernetes]]
verbs = ["list", "delete"]
kinds = ["PersistentVolumeClaim"]
namespaces = ["ksml-{tenant}"]
unowned = true

[plugins.ksml.grants.logs]
namespaces = ["ksml-{tenant}"]
"#;

pub(crate) fn chart() -> std::path::PathBuf {
    sutler_testkit::checkout().join("examples/charts/ksml")
}

pub(crate) fn settings() -> Value {
    json!({
        "size": "XS",
        "definitions": {"orders": "streams:\n  in:\n    topic: in\n    keyType: string\n    valueType: string\npipelines:\n  main:\n    from: in\n    print: true\n"},
        "kafka": {
            "bootstrapServers": "kafka:9092",
            "security": {"type": "sasl", "username": "orders", "password": "kafka-password-of-the-test", "mechanism": "PLAIN"}
        }
    })
}

pub(crate) fn request() -> SampleRequest {
    SampleRequest::new("deployment/ksml")
}

pub(crate) async fn world() -> World {
    let world = Wanted::new().plugin("ksml").config(KSML).start().await;
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    world
}

pub(crate) async fn ok(world: &World, path: &str, body: &Value) -> Value {
    let answered = world.post(path, body).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    assert_ne!(answered.json["outcome"], "failed", "{path}: {}", answered.text);
    answered.json
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_applied_inspected_logged_deleted() {
    let world = world().await;
    let create = request().create(settings()).body();
    let before = world.cluster.resource_version();
    let plan = ok(&world, "/plan", &create).await;
    assert_eq!(plan, ok(&world, "/plan", &create).await, "two plans are equal");
    assert_eq!(world.cluster.resource_version(), before, "a plan changes nothing");
    assert!(!plan.to_string().contains("kafka-password-of-the-test"));

    let applied = ok(&world, "/apply", &create).await;
    let outputs = applied["resources"][0]["outputs"].clone();
    assert_eq!((&outputs["revision"], &outputs["ready"]), (&json!(1), &json!(true)), "{applied}");
    let again = ok(&world, "/apply", &create).await;
    assert_eq!(again["resources"][0]["outputs"]["revision"], 1, "nothing changed, so no new revision");

    let inspect = request().expect("main", settings(), outputs.clone()).body();
    let seen = ok(&world, "/inspect", &inspect).await;
    let resource = &seen["resources"][0];
    assert_eq!((&resource["presence"], &resource["drift"]), (&json!("present"), &json!([])), "{seen}");

    follow(&world).await;
    secrets_stay_out_of_everything_but_the_secret(&world);

    let mut other = settings();
    other["size"] = json!("M");
    let updated = ok(&world, "/apply", &request().update(other, settings()).body()).await;
    assert_eq!(updated["resources"][0]["outputs"]["revision"], 2, "{updated}");

    let delete = request().delete(settings()).body();
    ok(&world, "/apply", &delete).await;
    ok(&world, "/apply", &delete).await;
    let left: Vec<String> = world
        .cluster
        .objects()
        .into_iter()
        .filter(|o| o["metadata"]["namespace"] == "ksml-acme")
        .map(|o| format!("{}/{}", o["kind"], o["metadata"]["name"]))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let absent = ok(&world, "/inspect", &inspect).await;
    assert_eq!(absent["resources"][0]["presence"], "absent");
    assert_eq!(absent["resources"][0]["drift"][0]["class"], "missing");
}

async fn follow(world: &World) {
    let url = format!(
        "{}/logs?kind=deployment&type=ksml&tenant=acme&application=orders&environment=prod&follow=true&tailLines=2",
        world.host.url
    );
    let answer = client().get(url).header("accept", "application/x-ndjson").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut body, mut text) = (answer.bytes_stream(), String::new());
    while text.lines().count() < 5 {
        let piece =
            tokio::time::timeout(Duration::from_secs(20), body.next()).await.expect("a line within 20 s");
        text.push_str(&String::from_utf8_lossy(&piece.unwrap().unwrap()));
    }
    for line in text.lines().take(5) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["pod"].is_string() && line["line"].is_string(), "{line}");
    }
}

fn secrets_stay_out_of_everything_but_the_secret(world: &World) {
    for o in world.cluster.objects() {
        let release = o["type"] == "helm.sh/release.v1";
        if o["kind"] != "Secret" || release {
            assert!(!o.to_string().contains("kafka-password-of-the-test"), "{o}");
        }
    }
    let log = world.host.log_lines().join("\n");
    assert!(!log.contains("kafka-password-of-the-test"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_was_swapped_is_another_plan() {
    let config = format!("{KSML}\n[helm]\nresolve-seconds = 0\n");
    let world = Wanted::new().plugin("ksml").config(&config).start().await;
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let mut apply = request().create(settings()).body();
    let first = ok(&world, "/plan", &apply).await;
    let swapped = world.folder.path().join("ksml");
    let copied = std::process::Command::new("cp").arg("-r").arg(chart()).arg(&swapped).status().unwrap();
    assert!(copied.success());
    let evil = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: evil}\n";
    std::fs::write(swapped.join("templates/evil.yaml"), evil).unwrap();
    world.registry.push_chart(&swapped, "charts/ksml").unwrap();
    let second = ok(&world, "/plan", &apply).await;
    assert_ne!(first["planHash"], second["planHash"]);
    apply["planHash"] = first["planHash"].clone();
    let before = world.cluster.resource_version();
    let answer = world.post("/apply", &apply).await.json;
    assert_eq!(answer["code"], "plan-stale", "{answer}");
    assert_eq!(world.cluster.resource_version(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_changed_is_drift_by_field() {
    let world = world().await;
    let applied = ok(&world, "/apply", &request().create(settings()).body()).await;
    let outputs = applied["resources"][0]["outputs"].clone();
    let mut set =
        world.cluster.objects().into_iter().find(|o| o["kind"] == "StatefulSet").expect("a StatefulSet");
    set["spec"]["replicas"] = json!(5);
    world.cluster.seed(set);
    let seen = ok(&world, "/inspect", &request().expect("main", settings(), outputs).body()).await;
    let drift = seen["resources"][0]["drift"].as_array().unwrap();
    let replicas = drift.iter().find(|d| d["path"].as_str().is_some_and(|p| p.ends_with("/spec/replicas")));
    let replicas = replicas.unwrap_or_else(|| panic!("{seen}"));
    assert_eq!((&replicas["expected"], &replicas["actual"]), (&json!(1), &json!(5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_with_equal_applications_never_meet() {
    let world = world().await;
    for tenant in ["acme", "globex"] {
        let body = request().application("tenant", tenant).create(settings()).body();
        let applied = ok(&world, "/apply", &body).await;
        assert_eq!(applied["resources"][0]["outputs"]["namespace"], format!("ksml-{tenant}"));
    }
    let delete = request().application("tenant", "acme").delete(settings()).body();
    ok(&world, "/apply", &delete).await;
    let left =
        world.cluster.objects().into_iter().filter(|o| o["metadata"]["namespace"] == "ksml-globex").count();
    assert!(left > 3, "globex keeps its {left} objects");
}
