//! What plugins may ask, and what they get.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_kubernetes::{Error, MAX_MANIFEST_BYTES, Propagation, Reference, Selector};
use sutler_model::Mode;

use crate::server::{ALL, Server, call, grants};

fn of(kind: &str, namespace: Option<&str>, name: &str) -> Reference {
    Reference {
        cluster: None,
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
    }
}

fn config_map(name: &str, namespace: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
}

fn pods(namespace: Option<&str>) -> Selector {
    Selector {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: namespace.map(Into::into),
        ..Selector::default()
    }
}

#[tokio::test]
async fn calls_that_read_cannot_write() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let text = config_map("c", Some("acme")).to_string();
    let c = of("ConfigMap", Some("acme"), "c");
    for mode in [Mode::Describe, Mode::Plan, Mode::Inspect, Mode::Locate] {
        let (call, all) = (call(mode), grants(ALL));
        assert_eq!(k.apply(&call, &all, None, &text, false).await, Err(Error::ReadOnlyCall));
        assert_eq!(k.create(&call, &all, None, &text).await, Err(Error::ReadOnlyCall));
        assert_eq!(k.patch(&call, &all, &c, "{}").await, Err(Error::ReadOnlyCall));
        assert_eq!(k.delete(&call, &all, &c, None, Propagation::Orphan).await, Err(Error::ReadOnlyCall));
    }
    assert!(server.all_requests().is_empty());
    let shown = k.dry_run_apply(&call(Mode::Plan), &grants(ALL), None, &text, false).await.unwrap();
    assert!(shown.pointer("/metadata/labels/sutler.dev~1owner").is_some());
    assert!(server.last().query.contains("dryRun=All"));
    assert_eq!(server.object("/api/v1/namespaces/acme/configmaps/c"), None);
}

#[tokio::test]
async fn nothing_is_sent_without_a_grant() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let (call, all) = (call(Mode::Apply), grants(ALL));
    let refused = [
        k.get(&call, &all, &of("Secret", Some("acme"), "s")).await.map(drop),
        k.get(&call, &all, &of("ConfigMap", Some("other"), "c")).await.map(drop),
        k.get(&call, &all, &of("Namespace", None, "acme")).await.map(drop),
        k.list(&call, &all, &pods(None)).await.map(drop),
        k.list(&call, &all, &pods(Some("other"))).await.map(drop),
        k.apply(&call, &all, None, &config_map("c", Some("other")).to_string(), false).await.map(drop),
        k.apply(&call, &all, Some("edge"), &config_map("c", Some("acme")).to_string(), false).await.map(drop),
    ];
    for answer in refused {
        assert!(matches!(answer, Err(Error::NotGranted(_))), "{answer:?}");
    }
    assert!(server.all_requests().is_empty(), "{:?}", server.all_requests());
}

#[tokio::test]
async fn a_namespace_does_not_smuggle_in_a_cluster_scoped_object() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "namespace": "acme"}});
    let answer = k.apply(&call(Mode::Apply), &grants(ALL), None, &namespace.to_string(), true).await;
    assert!(matches!(&answer, Err(Error::Invalid(m)) if m.contains("cluster-scoped")), "{answer:?}");
    let cluster_wide = grants("kubernetes = [{ verbs = ['get', 'list', 'apply'], kinds = ['*'] }]");
    let answer =
        k.apply(&call(Mode::Apply), &cluster_wide, None, &config_map("c", None).to_string(), true).await;
    assert!(matches!(&answer, Err(Error::Invalid(m)) if m.contains("lives in a namespace")), "{answer:?}");
    // A list without a namespace is of all namespaces, which that rule does not cover.
    let answer = k.list(&call(Mode::Plan), &cluster_wide, &pods(None)).await;
    assert!(matches!(answer, Err(Error::NotGranted(_))), "{answer:?}");
    assert!(server.requests().is_empty(), "{:?}", server.requests());
}

