//! A KSML application that stops, starts, restarts and goes, and what is refused of one, on emulated parts.

use serde_json::{Value, json};

use crate::life::{KSML, chart, ok, request, settings, world};
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
    let host = site.host().await;
    let world = World {
        host,
        cluster: site.cluster,
        registry: site.registry,
        folder: site.folder,
        config: site.config,
    };
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
