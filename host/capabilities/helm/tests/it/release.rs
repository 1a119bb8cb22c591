//! Install, upgrade, uninstall, and what they leave behind.

use serde_json::{Value, json};
use sutler_helm::{EngineError, Error, Options, Outcome, ReleaseReference, Status};
use sutler_model::Mode;
use sutler_testkit::cluster::Fault;

use crate::support::{World, answer, call, config_map, deployment, done, grants, of, owner, record};

pub(crate) fn secret_names(w: &World) -> Vec<String> {
    let all = w.cluster.objects();
    let helm = all.iter().filter(|o| o["type"] == "helm.sh/release.v1");
    helm.map(|o| {
        format!(
            "{} {}",
            o["metadata"]["name"].as_str().unwrap(),
            o["metadata"]["labels"]["status"].as_str().unwrap()
        )
    })
    .collect()
}

#[tokio::test]
async fn install_and_upgrade() {
    let w = World::start().await;
    let release = w.installed(&[config_map("a", "1"), deployment("d", 1)]).await;
    assert_eq!(
        (release.revision, release.status, release.description.as_str()),
        (1, Status::Deployed, "Install complete")
    );
    assert_eq!((release.chart_name.as_str(), release.notes.as_str()), ("app", "hello"));
    let live = w.cluster.object("Deployment", "ns", "d").unwrap();
    assert_eq!(live["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
    assert_eq!(live["metadata"]["annotations"]["meta.helm.sh/release-name"], "app");
    assert_eq!(live["metadata"]["annotations"]["meta.helm.sh/release-namespace"], "ns");
    assert_eq!(
        live["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "Helm"}),
        "as Helm makes it"
    );
    let record = w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1").unwrap();
    assert_eq!(record["metadata"]["labels"]["sutler.dev/owner"], owner("orders").hash());
    let managers = live["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|m| m["manager"] == "helm" && m["operation"] == "Apply"), "{managers:?}");

    w.renders(&[config_map("a", "2")]);
    let release = done(w.upgrade_with(r#"{"x":1}"#, Options::default()).await.unwrap());
    assert_eq!((release.revision, release.description.as_str()), (2, "Upgrade complete"));
    assert_eq!(release.values, json!({"x": 1}));
    assert_eq!(w.cluster.object("ConfigMap", "ns", "a").unwrap()["data"]["key"], "2");
    assert!(w.cluster.object("Deployment", "ns", "d").is_none(), "pruned");
    assert_eq!(
        secret_names(&w),
        ["sh.helm.release.v1.app.v1 superseded", "sh.helm.release.v1.app.v2 deployed"]
    );
    let rendered: Vec<(u32, bool)> =
        w.engine.requests.lock().unwrap().iter().map(|r| (r.revision, r.upgrade)).collect();
    assert_eq!(rendered, [(1, false), (2, true)]);
}

#[tokio::test]
async fn the_same_again_is_no_revision() {
    let w = World::start().await;
    let objects = [config_map("a", "1"), deployment("d", 1)];
    w.installed(&objects).await;
    w.cluster.forget_requests();
    assert_eq!(w.installed(&objects).await.revision, 1);
    assert_eq!(w.writes(), Vec::<String>::new());

    // Somebody changed an object: the same call sets it right.
    let mut live = w.cluster.object("ConfigMap", "ns", "a").unwrap();
    live["data"]["key"] = json!("edited");
    w.cluster.seed(live);
    assert_eq!(w.installed(&objects).await.revision, 2);
    assert_eq!(w.cluster.object("ConfigMap", "ns", "a").unwrap()["data"]["key"], "1");
}

#[tokio::test]
async fn writes_are_for_calls_that_write() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1")]);
    for mode in [Mode::Describe, Mode::Plan, Mode::Inspect, Mode::Locate] {
        let call = call(mode);
        let got = w.helm.upgrade(&call, &w.grants, &w.chart, &of("app"), "{}", Options::default()).await;
        assert_eq!(got, Err(Error::ReadOnlyCall), "{mode:?}");
        assert_eq!(w.helm.uninstall(&call, &w.grants, &of("app"), false).await, Err(Error::ReadOnlyCall));
    }
    let plan = call(Mode::Plan);
    let got = w.helm.rollback(&plan, &w.grants, &of("app"), 1, Options::default()).await;
    assert_eq!(got, Err(Error::ReadOnlyCall));
    assert_eq!(w.helm.test(&plan, &w.grants, &of("app")).await, Err(Error::ReadOnlyCall));
    assert!(w.cluster.requests().is_empty());
}

#[tokio::test]
async fn grants_hold_for_every_object() {
    let w = World::start().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    let mut elsewhere = config_map("a", "1");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    for (object, line) in [
        (role.clone(), "helm.cluster-scoped-kinds = [\"ClusterRole\"]"),
        (elsewhere, "helm.other-namespaces = [\"kube-system\"]"),
    ] {
        w.renders(&[config_map("b", "1"), object]);
        let e = w.upgrade().await.unwrap_err();
        assert!(matches!(&e, Error::NotGranted(n) if n.add == line), "{e:?}");
    }
    let outside = ReleaseReference { namespace: "other".into(), ..of("app") };
    let e = w
        .helm
        .upgrade(&call(Mode::Apply), &w.grants, &w.chart, &outside, "{}", Options::default())
        .await
        .unwrap_err();
    assert!(matches!(&e, Error::NotGranted(n) if n.add.starts_with("helm.namespaces")), "{e:?}");
    let take = Options { take_ownership: true, ..Options::default() };
    let e = w.upgrade_with("{}", take).await.unwrap_err();
    assert!(matches!(&e, Error::NotGranted(n) if n.add == "helm.unowned = true"), "{e:?}");
    assert_eq!(w.writes(), Vec::<String>::new(), "nothing was written");
}

#[tokio::test]
async fn another_owners_release() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    let mut other = call(Mode::Apply);
    other.owner = owner("billing");
    let e = w.helm.get(&other, &w.grants, &of("app")).await.unwrap_err();
    assert!(matches!(&e, Error::NotOwned(m) if m.contains("belongs to another application")), "{e:?}");
    let got = w.helm.upgrade(&other, &w.grants, &w.chart, &of("app"), "{}", Options::default()).await;
    assert!(matches!(got, Err(Error::NotOwned(_))));
    assert!(matches!(w.helm.uninstall(&other, &w.grants, &of("app"), false).await, Err(Error::NotOwned(_))));
    assert_eq!(w.helm.list(&other, &w.grants, None, "ns").await.unwrap(), vec![]);
    assert_eq!(w.helm.list(&call(Mode::Inspect), &w.grants, None, "ns").await.unwrap().len(), 1);
    let wide = grants(json!({"charts": [w.chart.url], "namespaces": ["ns"], "unowned": true}));
    assert_eq!(w.helm.get(&other, &wide, &of("app")).await.unwrap().revision, 1);
    assert_eq!(w.helm.list(&other, &wide, None, "ns").await.unwrap().len(), 1);
}

#[tokio::test]
async fn another_owners_object() {
    let w = World::start().await;
    let mut foreign = config_map("a", "theirs");
    foreign["metadata"]["namespace"] = json!("ns");
    w.cluster.seed(foreign);
    w.renders(&[config_map("a", "1")]);
    let e = w.upgrade().await.unwrap_err();
    assert!(
        matches!(&e, Error::NotOwned(m) if m.contains("ConfigMap \"a\" in namespace \"ns\" exists and cannot be imported")),
        "{e:?}"
    );
    assert_eq!(w.writes(), Vec::<String>::new());
    let wide = grants(json!({"charts": [w.chart.url], "namespaces": ["ns"], "unowned": true}));
    let take = Options { take_ownership: true, force_conflicts: true, ..Options::default() };
    done(w.helm.upgrade(&call(Mode::Apply), &wide, &w.chart, &of("app"), "{}", take).await.unwrap());
    assert_eq!(w.cluster.object("ConfigMap", "ns", "a").unwrap()["data"]["key"], "1");
}

#[tokio::test]
async fn a_failure_is_recorded_and_gone_on_from() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1"), deployment("d", 1)]);
    w.cluster.fail_next_matching("deployments/d", Fault::Delay(std::time::Duration::ZERO));
    w.cluster.deny("patch", "deployments");
    let e = w.upgrade().await.unwrap_err();
    assert!(matches!(&e, Error::Other { code: "forbidden", .. }), "{e:?}");
    let release = w.helm.get(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap();
    assert_eq!((release.revision, release.status), (1, Status::Failed));
    assert!(
        release.description.starts_with("Release \"app\" failed: Deployment \"d\""),
        "{}",
        release.description
    );
    w.renders(&[config_map("a", "1")]);
    let release = done(w.upgrade().await.unwrap());
    assert_eq!((release.revision, release.status), (2, Status::Deployed));
    assert_eq!(
        secret_names(&w),
        ["sh.helm.release.v1.app.v1 superseded", "sh.helm.release.v1.app.v2 deployed"]
    );
}

#[tokio::test]
async fn a_release_that_somebody_works_on() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    // The record of an operation that was cut off, as Helm would leave it.
    let mut record = w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1").unwrap();
    rewrite(&mut record, |r| r["info"]["status"] = json!("pending-upgrade"));
    w.cluster.seed(record);
    w.renders(&[config_map("a", "2")]);
    let e = w.upgrade().await.unwrap_err();
    assert!(matches!(&e, Error::Pending(m) if m.contains("revision 1 is pending-upgrade")), "{e:?}");
    assert!(matches!(
        w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await,
        Ok(Outcome::Done(_))
    ));
}

/// Changes the JSON inside a record.
pub(crate) fn rewrite(secret: &mut Value, change: impl FnOnce(&mut Value)) {
    use base64::Engine as _;
    let b64 = base64::engine::general_purpose::STANDARD;
    let mut json = record(secret);
    change(&mut json);
    secret["data"]["release"] = json!(b64.encode(b64.encode(json.to_string())));
}

#[tokio::test]
async fn two_at_once() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1")]);
    let (a, b) = tokio::join!(w.upgrade(), w.upgrade());
    let failed = [a, b].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(failed.len() <= 1 && failed.iter().all(|e| matches!(e, Error::Pending(_))), "{failed:?}");
    assert_eq!(w.cluster.object("ConfigMap", "ns", "a").unwrap()["data"]["key"], "1");
}

#[tokio::test]
async fn nothing_is_written_for_what_cannot_work() {
    let w = World::start().await;
    w.renders(&[config_map("a", &"x".repeat((1 << 20) + 1))]);
    assert!(matches!(w.upgrade().await, Err(Error::TooLarge(_))));

    *w.engine.render.lock().unwrap() =
        Box::new(|_| Err(EngineError::Template("nil pointer in x.yaml".into())));
    assert_eq!(w.upgrade().await, Err(Error::Render("nil pointer in x.yaml".into())));

    w.renders(&[json!({"apiVersion": "none.example/v1", "kind": "Nothing", "metadata": {"name": "n"}})]);
    let e = w.upgrade().await.unwrap_err();
    assert!(matches!(&e, Error::Other { code: "unknown-kind", .. }), "{e:?}");

    for (values, part) in [("[]", "not a JSON object"), ("{", "not JSON")] {
        let e = w.upgrade_with(values, Options::default()).await.unwrap_err();
        assert!(matches!(&e, Error::Render(m) if m.contains(part)), "{e:?}");
    }
    let long = "a".repeat(54);
    for name in ["", "A", "-a", "a.", "a_b", &long] {
        let got = w.helm.get(&call(Mode::Inspect), &w.grants, &of(name)).await;
        assert!(matches!(got, Err(Error::Other { code: "invalid-release-name", .. })), "{name}");
    }
    assert_eq!(w.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn namespaces_on_request() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1")]);
    let at = ReleaseReference { namespace: "new".into(), ..of("app") };
    let create = Options { create_namespace: true, ..Options::default() };
    let e = w.helm.upgrade(&call(Mode::Apply), &w.grants, &w.chart, &at, "{}", create).await.unwrap_err();
    assert!(
        matches!(&e, Error::NotGranted(n) if n.add == "helm.cluster-scoped-kinds = [\"Namespace\"]"),
        "{e:?}"
    );
    let wide = grants(
        json!({"charts": [w.chart.url], "namespaces": ["new"], "cluster-scoped-kinds": ["Namespace"]}),
    );
    done(w.helm.upgrade(&call(Mode::Apply), &wide, &w.chart, &at, "{}", create).await.unwrap());
    assert_eq!(w.cluster.object("Namespace", "", "new").unwrap()["metadata"]["labels"]["name"], "new");
}

/// An account with roles in its namespaces alone.
#[tokio::test]
async fn a_namespace_that_may_not_be_looked_at() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1")]);
    w.cluster.deny("get", "namespaces");
    let create = Options { create_namespace: true, ..Options::default() };
    let wide =
        grants(json!({"charts": [w.chart.url], "namespaces": ["ns"], "cluster-scoped-kinds": ["Namespace"]}));
    let e = w.helm.upgrade(&call(Mode::Apply), &wide, &w.chart, &of("app"), "{}", create).await.unwrap_err();
    assert!(matches!(&e, Error::Other { code: "forbidden", .. }), "it was to be made: {e:?}");
    done(w.helm.upgrade(&call(Mode::Apply), &w.grants, &w.chart, &of("app"), "{}", create).await.unwrap());
    assert!(w.cluster.object("ConfigMap", "ns", "a").is_some());
}

#[tokio::test]
async fn history_is_pruned() {
    let w = World::start().await;
    for i in 0..5 {
        w.renders(&[config_map("a", &i.to_string())]);
        done(w.upgrade_with("{}", Options { history_max: 3, ..Options::default() }).await.unwrap());
    }
    let history = w.helm.history(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap();
    assert_eq!(history.iter().map(|r| r.revision).collect::<Vec<_>>(), [3, 4, 5]);
}

#[tokio::test]
async fn the_time_runs_out() {
    let w = World::start().await;
    w.renders(&[config_map("a", "1"), config_map("b", "1")]);
    w.cluster.fail_next_matching(
        "PATCH /api/v1/namespaces/ns/configmaps/a",
        Fault::Delay(std::time::Duration::from_secs(20)),
    );
    let mut call = call(Mode::Apply);
    call.deadline = std::time::Instant::now() + std::time::Duration::from_secs(3);
    let got = w.helm.upgrade(&call, &w.grants, &w.chart, &of("app"), "{}", Options::default()).await;
    assert_eq!(got, Err(Error::TimedOut));
    assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 pending-install"]);
    // The same call again goes on with the same revision.
    assert_eq!(w.installed(&[config_map("other", "1")]).await.revision, 1);
    assert!(w.cluster.object("ConfigMap", "ns", "b").is_some(), "what was rendered at first counts");
}

#[tokio::test]
async fn definitions_come_first() {
    let w = World::start().await;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let mut with_crd =
        answer(&[json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "t"}})]);
    with_crd.crds = vec![crd.to_string()];
    w.answers(with_crd);
    let e = w.upgrade().await.unwrap_err();
    assert!(
        matches!(&e, Error::NotGranted(n) if n.add == "helm.cluster-scoped-kinds = [\"CustomResourceDefinition\"]"),
        "{e:?}"
    );
    let wide = grants(
        json!({"charts": [w.chart.url], "namespaces": ["ns"], "cluster-scoped-kinds": ["CustomResourceDefinition"]}),
    );
    let mut outcome = None;
    for _ in 0..5 {
        match w
            .helm
            .upgrade(&call(Mode::Apply), &wide, &w.chart, &of("app"), "{}", Options::default())
            .await
            .unwrap()
        {
            Outcome::Done(release) => outcome = Some(release),
            Outcome::InProgress(why) => assert!(why.contains("things.example.org"), "{why}"),
        }
        if outcome.is_some() {
            break;
        }
    }
    assert_eq!(outcome.unwrap().revision, 1);
    assert!(w.cluster.object("Thing", "ns", "t").is_some());
}

/// The runtime drives these futures on many threads.
#[test]
fn futures_can_move_between_threads() {
    fn send<T: Send>(_: T) {}
    fn all(w: &World, c: &sutler_model::Call) {
        let (g, r) = (&w.grants, of("app"));
        send(w.helm.upgrade(c, g, &w.chart, &r, "{}", Options::default()));
        send(w.helm.preview(c, g, &w.chart, &r, "{}", Options::default()));
        send(w.helm.uninstall(c, g, &r, false));
        send(w.helm.drift(c, g, &r));
        send(w.helm.readiness(c, g, &r));
        send(w.helm.list(c, g, None, "ns"));
        send(w.helm.render(c, g, &w.chart, &r, "{}"));
        send(w.helm.pull(c, g, &w.chart));
    }
    let _ = all;
}
