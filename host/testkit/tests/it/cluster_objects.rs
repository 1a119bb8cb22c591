//! Discovery, objects, and the rules around them.

use serde_json::{Value, json};
use sutler_testkit::cluster::Readiness;

use super::*;

#[tokio::test]
async fn it_says_what_it_is() {
    let (_emulator, caller) = cluster().await;
    let version = caller.get("/version").await;
    assert_eq!(version.json["gitVersion"], "v1.37.2-sutler-emulator");
    for path in ["/version", "/apis", CONFIG_MAPS, "/no/such/path"] {
        assert_eq!(caller.get(path).await.headers["x-sutler-emulator"], "true", "{path}");
    }
}

#[tokio::test]
async fn discovery_lists_what_is_served() {
    let (_emulator, caller) = cluster().await;
    let groups = caller.get("/apis").await.json;
    let groups: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    assert!(
        ["apps", "batch", "monitoring.coreos.com", "policy"].iter().all(|g| groups.contains(g)),
        "{groups:?}"
    );
    let core = caller.get("/api/v1").await.json;
    let listed: Vec<&str> =
        core["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert!(["pods", "pods/log", "namespaces", "secrets"].iter().all(|r| listed.contains(r)), "{listed:?}");
    assert_eq!(caller.get("/apis/apps/v1").await.json["groupVersion"], "apps/v1");
    assert_eq!(caller.get("/apis/apps").await.json["preferredVersion"]["groupVersion"], "apps/v1");
    assert_eq!(caller.get("/apis/apps/v2").await.status, 404);
}

#[tokio::test]
async fn objects_come_change_and_go() {
    let (_emulator, caller) = cluster().await;
    let made = caller.post(CONFIG_MAPS, &config_map("a", &json!({"x": "1"}))).await;
    assert_eq!(made.status, 201);
    let again = caller.post(CONFIG_MAPS, &config_map("a", &json!({}))).await;
    assert_eq!((again.status, &again.json["reason"]), (409, &json!("AlreadyExists")));

    let path = format!("{CONFIG_MAPS}/a");
    let mut wanted = made.json.clone();
    wanted["data"]["x"] = json!("2");
    let put = caller.send(Method::PUT, &path, "application/json", Some(wanted.to_string())).await;
    assert_eq!((put.status, &put.json["metadata"]["generation"]), (200, &json!(2)));
    let stale = caller.send(Method::PUT, &path, "application/json", Some(wanted.to_string())).await;
    assert_eq!((stale.status, &stale.json["reason"]), (409, &json!("Conflict")));

    let patch = json!({"data": {"x": null, "y": "3"}}).to_string();
    let patched = caller.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await;
    assert_eq!(patched.json["data"], json!({"y": "3"}));
    let odd = caller.send(Method::PATCH, &path, "text/plain", Some("{}".into())).await;
    assert_eq!((odd.status, &odd.json["reason"]), (415, &json!("UnsupportedMediaType")));

    let other = json!({"preconditions": {"uid": "another"}}).to_string();
    let kept = caller.send(Method::DELETE, &path, "application/json", Some(other)).await;
    assert_eq!((kept.status, &kept.json["reason"]), (409, &json!("Conflict")));
    let uid = json!({"preconditions": {"uid": made.json["metadata"]["uid"]}}).to_string();
    assert_eq!(
        caller.send(Method::DELETE, &path, "application/json", Some(uid)).await.json["status"],
        "Success"
    );
    let gone = caller.get(&path).await;
    assert_eq!(
        (gone.status, &gone.json["reason"], &gone.json["details"]["kind"]),
        (404, &json!("NotFound"), &json!("configmaps"))
    );
    assert_eq!(caller.post(&path, &json!({})).await.status, 405);
}

#[tokio::test]
async fn what_breaks_a_rule_is_invalid() {
    let (_emulator, caller) = cluster().await;
    let big = "x".repeat((1 << 20) + 1);
    let mut other_labels = deployment("a", 1);
    other_labels["spec"]["template"]["metadata"]["labels"] = json!({"app": "b"});
    for (path, object, field) in [
        (CONFIG_MAPS, config_map("Not_A_Name", &json!({})), "metadata.name"),
        (CONFIG_MAPS, config_map("big", &json!({"x": big})), "data"),
        (DEPLOYMENTS, other_labels, "spec.template.metadata.labels"),
    ] {
        let refused = caller.post(path, &object).await;
        assert_eq!((refused.status, &refused.json["details"]["causes"][0]["field"]), (422, &json!(field)));
    }
    let mut elsewhere = config_map("a", &json!({}));
    elsewhere["metadata"]["namespace"] = json!("other");
    assert_eq!(caller.post(CONFIG_MAPS, &elsewhere).await.status, 400);
    let nowhere = caller.post("/api/v1/namespaces/other/configmaps", &elsewhere).await;
    assert_eq!((nowhere.status, &nowhere.json["details"]["kind"]), (404, &json!("namespaces")));
    assert_eq!(caller.post(CONFIG_MAPS, &deployment("a", 1)).await.status, 400);
}

#[tokio::test]
async fn a_job_cannot_be_changed_in_place() {
    let (emulator, caller) = cluster().await;
    let job = |image: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "default"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}}},
        })
    };
    let made = apply(&caller, "jobs", &job("a:1"), "fieldManager=one").await;
    assert_eq!((made.status, &made.json["status"]["succeeded"]), (201, &json!(1)));
    let refused = apply(&caller, "jobs", &job("a:2"), "fieldManager=one").await;
    assert_eq!(
        (refused.status, &refused.json["details"]["causes"][0]["field"]),
        (422, &json!("spec.template"))
    );
    let pods = caller.get(&format!("{PODS}?labelSelector=job-name%3Donce")).await.json;
    assert_eq!(pods["items"][0]["status"]["phase"], "Succeeded");
    caller.send(Method::DELETE, "/apis/batch/v1/namespaces/default/jobs/once", "", None).await;
    assert!(emulator.objects().iter().all(|o| o["kind"] != "Pod"));
}

