//! Many applications at once, and the other restart policy and size, on a real cluster.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use sutler_testkit::http::{Caller, renewed};
use sutler_testkit::real;

use crate::life::request;
use crate::real_life::{Real, small, start};

const TENANTS: [&str; 5] = ["many-a", "many-b", "many-c", "many-d", "many-e"];
const EACH: usize = 10;

/// Fifty times the smallest size is more than the test's node has: in these namespaces pods are admitted with less.
fn policy() -> String {
    let namespaces: Vec<_> = TENANTS.iter().map(|t| format!("ksml-{t}")).collect();
    let patch = "[JSONPatch{op: 'add', path: '/spec/containers/0/resources', value: \
        {'requests': {'cpu': '1m', 'memory': '8Mi'}}}]";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": "many"}, "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions":
                    [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"]}]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "many"}, "spec": {"policyName": "many"}},
    ]})
    .to_string()
}

async fn all(r: &Real, bodies: &[Value]) -> Vec<Value> {
    let api = Caller::new(&r.host.url);
    // More than a plugin may run at once: a control plane repeats what it is told to.
    let persistent = async |body| loop {
        let answered = api.apply(body).await;
        if answered.status != 503 {
            return answered;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let answers = join_all(bodies.iter().map(persistent)).await;
    for a in &answers {
        assert_eq!(a.json["outcome"], "succeeded", "{}", a.text);
    }
    answers.into_iter().map(|a| a.json).collect()
}

fn releases(r: &Real, tenant: &str) -> BTreeSet<String> {
    let listed = r.helm(&["list", "-n", &format!("ksml-{tenant}"), "-o", "json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    listed
        .iter()
        .map(|x| {
            assert_eq!((&x["status"], &x["revision"]), (&json!("deployed"), &json!("1")), "{x}");
            x["name"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_fifty_applications_of_five_tenants_at_once() {
    let Some(world) = real() else { return };
    let r = start(world, false).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), policy()).unwrap();
    r.kubectl(&["apply", "-f", file.path().to_str().unwrap()]);
    let of = |tenant: &str, n: usize| {
        request().application("tenant", tenant).application("id", &format!("app-{n}"))
    };
    let everyone: Vec<_> = TENANTS.iter().flat_map(|t| (0..EACH).map(move |n| (*t, n))).collect();

    let creates: Vec<_> = everyone.iter().map(|(t, n)| renewed(&of(t, *n).create(small()).body())).collect();
    let made = all(&r, &creates).await;
    let mut names = BTreeSet::new();
    for (m, (tenant, _)) in made.iter().zip(&everyone) {
        let outputs = &m["resources"][0]["outputs"];
        assert_eq!(
            (&outputs["ready"], &outputs["namespace"]),
            (&json!(true), &json!(format!("ksml-{tenant}")))
        );
        names.insert(outputs["release"].as_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), TENANTS.len() * EACH, "every application has a release of its own");
    let api = Caller::new(&r.host.url);
    for tenant in TENANTS {
        assert_eq!(releases(&r, tenant).len(), EACH, "{tenant}");
        let listed = api.get(&format!("/operations?tenant={tenant}&limit=200")).await.json;
        let operations = listed["operations"].as_array().unwrap();
        assert_eq!(operations.len(), EACH, "{listed}");
        assert!(operations.iter().all(|o| o["tenant"] == tenant && o["status"] == "completed"), "{listed}");
    }

    let deletes: Vec<_> = everyone.iter().map(|(t, n)| renewed(&of(t, *n).delete(small()).body())).collect();
    all(&r, &deletes).await;
    for tenant in TENANTS {
        assert_eq!(releases(&r, tenant), BTreeSet::new(), "{tenant}");
        r.kubectl(&["delete", "namespace", &format!("ksml-{tenant}"), "--wait=false"]);
    }
    r.kubectl(&["delete", "-f", file.path().to_str().unwrap()]);
}

/// A Job of the next size, with limits as real as its pod: an update deletes it and makes it again.
#[tokio::test(flavor = "multi_thread")]
async fn real_job_of_size_s() {
    let Some(world) = real() else { return };
    let r = start(world, false).await;
    let (tenant, namespace) = ("real-job", "ksml-real-job");
    let of = || request().application("tenant", tenant);
    let mut before = small();
    (before["size"], before["restartPolicy"]) = (json!("S"), json!("never"));
    let applied = all(&r, &[renewed(&of().create(before.clone()).body())]).await;
    assert_eq!(applied[0]["resources"][0]["outputs"]["namespace"], namespace);
    let job = || -> Value {
        let got = r.kubectl(&["get", "jobs", "-n", namespace, "-o", "json"]);
        let got: Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got["items"].as_array().map(Vec::len), Some(1), "{got}");
        got["items"][0].clone()
    };
    let first = job();
    let limits = &first["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits, &json!({"cpu": "1", "memory": "4Gi"}));
    // A Job is ready as soon as it is there; that its pod runs comes a moment later.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let pods = r.kubectl(&["get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].status.phase}"]);
        if pods == "Running" || pods == "Succeeded" {
            break;
        }
        assert!(Instant::now() < until, "{pods}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(r.kubectl(&["get", "statefulsets", "-n", namespace, "-o", "name"]), "");

    let mut after = before.clone();
    after["logging"] = json!({"level": "DEBUG"});
    all(&r, &[renewed(&of().update(after.clone(), before).body())]).await;
    assert_ne!(job()["metadata"]["uid"], first["metadata"]["uid"], "it is another Job");
    all(&r, &[renewed(&of().delete(after).body())]).await;
    assert_eq!(r.kubectl(&["get", "jobs", "-n", namespace, "-o", "name"]), "");
    r.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}
