//! Hooks: their order, their policies, what failing ones leave.

use serde_json::{Value, json};
use sutler_helm::{Error, Options, Outcome, Release, Status};
use sutler_model::Mode;
use sutler_testkit::cluster::{Fault, Readiness};

use crate::release::secret_names;
use crate::support::{World, call, config_map, done, grants, hook, of, record};

/// Names of the objects made or deleted, in order, without records.
fn story(w: &World) -> Vec<String> {
    let seen = w.cluster.requests();
    let writes = seen.iter().filter(|r| r.writes() && !r.path.contains("sh.helm.release"));
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    writes
        .filter(|r| !r.path.ends_with("/secrets"))
        .map(|r| format!("{} {}", r.method, name(&r.path)))
        .collect()
}

fn last_record(w: &World, revision: u32) -> Value {
    record(&w.cluster.object("Secret", "ns", &format!("sh.helm.release.v1.app.v{revision}")).unwrap())
}

async fn rollback(w: &World, revision: u32) -> Result<Outcome, Error> {
    w.helm.rollback(&call(Mode::Apply), &w.grants, &of("app"), revision, Options::default()).await
}

#[tokio::test]
async fn every_event_has_its_moment() {
    let w = World::start().await;
    let all = [("install", "a"), ("upgrade", "b"), ("rollback", "c"), ("delete", "d")];
    let mut hooks = vec![hook("Job", "t", &["test"], 0, &[])];
    for (event, name) in all {
        hooks.push(hook("Job", &format!("post-{name}"), &[&format!("post-{event}")], 0, &[]));
        hooks.push(hook("Job", &format!("pre-{name}"), &[&format!("pre-{event}")], 0, &[]));
    }
    let told = |w: &World| {
        let out = story(w);
        w.cluster.forget_requests();
        out
    };
    w.hooked(&[config_map("m", "1")], &hooks);
    done(w.upgrade().await.unwrap());
    assert_eq!(told(&w), ["PATCH pre-a", "PATCH m", "PATCH post-a"]);
    w.hooked(&[config_map("m", "2")], &hooks);
    done(w.upgrade().await.unwrap());
    assert_eq!(told(&w), ["PATCH pre-b", "PATCH m", "PATCH post-b"]);
    let release = done(rollback(&w, 1).await.unwrap());
    assert_eq!((release.revision, release.description.as_str()), (3, "Rollback to 1"));
    assert_eq!(told(&w), ["PATCH pre-c", "PATCH m", "PATCH post-c"]);
    assert_eq!(last_record(&w, 3)["info"]["rollback_revision"], 1);
    done(w.helm.test(&call(Mode::Apply), &w.grants, &of("app")).await.unwrap());
    assert_eq!(told(&w), ["PATCH t"]);
    let ran: Vec<String> = last_record(&w, 3)["hooks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|h| h["last_run"]["phase"] == "Succeeded")
        .map(|h| h["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        ran,
        ["t", "post-a", "pre-a", "post-c", "pre-c"],
        "a rollback keeps what the old revision ran"
    );
    done(w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await.unwrap());
    assert_eq!(told(&w), ["PATCH pre-d", "DELETE m", "PATCH post-d"]);
    assert_eq!(secret_names(&w), Vec::<String>::new());
}

#[tokio::test]
async fn weights_and_policies() {
    let w = World::start().await;
    let hooks = [
        hook("ConfigMap", "late", &["pre-install", "pre-upgrade"], 5, &[]),
        hook("Job", "middle", &["pre-install", "pre-upgrade"], 0, &["hook-succeeded"]),
        hook(
            "ConfigMap",
            "early",
            &["pre-install", "pre-upgrade"],
            -5,
            &["before-hook-creation", "hook-succeeded"],
        ),
        hook("Job", "kept", &["pre-install", "pre-upgrade"], 0, &["hook-failed"]),
    ];
    w.hooked(&[config_map("m", "1")], &hooks);
    done(w.upgrade().await.unwrap());
    assert_eq!(
        story(&w),
        [
            "PATCH early",
            "PATCH kept",
            "PATCH middle",
            "PATCH late",
            "DELETE middle",
            "DELETE early",
            "PATCH m"
        ]
    );
    w.cluster.forget_requests();
    w.hooked(&[config_map("m", "2")], &hooks);
    done(w.upgrade().await.unwrap());
    assert_eq!(
        story(&w),
        [
            "PATCH early",
            "PATCH kept",
            "PATCH middle",
            "DELETE late",
            "PATCH late",
            "DELETE middle",
            "DELETE early",
            "PATCH m"
        ]
    );
    let marks = w.cluster.object("ConfigMap", "ns", "late").unwrap();
    assert!(marks["metadata"].get("labels").is_none_or(|l| l.as_object().unwrap().is_empty()), "{marks}");
}

#[tokio::test]
async fn what_runs_is_waited_for_without_blocking() {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Never);
    w.hooked(
        &[config_map("m", "1")],
        &[hook("Job", "j", &["pre-install"], 0, &[]), hook("Pod", "p", &["post-install"], 0, &[])],
    );
    let Outcome::InProgress(why) = w.upgrade().await.unwrap() else { panic!("it runs") };
    assert!(why.contains("Job \"j\""), "{why}");
    assert!(w.cluster.object("ConfigMap", "ns", "m").is_none());
    assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 pending-install"]);
    assert_eq!(last_record(&w, 1)["hooks"][0]["last_run"]["phase"], "Running");
    w.cluster.forget_requests();
    assert!(matches!(w.upgrade().await, Ok(Outcome::InProgress(_))));
    assert_eq!(w.writes(), Vec::<String>::new(), "a look changes nothing");
    w.cluster.set_readiness(Readiness::Instant);
    assert!(
        matches!(w.upgrade().await, Ok(Outcome::InProgress(why)) if why.contains("Pod \"p\"")),
        "pods here never end"
    );
    let mut pod = w.cluster.object("Pod", "ns", "p").unwrap();
    pod["status"]["phase"] = json!("Succeeded");
    w.cluster.seed(pod);
    let release = done(w.upgrade().await.unwrap());
    assert_eq!((release.revision, release.status), (1, Status::Deployed));
    assert_eq!(story(&w), ["PATCH m", "PATCH p"]);
    let again = w.helm.history(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap();
    assert_eq!(again.len(), 1);
}

async fn failed(w: &World) -> (Error, Release) {
    let e = w.upgrade().await.unwrap_err();
    (e, w.helm.get(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap())
}

#[tokio::test]
async fn a_failed_hook_fails_the_release_and_tells_what_it_wrote() {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Failing);
    let hooks = [
        hook("ConfigMap", "first", &["pre-install"], -1, &["hook-succeeded"]),
        hook("Job", "j", &["pre-install"], 0, &["hook-failed"]),
    ];
    w.hooked(&[config_map("m", "1")], &hooks);
    let (e, release) = failed(&w).await;
    let Error::Other { code: "hook-failed", message } = e else { panic!("{e:?}") };
    assert!(message.contains("pre-install hook Job \"j\""), "{message}");
    assert!(message.contains("BackoffLimitExceeded") && message.contains("c says line 9"), "{message}");
    assert_eq!((release.revision, release.status), (1, Status::Failed));
    assert!(
        release.description.starts_with("Release \"app\" failed: pre-install hook"),
        "{}",
        release.description
    );
    for (kind, name) in [("ConfigMap", "first"), ("Job", "j"), ("ConfigMap", "m")] {
        assert!(w.cluster.object(kind, "ns", name).is_none(), "{name}");
    }
    assert_eq!(last_record(&w, 1)["hooks"][1]["last_run"]["phase"], "Failed");

    // The next one is an upgrade of what failed: other events.
    done(w.upgrade().await.unwrap());
    assert_eq!(
        secret_names(&w),
        ["sh.helm.release.v1.app.v1 superseded", "sh.helm.release.v1.app.v2 deployed"]
    );
}

#[tokio::test]
async fn a_failed_test_says_nothing_of_the_release() {
    let w = World::start().await;
    w.hooked(&[config_map("m", "1")], &[hook("Job", "t", &["test"], 0, &[])]);
    done(w.upgrade().await.unwrap());
    w.cluster.set_readiness(Readiness::Failing);
    let test = async || w.helm.test(&call(Mode::Apply), &w.grants, &of("app")).await;
    assert!(matches!(test().await, Err(Error::Other { code: "hook-failed", .. })));
    let release = w.helm.get(&call(Mode::Inspect), &w.grants, &of("app")).await.unwrap();
    assert_eq!((release.status, release.description.as_str()), (Status::Deployed, "Install complete"));
    assert_eq!(last_record(&w, 1)["hooks"][0]["last_run"]["phase"], "Failed");
    w.cluster.set_readiness(Readiness::Instant);
    done(test().await.unwrap());
}

#[tokio::test]
async fn a_failed_hook_stops_an_uninstall_before_anything_is_deleted() {
    let w = World::start().await;
    w.hooked(
        &[config_map("m", "1")],
        &[hook("Job", "pre", &["pre-delete"], 0, &[]), hook("Job", "post", &["post-delete"], 0, &[])],
    );
    done(w.upgrade().await.unwrap());
    w.cluster.set_readiness(Readiness::Failing);
    let uninstall = async || w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await;
    assert!(matches!(uninstall().await, Err(Error::Other { code: "hook-failed", .. })));
    assert!(w.cluster.object("ConfigMap", "ns", "m").is_some());
    assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 uninstalling"]);
    w.cluster.set_readiness(Readiness::Instant);
    done(uninstall().await.unwrap());
    assert!(w.cluster.object("ConfigMap", "ns", "m").is_none());
}

#[tokio::test]
async fn what_is_in_a_hooks_way_is_deleted_only_where_helm_made_it() {
    let w = World::start().await;
    let hooks = [hook("ConfigMap", "h", &["pre-install"], 0, &[])];
    w.hooked(&[config_map("m", "1")], &hooks);
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "h", "namespace": "ns"}});
    let mut of_other = theirs.clone();
    of_other["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "other"});
    of_other["metadata"]["managedFields"] = json!([{"manager": "helm", "operation": "Apply"}]);
    for there in [theirs.clone(), of_other] {
        w.cluster.seed(there);
        let (e, _) = failed(&w).await;
        let Error::Other { code: "hook-failed", message } = e else { panic!("{e:?}") };
        assert!(message.contains("was not made by one"), "{message}");
        assert!(w.cluster.object("ConfigMap", "ns", "h").is_some());
        w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await.unwrap();
    }
    w.cluster.seed(theirs);
    let wide = grants(json!({"charts": [w.chart.url], "namespaces": ["ns"], "unowned": true}));
    let call = call(Mode::Apply);
    done(w.helm.upgrade(&call, &wide, &w.chart, &of("app"), "{}", Options::default()).await.unwrap());
    assert_eq!(w.cluster.object("ConfigMap", "ns", "h").unwrap()["data"]["hook"], "h");
}

