//! A KSML application that stops, starts, restarts and goes, and what is refused of one, on emulated parts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sutler_testkit::cluster::Emulator;
use sutler_testkit::http::Caller;

use crate::life::{KSML, chart, ok, request, settings, world};
use crate::seven;
use crate::support::{Wanted, World};

fn with(over: Value) -> Value {
    let mut all = settings();
    all.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
    all
}

fn outputs(answer: &Value) -> Value {
    answer["resources"][0]["outputs"].clone()
}

/// What is left in the tenant's namespace, as `Kind/name`.
fn left(world: &World) -> Vec<String> {
    let all = world.cluster.objects().into_iter().filter(|o| o["metadata"]["namespace"] == "ksml-acme");
    let name = |o: &Value| format!("{}/{}", o["kind"], o["metadata"]["name"]).replace('"', "");
    all.map(|o| name(&o)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_started_and_deleted_with_its_volumes() {
    let world = world().await;
    let (running, stopped) =
        (with(json!({"storeSize": "1Gi"})), with(json!({"storeSize": "1Gi", "running": false})));
    let made = ok(&world, "/apply", &request().create(running.clone()).body()).await;
    let release = outputs(&made)["release"].as_str().unwrap().to_owned();
    assert_eq!(outputs(&made)["phase"], "Running", "{made}");
    assert_eq!(outputs(&made)["pods"]["ready"], 1, "{made}");
    for (name, of) in [(format!("store-{release}-0"), release.as_str()), ("store-other-0".into(), "other")] {
        world.cluster.seed(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "ksml-acme", "labels": {"app.kubernetes.io/instance": of}},
        }));
    }
    let stop = request().update(stopped.clone(), running.clone()).body();
    let plan = ok(&world, "/plan", &stop).await;
    assert_eq!(
        (&plan["changes"][0]["action"], plan["steps"].as_array().unwrap().len()),
        (&json!("update"), 1),
        "{plan}"
    );
    let ended = ok(&world, "/apply", &stop).await;
    assert_eq!(outputs(&ended)["phase"], "Stopped", "{ended}");
    let names = left(&world);
    assert!(
        names.iter().all(|n| n.starts_with("PersistentVolumeClaim/") || n.starts_with("Secret/")),
        "{names:?}"
    );
    assert!(names.contains(&format!("PersistentVolumeClaim/store-{release}-0")), "{names:?}");
    let seen =
        ok(&world, "/inspect", &request().expect("main", stopped.clone(), outputs(&ended)).body()).await;
    assert_eq!(
        (&seen["resources"][0]["presence"], &seen["resources"][0]["drift"]),
        (&json!("present"), &json!([])),
        "{seen}"
    );
    assert_eq!(ok(&world, "/plan", &stop).await["changes"][0]["action"], "no-op");

    let start = request().update(running.clone(), stopped).body();
    let started = ok(&world, "/apply", &start).await;
    assert_eq!(
        (&outputs(&started)["phase"], &outputs(&started)["revision"]),
        (&json!("Running"), &json!(1)),
        "{started}"
    );
    assert!(!left(&world).iter().any(|n| n.ends_with("-stopped")), "{:?}", left(&world));

    let delete = request().delete(running).body();
    let plan = ok(&world, "/plan", &delete).await;
    assert!(plan["changes"][0]["warnings"].to_string().contains(&format!("store-{release}-0")), "{plan}");
    ok(&world, "/apply", &delete).await;
    assert_eq!(left(&world), ["PersistentVolumeClaim/store-other-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_by_itself_is_told_and_no_drift() {
    let world = world().await;
    let made = ok(&world, "/apply", &request().create(settings()).body()).await;
    let pod = format!("{}-0", outputs(&made)["release"].as_str().unwrap());
    world.cluster.restart_container("ksml-acme", &pod, "ksml");
    let seen = ok(&world, "/inspect", &request().expect("main", settings(), outputs(&made)).body()).await;
    let resource = &seen["resources"][0];
    assert_eq!(
        (&resource["outputs"]["pods"]["restarts"], &resource["drift"]),
        (&json!(1), &json!([])),
        "{seen}"
    );
    assert_eq!(outputs(&made)["pods"]["restarts"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_ksml_would_refuse_is_told_before_any_write() {
    let world = world().await;
    let deep = format!("description: {}{}\n", "[".repeat(63), "]".repeat(63));
    ok(&world, "/plan", &request().create(with(json!({"definitions": {"deep": deep}}))).body()).await;
    let before = world.cluster.resource_version();
    for text in [
        "streams: {in: {topic: a}}\npipelines: {p: {from: inn, print: true}}\n".to_owned(),
        format!("description: {}{}\n", "[".repeat(5000), "]".repeat(5000)),
        format!("description: {}\n", "{a: ".repeat(5000)),
    ] {
        let body = request().create(with(json!({"definitions": {"orders": text}}))).body();
        for path in ["/plan", "/apply"] {
            let answer = world.post(path, &body).await.json;
            assert_eq!(
                (&answer["code"], &answer["path"]),
                (&json!("invalid-definition"), &json!("/definitions/orders")),
                "{answer}"
            );
        }
    }
    assert_eq!(world.cluster.resource_version(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_file_lie_under_those_of_the_table_and_the_charts_schema_counts() {
    let config = format!(
        "{KSML}\n[plugins.ksml.config-files]\nvalues-file = \"FOLDER/values.yaml\"\n[plugins.ksml.config.values]\nservice = {{ port = 81 }}\n"
    );
    let site = Wanted::new().plugin("ksml").config(&config).site().await;
    site.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let file = site.folder.path().join("values.yaml");
    std::fs::write(&file, "service: {port: 82, type: NodePort}\npodLabels: {from: file}\nreplicaCount: 9\n")
        .unwrap();
    let world = site.start().await;
    ok(&world, "/apply", &request().create(settings()).body()).await;
    let objects = world.cluster.objects();
    let of =
        |kind: &str| objects.iter().find(|o| o["kind"] == kind && o["spec"]["clusterIP"] != "None").unwrap();
    let spec = &of("Service")["spec"];
    assert_eq!((&spec["type"], &spec["ports"][0]["port"]), (&json!("NodePort"), &json!(81)), "{spec}");
    let set = &of("StatefulSet")["spec"];
    assert_eq!(
        (&set["template"]["metadata"]["labels"]["from"], &set["replicas"]),
        (&json!("file"), &json!(1))
    );

    std::fs::write(&file, "image: {pullPolicy: Sometimes}\n").unwrap();
    world.reload().await;
    let answer =
        world.post("/apply", &request().update(with(json!({"size": "M"})), settings()).body()).await.json;
    let reason = answer["reason"].as_str().unwrap_or_default();
    assert!(answer["code"] == "render" && reason.contains("pullPolicy"), "{answer}");
}

fn password(word: &str) -> Value {
    let mut all = settings();
    all["kafka"]["security"]["password"] = json!(word);
    all
}

/// The Secrets with the application's keys and passwords, by name, and what is in them.
fn logins(cluster: &Emulator) -> BTreeMap<String, Value> {
    let all = cluster.objects().into_iter().filter(|o| o["kind"] == "Secret");
    let named = all.map(|o| (o["metadata"]["name"].as_str().unwrap().to_owned(), o["data"].clone()));
    named.filter(|(name, _)| name.contains("-kafka")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_fails_leaves_the_secret_of_what_runs() {
    let config = format!("{KSML}\n[plugins.ksml.config-files]\nvalues-file = \"FOLDER/values.yaml\"\n");
    let site = Wanted::new().plugin("ksml").config(&config).site().await;
    site.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let file = site.folder.path().join("values.yaml");
    std::fs::write(&file, "podLabels: {from: file}\n").unwrap();
    let world = site.start().await;
    ok(&world, "/apply", &request().create(settings()).body()).await;
    let before = logins(&world.cluster);
    assert_eq!(before.len(), 1, "{:?}", before.keys());
    std::fs::write(&file, "image: {pullPolicy: Sometimes}\n").unwrap();
    world.reload().await;
    let update = request().update(password("another"), settings()).body();
    let answer = world.post("/apply", &update).await.json;
    assert_eq!(answer["code"], "render", "{answer}");
    let (name, data) = before.first_key_value().unwrap();
    assert_eq!(logins(&world.cluster).get(name), Some(data), "what runs mounts it");
    std::fs::write(&file, "podLabels: {from: file}\n").unwrap();
    world.reload().await;
    ok(&world, "/apply", &update).await;
    let after = logins(&world.cluster);
    assert!(after.len() == 1 && !after.contains_key(name), "{:?}", after.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_is_cancelled_goes_back_with_its_secret() {
    let config = format!("{KSML}\n[ledger]\npath = \"FOLDER/ledger.db\"\n");
    let site = Wanted::new().plugin("ksml").config(&config).site().await;
    site.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let host = site.host().await;
    let api = Caller::new(&host.url);
    let made = api.apply(&request().create(settings()).body()).await;
    assert_eq!(made.json["outcome"], "succeeded", "{}", made.text);
    let before = logins(&site.cluster);
    let update = request().update(password("another"), settings()).body();
    let updated = api.apply(&update).await;
    assert_eq!(updated.json["outcome"], "succeeded", "{}", updated.text);
    assert_ne!(logins(&site.cluster), before);
    let listed = api.get("/operations").await.json;
    let operations = listed["operations"].as_array().unwrap();
    let id =
        operations.iter().find(|o| o["requestId"] == update["requestId"]).unwrap()["operationId"].clone();
    let id = id.as_str().unwrap();
    seven::cancel(&site, id).await;
    seven::until(&api, id, |now| now["code"] == "cancelled").await;
    assert_eq!(logins(&site.cluster), before, "the Secret of before, and no other one");
    let set = site.cluster.objects().into_iter().find(|o| o["kind"] == "StatefulSet").unwrap();
    let (name, _) = before.first_key_value().unwrap();
    assert!(set["spec"]["template"].to_string().contains(&format!("{name:?}")), "{set}");
    let again = api.post("/plan", &request().update(settings(), settings()).body()).await.json;
    assert_eq!(again["changes"][0]["action"], "no-op", "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_are_told_with_their_place() {
    let world = world().await;
    let kafka = |key: &str, value: &str| {
        let mut all = settings();
        all["kafka"][key] = json!(value);
        all
    };
    let labels = |key: &str, value: &str| {
        let monitor = json!({"enabled": true, "labels": {key: value}});
        with(json!({"metrics": {"enabled": true, "serviceMonitor": monitor}}))
    };
    let registry = with(json!({"schemaRegistry": {"url": "http://registry:8081/\n"}}));
    let rule = with(json!({"networkPolicy": {"enabled": true, "ingress": [{"form": []}]}}));
    let monitored = "/metrics/serviceMonitor/labels";
    for (wanted, place) in [
        (kafka("applicationId", ""), "/kafka/applicationId"),
        (kafka("applicationId", "a\nb"), "/kafka/applicationId"),
        (kafka("bootstrapServers", "kafka:9092\nx=y"), "/kafka/bootstrapServers"),
        (kafka("tenant", "a\u{0}b"), "/kafka/tenant"),
        (kafka("instance", "a\tb"), "/kafka/instance"),
        (kafka("environment", ""), "/kafka/environment"),
        (kafka("topicPattern", "{topic}\n"), "/kafka/topicPattern"),
        (kafka("groupIdPattern", "{group.id}\r"), "/kafka/groupIdPattern"),
        (kafka("transactionalIdPattern", "\u{7f}"), "/kafka/transactionalIdPattern"),
        (registry, "/schemaRegistry/url"),
        (labels("app.kubernetes.io/instance", "other"), monitored),
        (labels("helm.sh/chart", "other"), monitored),
        (labels("sutler.dev/owner", "other"), monitored),
        (labels("no label", "x"), monitored),
        (labels("release", "no value!"), monitored),
        (rule, "/networkPolicy/ingress"),
    ] {
        let answer = world.post("/plan", &request().create(wanted).body()).await.json;
        assert_eq!(answer["code"], "invalid-settings", "{place}: {answer}");
        assert!(answer["path"].as_str().unwrap_or_default().starts_with(place), "{place}: {answer}");
    }
    let right = labels("prometheus.example/release", "main");
    ok(&world, "/plan", &request().create(right).body()).await;
    let several = kafka("bootstrapServers", "SSL://k1.example:9093, k2_x:9093");
    ok(&world, "/plan", &request().create(several).body()).await;
}
