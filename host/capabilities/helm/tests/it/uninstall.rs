//! Uninstall, with and without history, whole and cut off.

use serde_json::json;
use sutler_helm::{Error, Status};
use sutler_model::Mode;
use sutler_testkit::cluster::Fault;

use crate::release::secret_names;
use crate::support::{World, call, config_map, deployment, done, of};

#[tokio::test]
async fn uninstall() {
    let w = World::start().await;
    let mut kept = config_map("kept", "1");
    kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    w.installed(&[config_map("a", "1"), kept, deployment("d", 1), config_map("gone", "1")]).await;
    // Kept by somebody who set the policy on the live object.
    let mut live = w.cluster.object("ConfigMap", "ns", "a").unwrap();
    live["metadata"]["annotations"]["helm.sh/resource-policy"] = json!("keep");
    w.cluster.seed(live);
    // Another release took this one over.
    let mut taken = w.cluster.object("ConfigMap", "ns", "gone").unwrap();
    taken["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("other");
    w.cluster.seed(taken);
    w.cluster.forget_requests();
    let release = done(w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await.unwrap());
    assert_eq!(
        (release.status, release.description.as_str()),
        (Status::Uninstalled, "Uninstallation complete")
    );
    assert_eq!(
        w.writes(),
        [
            "PUT /api/v1/namespaces/ns/secrets/sh.helm.release.v1.app.v1",
            "DELETE /apis/apps/v1/namespaces/ns/deployments/d",
            "DELETE /api/v1/namespaces/ns/secrets/sh.helm.release.v1.app.v1",
        ]
    );
    for name in ["kept", "a", "gone"] {
        assert!(w.cluster.object("ConfigMap", "ns", name).is_some(), "{name}");
    }
    assert_eq!(
        w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await,
        Err(Error::NotFound)
    );
    assert_eq!(w.helm.get(&call(Mode::Inspect), &w.grants, &of("app")).await, Err(Error::NotFound));
}

#[tokio::test]
async fn uninstall_with_history_and_back() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    w.installed(&[config_map("a", "2")]).await;
    done(w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), true).await.unwrap());
    assert_eq!(
        secret_names(&w),
        ["sh.helm.release.v1.app.v1 superseded", "sh.helm.release.v1.app.v2 uninstalled"]
    );
    let release = w.installed(&[config_map("a", "3")]).await;
    assert_eq!((release.revision, release.description.as_str()), (3, "Install complete"));
    assert_eq!(
        secret_names(&w),
        [
            "sh.helm.release.v1.app.v1 superseded",
            "sh.helm.release.v1.app.v2 superseded",
            "sh.helm.release.v1.app.v3 deployed"
        ]
    );
}

#[tokio::test]
async fn an_uninstall_that_was_cut_off_goes_on() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1"), deployment("d", 1)]).await;
    w.cluster.fail_next_matching("DELETE /api/v1/namespaces/ns/configmaps/a", Fault::Status(500));
    w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await.unwrap_err();
    assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 uninstalling"]);
    done(w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await.unwrap());
    assert!(w.cluster.object("ConfigMap", "ns", "a").is_none());
    assert_eq!(secret_names(&w), Vec::<String>::new());
}

#[tokio::test]
async fn an_upgrade_goes_on_from_an_uninstall_that_was_cut_off() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1"), deployment("d", 1)]).await;
    w.cluster.fail_next_matching("DELETE /api/v1/namespaces/ns/configmaps/a", Fault::Status(500));
    w.helm.uninstall(&call(Mode::Apply), &w.grants, &of("app"), false).await.unwrap_err();
    assert_eq!(w.installed(&[config_map("b", "1")]).await.revision, 2);
    assert!(w.cluster.object("ConfigMap", "ns", "a").is_none());
    assert_eq!(
        secret_names(&w),
        ["sh.helm.release.v1.app.v1 superseded", "sh.helm.release.v1.app.v2 deployed"]
    );
}

/// The API server says that the object changed meanwhile, not that it is another one.
#[tokio::test]
async fn an_object_whose_deletion_was_refused_is_not_left_behind() {
    let w = World::start().await;
    w.installed(&[config_map("a", "1")]).await;
    let call = call(Mode::Apply);
    for (path, what) in [("configmaps/a", "ConfigMap \"a\""), ("secrets/sh.helm", "record of app revision 1")]
    {
        w.cluster.fail_next_matching(&format!("DELETE /api/v1/namespaces/ns/{path}"), Fault::Status(409));
        let e = w.helm.uninstall(&call, &w.grants, &of("app"), false).await.unwrap_err();
        assert!(matches!(&e, Error::Unavailable(m) if m.contains(what)), "{e:?}");
        assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 uninstalling"]);
    }
    done(w.helm.uninstall(&call, &w.grants, &of("app"), false).await.unwrap());
    assert!(w.cluster.object("ConfigMap", "ns", "a").is_none());
    assert_eq!(secret_names(&w), Vec::<String>::new());
}
