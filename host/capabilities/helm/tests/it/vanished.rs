//! Hooks whose Jobs are gone before their end was seen.

use serde_json::{Value, json};
use sutler_helm::{Error, Outcome, Status};
use sutler_testkit::cluster::Readiness;

use crate::release::secret_names;
use crate::support::{World, config_map, done, hook};

fn job(name: &str) -> Value {
    serde_json::from_str(hook("Job", name, &[], 0, &[])["manifest"].as_str().unwrap()).unwrap()
}

/// An install that waits for the Jobs of one hook.
async fn waiting(jobs: &[Value]) -> World {
    let w = World::start().await;
    w.cluster.set_readiness(Readiness::Never);
    let mut one = hook("Job", "j", &["pre-install"], 0, &[]);
    one["manifest"] = json!(crate::support::manifest(jobs));
    w.hooked(&[config_map("m", "1")], &[one]);
    let got = w.upgrade().await.unwrap();
    assert!(matches!(got, Outcome::InProgress(_)), "{got:?}");
    w
}

#[tokio::test]
async fn the_failure_tells_what_it_may_have_been() {
    let mut short = job("j");
    short["spec"]["ttlSecondsAfterFinished"] = json!(5);
    for (jobs, words) in [
        (
            [short],
            "either it ended and its ttlSecondsAfterFinished of 5 s removed it, or somebody deleted it; take \
             ttlSecondsAfterFinished out",
        ),
        ([job("j")], "it has no ttlSecondsAfterFinished, so somebody or a controller deleted it"),
    ] {
        let w = waiting(&jobs).await;
        w.delete("/apis/batch/v1/namespaces/ns/jobs/j").await;
        let e = w.upgrade().await.unwrap_err();
        let Error::Other { code: "hook-failed", message } = &e else { panic!("{e:?}") };
        assert!(message.contains("Job \"j\"") && message.contains(words), "{message}");
        assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 failed"]);
    }
}

#[tokio::test]
async fn what_was_seen_to_end_is_done() {
    // Also where it is not the first of them that ends.
    let w = waiting(&[job("k"), job("j")]).await;
    let end = |name: &str| {
        let mut ended = w.cluster.object("Job", "ns", name).unwrap();
        ended["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
        w.cluster.seed(ended);
    };
    end("j");
    let got = w.upgrade().await.unwrap();
    assert!(matches!(got, Outcome::InProgress(_)), "the second one runs: {got:?}");
    w.delete("/apis/batch/v1/namespaces/ns/jobs/j").await;
    end("k");
    assert_eq!(done(w.upgrade().await.unwrap()).status, Status::Deployed);
}

#[tokio::test]
async fn a_job_that_is_done_and_being_deleted_is_done() {
    let w = waiting(&[job("j")]).await;
    let mut ended = w.cluster.object("Job", "ns", "j").unwrap();
    ended["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
    ended["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    ended["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
    w.cluster.seed(ended);
    assert_eq!(done(w.upgrade().await.unwrap()).status, Status::Deployed);
}
