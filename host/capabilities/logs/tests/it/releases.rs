//! Pods of Helm releases in a shared namespace: the release's records say whose they are.

use std::sync::Arc;

use serde_json::{Value, json};
use sutler_kubernetes::{ClusterConfig, Clusters, ClustersConfig};
use sutler_logs::Logs;
use sutler_testkit::cluster::Emulator;

use crate::server::{call, grants, owner};

struct World {
    cluster: Emulator,
    logs: Logs,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let cluster = Emulator::start().await;
        cluster.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shared"}}));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, cluster.kubeconfig()).unwrap();
        let one = ClusterConfig { kubeconfig: Some(file), ..ClusterConfig::default() };
        let config =
            ClustersConfig { clusters: [("default".to_owned(), one)].into(), ..ClustersConfig::default() };
        let logs = Logs::new(Arc::new(Clusters::new(&config).unwrap()));
        Self { cluster, logs, _folder: folder }
    }

    /// A record as Helm stores it; its content is not looked at.
    fn record(&self, release: &str, revision: u32, owner: Option<&str>) {
        let mut labels = json!({"name": release, "owner": "helm", "version": revision.to_string()});
        if let Some(owner) = owner {
            labels["sutler.dev/owner"] = json!(owner);
        }
        self.cluster.seed(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": format!("sh.helm.release.v1.{release}.v{revision}"), "namespace": "shared", "labels": labels},
        }));
    }

    fn deployment(&self, name: &str, release: Option<&str>) {
        let mut metadata = json!({"name": name, "namespace": "shared"});
        if let Some(release) = release {
            metadata["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
            metadata["annotations"] =
                json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "shared"});
        }
        self.cluster.seed(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1, "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        }));
    }

    async fn seen(&self) -> Vec<String> {
        let shared = grants(&["namespaces = ['shared']"]);
        let pods = self.logs.pods(&call(), &shared, None, "shared", "app=x").await.unwrap();
        pods.into_iter().map(|p| p.name.split('-').next().unwrap_or_default().to_owned()).collect()
    }
}

#[tokio::test]
async fn the_records_say_whose_pods_they_are() {
    let w = World::start().await;
    let (own, other) = (owner("acme").hash(), owner("other").hash());
    w.record("mine", 1, Some(&own));
    w.record("mine", 2, Some(&own));
    w.record("theirs", 1, Some(&other));
    w.record("nobodys", 1, None);
    for (name, release) in
        [("a", Some("mine")), ("b", Some("theirs")), ("c", Some("nobodys")), ("d", Some("gone")), ("e", None)]
    {
        w.deployment(name, release);
    }
    // All of them have the same labels: only what made them counts.
    assert_eq!(w.seen().await, ["a"]);
}

#[tokio::test]
async fn each_controller_and_each_release_is_looked_at_once() {
    let w = World::start().await;
    w.record("mine", 1, Some(&owner("acme").hash()));
    w.record("theirs", 1, Some(&owner("other").hash()));
    for (name, release) in [("a", "mine"), ("b", "theirs"), ("c", "theirs")] {
        w.deployment(name, Some(release));
        let mut many = w.cluster.object("Deployment", "shared", name).unwrap();
        many["spec"]["replicas"] = json!(30);
        w.cluster.seed(many);
    }
    assert_eq!(w.seen().await.len(), 30);
    w.cluster.forget_requests();
    assert_eq!(w.seen().await.len(), 30);
    let mut asked: Vec<String> = w.cluster.requests().into_iter().map(|r| r.path).collect();
    asked.sort();
    assert_eq!(
        asked,
        [
            "/api/v1/namespaces/shared/pods",
            "/api/v1/namespaces/shared/secrets",
            "/api/v1/namespaces/shared/secrets",
            "/apis/apps/v1/namespaces/shared/deployments/a",
            "/apis/apps/v1/namespaces/shared/deployments/b",
            "/apis/apps/v1/namespaces/shared/deployments/c",
        ]
    );
}

#[tokio::test]
async fn a_pod_of_a_chart_without_a_controller() {
    let w = World::start().await;
    w.record("mine", 1, Some(&owner("acme").hash()));
    w.record("theirs", 1, Some(&owner("other").hash()));
    for (name, release) in [("a", "mine"), ("b", "theirs")] {
        w.cluster.seed(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shared",
            "labels": {"app": "x", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "shared"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}));
    }
    assert_eq!(w.seen().await, ["a"]);
}

/// A pod's own marks are what its workload's author wrote into a template.
#[tokio::test]
async fn marks_in_a_template_prove_nothing() {
    let w = World::start().await;
    w.record("mine", 1, Some(&owner("acme").hash()));
    w.deployment("b", None);
    let mut theirs = w.cluster.object("Deployment", "shared", "b").unwrap();
    theirs["spec"]["template"]["metadata"] = json!({
        "labels": {"app": "x", "app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "shared"},
    });
    w.cluster.seed(theirs);
    assert_eq!(w.seen().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_record_that_somebody_added_proves_nothing() {
    let w = World::start().await;
    w.record("theirs", 1, Some(&owner("other").hash()));
    w.record("theirs", 99, Some(&owner("acme").hash()));
    w.deployment("b", Some("theirs"));
    assert_eq!(w.seen().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_name_is_not_part_of_the_question() {
    let w = World::start().await;
    w.record("theirs", 1, Some(&owner("other").hash()));
    w.record("theirs", 2, Some(&owner("acme").hash()));
    w.deployment("b", Some("theirs,version=2"));
    assert_eq!(w.seen().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pod_that_took_the_name_of_another_is_not_it() {
    let w = World::start().await;
    w.record("mine", 1, Some(&owner("acme").hash()));
    w.deployment("a", Some("mine"));
    let pods: Vec<Value> = w.cluster.objects().into_iter().filter(|o| o["kind"] == "Pod").collect();
    let mut pod = pods[0].clone();
    pod["metadata"]["name"] = json!("z");
    pod["metadata"]["uid"] = json!("another");
    pod["metadata"]["ownerReferences"][0]["uid"] = json!("not-that-deployment");
    w.cluster.seed(pod);
    assert_eq!(w.seen().await, ["a"]);
}

#[tokio::test]
async fn without_a_role_for_it_they_are_nobodys() {
    let w = World::start().await;
    w.record("mine", 1, Some(&owner("acme").hash()));
    w.deployment("a", Some("mine"));
    w.cluster.deny("list", "secrets");
    assert_eq!(w.seen().await, Vec::<String>::new());
}