#[tokio::test]
async fn secrets_are_stored_as_data() {
    let (_emulator, caller) = cluster().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"a": "b"},
    });
    let made = apply(&caller, "secrets", &secret, "fieldManager=one").await.json;
    assert_eq!((&made["data"], &made["type"]), (&json!({"a": "Yg=="}), &json!("Opaque")));
    assert_eq!(made["stringData"], Value::Null);
}

#[tokio::test]
async fn lists_are_selected_and_paged() {
    let (_emulator, caller) = cluster().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        let mut object = config_map(name, &json!({}));
        object["metadata"]["labels"] = json!({"tier": tier});
        caller.post(CONFIG_MAPS, &object).await;
    }
    let list = async |query: &str| caller.get(&format!("{CONFIG_MAPS}?{query}")).await.json;
    assert_eq!(names(&list("labelSelector=tier%3Dx").await), ["a", "c", "d"]);
    assert_eq!(names(&list("labelSelector=tier+notin+(x)").await), ["b"]);
    assert_eq!(names(&list("fieldSelector=metadata.name%3Dc").await), ["c"]);
    let first = list("labelSelector=tier%3Dx&limit=2").await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "c"], &json!(1)));
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = list(&format!("labelSelector=tier%3Dx&limit=2&continue={token}")).await;
    assert_eq!((names(&second), &second["metadata"]["continue"]), (vec!["d"], &Value::Null));
    assert_eq!(caller.get(&format!("{CONFIG_MAPS}?labelSelector=%3D%2C")).await.status, 400);
    assert_eq!(names(&caller.get("/api/v1/configmaps").await.json), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_deployment_is_ready_at_once_and_its_pods_follow_it() {
    let (emulator, caller) = cluster().await;
    let made = apply(&caller, "deployments", &deployment("web", 2), "fieldManager=one").await.json;
    assert_eq!(
        (&made["status"]["readyReplicas"], &made["status"]["observedGeneration"]),
        (&json!(2), &json!(1))
    );
    let pods = async || caller.get(&format!("{PODS}?labelSelector=app%3Dweb")).await.json;
    let before = pods().await;
    assert_eq!(before["items"].as_array().unwrap().len(), 2);
    assert_eq!(before["items"][0]["status"]["phase"], "Running");

    let mut other = deployment("web", 1);
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x:2");
    let changed = apply(&caller, "deployments", &other, "fieldManager=one").await.json;
    assert_eq!(changed["status"]["observedGeneration"], 2);
    let after = pods().await;
    assert_eq!(after["items"].as_array().unwrap().len(), 1);
    assert_eq!(after["items"][0]["spec"]["containers"][0]["image"], "x:2");

    let name = names(&after)[0].to_owned();
    caller.send(Method::DELETE, &format!("{PODS}/{name}"), "", None).await;
    let replaced = pods().await;
    assert_eq!(names(&replaced).len(), 1);
    assert_ne!(names(&replaced), [name]);

    emulator.set_readiness(Readiness::Never);
    let stuck = caller.get(&format!("{DEPLOYMENTS}/web")).await.json;
    assert_eq!(
        (&stuck["status"]["readyReplicas"], &pods().await["items"][0]["status"]["phase"]),
        (&json!(0), &json!("Pending"))
    );
    emulator.set_readiness(Readiness::Instant);
    assert_eq!(caller.get(&format!("{DEPLOYMENTS}/web")).await.json["status"]["readyReplicas"], 1);

    caller.send(Method::DELETE, &format!("{DEPLOYMENTS}/web"), "", None).await;
    assert!(names(&pods().await).is_empty());
}

#[tokio::test]
async fn a_stateful_set_names_its_pods() {
    let (_emulator, caller) = cluster().await;
    let mut set = deployment("db", 2);
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("db");
    assert_eq!(
        apply(&caller, "statefulsets", &set, "fieldManager=one").await.json["status"]["readyReplicas"],
        2
    );
    assert_eq!(names(&caller.get(PODS).await.json), ["db-0", "db-1"]);
}

#[tokio::test]
async fn a_namespace_goes_with_what_is_in_it() {
    let (emulator, caller) = cluster().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme"}});
    let made = caller.post("/api/v1/namespaces", &namespace).await.json;
    assert_eq!(made["status"]["phase"], "Active");
    let mut object = config_map("a", &json!({}));
    object["metadata"]["namespace"] = json!("acme");
    assert_eq!(caller.post("/api/v1/namespaces/acme/configmaps", &object).await.status, 201);
    caller.send(Method::DELETE, "/api/v1/namespaces/acme", "", None).await;
    assert!(emulator.object("ConfigMap", "acme", "a").is_none());
    assert!(emulator.object("Namespace", "", "acme").is_none());
}

#[tokio::test]
async fn a_finalizer_holds_an_object() {
    let (_emulator, caller) = cluster().await;
    let mut object = config_map("a", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    caller.post(CONFIG_MAPS, &object).await;
    let path = format!("{CONFIG_MAPS}/a");
    caller.send(Method::DELETE, &path, "", None).await;
    assert!(caller.get(&path).await.json["metadata"]["deletionTimestamp"].is_string());
    let patch = json!({"metadata": {"finalizers": null}}).to_string();
    caller.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await;
    assert_eq!(caller.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_definition_brings_its_kind() {
    let (_emulator, caller) = cluster().await;
    let things = "/apis/example.com/v1/namespaces/default/things";
    assert_eq!(caller.get(things).await.status, 404);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = caller.post(definitions, &definition).await;
    assert_eq!(made.json["status"]["conditions"][1]["type"], "Established", "{}", made.text);
    assert_eq!(caller.get(things).await.json["kind"], "ThingList");
    caller.send(Method::DELETE, &format!("{definitions}/things.example.com"), "", None).await;
    assert_eq!(caller.get(things).await.status, 404);
}

#[tokio::test]
async fn access_is_allowed_unless_denied() {
    let (emulator, caller) = cluster().await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "create", "resource": "configmaps", "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(caller.post(path, &review).await.json["status"]["allowed"], true);
    emulator.deny("create", "configmaps");
    assert_eq!(caller.post(path, &review).await.json["status"]["allowed"], false);
    assert_eq!(caller.post(CONFIG_MAPS, &config_map("a", &json!({}))).await.status, 403);
    assert_eq!(caller.get(CONFIG_MAPS).await.status, 200);
}