#[tokio::test]
async fn hooks_stay_within_the_grants() {
    let w = World::start().await;
    let mut hook = hook("ConfigMap", "h", &["post-delete"], 0, &[]);
    hook["manifest"] =
        json!(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"h","namespace":"kube-system"}}"#);
    w.hooked(&[config_map("m", "1")], &[hook]);
    let e = w.upgrade().await.unwrap_err();
    assert!(
        matches!(&e, Error::NotGranted(n) if n.add == "helm.other-namespaces = [\"kube-system\"]"),
        "{e:?}"
    );
    assert_eq!(w.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_hook_that_does_not_end() {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Never);
    w.hooked(&[config_map("m", "1")], &[hook("Job", "j", &["pre-install"], 0, &[])]);
    assert!(matches!(w.upgrade().await, Ok(Outcome::InProgress(_))));
    let mut secret = w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1").unwrap();
    crate::release::rewrite(&mut secret, |r| {
        r["hooks"][0]["last_run"]["started_at"] = json!("2024-01-01T00:00:00Z")
    });
    w.cluster.seed(secret);
    let (e, release) = failed(&w).await;
    assert!(
        matches!(&e, Error::Other { code: "hook-failed", message } if message.contains("within 300 s")),
        "{e:?}"
    );
    assert_eq!(release.status, Status::Failed);
}

#[tokio::test]
async fn a_hook_that_cannot_be_made_leaves_everything_as_it_is() {
    let w = World::start().await;
    let hooks = [
        hook("ConfigMap", "first", &["post-install", "post-upgrade"], 0, &["hook-succeeded"]),
        hook("ConfigMap", "second", &["post-install", "post-upgrade"], 1, &["hook-failed"]),
    ];
    w.hooked(&[config_map("m", "1")], &hooks);
    done(w.upgrade().await.unwrap());
    w.hooked(&[config_map("m", "2")], &hooks);
    w.cluster.forget_requests();
    w.cluster.fail_next_matching("PATCH /api/v1/namespaces/ns/configmaps/second", Fault::Status(409));
    let e = w.upgrade().await.unwrap_err();
    assert!(
        matches!(&e, Error::Other { code: "hook-failed", message } if message.contains("second")),
        "{e:?}"
    );
    assert_eq!(story(&w), ["PATCH m", "PATCH first", "PATCH second"], "nothing is deleted");
    for name in ["first", "second"] {
        assert!(w.cluster.object("ConfigMap", "ns", name).is_some(), "{name}");
    }
}
