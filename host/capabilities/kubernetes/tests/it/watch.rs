//! Pods by watch, against the emulator's.

use std::time::Duration;

use serde_json::{Value, json};
use sutler_kubernetes::{Cluster, ClusterConfig, PodWatch, Propagation, Reference, Selector, Watched};
use sutler_testkit::cluster::Emulator;

fn pod(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "acme", "labels": {"app": app}},
           "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

async fn rig() -> (Emulator, Cluster, tempfile::TempDir) {
    let emulator = Emulator::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, emulator.kubeconfig()).unwrap();
    let config = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
    let cluster = Cluster::connect("default", &config).await.unwrap();
    (emulator, cluster, folder)
}

/// The names, once they are these.
async fn until(watch: &mut PodWatch, names: &[&str]) {
    let wanted = async {
        loop {
            if let Watched::Live(pods) = watch.now()
                && pods.iter().map(|p| p.name.as_str()).eq(names.iter().copied())
            {
                return;
            }
            watch.changed().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wanted).await.expect("the pods in time");
}

#[tokio::test]
async fn one_watch_tells_all_lookers_what_comes_and_goes() {
    let (emulator, cluster, _folder) = rig().await;
    emulator.seed(pod("a", "x"));
    emulator.seed(pod("other", "y"));
    let mut watch = cluster.watch_pods("acme", "app=x").unwrap().unwrap();
    let mut second = cluster.watch_pods("acme", "app=x").unwrap().unwrap();
    until(&mut watch, &["a"]).await;
    emulator.seed(pod("b", "x"));
    until(&mut watch, &["a", "b"]).await;
    until(&mut second, &["a", "b"]).await;
    let gone = Reference::of_manifest(&pod("a", "x")).unwrap();
    cluster.delete(&gone, None, Propagation::Background).await.unwrap();
    until(&mut watch, &["b"]).await;
    assert!(cluster.watch_pods("acme/..", "").is_err());
}

#[tokio::test]
async fn a_watch_ends_with_its_last_looker_and_begins_anew() {
    let (emulator, cluster, _folder) = rig().await;
    emulator.seed(pod("a", "x"));
    for round in 0..3 {
        let mut watch = cluster.watch_pods("acme", "").unwrap().unwrap();
        until(&mut watch, &["a"]).await;
        assert_eq!(cluster.watches_running(), 1, "round {round}");
        drop(watch);
        let gone = async {
            while cluster.watches_running() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), gone).await.expect("the watch has ended");
    }
}

/// No pod changes meanwhile: what is known is told again all the same.
#[tokio::test]
async fn a_watch_that_broke_is_live_again() {
    use sutler_testkit::cluster::Fault;
    let (emulator, cluster, _folder) = rig().await;
    emulator.seed(pod("a", "x"));
    emulator.fail_next_matching("watch=true", Fault::Status(500));
    let mut watch = cluster.watch_pods("acme", "").unwrap().unwrap();
    let lost = async {
        while watch.now() != Watched::Lost {
            watch.changed().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), lost).await.expect("it is lost");
    until(&mut watch, &["a"]).await;
}

#[tokio::test]
async fn a_watch_that_is_not_allowed_says_so_and_is_tried_on() {
    use sutler_testkit::cluster::Fault;
    let (emulator, cluster, _folder) = rig().await;
    emulator.seed(pod("a", "x"));
    emulator.fail_next_matching("pods", Fault::Forbidden);
    let mut watch = cluster.watch_pods("acme", "").unwrap().unwrap();
    let lost = async {
        while watch.now() != Watched::Lost {
            watch.changed().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), lost).await.expect("it is lost");
    until(&mut watch, &["a"]).await;
}

#[tokio::test]
async fn metadata_is_remembered_by_one_watch() {
    let (emulator, cluster, _folder) = rig().await;
    let map = |name: &str, x: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": x}, "metadata": {"name": name, "namespace": "acme",
            "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "r", "big": "y"}}})
    };
    emulator.seed(map("a", "1"));
    emulator.seed(map("b", "1"));
    let of = Selector {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("acme".into()),
        labels: "app.kubernetes.io/managed-by=Helm".into(),
        ..Selector::default()
    };
    assert_eq!(cluster.remembered(&of, &["a"], false).await, None, "nobody has begun one");
    let found = cluster.remembered(&of, &["a", "none"], true).await.unwrap();
    let live = emulator.object("ConfigMap", "acme", "a").unwrap();
    let kept = found[0].as_ref().unwrap();
    for field in ["uid", "resourceVersion", "labels"] {
        assert_eq!(kept["metadata"][field], live["metadata"][field], "{field}");
    }
    assert_eq!(kept["metadata"]["annotations"], json!({"meta.helm.sh/release-name": "r"}), "and nothing big");
    assert_eq!((&found[1], kept.get("data")), (&None, None));

    emulator.seed(map("none", "1"));
    let wanted = async {
        while cluster.remembered(&of, &["none"], false).await.unwrap()[0].is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wanted).await.expect("the new one in time");
    assert_eq!(cluster.memories_running(), 1);

    emulator.deny("list", "secrets");
    let of = Selector { kind: "Secret".into(), ..of };
    assert_eq!(cluster.remembered(&of, &["a"], true).await, None, "nobody may list them");
}

/// No object changes meanwhile: what is remembered is told again all the same.
#[tokio::test]
async fn a_memory_whose_watch_broke_is_there_again() {
    use sutler_testkit::cluster::Fault;
    let (emulator, cluster, _folder) = rig().await;
    emulator.seed(pod("a", "x"));
    emulator.fail_next_matching("watch=true", Fault::Status(500));
    let (api_version, kind) = ("v1".to_owned(), "Pod".to_owned());
    let of = Selector { api_version, kind, namespace: Some("acme".into()), ..Selector::default() };
    let known = async |wanted: bool| {
        while cluster.remembered(&of, &["a"], true).await.is_some() != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for wanted in [false, true] {
        tokio::time::timeout(Duration::from_secs(15), known(wanted)).await.expect("lost, and there again");
    }
}
