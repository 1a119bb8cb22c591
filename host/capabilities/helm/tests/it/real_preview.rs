//! Previews on a real Kubernetes: its own words for what cannot change, what is another's, and what is refused.

use serde_json::{Value, json};
use sutler_helm::{Grants, Options};
use sutler_model::Effective;
use sutler_testkit::{RealWorld, real};

use crate::preview::{job, selecting, service, stateful_set};
use crate::real::{Place, apply};
use crate::support::{Elsewhere, config_map, done, grants};

struct Rig<'a> {
    place: Place<'a>,
    us: Elsewhere,
    grants: Effective<Grants>,
}

impl<'a> Rig<'a> {
    async fn start(world: &'a RealWorld, test: &str) -> Self {
        let place = Place::new(world, test);
        let us = Elsewhere::start(std::fs::read_to_string(&world.kubeconfig).unwrap()).await;
        let grants = grants(json!({"charts": [us.chart.url], "namespaces": [place.namespace]}));
        Self { place, us, grants }
    }

    async fn installed(&self, objects: &[Value]) {
        self.us.renders(objects);
        let (of, options) = (self.place.release(), Options::default());
        let got = self.us.helm.upgrade(&apply(), &self.grants, &self.us.chart, &of, "{}", options).await;
        done(got.unwrap());
    }

    async fn preview(&self, objects: &[Value]) -> Preview {
        self.us.renders(objects);
        let (of, options) = (self.place.release(), Options::default());
        let chart = &self.us.chart;
        Preview(self.us.helm.preview(&apply(), &self.grants, chart, &of, "{}", options).await.unwrap())
    }
}

struct Preview(Value);

impl Preview {
    fn of(&self, name: &str) -> Value {
        let found = self.0["objects"].as_array().unwrap().iter().find(|o| o["object"]["name"] == name);
        found.unwrap_or_else(|| panic!("{}", self.0)).clone()
    }
}

#[tokio::test]
async fn real_preview_of_fields_that_cannot_change() {
    let Some(world) = real() else { return };
    let rig = Rig::start(&world, "fixed").await;
    let mut before = service("");
    before["spec"].as_object_mut().unwrap().remove("clusterIP");
    rig.installed(&[before, selecting("a"), job("i:1"), stateful_set("1Gi", 0)]).await;
    let namespace = rig.place.namespace.clone();
    let address = ["get", "service", "s", "-n", &namespace, "-o", "jsonpath={.spec.clusterIP}"];
    let address = rig.place.kubectl(&address);
    let (net, last) = address.rsplit_once('.').unwrap();
    let other = format!("{net}.{}", if last == "77" { 78 } else { 77 });
    let all = rig.preview(&[service(&other), selecting("b"), job("i:2"), stateful_set("2Gi", 1)]).await;
    for (name, because) in [
        ("s", "/spec/clusterIPs/0"),
        ("d", "/spec/selector"),
        ("j", "/spec/template"),
        ("t", "/spec/volumeClaimTemplates"),
    ] {
        let got = all.of(name);
        assert_eq!((&got["action"], &got["replaceBecause"]), (&json!("replace"), &json!([because])), "{got}");
    }
    // What may change is no reason to replace anything.
    let got = rig.preview(&[stateful_set("1Gi", 1)]).await.of("t");
    assert_eq!((&got["action"], got.get("replaceBecause")), (&json!("update"), None), "{got}");
}

#[tokio::test]
async fn real_preview_of_what_is_anothers_and_what_is_refused() {
    let Some(world) = real() else { return };
    let rig = Rig::start(&world, "refused").await;
    let namespace = rig.place.namespace.clone();
    rig.installed(&[config_map("a", "1"), config_map("b", "1")]).await;
    let patch = r#"{"data":{"key":"edited"}}"#;
    rig.place.kubectl(&[
        "patch",
        "configmap",
        "a",
        "-n",
        &namespace,
        "--field-manager",
        "somebody",
        "-p",
        patch,
    ]);
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": namespace},
            "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
                "validations": [{"expression": "!has(object.data.key) || object.data.key != 'bad'", "message": "no bad keys"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": namespace},
            "spec": {"policyName": namespace, "validationActions": ["Deny"], "matchResources": {"namespaceSelector":
                {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}}}]});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), policy.to_string()).unwrap();
    rig.place.kubectl(&["apply", "-f", file.path().to_str().unwrap()]);

    let all = rig.preview(&[config_map("a", "2"), config_map("b", "2")]).await;
    let got = all.of("a");
    assert_eq!(got["conflicts"], json!([{"field": ".data.key", "manager": "somebody"}]), "{got}");
    assert_eq!(got["fields"], json!([{"field": "/data/key", "before": "edited", "after": "2"}]));
    assert!(got["problem"].as_str().unwrap().contains("held by somebody"), "{got}");
    assert_eq!((&all.of("b")["conflicts"], all.of("b").get("problem")), (&json!([]), None));

    // A policy takes a moment until the API server knows it.
    let mut refused = Value::Null;
    for _ in 0..150 {
        refused = rig.preview(&[config_map("a", "1"), config_map("b", "bad")]).await.of("b");
        if refused.get("problem").is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let mut broken = service("");
    broken["spec"]["ports"] = json!([{"port": 0}]);
    let all = rig.preview(&[config_map("new", "bad"), config_map("fine", "1"), broken]).await;
    rig.place.kubectl(&["delete", "-f", file.path().to_str().unwrap()]);
    for (name, says) in [("new", Some("no bad keys")), ("fine", None), ("s", Some("spec.ports[0].port"))] {
        let got = all.of(name);
        let problem = got.get("problem").and_then(Value::as_str);
        assert_eq!(got["action"], "create", "{got}");
        assert!(says.is_none_or(|s| problem.is_some_and(|p| p.contains(s))), "{got}");
        assert_eq!(problem.is_some(), says.is_some(), "{got}");
    }
    assert!(refused["problem"].as_str().is_some_and(|p| p.contains("no bad keys")), "{refused}");
    assert_eq!(refused["fields"], json!([{"field": "/data/key", "before": "1", "after": "bad"}]));
    assert_eq!((&refused["action"], refused.get("warning")), (&json!("update"), None));
}