#[tokio::test]
async fn kinds_of_subresources_are_no_objects() {
    let server = Server::default();
    let k = server.kubernetes().await;
    for kind in ["TokenRequest", "Eviction", "Nope"] {
        let answer = k.get(&call(Mode::Plan), &grants(ALL), &of(kind, Some("acme"), "default")).await;
        assert!(matches!(answer, Err(Error::Other { code: "unknown-kind", .. })), "{kind}: {answer:?}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn names_are_checked_before_anything_is_sent() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let any = grants("kubernetes = [{ verbs = ['get'], kinds = ['*'], namespaces = ['*'] }]");
    for (ns, name) in [
        ("acme/../kube-system", "c"),
        ("acme", "../../secrets/s"),
        ("acme", ".."),
        ("acme", "c?x=y"),
        ("acme", "c%2Fd"),
        ("", "c"),
    ] {
        let answer = k.get(&call(Mode::Plan), &any, &of("ConfigMap", Some(ns), name)).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{ns} {name}: {answer:?}");
    }
    assert!(server.all_requests().is_empty());
}

#[tokio::test]
async fn lists_page_and_hide_bookkeeping() {
    let server = Server::default();
    server.put(
        "/api/v1/namespaces/acme/pods",
        json!({"kind": "PodList", "metadata": {"continue": "next"},
        "items": [{"metadata": {"name": "p", "managedFields": [1]}}]}),
    );
    let k = server.kubernetes().await;
    let mut selector = pods(Some("acme"));
    selector.labels = "app=x,tier in (a,b)".into();
    selector.limit = 7;
    let page = k.list(&call(Mode::Plan), &grants(ALL), &selector).await.unwrap();
    assert_eq!(page.continue_token.as_deref(), Some("next"));
    assert_eq!(page.items, vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})]);
    assert_eq!(server.last().query, "limit=7&labelSelector=app%3Dx%2Ctier%20in%20%28a%2Cb%29");
    // One name of a kind whose names are limited.
    let one =
        grants("kubernetes = [{ verbs = ['list'], kinds = ['Pod'], namespaces = ['acme'], names = ['p'] }]");
    assert!(matches!(k.list(&call(Mode::Plan), &one, &selector).await, Err(Error::NotGranted(_))));
    selector.fields = "metadata.name=p".into();
    k.list(&call(Mode::Plan), &one, &selector).await.unwrap();
}

#[tokio::test]
async fn manifests_have_limits() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let mut large = config_map("c", Some("acme"));
    large["data"] = json!({"k": "x".repeat(MAX_MANIFEST_BYTES)});
    for text in [
        large.to_string(),
        "[]".into(),
        "{".into(),
        "{}".into(),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"c-"}}"#.into(),
    ] {
        let answer = k.apply(&call(Mode::Apply), &grants(ALL), None, &text, false).await;
        let Err(Error::Invalid(message)) = answer else { panic!("{answer:?}") };
        assert!(message.len() < 200, "{message}");
    }
    assert!(server.all_requests().is_empty());
}

#[tokio::test]
async fn create_says_what_exists() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let text = config_map("c", Some("acme")).to_string();
    k.create(&call(Mode::Apply), &grants(ALL), None, &text).await.unwrap();
    let sent = server.last();
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/api/v1/namespaces/acme/configmaps"));
    assert!(sent.body.pointer("/metadata/labels/sutler.dev~1owner").is_some());
    assert_eq!(k.create(&call(Mode::Apply), &grants(ALL), None, &text).await, Err(Error::AlreadyExists));
}

#[tokio::test]
async fn can_i_is_grant_and_role() {
    let server = Server::default();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    server.answer("POST", path, 201, json!({"status": {"allowed": true}}));
    let k = server.kubernetes().await;
    let (call, all) = (call(Mode::Plan), grants(ALL));
    let c = of("ConfigMap", Some("acme"), "c");
    assert!(k.can_i(&call, &all, "apply", &c).await.unwrap());
    assert_eq!(
        server.last().body["spec"]["resourceAttributes"],
        json!({"verb": "patch", "group": "", "version": "v1",
        "resource": "configmaps", "namespace": "acme", "name": "c"})
    );
    let asked = server.requests().len();
    assert!(!k.can_i(&call, &all, "get", &of("Secret", Some("acme"), "s")).await.unwrap());
    assert!(!k.can_i(&call, &all, "impersonate", &c).await.unwrap());
    assert_eq!(server.requests().len(), asked, "without a grant the cluster is not asked");
    server.answer("POST", path, 201, json!({"status": {"allowed": false}}));
    assert!(!k.can_i(&call, &all, "apply", &c).await.unwrap());
}

#[tokio::test]
async fn the_call_s_end_is_told_from_a_slow_cluster() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let c = of("ConfigMap", Some("acme"), "c");
    let _ = k.get(&call(Mode::Plan), &grants(ALL), &c).await;
    server.delay(Duration::from_secs(5));
    let mut short = call(Mode::Plan);
    short.deadline = Instant::now() + Duration::from_millis(200);
    assert_eq!(k.get(&short, &grants(ALL), &c).await, Err(Error::TimedOut));
    let answer = k.get(&call(Mode::Plan), &grants(ALL), &c).await;
    assert!(matches!(&answer, Err(Error::Unavailable(m)) if m.contains("within 1 s")), "{answer:?}");
}
