//! Which pods a call sees.

use futures::StreamExt as _;
use sutler_logs::{Error, LogLine, StreamOptions};

use crate::server::{Server, call, container, grants, owner, pod, source};

#[tokio::test]
async fn in_a_shared_namespace_only_the_owners_pods_are_asked_for() {
    let own = format!("sutler.dev/owner={}", owner("acme").hash());
    for (layers, ns, selector) in [
        (&["namespaces = ['connect']"][..], "connect", own.clone()),
        (&["namespaces = ['*']"], "acme", own.clone()),
        (&["namespaces = ['{tenant}']"], "acme", String::new()),
        // With a wildcard beside it the placeholder does not keep tenants apart.
        (&["namespaces = ['{tenant}-*']"], "acme-x", own.clone()),
        (&["namespaces = ['{tenant}', '*']"], "other", own.clone()),
        (&["namespaces = ['connect']\nany-owner = true"], "connect", String::new()),
        // Every layer must say so, or one of them isolate.
        (&["namespaces = ['*']\nany-owner = true", "namespaces = ['connect']"], "connect", own.clone()),
        (&["namespaces = ['{tenant}']", "namespaces = ['*']"], "acme", String::new()),
    ] {
        let server = Server::default();
        let logs = server.logs().await;
        logs.pods(&call(), &grants(layers), None, ns, "").await.unwrap();
        assert_eq!(server.requests(), vec![format!("list {ns} {selector}")], "{layers:?}");
    }
}

#[tokio::test]
async fn the_owners_label_is_added_to_a_selector() {
    let server = Server::default();
    let mut theirs = pod(vec![container("c").with(&[1])]);
    theirs.labels =
        [("app", "x"), ("sutler.dev/owner", "somebody-else")].map(|(k, v)| (k.into(), v.into())).into();
    let mut ours = theirs.clone();
    ours.labels.insert("sutler.dev/owner".into(), owner("acme").hash());
    server.set("connect/theirs", theirs);
    server.set("connect/ours", ours);
    let logs = server.logs().await;
    let shared = grants(&["namespaces = ['connect']"]);
    let mut from = source("connect");
    from.label_selector = "app=x".into();
    let lines: Vec<LogLine> =
        logs.stream(&call(), &shared, vec![from], StreamOptions::default()).await.unwrap().collect().await;
    assert!(matches!(&lines[..], [LogLine::Line { pod, .. }] if pod == "ours"), "{lines:?}");
    assert_eq!(server.requests()[0], format!("list connect sutler.dev/owner={},app=x", owner("acme").hash()));
}

#[tokio::test]
async fn without_a_grant_nothing_is_sent() {
    let server = Server::default();
    let logs = server.logs().await;
    let granted = grants(&["namespaces = ['acme']"]);
    let one =
        logs.stream(&call(), &granted, vec![source("acme"), source("other")], StreamOptions::default()).await;
    let Err(Error::NotGranted(n)) = one.map(drop) else { panic!() };
    assert_eq!(n.what, "reading logs in namespace other");
    assert_eq!(n.add, r#"logs = { namespaces = ["other"] }"#);
    let mut edge = source("acme");
    edge.cluster = Some("edge".into());
    let two = logs.stream(&call(), &granted, vec![edge], StreamOptions::default()).await;
    assert!(matches!(two.map(drop), Err(Error::NotGranted(n)) if n.add.contains(r#"clusters = ["edge"]"#)));
    assert!(server.requests().is_empty());
}
