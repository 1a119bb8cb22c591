//! Records there and back, and as Helm wrote them.

use super::*;

pub(crate) fn record() -> Record {
    Record::new(Fresh {
        name: "app".into(),
        namespace: "ns".into(),
        version: 3,
        status: Status::PendingUpgrade,
        description: "Preparing upgrade".into(),
        chart: json!({"metadata": {"name": "app", "version": "1.0.0"}, "lock": null, "templates": [], "values": {}, "schema": null, "files": []}),
        config: json!({"a": {"b": [1, 2.5, "x"]}}),
        manifest: "---\n# Source: app/templates/a.yaml\nkind: ConfigMap\n".into(),
        hooks: vec![json!({"name": "t", "events": ["test"], "last_run": {"phase": ""}})],
        notes: "hello".into(),
        labels: Labels::from([("sutler.dev/owner".to_owned(), "abc".to_owned())]),
        first_deployed: None,
        rollback_revision: None,
        server_side: true,
        operation: None,
    })
}

#[test]
fn there_and_back() {
    let mut r = record();
    let secret = r.secret(false).unwrap();
    assert_eq!(secret.pointer("/metadata/name").unwrap(), "sh.helm.release.v1.app.v3");
    assert_eq!(secret.pointer("/type").unwrap(), "helm.sh/release.v1");
    let labels = secret.pointer("/metadata/labels").unwrap();
    for (k, v) in [
        ("name", "app"),
        ("owner", "helm"),
        ("status", "pending-upgrade"),
        ("version", "3"),
        ("sutler.dev/owner", "abc"),
    ] {
        assert_eq!(labels.get(k).unwrap(), v, "{k}");
    }
    assert!(labels.get("modifiedAt").is_none());
    let back = Record::of_secret(&secret).unwrap();
    r.created_at = back.created_at.clone();
    assert_eq!(back, r);
    assert!(back.secret(true).unwrap().pointer("/metadata/labels/modifiedAt").is_some());
}

#[test]
fn what_helm_wrote_is_kept() {
    // As Helm 3 writes it: an empty time, no apply method, a field that this crate does not know.
    let json = json!({
        "name": "old", "version": 1, "namespace": "ns", "manifest": "", "future": {"x": 1},
        "info": {"first_deployed": "2024-01-01T00:00:00Z", "deleted": "", "status": "deployed", "rollback_revision": 2},
        "chart": {"metadata": {"name": "old", "version": "0.1.0"}},
    });
    let data = STANDARD.encode(STANDARD.encode(json.to_string()));
    let mut secret = json!({"metadata": {"name": "sh.helm.release.v1.old.v1", "labels": {"createdAt": "17", "team": "x"}}, "data": {"release": data}});
    let record = Record::of_secret(&secret).unwrap();
    assert_eq!((record.info.status, record.apply_method.as_str(), record.version), (Status::Deployed, "", 1));
    let again: Value = serde_json::to_value(&record).unwrap();
    assert_eq!(again.pointer("/future/x"), Some(&json!(1)));
    assert_eq!(again.pointer("/info/rollback_revision"), Some(&json!(2)));
    let rewritten = record.secret(true).unwrap();
    assert_eq!(rewritten.pointer("/metadata/labels/createdAt").unwrap(), "17");
    assert_eq!(rewritten.pointer("/metadata/labels/team").unwrap(), "x");
    secret["data"]["release"] = json!("@@@");
    assert!(Record::of_secret(&secret).unwrap_err().to_string().contains("not base64"));
}

#[test]
fn a_record_too_large_for_a_secret() {
    let mut r = record();
    // Bytes that do not compress.
    let mut state = 1u64;
    let noise: String = (0..2_000_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + ((state >> 33) % 90) as u8)
        })
        .collect();
    r.manifest = noise;
    assert!(matches!(r.secret(false), Err(Error::TooLarge(_))));
}

#[test]
fn unknown_status() {
    assert_eq!(serde_json::from_value::<Status>(json!("from-the-future")).unwrap(), Status::Unknown);
    assert_eq!(serde_json::to_value(Status::PendingInstall).unwrap(), "pending-install");
}
