//! On a real Kubernetes, with the helm binary as the judge. Templates are the test's own: rendering is judged elsewhere.

use serde_json::{Value, json};
use sutler_helm::{Health, Options, ReleaseReference, Status};
use sutler_model::{Call, Mode};
use sutler_testkit::{RealWorld, real};

use crate::support::{Elsewhere, call, config_map, deployment, done, grants};

/// A namespace that exists for one test.
pub(crate) struct Place<'a> {
    world: &'a RealWorld,
    pub(crate) namespace: String,
}

impl<'a> Place<'a> {
    pub(crate) fn new(world: &'a RealWorld, test: &str) -> Self {
        let place = Self { world, namespace: format!("helm-{test}-{}", std::process::id()) };
        place.kubectl(&["create", "namespace", &place.namespace]);
        place
    }

    fn helm(&self, arguments: &[&str]) -> Result<String, String> {
        self.world.run(&self.world.helm, &[arguments, &["--namespace", &self.namespace]].concat())
    }

    fn helm_json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.helm(&[arguments, &["-o", "json"]].concat()).unwrap()).unwrap()
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.world.run(&self.world.kubectl, arguments).unwrap()
    }

    pub(crate) fn release(&self) -> ReleaseReference {
        ReleaseReference { cluster: None, namespace: self.namespace.clone(), name: "app".into() }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let _ =
            self.world.run(&self.world.kubectl, &["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

pub(crate) fn apply() -> Call {
    Call { deadline: std::time::Instant::now() + std::time::Duration::from_secs(60), ..call(Mode::Apply) }
}

#[tokio::test]
async fn real_helm_reads_our_releases_and_we_read_helms() {
    let Some(world) = real() else { return };
    let place = Place::new(&world, "both");
    let us = Elsewhere::start(std::fs::read_to_string(&world.kubeconfig).unwrap()).await;
    let grants = grants(json!({"charts": [us.chart.url], "namespaces": [place.namespace]}));
    let upgrade = async |objects: &[Value], values: &str| {
        us.renders(objects);
        us.helm
            .upgrade(&apply(), &grants, &us.chart, &place.release(), values, Options::default())
            .await
            .map(done)
    };
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let objects = [config_map("a", "1"), deployment("d", 1), secret.clone()];
    assert_eq!(upgrade(&objects, r#"{"x":1}"#).await.unwrap().revision, 1);
    // The API server's defaults and its own spelling are no change.
    assert_eq!(upgrade(&objects, r#"{"x":1}"#).await.unwrap().revision, 1);
    assert_eq!(us.helm.drift(&apply(), &grants, &place.release()).await.unwrap(), json!([]));
    assert_eq!(upgrade(&[config_map("a", "2"), secret], r#"{"x":2}"#).await.unwrap().revision, 2);

    let list = place.helm_json(&["list"]);
    assert_eq!(
        (&list[0]["name"], &list[0]["revision"], &list[0]["status"], &list[0]["chart"]),
        (&json!("app"), &json!("2"), &json!("deployed"), &json!("app-1.0.0"))
    );
    let history = place.helm_json(&["history", "app"]);
    let shown: Vec<String> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|h| {
            format!(
                "{} {} {}",
                h["revision"],
                h["status"].as_str().unwrap(),
                h["description"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(shown, ["1 superseded Install complete", "2 deployed Upgrade complete"]);
    assert_eq!(place.helm_json(&["get", "values", "app"]), json!({"x": 2}));
    assert!(place.helm(&["get", "notes", "app"]).unwrap().contains("hello"));

    // Helm rolls our release back and we go on from there.
    place.helm(&["rollback", "app", "1"]).unwrap();
    let key =
        |jsonpath: &str| place.kubectl(&["get", "configmap", "a", "-n", &place.namespace, "-o", jsonpath]);
    assert_eq!(key("jsonpath={.data.key}"), "1");
    assert!(
        place
            .kubectl(&["get", "deployment", "-n", &place.namespace, "-o", "name"])
            .contains("deployment.apps/d")
    );
    let got = us.helm.get(&apply(), &grants, &place.release()).await.unwrap();
    assert_eq!((got.revision, got.status, got.values), (3, Status::Deployed, json!({"x": 1})));
    let health = us.helm.readiness(&apply(), &grants, &place.release()).await.unwrap();
    assert!(matches!(&health, Health::Progressing(m) if m.contains("Deployment \"d\"")), "{health:?}");
    assert_eq!(upgrade(&[config_map("a", "4")], "{}").await.unwrap().revision, 4);
    assert_eq!(key("jsonpath={.data.key}"), "4");
    assert_eq!(place.kubectl(&["get", "deployment", "-n", &place.namespace, "-o", "name"]), "");
    place.helm(&["uninstall", "app"]).unwrap();
    assert!(
        !place.kubectl(&["get", "configmap", "-n", &place.namespace, "-o", "name"]).contains("configmap/a")
    );
    assert_eq!(
        us.helm.get(&apply(), &grants, &place.release()).await.map(drop),
        Err(sutler_helm::Error::NotFound)
    );
}

#[tokio::test]
async fn real_a_release_that_helm_applied_client_side_is_taken_on() {
    let Some(world) = real() else { return };
    let place = Place::new(&world, "csa");
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 0.9.0\n");
    write(
        "app/templates/a.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: old, dropped: x}\n",
    );
    place
        .helm(&["install", "app", folder.path().join("app").to_str().unwrap(), "--server-side=false"])
        .unwrap();

    let us = Elsewhere::start(std::fs::read_to_string(&world.kubeconfig).unwrap()).await;
    let narrow = grants(json!({"charts": [us.chart.url], "namespaces": [place.namespace]}));
    us.renders(&[config_map("a", "new")]);
    let upgrade = async |grants| {
        us.helm.upgrade(&apply(), grants, &us.chart, &place.release(), "{}", Options::default()).await
    };
    assert!(matches!(upgrade(&narrow).await, Err(sutler_helm::Error::NotOwned(_))), "not ours");
    let wide = grants(json!({"charts": [us.chart.url], "namespaces": [place.namespace], "unowned": true}));
    assert_eq!(done(upgrade(&wide).await.unwrap()).revision, 2);
    let data = place.kubectl(&["get", "configmap", "a", "-n", &place.namespace, "-o", "jsonpath={.data}"]);
    assert_eq!(data, r#"{"key":"new"}"#, "what the chart dropped is gone");
    let got = done(us.helm.uninstall(&apply(), &narrow, &place.release(), false).await.unwrap());
    assert_eq!(got.status, Status::Uninstalled);
    assert_eq!(place.helm_json(&["list"]), json!([]));
}
