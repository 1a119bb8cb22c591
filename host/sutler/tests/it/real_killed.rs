//! KSML applications on a real cluster whose host is killed in the middle of what it does to their release. The next host
//! is asked the same, and helm is the judge.

use serde_json::{Value, json};
use sutler_testkit::cluster::{ApiProxy, Fault};
use sutler_testkit::http::{Caller, renewed};
use sutler_testkit::{RealWorld, real};

use crate::life::request;
use crate::real_life::{Real, small, start_with};
use crate::seven::follow;

/// A host that died is succeeded soon.
const OPERATIONS: &str = "takeover-after-seconds = 1\npoll-milliseconds = 100\nfirst-backoff-milliseconds = 100\n\
                          answer-within-milliseconds = 200";

/// A host's way to the cluster, and how many requests it held up.
struct Way {
    proxy: ApiProxy,
    held: usize,
}

/// What is asked, and what has to come of it.
struct Deed {
    body: Value,
    /// The release's status while its objects are written.
    during: &'static str,
    /// The states of its revisions afterwards, oldest first.
    history: &'static [&'static str],
    limits: Value,
}

fn listed(r: &Real, args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&r.helm(args)).unwrap()
}

/// The host dies while its write of the StatefulSet is held up, and the next one is asked the same.
async fn killed(r: &mut Real, way: &mut Way, ns: &str, deed: &Deed, fault: Fault) -> Value {
    let (part, mut met) = (format!("/namespaces/{ns}/statefulsets"), false);
    way.proxy.meet(move |line| {
        let hit = !met && !line.starts_with("GET ") && !line.contains("dryRun=All") && line.contains(&part);
        met |= hit;
        if hit { fault } else { Fault::None }
    });
    way.held += 1;
    tokio::select! {
        answer = follow(&r.host.url, &deed.body) => panic!("{fault:?} met nothing: {answer:?}"),
        () = way.proxy.until_held(way.held) => {}
    }
    let cut = listed(r, &["list", "--pending", "-n", ns, "-o", "json"]);
    assert_eq!((cut.len(), &cut[0]["status"]), (1, &json!(deed.during)), "{cut:?}");
    r.succeed().await;
    let answer = follow(&r.host.url, &deed.body).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{fault:?}, {}: {}", deed.during, answer.text);
    answer.json["resources"][0]["outputs"].clone()
}

/// One release with this history, and one pod of this size that is ready.
fn check(r: &Real, ns: &str, outputs: &Value, deed: &Deed) {
    let revision = deed.history.len();
    assert_eq!((&outputs["revision"], &outputs["ready"]), (&json!(revision), &json!(true)), "{outputs}");
    let release = outputs["release"].as_str().unwrap();
    let all = listed(r, &["list", "-n", ns, "-o", "json"]);
    assert_eq!((all.len(), &all[0]["name"], &all[0]["status"]), (1, &json!(release), &json!("deployed")));
    let history = listed(r, &["history", release, "-n", ns, "-o", "json"]);
    let states: Vec<_> = history.iter().filter_map(|h| h["status"].as_str()).collect();
    assert_eq!(states, deed.history, "{history:?}");
    let pods: Value = serde_json::from_str(&r.kubectl(&["get", "pods", "-n", ns, "-o", "json"])).unwrap();
    assert_eq!(pods["items"].as_array().map(Vec::len), Some(1), "{pods}");
    let pod = &pods["items"][0];
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], deed.limits);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"), "{conditions:?}");
}

async fn life(r: &mut Real, way: &mut Way, tenant: &str, fault: Fault) {
    let ns = format!("ksml-{tenant}");
    let of = || request().application("tenant", tenant);
    let mut larger = small();
    larger["size"] = json!("S");
    let deeds = [
        Deed {
            body: of().create(small()).body(),
            during: "pending-install",
            history: &["deployed"],
            limits: json!({"cpu": "500m", "memory": "2Gi"}),
        },
        Deed {
            body: of().update(larger.clone(), small()).body(),
            during: "pending-upgrade",
            history: &["superseded", "deployed"],
            limits: json!({"cpu": "1", "memory": "4Gi"}),
        },
    ];
    for deed in &deeds {
        let outputs = killed(r, way, &ns, deed, fault).await;
        check(r, &ns, &outputs, deed);
        // Another call that asks for what is there: no new revision.
        let again = Caller::new(&r.host.url).apply(&renewed(&deed.body)).await;
        assert_eq!(again.json["outcome"], "succeeded", "{}", again.text);
        check(r, &ns, &again.json["resources"][0]["outputs"], deed);
    }
    let gone = Caller::new(&r.host.url).apply(&of().delete(larger).body()).await;
    assert_eq!(gone.json["outcome"], "succeeded", "{}", gone.text);
    assert_eq!(listed(r, &["list", "-n", &ns, "-o", "json"]), Vec::<Value>::new());
    r.kubectl(&["delete", "namespace", &ns, "--wait=false"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_hosts_killed_in_the_middle_of_applications() {
    let Some(world) = real() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut way = Way { proxy: ApiProxy::to(&world.kubeconfig).await, held: 0 };
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, way.proxy.kubeconfig()).unwrap();
    let more =
        format!("[ledger]\npath = {:?}\n[operations]\n{OPERATIONS}\n", folder.path().join("ledger.db"));
    let mut r = start_with(RealWorld { kubeconfig, ..world }, false, &more).await;
    for (tenant, fault) in [("real-killed-before", Fault::Hold), ("real-killed-after", Fault::HoldAnswer)] {
        life(&mut r, &mut way, tenant, fault).await;
    }
}
