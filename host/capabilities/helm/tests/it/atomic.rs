//! Atomic: waits until everything is ready, and takes back what fails.

use serde_json::json;
use sutler_helm::{Error, Options, Outcome, Status};
use sutler_model::Mode;
use sutler_testkit::cluster::{Fault, Readiness};

use crate::release::secret_names;
use crate::support::{World, call, config_map, deployment, done, hook, of};

const ATOMIC: Options = Options {
    create_namespace: false,
    take_ownership: false,
    force_conflicts: false,
    atomic: true,
    wait_for_jobs: false,
    history_max: 0,
};

#[tokio::test]
async fn it_waits() {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Never);
    w.renders(&[deployment("d", 1)]);
    let Ok(Outcome::InProgress(why)) = w.upgrade_with("{}", ATOMIC).await else { panic!("not ready") };
    assert!(why.contains("Deployment \"d\""), "{why}");
    assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 pending-install"]);
    w.cluster.set_readiness(Readiness::Instant);
    assert_eq!(done(w.upgrade_with("{}", ATOMIC).await.unwrap()).status, Status::Deployed);
}

#[tokio::test]
async fn jobs_only_on_request() {
    for (jobs, waits) in [(false, false), (true, true)] {
        let w = World::start().await;
        w.cluster.set_readiness(Readiness::Never);
        let job = hook("Job", "j", &[], 0, &[])["manifest"].clone();
        w.renders(&[serde_json::from_str(job.as_str().unwrap()).unwrap()]);
        let outcome = w.upgrade_with("{}", Options { wait_for_jobs: jobs, ..ATOMIC }).await.unwrap();
        assert_eq!(matches!(outcome, Outcome::InProgress(_)), waits, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_failed_install_is_uninstalled() {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Failing);
    w.renders(&[deployment("d", 1), config_map("m", "1")]);
    let e = w.upgrade_with("{}", ATOMIC).await.unwrap_err();
    let Error::Other { code: "taken-back", message } = e else { panic!("{e:?}") };
    assert!(
        message.contains("has been uninstalled") && message.contains("ProgressDeadlineExceeded"),
        "{message}"
    );
    assert_eq!(secret_names(&w), Vec::<String>::new());
    assert!(w.cluster.object("Deployment", "ns", "d").is_none());
}

#[tokio::test]
async fn a_failed_upgrade_is_rolled_back() {
    let w = World::start().await;
    w.installed(&[config_map("m", "1")]).await;
    w.cluster.set_readiness(Readiness::Failing);
    w.renders(&[deployment("d", 1), config_map("m", "2")]);
    let e = w.upgrade_with("{}", ATOMIC).await.unwrap_err();
    let Error::Other { code: "taken-back", message } = e else { panic!("{e:?}") };
    assert!(message.contains("rolled back to revision 1"), "{message}");
    assert_eq!(w.cluster.object("ConfigMap", "ns", "m").unwrap()["data"]["key"], "1");
    assert!(w.cluster.object("Deployment", "ns", "d").is_none());
    assert_eq!(
        secret_names(&w),
        [
            "sh.helm.release.v1.app.v1 superseded",
            "sh.helm.release.v1.app.v2 failed",
            "sh.helm.release.v1.app.v3 deployed"
        ]
    );
}

#[tokio::test]
async fn taking_back_waits_for_its_hooks_too() {
    let w = World::start().await;
    w.hooked(&[config_map("m", "1")], &[hook("Job", "back", &["pre-rollback"], 0, &[])]);
    done(w.upgrade().await.unwrap());
    w.cluster.set_readiness(Readiness::Failing);
    w.renders(&[deployment("d", 1)]);
    // The rollback's hook fails as well: both reasons are told, and nothing is left pending.
    let e = w.upgrade_with("{}", ATOMIC).await.unwrap_err();
    assert!(
        matches!(&e, Error::Other { code: "taken-back", message } if message.contains("so did taking it back")),
        "{e:?}"
    );
    assert!(secret_names(&w).iter().all(|s| !s.contains("pending")), "{:?}", secret_names(&w));
    w.cluster.set_readiness(Readiness::Instant);
    let call = call(Mode::Apply);
    let back = w.helm.rollback(&call, &w.grants, &of("app"), 1, Options::default()).await.unwrap();
    assert_eq!(done(back).status, Status::Deployed);
    assert_eq!(w.cluster.object("ConfigMap", "ns", "m").unwrap()["data"], json!({"key": "1"}));
}

#[tokio::test]
async fn taking_back_killed_at_every_request() {
    for n in 1.. {
        let mut reached = false;
        for fault in [Fault::Hold, Fault::HoldAnswer] {
            let w = World::start().await;
            w.hooked(&[config_map("m", "1")], &[hook("ConfigMap", "back", &["pre-rollback"], 0, &[])]);
            done(w.upgrade().await.unwrap());
            w.cluster.set_readiness(Readiness::Failing);
            w.renders(&[deployment("d", 1), config_map("m", "2")]);
            w.cluster.fail_nth_matching(n, "", fault);
            let call = call(Mode::Apply);
            let of = of("app");
            let ask = || w.helm.upgrade(&call, &w.grants, &w.chart, &of, "{}", ATOMIC);
            tokio::select! {
                got = ask() => assert!(taken_back(&got), "{n}: {got:?}"),
                () = w.cluster.until_held(1) => reached = true,
            }
            // Where all but the answer was done, it is tried once more and rolled back again.
            if reached {
                let got = ask().await;
                assert!(taken_back(&got), "killed at {n}, {fault:?}: {got:?}");
            }
            assert_eq!(
                w.cluster.object("ConfigMap", "ns", "m").unwrap()["data"]["key"],
                "1",
                "{n} {fault:?}"
            );
            assert!(w.cluster.object("Deployment", "ns", "d").is_none(), "{n} {fault:?}");
            let records = secret_names(&w);
            assert!(records.iter().all(|s| !s.contains("pending")), "{n} {fault:?}: {records:?}");
        }
        if !reached {
            assert!(n > 20, "{n} requests");
            break;
        }
    }
}

fn taken_back(got: &Result<Outcome, Error>) -> bool {
    matches!(got, Err(Error::Other { code: "taken-back", message }) if message.contains("rolled back to revision"))
}
