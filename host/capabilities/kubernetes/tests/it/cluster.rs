//! The client without grants.

use std::collections::BTreeMap;

use serde_json::json;
use sutler_kubernetes::{Cluster, ClusterConfig, Clusters, ClustersConfig, Error, Reference};

use crate::server::{Server, kubeconfig};

#[tokio::test]
async fn an_unreachable_cluster_is_worth_a_retry_and_shows_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    // Port 1 is not listened on.
    std::fs::write(&path, kubeconfig(1)).unwrap();
    let config = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
    let cluster = Cluster::connect("edge", &config).await.unwrap();
    let error = cluster.version().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(m) if m.contains("\"edge\" cannot be reached")), "{error:?}");
    assert!(!format!("{error:?} {cluster:?}").contains("top-secret-token"));
}

#[tokio::test]
async fn kubeconfigs_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig(1)).unwrap();
    let bad = folder.path().join("bad");
    std::fs::write(&bad, "token: top-secret-token\n\t{").unwrap();
    for (file, context, why) in [
        (folder.path().join("none"), None, "cannot be read"),
        (bad, None, "cannot be read"),
        (path, Some("other"), "context other"),
    ] {
        let config = ClusterConfig {
            kubeconfig: Some(file),
            context: context.map(Into::into),
            ..ClusterConfig::default()
        };
        let error = Cluster::connect("default", &config).await.unwrap_err();
        assert!(
            matches!(&error, Error::Other { code: "kubeconfig", message } if message.contains(why)),
            "{error:?}"
        );
        assert!(!error.to_string().contains("top-secret-token"));
    }
}

#[tokio::test]
async fn clusters_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig(1)).unwrap();
    let good = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
    let bad = ClusterConfig { kubeconfig: Some(folder.path().join("none")), ..ClusterConfig::default() };
    let config = ClustersConfig {
        default: "a".into(),
        clusters: BTreeMap::from([("a".into(), good), ("b".into(), bad)]),
    };
    let clusters = Clusters::new(&config).unwrap();
    assert_eq!(clusters.get(None).await.unwrap().name(), "a");
    assert!(clusters.is_default(Some("a")) && !clusters.is_default(Some("b")));
    assert!(matches!(clusters.get(Some("b")).await, Err(Error::Other { code: "kubeconfig", .. })));
    assert!(matches!(clusters.get(Some("c")).await, Err(Error::Other { code: "unknown-cluster", .. })));
    assert!(Clusters::connect(&config).await.is_err());
    let wrong = ClustersConfig { default: "x".into(), ..config };
    assert!(matches!(Clusters::new(&wrong), Err(Error::Invalid(_))));
}

#[test]
fn configuration_keys() {
    let toml = "default = 'a'\n[clusters.a]\nkubeconfig = '/k'\ncontext = 'x'\ntimeout-seconds = 5\n";
    let config: ClustersConfig = toml::from_str(toml).unwrap();
    assert_eq!(config.clusters["a"].timeout_seconds, 5);
    assert!(toml::from_str::<ClustersConfig>("[clusters.a]\ntimeout = 5").is_err());
}

#[tokio::test]
async fn discovery_is_asked_once_and_again_for_a_new_kind() {
    let server = Server::default();
    let cluster = server.cluster().await;
    let of = |kind: &str| Reference {
        cluster: None,
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: Some("a".into()),
        name: "x".into(),
    };
    for _ in 0..3 {
        assert_eq!(cluster.get(&of("ConfigMap")).await, Err(Error::NotFound));
    }
    let discoveries = || server.all_requests().iter().filter(|r| r.path == "/api/v1").count();
    assert_eq!(discoveries(), 1);
    assert!(cluster.get(&of("Widget")).await.is_err());
    server.answer(
        "GET",
        "/api/v1",
        200,
        json!({"resources": [{"name": "widgets", "kind": "Widget", "namespaced": true}]}),
    );
    assert_eq!(cluster.get(&of("Widget")).await, Err(Error::NotFound));
    assert_eq!(server.last().path, "/api/v1/namespaces/a/widgets/x");
    assert_eq!(discoveries(), 3);
}

#[tokio::test]
async fn versions_as_helm_wants_them() {
    let server = Server::default();
    let cluster = server.cluster().await;
    server.answer("GET", "/version", 200, json!({"gitVersion": "v1.37.2", "major": "1"}));
    assert_eq!(cluster.version().await.unwrap(), "v1.37.2");
    // The plain form.
    server.answer("GET", "/api", 200, json!({"kind": "APIVersions", "versions": ["v1"]}));
    server.answer("GET", "/apis", 200, json!({"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [{"groupVersion": "apps/v1"}]}]}));
    let plain = cluster.api_versions().await.unwrap();
    for id in ["v1", "v1/Pod", "v1/Eviction", "apps/v1", "apps/v1/Deployment", "apps/v1/Scale"] {
        assert!(plain.iter().any(|v| v == id), "{id} in {plain:?}");
    }
    // The aggregated form.
    let kind = |k: &str| json!({"group": "", "version": "", "kind": k});
    server.answer("GET", "/api", 200, json!({"kind": "APIGroupDiscoveryList", "items": [
        {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [
            {"resource": "pods", "responseKind": kind("Pod"), "subresources": [{"subresource": "eviction", "responseKind": kind("Eviction")}]}]}]}]}));
    server.answer("GET", "/apis", 200, json!({"kind": "APIGroupDiscoveryList", "items": [
        {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [{"resource": "deployments", "responseKind": kind("Deployment")}]}]}]}));
    assert_eq!(
        cluster.api_versions().await.unwrap(),
        ["apps/v1", "apps/v1/Deployment", "v1", "v1/Eviction", "v1/Pod"]
    );
}

#[tokio::test]
async fn something_else_than_an_api_server() {
    let server = Server::default();
    let cluster = server.cluster().await;
    server.answer("GET", "/version", 200, json!("<html>"));
    assert!(matches!(cluster.version().await, Err(Error::Other { code: "unexpected-answer", .. })));
    server.answer("GET", "/version", 401, json!({"kind": "Status", "reason": "Unauthorized", "code": 401}));
    assert!(matches!(cluster.version().await, Err(Error::Forbidden(_))));
}
