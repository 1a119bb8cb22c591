//! Which pods a call sees.

use futures::StreamExt as _;
use sutler_logs::{Error, LogLine, StreamOptions};

use crate::server::{Server, call, container, grants, owner, pod, source};

#[tokio::test]
async fn in_a_shared_namespace_only_the_owners_pods_are_seen() {
    for (layers, ns, all) in [
        (&["namespaces = ['connect']"][..], "connect", false),
        (&["namespaces = ['*']"], "acme", false),
        (&["namespaces = ['{tenant}']"], "acme", true),
        // With a wildcard beside it the placeholder does not keep tenants apart.
        (&["namespaces = ['{tenant}-*']"], "acme-x", false),
        (&["namespaces = ['{tenant}', '*']"], "other", false),
        (&["namespaces = ['connect']\nany-owner = true"], "connect", true),
        // Every layer must say so, or one of them isolate.
        (&["namespaces = ['*']\nany-owner = true", "namespaces = ['connect']"], "connect", false),
        (&["namespaces = ['{tenant}']", "namespaces = ['*']"], "acme", true),
    ] {
        let server = Server::default();
        let nobodys = pod(vec![container("c")]);
        let mut ours = nobodys.clone();
        ours.uid = "u-2".into();
        ours.labels.insert("sutler.dev/owner".into(), owner("acme").hash());
        server.set(&format!("{ns}/nobodys"), nobodys);
        server.set(&format!("{ns}/ours"), ours);
        let logs = server.logs().await;
        let pods = logs.pods(&call(), &grants(layers), None, ns, "").await.unwrap();
        let names: Vec<&str> = pods.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, if all { vec!["nobodys", "ours"] } else { vec!["ours"] }, "{layers:?}");
    }
}

#[tokio::test]
async fn another_owners_pods_are_no_part_of_a_stream() {
    let server = Server::default();
    let mut theirs = pod(vec![container("c").with(&[1])]);
    theirs.labels =
        [("app", "x"), ("sutler.dev/owner", "somebody-else")].map(|(k, v)| (k.into(), v.into())).into();
    let mut ours = theirs.clone();
    ours.uid = "u-2".into();
    ours.labels.insert("sutler.dev/owner".into(), owner("acme").hash());
    server.set("connect/theirs", theirs);
    server.set("connect/ours", ours);
    let logs = server.logs().await;
    let shared = grants(&["namespaces = ['connect']"]);
    let mut from = source("connect");
    from.label_selector = "app=x".into();
    let lines: Vec<LogLine> =
        logs.stream(&call(), &shared, vec![from], StreamOptions::default()).await.unwrap().collect().await;
    assert!(matches!(&lines[..], [LogLine::Line { pod, .. }] if &**pod == "ours"), "{lines:?}");
    assert_eq!(server.requests()[0], "list connect app=x");
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
