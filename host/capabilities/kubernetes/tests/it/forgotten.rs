//! A kind whose definition changed behind our back: nothing that is known of it outlives it.

use serde_json::{Value, json};
use sutler_kubernetes::{ApplyOptions, Cluster, ClusterConfig, Error, Propagation, Reference, Selector};
use sutler_testkit::cluster::Emulator;

fn definition(plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.x.example")},
        "spec": {"group": "x.example", "scope": "Namespaced", "names": {"plural": plural, "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true}]}})
}

fn widget() -> Value {
    json!({"apiVersion": "x.example/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "acme"}, "spec": {"a": 1}})
}

fn all() -> Selector {
    let (api_version, kind) = ("x.example/v1".into(), "Widget".into());
    Selector { api_version, kind, namespace: Some("acme".into()), ..Selector::default() }
}

/// A cluster that knows widgets, served under another path by now.
async fn rig() -> (Emulator, Cluster, tempfile::TempDir) {
    let emulator = Emulator::start().await;
    emulator.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme"}}));
    emulator.seed(definition("widgets"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, emulator.kubeconfig()).unwrap();
    let config = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
    let cluster = Cluster::connect("default", &config).await.unwrap();
    assert!(cluster.list(&all()).await.unwrap().items.is_empty());
    cluster.delete(&old(), None, Propagation::Background).await.unwrap();
    (emulator, cluster, folder)
}

fn old() -> Reference {
    Reference::of_manifest(&definition("widgets")).unwrap()
}

async fn ask(cluster: &Cluster, what: &str) -> Result<(), Error> {
    let (object, of) = (widget(), Reference::of_manifest(&widget()).unwrap());
    let options = ApplyOptions { field_manager: "m".into(), force: false, dry_run: false };
    match what {
        "get" => cluster.get(&of).await.map(drop),
        "list" => cluster.list(&all()).await.map(|page| assert_eq!(page.items.len(), 1)),
        "create" => cluster.create(&object, "m", false).await.map(drop),
        "apply" => cluster.apply(&object, &options).await.map(drop),
        "replace" => cluster.replace(&object, "m", false).await.map(drop),
        "patch" => cluster.merge_patch(&of, &json!({"spec": {"a": 2}}), "m").await.map(drop),
        "delete" => cluster.delete(&of, None, Propagation::Background).await,
        other => panic!("{other}"),
    }
}

const EVERYTHING: [&str; 7] = ["get", "list", "create", "apply", "replace", "patch", "delete"];

#[tokio::test]
async fn what_is_served_elsewhere_is_found_there() {
    for what in EVERYTHING {
        let (emulator, cluster, _folder) = rig().await;
        emulator.seed(definition("gadgets"));
        if what != "create" {
            emulator.seed(widget());
        }
        assert_eq!(ask(&cluster, what).await, Ok(()), "{what}");
    }
}

#[tokio::test]
async fn what_is_served_no_more_is_unknown() {
    for what in EVERYTHING {
        let (_emulator, cluster, _folder) = rig().await;
        let got = ask(&cluster, what).await;
        assert!(matches!(&got, Err(Error::Other { code: "unknown-kind", .. })), "{what}: {got:?}");
    }
}
