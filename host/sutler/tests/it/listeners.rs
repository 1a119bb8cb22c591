//! Who may call, over what, and how a host ends.

use std::time::Duration;

use serde_json::json;
use sutler_testkit::control_plane::{Answer, ControlPlane};
use sutler_testkit::http::{Caller, SampleRequest};

use crate::support::{GRANTS, Wanted, World};

// Hashes of the tokens "caller-token" and "operator-token".
pub(crate) fn hash(token: &str) -> String {
    use sha2::Digest as _;
    let hex: String = sha2::Sha256::digest(token).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

async fn guarded() -> World {
    let config = format!(
        "{GRANTS}\n[[access.callers]]\nname = \"plane\"\ntoken-hash = [{:?}]\ntenants = [\"acme\"]\n\n\
         [[access.operators]]\nname = \"ops\"\ntoken-hash = [{:?}]\n",
        hash("caller-token"),
        hash("operator-token")
    );
    Wanted::new().plugin("hostile").config(&config).start().await
}

#[tokio::test]
async fn tokens_decide() {
    let world = guarded().await;
    let body = SampleRequest::new("tool/hostile").create(json!({"do": "ok"})).body();
    let as_caller = |token: &str| world.api().with_token(token);
    assert_eq!(world.api().post("/plan", &body).await.status, 401);
    assert_eq!(as_caller("wrong").post("/plan", &body).await.status, 401);
    assert_eq!(as_caller("operator-token").post("/plan", &body).await.status, 403);
    assert_eq!(as_caller("caller-token").post("/plan", &body).await.status, 200);
    let other =
        SampleRequest::new("tool/hostile").application("tenant", "globex").create(json!({"do": "ok"})).body();
    let refused = as_caller("caller-token").post("/plan", &other).await;
    assert_eq!(
        (refused.status, &refused.json["error"]["path"]),
        (403, &json!("/application/tenant")),
        "{}",
        refused.text
    );
    let admin = world.admin();
    assert_eq!(admin.get("/plugins").await.status, 401);
    assert_eq!(admin.clone().with_token("caller-token").get("/plugins").await.status, 403);
    assert_eq!(admin.with_token("operator-token").get("/plugins").await.status, 200);
    let log = world.host.log_lines().join("\n");
    assert!(!log.contains("caller-token") && !log.contains("operator-token"));
}

#[tokio::test]
async fn a_control_plane_is_told_the_pairs_and_may_give_one_away() {
    let plane = ControlPlane::start([Answer::Status(503), Answer::Registered]).await;
    let config = format!(
        "{GRANTS}\n[register]\ncontrol-plane = {:?}\npublic-url = \"http://sutler.example\"\ntoken = \"plane-token\"\nname = \"one\"\n",
        plane.url()
    );
    let world = Wanted::new().plugin("hostile").plugin("namespace").config(&config).start().await;
    let seen = plane.wait_for(2, Duration::from_secs(20)).await;
    let last = seen.last().unwrap();
    assert_eq!(last.body["name"], "one");
    assert_eq!(
        last.body["handles"],
        json!([{"kind": "target", "type": "kubernetes-namespace"}, {"kind": "tool", "type": "hostile"}])
    );
    assert!(!world.host.log_lines().join("\n").contains("plane-token"));

    let taken = ControlPlane::start([Answer::PairTaken(vec![("tool".into(), "hostile".into())])]).await;
    let config = config.replace(&plane.url(), &taken.url());
    let world = Wanted::new().plugin("hostile").plugin("namespace").config(&config).start().await;
    taken.wait_for(1, Duration::from_secs(20)).await;
    let body = SampleRequest::new("tool/hostile").create(json!({"do": "ok"})).body();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let answer = world.post("/plan", &body).await;
        if answer.json["code"] == "pair-not-handled" {
            break;
        }
        assert!(std::time::Instant::now() < until, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let other = SampleRequest::new("target/kubernetes-namespace").create(json!({})).body();
    assert_eq!(world.post("/plan", &other).await.json["outcome"], "planned");
}

#[tokio::test]
async fn a_stopping_host_finishes_what_runs() {
    let mut world = Wanted::new().plugin("hostile").config(GRANTS).start().await;
    let api = Caller::new(&world.host.url);
    // Two waits of the guest's step at 250 ms, then the limit of 2 s: long enough to be stopped in the middle.
    let body = SampleRequest::new("tool/hostile")
        .create(json!({"do": "sleep-in-host", "in": ["apply"], "namespace": "t-acme"}))
        .body();
    world
        .cluster
        .fail_next_matching("configmaps", sutler_testkit::cluster::Fault::Delay(Duration::from_millis(1500)));
    let running = tokio::spawn(async move { api.post("/apply", &body).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    let ended = world.host.stop().await;
    let answer = running.await.unwrap();
    assert_eq!((answer.status, answer.json["code"].as_str()), (200, Some("probe")), "{}", answer.text);
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn two_hosts_share_a_cache_and_killing_one_leaves_nothing_broken() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{GRANTS}\n[cache]\ndir = {:?}\n", folder.path().join("cache"));
    let mut one = Wanted::new().plugin("hostile").config(&config).unready().start().await;
    let two = Wanted::new().plugin("hostile").config(&config).start().await;
    one.host.kill().await;
    let three = Wanted::new().plugin("hostile").config(&config).start().await;
    let body = SampleRequest::new("tool/hostile").create(json!({"do": "ok"})).body();
    for world in [&two, &three] {
        assert_eq!(world.post("/plan", &body).await.json["outcome"], "planned");
    }
    // A compiled form that somebody wrote to is not native code to run.
    let compiled = folder.path().join("cache/compiled");
    for file in std::fs::read_dir(&compiled).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|e| e == "cwasm") {
            let mut bytes = std::fs::read(&file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0xff;
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let four = Wanted::new().plugin("hostile").config(&config).start().await;
    assert_eq!(four.post("/plan", &body).await.json["outcome"], "planned");
    assert!(!four.host.events("compile-cache-refused").is_empty());
}
