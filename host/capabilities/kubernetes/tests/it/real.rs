//! Against a real API server: what its answers are, rather than what we think they are.

use std::sync::Arc;

use serde_json::{Value, json};
use sutler_kubernetes::{
    ApplyOptions, Cluster, ClusterConfig, Clusters, Error, FieldConflict, Kubernetes, Propagation, Reference,
    Selector,
};
use sutler_model::Mode;

use crate::server::{call, grants};

struct World {
    cluster: Cluster,
    kubernetes: Kubernetes,
    namespace: String,
}

async fn world(name: &str) -> Option<World> {
    let real = sutler_testkit::real()?;
    let config = ClusterConfig { kubeconfig: Some(real.kubeconfig), ..ClusterConfig::default() };
    let cluster = Cluster::connect("default", &config).await.unwrap();
    let kubernetes = Kubernetes::new(Arc::new(Clusters::of(vec![cluster.clone()])));
    Some(World { cluster, kubernetes, namespace: format!("real-{name}-{}", std::process::id()) })
}

impl World {
    fn of(&self, kind: &str, name: &str) -> Reference {
        let namespace = Some(self.namespace.clone());
        Reference { cluster: None, api_version: "v1".into(), kind: kind.into(), namespace, name: name.into() }
    }
    fn config_map(&self, name: &str, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.namespace}, "data": {"k": value}})
    }
    fn namespace(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
    }
}

const GRANTS: &str = r#"
[[kubernetes]]
verbs = ["get", "list", "apply", "create", "patch", "delete"]
kinds = ["*", "Secret"]
namespaces = ["real-*"]
[[kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Namespace"]
names = ["real-*"]
"#;

#[tokio::test]
async fn real_objects_come_and_go() {
    let Some(w) = world("objects").await else { return };
    let (call, grants, k) = (call(Mode::Apply), grants(GRANTS), &w.kubernetes);
    k.apply(&call, &grants, None, &w.namespace().to_string(), false).await.unwrap();
    let text = w.config_map("c", "one").to_string();
    let shown = k.dry_run_apply(&call, &grants, None, &text, false).await.unwrap();
    assert!(shown.pointer("/metadata/labels/sutler.dev~1owner").is_some());
    let c = w.of("ConfigMap", "c");
    assert_eq!(k.get(&call, &grants, &c).await, Err(Error::NotFound));
    let first = k.apply(&call, &grants, None, &text, false).await.unwrap();
    let again = k.apply(&call, &grants, None, &text, false).await.unwrap();
    assert_eq!(first, again, "a repeat changes nothing, not even the resourceVersion");
    assert_eq!(k.create(&call, &grants, None, &text).await, Err(Error::AlreadyExists));
    let patched = k.patch(&call, &grants, &c, r#"{"data":{"k":null,"n":"v"}}"#).await.unwrap();
    assert_eq!(patched["data"], json!({"n": "v"}));
    for i in 0..3 {
        k.create(&call, &grants, None, &w.config_map(&format!("p{i}"), "x").to_string()).await.unwrap();
    }
    let mut selector = Selector {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: c.namespace.clone(),
        limit: 2,
        ..Selector::default()
    };
    selector.labels = format!("sutler.dev/owner={}", call.owner.hash());
    let mut names = Vec::new();
    loop {
        let page = k.list(&call, &grants, &selector).await.unwrap();
        assert!(page.items.len() <= 2);
        names.extend(page.items.iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()));
        selector.continue_token = page.continue_token;
        if selector.continue_token.is_none() {
            break;
        }
    }
    assert_eq!(names, ["c", "p0", "p1", "p2"]);
    k.delete(&call, &grants, &c, None, Propagation::Background).await.unwrap();
    assert_eq!(k.delete(&call, &grants, &c, None, Propagation::Background).await, Err(Error::NotFound));
    let namespace = Reference { namespace: None, ..w.of("Namespace", &w.namespace) };
    k.delete(&call, &grants, &namespace, None, Propagation::Background).await.unwrap();
}

#[tokio::test]
async fn real_refusals_are_what_we_take_them_for() {
    let Some(w) = world("refusals").await else { return };
    let options =
        |manager: &str| ApplyOptions { field_manager: manager.into(), force: false, dry_run: false };
    let uid =
        || Err(Error::Conflict(vec![FieldConflict { field: "metadata.uid".into(), manager: String::new() }]));
    w.cluster.create(&w.namespace(), "test", false).await.unwrap();
    // Field managers.
    w.cluster.apply(&w.config_map("c", "one"), &options("first")).await.unwrap();
    let conflict = w.cluster.apply(&w.config_map("c", "two"), &options("second")).await;
    assert_eq!(
        conflict,
        Err(Error::Conflict(vec![FieldConflict { field: ".data.k".into(), manager: "first".into() }]))
    );
    // Another object than the one that was meant.
    let mut meant = w.config_map("c", "one");
    meant["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let c = w.of("ConfigMap", "c");
    assert_eq!(w.cluster.apply(&meant, &options("first")).await, uid());
    assert_eq!(
        w.cluster.merge_patch(&c, &json!({"metadata": meant["metadata"], "data": {"k": "x"}}), "first").await,
        uid()
    );
    assert_eq!(
        w.cluster
            .delete(&c, meant["metadata"]["uid"].as_str(), Propagation::Background)
            .await
            .map(|()| json!(0)),
        uid()
    );
    meant["metadata"]["name"] = json!("absent");
    assert_eq!(w.cluster.apply(&meant, &options("first")).await, uid());
    assert_eq!(w.cluster.get(&c).await.unwrap()["data"]["k"], "one");
    // What is not valid.
    let mut unknown = w.config_map("u", "x");
    unknown["dataa"] = json!({});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": w.namespace}, "spec": {"replicas": -1}});
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": w.namespace}, "data": data});
    for (manifest, told) in [
        (unknown, "dataa"),
        (deployment, "spec.replicas"),
        (secret(json!({"k": "hunter2!"})), "Secret"),
        (secret(json!({"hunter2/": "aGk="})), ""),
    ] {
        for answer in [
            w.cluster.create(&manifest, "test", false).await,
            w.cluster.apply(&manifest, &options("test")).await,
        ] {
            let Err(Error::Invalid(message)) = answer else { panic!("{manifest}: {answer:?}") };
            assert!(message.contains(told), "{message}");
            assert!(!message.contains("hunter2!") && message.len() < 1000, "{message}");
        }
    }
    let crd = Reference { api_version: "example.com/v1".into(), ..w.of("Widget", "w") };
    assert!(matches!(w.cluster.get(&crd).await, Err(Error::Other { code: "unknown-kind", .. })));
    // Roles, versions.
    assert!(w.cluster.can_i("delete", &c).await.unwrap());
    assert!(w.cluster.version().await.unwrap().starts_with("v1."));
    let versions = w.cluster.api_versions().await.unwrap();
    for id in ["v1", "v1/Pod", "apps/v1", "apps/v1/Deployment", "batch/v1/Job", "apps/v1/Scale"] {
        assert!(versions.iter().any(|v| v == id), "{id} in {versions:?}");
    }
    let namespace = Reference { namespace: None, ..w.of("Namespace", &w.namespace) };
    w.cluster.delete(&namespace, None, Propagation::Background).await.unwrap();
}
