//! Writes reach only what the call's owner made.

use serde_json::{Value, json};
use sutler_kubernetes::{Error, FieldConflict, Propagation, Reference};
use sutler_model::Mode;

use crate::server::{ALL, Server, call, grants, owner};

const PATH: &str = "/api/v1/namespaces/acme/configmaps/c";
const UNOWNED: &str = r#"
[[kubernetes]]
verbs = ["get", "apply", "patch", "delete"]
kinds = ["*"]
namespaces = ["acme"]
unowned = true
"#;

fn of() -> Reference {
    Reference {
        cluster: None,
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("acme".into()),
        name: "c".into(),
    }
}

fn manifest() -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "acme"}, "data": {"k": "v"}}).to_string()
}

fn existing(owner: Option<&str>) -> Value {
    let labels = owner.map_or(json!({}), |o| json!({"sutler.dev/owner": o}));
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "acme", "uid": "u-1", "labels": labels}})
}

#[tokio::test]
async fn apply_makes_an_owned_object() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let answer = k.apply(&call(Mode::Apply), &grants(ALL), None, &manifest(), false).await.unwrap();
    assert_eq!(answer.pointer("/metadata/managedFields"), None, "bookkeeping is not shown");
    let sent = server.last();
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("PATCH", PATH));
    assert_eq!(sent.query, "fieldManager=sutler-ksml&fieldValidation=Strict");
    assert_eq!(sent.content_type, "application/apply-patch+yaml");
    let labels = &sent.body["metadata"]["labels"];
    assert_eq!(labels["sutler.dev/owner"], owner("orders", "acme").hash());
    assert_eq!(labels["sutler.dev/tenant"], "acme");
    assert_eq!(sent.body["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn a_repeated_apply_names_the_object_that_was_looked_at() {
    let server = Server::default();
    server.put(PATH, existing(Some(&owner("orders", "acme").hash())));
    let k = server.kubernetes().await;
    k.apply(&call(Mode::Apply), &grants(ALL), None, &manifest(), true).await.unwrap();
    let sent = server.last();
    assert_eq!(sent.body["metadata"]["uid"], "u-1");
    assert!(sent.query.contains("force=true"), "{}", sent.query);
}

#[tokio::test]
async fn what_another_owner_made_is_refused() {
    for foreign in [None, Some(owner("orders", "other").hash()), Some(owner("payments", "acme").hash())] {
        let server = Server::default();
        server.put(PATH, existing(foreign.as_deref()));
        let k = server.kubernetes().await;
        let (call, all) = (call(Mode::Apply), grants(ALL));
        let refused = [
            k.apply(&call, &all, None, &manifest(), true).await.map(drop),
            k.dry_run_apply(&call, &all, None, &manifest(), true).await.map(drop),
            k.patch(&call, &all, &of(), r#"{"data":{"k":"x"}}"#).await.map(drop),
            k.delete(&call, &all, &of(), None, Propagation::Background).await,
        ];
        for answer in refused {
            let text = match answer {
                Err(Error::NotGranted(n)) => n.to_string(),
                other => panic!("{other:?}"),
            };
            assert!(
                text.contains("ConfigMap c in namespace acme") && text.contains("unowned = true"),
                "{text}"
            );
        }
        assert!(server.requests().iter().all(|r| r.method == "GET"), "{:?}", server.requests());
    }
}

#[tokio::test]
async fn with_unowned_it_is_changed_but_not_taken() {
    let other = owner("orders", "other").hash();
    let server = Server::default();
    server.put(PATH, existing(Some(&other)));
    let k = server.kubernetes().await;
    k.apply(&call(Mode::Apply), &grants(UNOWNED), None, &manifest(), false).await.unwrap();
    let sent = server.last();
    assert_eq!(sent.method, "PATCH");
    assert_eq!(sent.body.pointer("/metadata/labels"), None, "the owner's labels stay as they are");
}

#[tokio::test]
async fn patches_cannot_touch_the_labels() {
    let own = owner("orders", "acme").hash();
    let server = Server::default();
    server.put(PATH, existing(Some(&own)));
    let k = server.kubernetes().await;
    for patch in [
        json!({"metadata": {"labels": {"sutler.dev/owner": "x"}}}),
        json!({"metadata": {"labels": {"sutler.dev/owner": null}}}),
        json!({"metadata": {"labels": {"sutler.dev/new": "x"}}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": null}),
        json!({"metadata": "x"}),
        json!("x"),
    ] {
        let answer = k.patch(&call(Mode::Apply), &grants(ALL), &of(), &patch.to_string()).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{patch}: {answer:?}");
    }
    assert!(server.requests().is_empty(), "{:?}", server.requests());
    let fine = json!({"metadata": {"labels": {"app": "x", "sutler.dev/owner": own}}, "data": {"k": null}});
    k.patch(&call(Mode::Apply), &grants(ALL), &of(), &fine.to_string()).await.unwrap();
    let sent = server.last();
    assert_eq!(sent.content_type, "application/merge-patch+json");
    assert_eq!(sent.body["metadata"]["uid"], "u-1");
}

#[tokio::test]
async fn a_manifest_cannot_claim_another_owner() {
    let server = Server::default();
    let k = server.kubernetes().await;
    let mut claim: Value = serde_json::from_str(&manifest()).unwrap();
    claim["metadata"]["labels"] = json!({"sutler.dev/owner": owner("orders", "other").hash()});
    for answer in [
        k.apply(&call(Mode::Apply), &grants(ALL), None, &claim.to_string(), false).await,
        k.create(&call(Mode::Apply), &grants(ALL), None, &claim.to_string()).await,
    ] {
        assert!(matches!(answer, Err(Error::Invalid(_))), "{answer:?}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn delete_hits_the_object_that_was_checked() {
    let server = Server::default();
    server.put(PATH, existing(Some(&owner("orders", "acme").hash())));
    let k = server.kubernetes().await;
    let (call, all) = (call(Mode::Apply), grants(ALL));
    let other = k.delete(&call, &all, &of(), Some("u-0"), Propagation::Background).await;
    let uid = FieldConflict { field: "metadata.uid".into(), manager: String::new() };
    assert_eq!(other, Err(Error::Conflict(vec![uid])));
    k.delete(&call, &all, &of(), None, Propagation::Foreground).await.unwrap();
    let sent = server.last();
    assert_eq!(sent.method, "DELETE");
    assert_eq!(sent.body["preconditions"], json!({"uid": "u-1"}));
    assert_eq!(sent.body["propagationPolicy"], "Foreground");
    assert_eq!(k.delete(&call, &all, &of(), None, Propagation::Background).await, Err(Error::NotFound));
}

#[tokio::test]
async fn an_object_that_is_replaced_in_between_is_a_conflict() {
    let server = Server::default();
    server.put(PATH, existing(Some(&owner("orders", "acme").hash())));
    server.answer("PATCH", PATH, 409, json!({"kind": "Status", "reason": "Conflict", "code": 409,
        "message": "uid mismatch: the provided object specified uid u-1, and no existing object was found", "details": {}}));
    let k = server.kubernetes().await;
    let answer = k.apply(&call(Mode::Apply), &grants(ALL), None, &manifest(), true).await;
    assert!(
        matches!(&answer, Err(Error::Conflict(c)) if c.first().is_some_and(|c| c.field == "metadata.uid")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn what_lacks_a_rules_labels_is_out_of_reach() {
    let server = Server::default();
    let kubernetes = server.kubernetes().await;
    let grants = grants(
        "kubernetes = [{ verbs = ['get', 'apply', 'patch', 'delete'], kinds = ['ConfigMap'], namespaces = ['acme'], labels = { team = 'a' } }]",
    );
    let call = call(Mode::Apply);
    let map = |name: &str, team: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "acme", "labels": {"team": team}}});
    let of = |name: &str| Reference::of_manifest(&map(name, "a")).unwrap();
    let refused = |r: Result<_, Error>| assert!(matches!(r, Err(Error::NotGranted(_))), "{r:?}");
    kubernetes.apply(&call, &grants, None, &map("ours", "a").to_string(), false).await.unwrap();
    kubernetes.get(&call, &grants, &of("ours")).await.unwrap();
    refused(kubernetes.apply(&call, &grants, None, &map("ours", "b").to_string(), false).await);
    let away = r#"{"metadata": {"labels": {"team": "b"}}}"#;
    refused(kubernetes.patch(&call, &grants, &of("ours"), away).await);
    let mut theirs = map("theirs", "b");
    for (key, value) in call.owner.labels(&call.plugin) {
        theirs["metadata"]["labels"][key] = json!(value);
    }
    server.put("/api/v1/namespaces/acme/configmaps/theirs", theirs);
    refused(kubernetes.get(&call, &grants, &of("theirs")).await);
    refused(kubernetes.apply(&call, &grants, None, &map("theirs", "a").to_string(), false).await);
    refused(kubernetes.patch(&call, &grants, &of("theirs"), r#"{"data": {}}"#).await);
    let deleted = kubernetes.delete(&call, &grants, &of("theirs"), None, Propagation::Background).await;
    assert!(matches!(deleted, Err(Error::NotGranted(_))), "{deleted:?}");
    kubernetes.delete(&call, &grants, &of("ours"), None, Propagation::Background).await.unwrap();
}
