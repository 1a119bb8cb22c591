//! Logs of Kafka Connect's workers, which the host did not make and never changes.

use std::process::Command;

use serde_json::{Value, json};
use sutler_testkit::http::{SampleRequest, client};
use sutler_testkit::{checkout, sutler_binary};

use crate::support::{Wanted, World};

const CONNECT: &str = r#"
[plugins.kafka-connect.config]
namespaces = ["connect-{tenant}"]
preset = "strimzi"

[plugins.kafka-connect.grants.logs]
namespaces = ["connect-{tenant}"]

[[plugins.kafka-connect.grants.kubernetes]]
verbs = ["list"]
kinds = ["Pod"]
namespaces = ["connect-{tenant}"]
"#;

fn worker(world: &World, namespace: &str, name: &str, kind: &str) {
    world.cluster.seed(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"strimzi.io/kind": kind, "strimzi.io/cluster": "a"}},
        "spec": {"containers": [{"name": "connect", "image": "connect"}]},
    }));
    let line = format!("of {namespace}/{name}");
    world.cluster.write_log(namespace, name, "connect", &line);
}

async fn world(config: &str) -> World {
    let world = Wanted::new().plugin("kafka-connect").config(config).start().await;
    world.cluster.quiet_logs();
    for namespace in ["connect-acme", "connect-globex", "elsewhere"] {
        worker(&world, namespace, "a-connect-0", "KafkaConnect");
        worker(&world, namespace, "broker-0", "Kafka");
    }
    world.cluster.forget_requests();
    world
}

fn request(tenant: &str) -> SampleRequest {
    SampleRequest::new("tool/kafka-connect").application("tenant", tenant)
}

async fn logs(world: &World, tenant: &str) -> (u16, String) {
    let url = format!(
        "{}/logs?kind=tool&type=kafka-connect&tenant={tenant}&application=orders&environment=prod",
        world.host.url
    );
    let answer = client().get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reads_its_workers_and_no_others() {
    let world = world(CONNECT).await;
    for tenant in ["acme", "globex"] {
        let (status, text) = logs(&world, tenant).await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(&format!("of connect-{tenant}/a-connect-0")), "{text}");
        assert!(text.lines().all(|line| line.starts_with("[a-connect-0/connect] ")), "{text}");
        assert_eq!(text.matches("of connect-").count(), 1, "{text}");
    }
    let seen =
        world.post("/inspect", &request("acme").expect("main", json!({}), Value::Null).body()).await.json;
    let resource = &seen["resources"][0];
    let found = json!({"workers": [{"namespace": "connect-acme", "pod": "a-connect-0", "phase": "Running",
        "ready": true, "restarts": 0}], "ready": 1});
    assert_eq!((&resource["presence"], &resource["outputs"]), (&json!("present"), &found), "{seen}");
    assert!(!world.cluster.requests().iter().any(|r| r.writes()), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_planned_and_nothing_changed() {
    let world = world(CONNECT).await;
    let before = world.cluster.resource_version();
    let plan = world.post("/plan", &request("acme").create(json!({})).body()).await.json;
    assert_eq!(
        (&plan["outcome"], &plan["changes"][0]["action"]),
        (&json!("planned"), &json!("no-op")),
        "{plan}"
    );
    assert!(plan["changes"][0]["warnings"].to_string().contains("only their logs are read"), "{plan}");
    let applied = world.post("/apply", &request("acme").create(json!({})).body()).await.json;
    assert_eq!(
        (&applied["outcome"], &applied["resources"][0]["outputs"]["ready"]),
        (&json!("succeeded"), &json!(1)),
        "{applied}"
    );
    let deleted = world.post("/apply", &request("acme").delete(json!({})).body()).await.json;
    assert_eq!(deleted["outcome"], "succeeded", "{deleted}");
    assert_eq!(world.cluster.resource_version(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_not_granted_is_never_asked_for() {
    let beyond = CONNECT.replacen("[\"connect-{tenant}\"]", "[\"elsewhere\"]", 1);
    let world = world(&beyond).await;
    let (status, text) = logs(&world, "acme").await;
    assert!(status == 403 && text.contains("namespace elsewhere is not granted"), "{status} {text}");
    let inspect = request("acme").expect("main", json!({}), Value::Null).body();
    for (path, body) in [("/inspect", &inspect), ("/apply", &request("acme").create(json!({})).body())] {
        let answer = world.post(path, body).await.json;
        assert_eq!(
            (&answer["outcome"], &answer["code"]),
            (&json!("failed"), &json!("not-granted")),
            "{answer}"
        );
    }
    let asked: Vec<String> = world.cluster.requests().into_iter().map(|r| r.path).collect();
    assert!(!asked.iter().any(|path| path.contains("elsewhere")), "{asked:?}");
}

#[test]
fn the_roles_of_a_host_for_logs_alone_have_no_verb_that_writes() {
    let example = checkout().join("examples/kafka-connect/sutler.toml");
    let arguments = ["rbac", "print", "--namespace", "connect-acme", "--config"];
    let o = Command::new(sutler_binary()).args(arguments).arg(example).output().unwrap();
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(o.status.success(), "{text}{}", String::from_utf8_lossy(&o.stderr));
    let (mut rules, mut bound) = (0, false);
    for document in text.split("---\n").filter(|d| !d.trim().is_empty()) {
        let document: Value = serde_saphyr::from_str(document).unwrap();
        bound |= document["kind"] == "RoleBinding" && document["metadata"]["namespace"] == "connect-acme";
        for rule in document["rules"].as_array().into_iter().flatten() {
            rules += 1;
            let all = |key: &str, allowed: &[&str]| {
                rule[key].as_array().unwrap().iter().all(|v| allowed.contains(&v.as_str().unwrap()))
            };
            assert!(
                all("verbs", &["get", "list", "watch"]) && all("resources", &["pods", "pods/log"]),
                "{rule}"
            );
        }
    }
    assert!(rules >= 2 && bound, "{text}");
}
