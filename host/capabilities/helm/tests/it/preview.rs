//! What an upgrade would change: fields that cannot change, fields of others, and what the API server does not tell.

use serde_json::{Value, json};
use sutler_helm::Options;
use sutler_model::Mode;
use sutler_testkit::cluster::Fault;

use crate::support::{World, answer, call, config_map, deployment, hook, of};

const FORCE: Options = Options {
    create_namespace: false,
    take_ownership: false,
    force_conflicts: true,
    atomic: false,
    wait_for_jobs: false,
    history_max: 0,
};

async fn preview(w: &World, options: Options) -> Value {
    w.cluster.forget_requests();
    let got =
        w.helm.preview(&call(Mode::Plan), &w.grants, &w.chart, &of("app"), "{}", options).await.unwrap();
    assert_eq!(w.writes(), Vec::<String>::new(), "a preview writes nothing");
    got
}

/// The preview of the only object.
async fn of_one(w: &World, options: Options) -> Value {
    let mut all = preview(w, options).await;
    assert_eq!(all["objects"].as_array().unwrap().len(), 1, "{all}");
    all["objects"][0].take()
}

pub(crate) fn job(image: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}}}})
}

pub(crate) fn service(address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"clusterIP": address, "ports": [{"port": 80}]}})
}

pub(crate) fn stateful_set(size: &str, replicas: u32) -> Value {
    let mut out = deployment("t", replicas);
    out["kind"] = json!("StatefulSet");
    out["spec"]["serviceName"] = json!("t");
    out["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}}]);
    out
}

pub(crate) fn selecting(label: &str) -> Value {
    let mut out = deployment("d", 1);
    out["spec"]["selector"]["matchLabels"]["app"] = json!(label);
    out["spec"]["template"]["metadata"]["labels"]["app"] = json!(label);
    out
}

#[tokio::test]
async fn fields_that_cannot_change() {
    for (before, after, because) in [
        (service("10.96.0.7"), service("10.96.0.8"), "/spec/clusterIPs/0"),
        (selecting("a"), selecting("b"), "/spec/selector"),
        (job("i:1"), job("i:2"), "/spec/template"),
        (stateful_set("1Gi", 1), stateful_set("2Gi", 2), "/spec/volumeClaimTemplates"),
    ] {
        let w = World::start().await;
        w.installed(&[before]).await;
        w.renders(&[after]);
        let got = of_one(&w, Options::default()).await;
        assert_eq!((&got["action"], &got["replaceBecause"]), (&json!("replace"), &json!([because])), "{got}");
        assert!(got["problem"].as_str().unwrap().contains("the API server refuses the object"), "{got}");
        assert!(!got["fields"].as_array().unwrap().is_empty(), "{got}");
        assert_eq!(got.get("warning"), None, "{got}");
    }
}

#[tokio::test]
async fn fields_of_another_manager() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    let path = "/api/v1/namespaces/ns/configmaps/a?fieldManager=kubectl-edit";
    w.patch(path, &json!({"data": {"key": "edited"}})).await;
    w.renders(&[config_map("a", "2")]);
    let got = of_one(&w, Options::default()).await;
    assert_eq!(got["conflicts"], json!([{"field": ".data.key", "manager": "kubectl-edit"}]), "{got}");
    assert_eq!(got["fields"], json!([{"field": "/data/key", "before": "edited", "after": "2"}]));
    let problem = got["problem"].as_str().unwrap();
    assert!(
        problem.contains(".data.key (held by kubectl-edit)") && problem.contains("force-conflicts"),
        "{got}"
    );
    // With force they are told as well, and are in nobody's way.
    let forced = of_one(&w, FORCE).await;
    assert_eq!((&forced["conflicts"], forced.get("problem")), (&got["conflicts"], None), "{forced}");
}

#[tokio::test]
async fn what_helm_applied_client_side_is_no_conflict_with_itself() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    w.patch("/api/v1/namespaces/ns/configmaps/a?fieldManager=helm", &json!({"data": {"key": "3"}})).await;
    w.renders(&[config_map("a", "2")]);
    let got = of_one(&w, Options::default()).await;
    assert_eq!((&got["conflicts"], &got["action"]), (&json!([]), &json!("update")), "{got}");
}

#[tokio::test]
async fn a_webhook_that_knows_no_dry_run() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    w.renders(&[config_map("a", "2")]);
    w.cluster.fail_next_matching("dryRun=All", Fault::NoDryRun);
    let got = of_one(&w, Options::default()).await;
    assert_eq!(got["fields"], json!([{"field": "/data/key", "before": "1", "after": "2"}]), "{got}");
    let warning = got["warning"].as_str().unwrap();
    assert!(warning.contains("\"audit.example\" does not support dry run"), "{warning}");
    assert_eq!((&got["action"], got.get("problem")), (&json!("update"), None), "{got}");

    // It is no difference either: the same again is no revision.
    w.cluster.fail_next_matching("dryRun=All", Fault::NoDryRun);
    assert_eq!(w.installed(&[config_map("a", "1")]).await.revision, 1);
}

#[tokio::test]
async fn an_account_that_may_not_try_it_out() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    w.renders(&[config_map("a", "2")]);
    w.cluster.deny("patch", "configmaps");
    let got = of_one(&w, Options::default()).await;
    assert_eq!(got["fields"], json!([{"field": "/data/key", "before": "1", "after": "2"}]), "{got}");
    assert!(got["warning"].as_str().unwrap().contains("account may not try it out"), "{got}");
    assert_eq!(got.get("problem"), None, "{got}");
}

#[tokio::test]
async fn hooks_that_would_run_and_what_would_go() {
    let w = World::start().await;
    let hooks = [
        hook("Job", "late", &["post-upgrade"], 0, &[]),
        hook("Job", "second", &["pre-upgrade", "pre-install"], 5, &[]),
        hook("ConfigMap", "first", &["pre-upgrade"], -5, &[]),
        hook("Job", "t", &["test"], 0, &[]),
    ];
    w.hooked(&[config_map("a", "1")], &hooks);
    let names = |got: &Value| -> Vec<String> {
        let all = got["hooks"].as_array().unwrap().iter();
        let text = |h: &Value, key: &str| h[key].as_str().unwrap().to_owned();
        all.map(|h| format!("{} {} {}", text(h, "event"), text(h, "kind"), text(h, "name"))).collect()
    };
    assert_eq!(names(&preview(&w, Options::default()).await), ["pre-install Job second"]);

    w.installed(&[config_map("a", "1"), config_map("gone", "1"), config_map("taken", "1")]).await;
    let mut taken = w.cluster.object("ConfigMap", "ns", "taken").unwrap();
    taken["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("other");
    w.cluster.seed(taken);
    let mut next = answer(&[config_map("a", "1")]);
    next.hooks = hooks.to_vec();
    w.answers(next);
    let got = preview(&w, Options::default()).await;
    assert_eq!(
        names(&got),
        ["pre-upgrade ConfigMap first", "pre-upgrade Job second", "post-upgrade Job late"]
    );
    assert_eq!(
        got["hooks"][0],
        json!({"event": "pre-upgrade", "kind": "ConfigMap", "name": "first", "path": "app/templates/first.yaml", "weight": -5})
    );
    let actions: Vec<String> = got["objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| format!("{} {}", o["action"].as_str().unwrap(), o["object"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(actions, ["none a", "delete gone", "keep taken"]);
    assert!(got["objects"][2]["warning"].as_str().unwrap().contains("is \"other\", not \"app\""), "{got}");
}
