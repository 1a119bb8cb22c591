//! A revision that an operation left under way: the next one heals it once that operation has ended, and not before.

use serde_json::json;
use sutler_helm::{Error, Options, Outcome};
use sutler_model::{Call, Mode};
use sutler_testkit::cluster::Readiness;

use crate::release::secret_names;
use crate::support::{World, call, config_map, done, hook, of};

fn of_job(job: &str) -> Call {
    Call { job: Some(job.into()), ..call(Mode::Apply) }
}

async fn upgrade(w: &World, call: &Call, values: &str) -> Result<Outcome, Error> {
    w.helm.upgrade(call, &w.grants, &w.chart, &of("app"), values, Options::default()).await
}

/// The install that operation `op_first` began waits for a Job.
async fn waiting() -> World {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Never);
    w.hooked(&[config_map("m", "1")], &[hook("Job", "j", &["pre-install"], 0, &[])]);
    let got = upgrade(&w, &of_job("op_first"), "{}").await.unwrap();
    assert!(matches!(got, Outcome::InProgress(_)), "{got:?}");
    w
}

fn run(w: &World, job: &str) {
    w.jobs.0.lock().unwrap().insert(job.into());
}

#[tokio::test]
async fn what_an_operation_still_works_on_is_left_alone() {
    let w = waiting().await;
    run(&w, "op_first");
    w.cluster.forget_requests();
    let (second, grants, of) = (of_job("op_second"), &w.grants, of("app"));
    let options = Options::default();
    for got in [
        upgrade(&w, &second, r#"{"v":2}"#).await.map(drop),
        // The same request as the other operation's.
        upgrade(&w, &second, "{}").await.map(drop),
        w.helm.rollback(&second, grants, &of, 1, options).await.map(drop),
        w.helm.uninstall(&second, grants, &of, false).await.map(drop),
        w.helm.test(&second, grants, &of).await.map(drop),
        w.helm.preview(&call(Mode::Plan), grants, &w.chart, &of, r#"{"v":2}"#, options).await.map(drop),
    ] {
        let told = "operation op_first works on release app in namespace ns: revision 1 is pending-install";
        assert!(matches!(&got, Err(Error::Pending(m)) if m.contains(told)), "{got:?}");
    }
    assert_eq!(w.writes(), Vec::<String>::new());

    // The operation itself goes on, and may do something else: its clean-up.
    let got = upgrade(&w, &of_job("op_first"), "{}").await.unwrap();
    assert!(matches!(got, Outcome::InProgress(_)), "{got:?}");
    done(w.helm.uninstall(&of_job("op_first"), grants, &of, false).await.unwrap());
    assert_eq!(secret_names(&w), Vec::<String>::new());
}

#[tokio::test]
async fn what_an_ended_operation_left_is_healed() {
    let w = waiting().await;
    let release = done(upgrade(&w, &of_job("op_second"), r#"{"v":2}"#).await.unwrap());
    assert_eq!((release.revision, release.values), (2, json!({"v": 2})));
    assert_eq!(
        secret_names(&w),
        ["sh.helm.release.v1.app.v1 superseded", "sh.helm.release.v1.app.v2 deployed"]
    );
}

#[tokio::test]
async fn who_goes_on_with_it_holds_it_from_then_on() {
    let w = waiting().await;
    let got = upgrade(&w, &of_job("op_second"), "{}").await.unwrap();
    assert!(matches!(got, Outcome::InProgress(_)), "{got:?}");
    run(&w, "op_second");
    let third = upgrade(&w, &of_job("op_third"), r#"{"v":3}"#).await;
    assert!(
        matches!(&third, Err(Error::Pending(m)) if m.contains("operation op_second works on")),
        "{third:?}"
    );
    w.cluster.set_readiness(Readiness::Instant);
    assert_eq!(done(upgrade(&w, &of_job("op_second"), "{}").await.unwrap()).revision, 1);
}
