//! Another owner's release in the same namespace: nothing of it is read, changed or forged.

use serde_json::{Value, json};
use sutler_helm::Error;
use sutler_model::{Call, Mode};

use crate::support::{World, call, config_map, hook, of, owner};

fn stranger(mode: Mode) -> Call {
    Call { owner: owner("thief"), ..call(mode) }
}

/// Release `app` of the owner `orders`.
async fn installed() -> World {
    let w = World::start().await;
    w.renders(&[config_map("m", "1")]);
    crate::support::done(w.upgrade().await.unwrap());
    w
}

#[tokio::test]
async fn templates_are_not_rendered_as_another_owners_release() {
    let w = installed().await;
    let render = async |call: &Call| w.helm.render(call, &w.grants, &w.chart, &of("app"), "{}").await;
    let rendered = w.engine.requests.lock().unwrap().len();
    let e = render(&stranger(Mode::Plan)).await.unwrap_err();
    assert!(matches!(&e, Error::NotOwned(m) if m.contains("belongs to another application")), "{e:?}");
    assert_eq!(w.engine.requests.lock().unwrap().len(), rendered, "before any template looked something up");
    render(&call(Mode::Plan)).await.unwrap();
}

#[tokio::test]
async fn a_record_that_somebody_added_opens_nothing() {
    let w = installed().await;
    let of_stranger = stranger(Mode::Inspect).owner.hash();
    let record = w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1").unwrap();
    let mut forged = record.clone();
    crate::release::rewrite(&mut forged, |r| r["version"] = json!(999));
    forged["metadata"]["name"] = json!("sh.helm.release.v1.app.v999");
    forged["metadata"]["labels"]["sutler.dev/owner"] = json!(of_stranger);
    forged["metadata"]["labels"]["version"] = json!("999");
    w.cluster.seed(forged.clone());
    let get = w.helm.get(&stranger(Mode::Inspect), &w.grants, &of("app")).await;
    assert!(matches!(get, Err(Error::NotOwned(_))), "{get:?}");
    let gone = w.helm.uninstall(&stranger(Mode::Apply), &w.grants, &of("app"), false).await;
    assert!(matches!(gone, Err(Error::NotOwned(_))), "{gone:?}");
    assert!(w.cluster.object("ConfigMap", "ns", "m").is_some());

    // A record under a name that is not its own.
    let mut renamed = record;
    renamed["metadata"]["name"] = json!("sh.helm.release.v1.other.v1");
    renamed["metadata"]["labels"]["name"] = json!("other");
    w.cluster.seed(renamed);
    let get = w.helm.get(&call(Mode::Inspect), &w.grants, &of("other")).await;
    assert!(matches!(&get, Err(Error::Other { code: "broken-record", .. })), "{get:?}");
}

#[tokio::test]
async fn a_chart_has_no_records_and_no_labels_of_the_host() {
    let w = World::start().await;
    let record = json!({"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "metadata": {"name": "sh.helm.release.v1.b.v9"}});
    let mut labelled = config_map("m", "1");
    labelled["metadata"]["labels"] = json!({"sutler.dev/owner": "x"});
    let mut template = crate::support::deployment("d", 1);
    template["spec"]["template"]["metadata"]["labels"]["sutler.dev/owner"] = json!("x");
    for (object, words) in
        [(record.clone(), "is a release record"), (labelled, "has the label"), (template, "has the label")]
    {
        w.renders(&[object]);
        let e = w.upgrade().await.unwrap_err();
        assert!(matches!(&e, Error::Render(m) if m.contains(words)), "{e:?}");
    }
    let mut hooked = hook("ConfigMap", "h", &["pre-install"], 0, &[]);
    hooked["manifest"] = json!(record.to_string());
    w.hooked(&[config_map("m", "1")], &[hooked]);
    let e = w.upgrade().await.unwrap_err();
    assert!(matches!(&e, Error::Render(m) if m.contains("is a release record")), "{e:?}");
    assert_eq!(w.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn the_log_of_a_pod_in_the_way_of_a_hook_is_not_told() {
    let w = World::start().await;
    let theirs: Value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db", "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    w.cluster.seed(theirs);
    w.cluster.write_log("ns", "db", "c", "password=hunter2\n");
    w.hooked(&[config_map("m", "1")], &[hook("Pod", "db", &["pre-install"], 0, &[])]);
    let e = w.upgrade().await.unwrap_err();
    assert!(
        matches!(&e, Error::Other { code: "hook-failed", message } if message.contains("was not made by one") && !message.contains("hunter2")),
        "{e:?}"
    );
    assert!(w.cluster.object("Pod", "ns", "db").is_some());
}
