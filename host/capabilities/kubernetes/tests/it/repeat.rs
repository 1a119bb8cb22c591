//! What is sent again, and what never is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_kubernetes::{ApplyOptions, Cluster, ClusterConfig, Error, Propagation, Reference};
use sutler_model::{Fence, Mode};

use crate::server::{Server, call, kubeconfig};

const PATH: &str = "/api/v1/namespaces/acme/configmaps/x";
const COLLECTION: &str = "/api/v1/namespaces/acme/configmaps";

fn object() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "acme"}})
}

fn reference() -> Reference {
    Reference::of_manifest(&object()).unwrap()
}

fn options() -> ApplyOptions {
    ApplyOptions { field_manager: "m".into(), force: false, dry_run: false }
}

#[tokio::test]
async fn reads_and_applies_go_through_a_server_that_fails_now_and_then() {
    let busy = [Some((503, "0")), Some((500, "0")), None];
    for method in ["GET", "PATCH"] {
        let server = Server::default();
        server.put(PATH, object());
        let cluster = server.cluster().await;
        server.first(method, PATH, &busy);
        let answer = match method {
            "GET" => cluster.get(&reference()).await,
            _ => cluster.apply(&object(), &options()).await,
        };
        assert_eq!(answer.unwrap()["kind"], "ConfigMap");
        assert_eq!(server.requests().len(), 4, "{method}");
        server.first(method, PATH, &[Some((503, "0")); 4]);
        let answer = match method {
            "GET" => cluster.get(&reference()).await,
            _ => cluster.apply(&object(), &options()).await,
        };
        assert!(matches!(answer, Err(Error::Unavailable(_))), "four times are enough: {answer:?}");
        assert_eq!(server.requests().len(), 8, "{method}");
    }
}

#[tokio::test]
async fn what_may_have_had_its_effect_is_not_sent_again() {
    let server = Server::default();
    let cluster = server.cluster().await;
    for lost in [None, Some((503, "0"))] {
        server.first("POST", COLLECTION, &[lost]);
        let answer = cluster.create(&object(), "m", false).await;
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
    assert_eq!(server.requests().len(), 2);
    assert!(server.object(PATH).is_some(), "the first one arrived");
    server.first("DELETE", PATH, &[None]);
    let answer = cluster.delete(&reference(), None, Propagation::Background).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn what_the_server_put_off_is_sent_again_after_the_pause_that_it_asks_for() {
    let server = Server::default();
    let patient = |seconds| {
        let mut call = call(Mode::Apply);
        call.deadline = Instant::now() + Duration::from_secs(seconds);
        call
    };
    let cluster = server.slow_cluster(10).await;
    server.first("POST", COLLECTION, &[Some((429, "1"))]);
    let began = Instant::now();
    cluster.of_call(&patient(20)).create(&object(), "m", false).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(server.requests().len(), 2);
    server.first("GET", PATH, &[Some((429, "30"))]);
    let began = Instant::now();
    let answer = cluster.of_call(&patient(5)).get(&reference()).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "the reason rather than a time-out: {answer:?}");
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_lost_lease_writes_nothing() {
    let server = Server::default();
    server.put(PATH, object());
    let mut call = call(Mode::Apply);
    call.fence = Fence::until(Instant::now() + Duration::from_secs(60));
    let cluster = server.cluster().await.of_call(&call);
    cluster.apply(&object(), &options()).await.unwrap();
    let sent = server.requests().len();
    call.fence.lose();
    for answer in [
        cluster.apply(&object(), &options()).await.err(),
        cluster.create(&object(), "m", false).await.err(),
        cluster.replace(&object(), "m", false).await.err(),
        cluster.merge_patch(&reference(), &json!({}), "m").await.err(),
        cluster.delete(&reference(), None, Propagation::Background).await.err(),
    ] {
        assert_eq!(answer, Some(Error::TimedOut));
    }
    assert_eq!(server.requests().len(), sent);
    cluster.get(&reference()).await.unwrap();
}

#[tokio::test]
async fn discovery_is_sent_only_where_it_changed_and_is_never_old() {
    let server = Server::default();
    let groups = |tag: &str, kinds: &[&str]| {
        let resources: Vec<Value> = kinds.iter().map(|k| json!({"responseKind": {"kind": k}})).collect();
        let versions = json!([{"version": "v1", "resources": resources}]);
        json!({"etag": tag, "items": [{"metadata": {"name": "apps"}, "versions": versions}]})
    };
    server.put("/api", json!({"etag": "a", "items": [{"metadata": {}, "versions": [{"version": "v1"}]}]}));
    server.put("/apis", groups("b", &["Deployment"]));
    let cluster = server.cluster().await;
    for _ in 0..3 {
        let known = cluster.api_versions().await.unwrap();
        assert_eq!(known, ["apps/v1", "apps/v1/Deployment", "v1"]);
    }
    server.put("/apis", groups("c", &["Deployment", "Widget"]));
    assert!(cluster.api_versions().await.unwrap().contains(&"apps/v1/Widget".to_owned()), "at once");
}

/// A kubeconfig whose user is a credential plugin.
#[tokio::test]
async fn credentials_by_a_program() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Server::default();
    server.put(PATH, object());
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("credentials");
    let said = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"by-program"}}"#;
    std::fs::write(&program, format!("#!/bin/sh\necho '{said}'\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let user = format!(
        "{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: {program:?}}}}}}}"
    );
    let path = folder.path().join("kubeconfig");
    let text = kubeconfig(server.serve().await).replace("{name: u, user: {token: top-secret-token}}", &user);
    std::fs::write(&path, text).unwrap();
    let config = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
    let cluster = Cluster::connect("default", &config).await.unwrap();
    cluster.get(&reference()).await.unwrap();
    assert_eq!(server.last().authorization, "Bearer by-program");
}
