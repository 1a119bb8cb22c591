//! Instances on one host: none takes all of its limits, none finds another's routes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use expect_test::expect;
use serde_json::{Value, json};
use sutler_access::{Access, AccessConfig, CallerConfig, InstanceAccess, hash_token};
use sutler_api::{Api, ApiConfig, Share};
use tokio::task::JoinHandle;

use crate::fake::{self, Fake, api, body, fake, send, shown};

/// `emea` and `apac` with tokens of their own names; the token `caller` for every instance, `one` for `emea` alone.
fn tokens() -> Access {
    let caller = |name: &str, token: &str, instances: &str| CallerConfig {
        name: name.into(),
        token_hash: vec![hash_token(token)],
        tenants: vec!["*".into()],
        instances: vec![instances.into()],
        max_requests: None,
        max_log_streams: None,
        audit: false,
    };
    let config = AccessConfig {
        callers: vec![caller("all", "caller", "*"), caller("one", "one", "emea")],
        operators: vec![],
    };
    let instances = ["emea", "apac"].map(|name| InstanceAccess {
        name: name.into(),
        token_hash: vec![hash_token(name)],
        tenants: None,
        audit: false,
    });
    Access::new(&config, &instances).unwrap()
}

const ONE: Share = Share { requests: 1, streams: 1, events: 1 };

fn host(fake: &Arc<Fake>) -> Api {
    let of = |names: [(&str, &str); 2]| names.map(|(n, path)| (n.to_owned(), path.to_owned())).into();
    let config = ApiConfig {
        instances: of([("emea", "/instances/emea"), ("apac", "/moved")]),
        instance_shares: BTreeMap::from([("emea".into(), ONE), ("apac".into(), ONE)]),
        max_event_streams: 2,
        ..ApiConfig::default()
    };
    api(fake, tokens(), config)
}

fn with(token: &str, mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

fn plan(path: &str, token: &str, body: &Value) -> Request<Body> {
    with(token, fake::post(path, body.to_string()))
}

fn get(path: &str, token: &str) -> Request<Body> {
    with(token, fake::get(path))
}

fn named(id: &str, instance: &str) -> Value {
    let mut body = body(id);
    body["application"]["instance"] = json!(instance);
    body
}

async fn running(api: &Api, count: usize) {
    let began = Instant::now();
    while api.running().len() != count {
        assert!(began.elapsed() < Duration::from_secs(10), "{count} run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A request that is being worked on, and the status that it ends with.
async fn held(api: &Api, router: &Router, request: Request<Body>) -> JoinHandle<StatusCode> {
    let router = router.clone();
    let task = tokio::spawn(async move { send(&router, request).await.status() });
    running(api, 1).await;
    task
}

#[tokio::test]
async fn an_instance_takes_no_more_requests_than_its_share() {
    let fake = fake();
    let api = host(&fake);
    let router = sutler_api::router(&api);
    for slow in
        [plan("/instances/emea/plan", "emea", &body("slow")), plan("/plan", "caller", &named("slow", "emea"))]
    {
        let first = held(&api, &router, slow).await;
        expect![[r#"
            503 retry-after: 1
            {"error":{"code":"overloaded","message":"instance \"emea\" is at its limit of 1 requests at once (max-requests in [instances.emea]); try again in 1 s"}}"#]]
        .assert_eq(&shown(send(&router, plan("/instances/emea/plan", "emea", &body("r"))).await).await);
        for (path, token, body, status) in [
            ("/instances/emea/plan", "caller", body("r"), 503),
            ("/plan", "caller", named("r", "emea"), 503),
            ("/plan", "caller", named("r", "apac"), 200),
            ("/moved/plan", "apac", body("r"), 200),
        ] {
            let answered = send(&router, plan(path, token, &body)).await;
            assert_eq!(answered.status(), status, "{path} {token} {body}");
        }
        assert_eq!(send(&router, get("/instances/emea/openapi.json", "emea")).await.status(), 200);
        fake.go.notify_one();
        assert_eq!(first.await.unwrap(), 200);
        let after = plan("/instances/emea/plan", "emea", &body("r"));
        assert_eq!(send(&router, after).await.status(), 200, "the place was given back");
    }
}

#[tokio::test]
async fn an_instance_takes_no_more_streams_than_its_share() {
    let api = host(&fake());
    let router = sutler_api::router(&api);
    let logs = "logs?kind=deployment&type=ksml&application=orders&environment=prod&tenant=acme";
    let (of_emea, of_apac) = (format!("/instances/emea/{logs}"), format!("/moved/{logs}"));
    let open = send(&router, get(&format!("{of_emea}&follow=true"), "emea")).await;
    assert_eq!(open.status(), 200);
    for (path, token) in [(of_emea.clone(), "emea"), (format!("/{logs}&instance=emea"), "caller")] {
        let refused = shown(send(&router, get(&path, token)).await).await;
        assert!(refused.starts_with("503 retry-after: 1\n"), "{path}: {refused}");
        assert!(refused.contains("(max-log-streams in [instances.emea])"), "{path}: {refused}");
    }
    // Streams of events have a share of their own: half of what the host has.
    let events = |base: &str| format!("{base}/operations/{}/events", fake::OPERATION);
    let listening = send(&router, get(&events("/instances/emea"), "emea")).await;
    assert_eq!(listening.status(), 200);
    let refused = shown(send(&router, get(&events("/instances/emea"), "emea")).await).await;
    assert!(refused.starts_with("503 retry-after: 1\n"), "{refused}");
    assert!(refused.contains("limit of 1 streams of events at once (half of max-event-streams"), "{refused}");
    assert_eq!(send(&router, get(&events("/moved"), "apac")).await.status(), 200);
    drop(listening);
    assert_eq!(send(&router, get(&of_apac, "apac")).await.status(), 200);
    assert_eq!(send(&router, get("/instances/emea/handles", "emea")).await.status(), 200, "no stream");
    drop(open);
    running(&api, 0).await;
    assert_eq!(send(&router, get(&of_emea, "emea")).await.status(), 200);
}

#[tokio::test]
async fn a_caller_takes_no_more_than_its_share() {
    let fake = fake();
    let caller_shares = BTreeMap::from([("axual".into(), ONE)]);
    let api = api(&fake, fake::access(), ApiConfig { caller_shares, ..ApiConfig::default() });
    let router = sutler_api::router(&api);
    let slow = plan("/plan", "caller", &body("slow"));
    let first = held(&api, &router, slow).await;
    expect![[r#"
        503 retry-after: 1
        {"error":{"code":"overloaded","message":"caller axual is at its limit of 1 requests at once (max-requests in its [[access.callers]]); try again in 1 s"}}"#]]
    .assert_eq(&shown(send(&router, get("/handles", "caller")).await).await);
    fake.go.notify_one();
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(send(&router, get("/handles", "caller")).await.status(), 200);
}

#[test]
fn a_share_of_nothing_is_refused() {
    for (requests, streams, key) in [(0, 1, "max-requests"), (1, 0, "max-log-streams")] {
        let shares = BTreeMap::from([("a".to_owned(), Share { requests, streams, events: 1 })]);
        let of_instance = ApiConfig { instance_shares: shares.clone(), ..ApiConfig::default() };
        let of_caller = ApiConfig { caller_shares: shares, ..ApiConfig::default() };
        for (config, table) in [(of_instance, "[instances.a]"), (of_caller, "[[access.callers]] a:")] {
            let e = config.check().unwrap_err().to_string();
            assert!(e.starts_with(&format!("{table} {key} cannot be 0")), "{e}");
        }
    }
}

#[tokio::test]
async fn only_who_may_use_an_instance_is_told_where_it_is() {
    let router = sutler_api::router(&host(&fake()));
    let at = async |instance: &str, token: &str| {
        let path = format!("/instances/{instance}/handles");
        shown(send(&router, get(&path, token)).await).await
    };
    let told = at("apac", "caller").await;
    assert!(told.starts_with("404\n") && told.contains("under its own base path, /moved"), "{told}");
    assert!(at("apac", "apac").await.contains("/moved"));
    for token in ["one", "emea", "unknown"] {
        let (there, nowhere) = (at("apac", token).await, at("nope", token).await);
        assert_eq!(there.replace("apac", "nope"), nowhere, "{token}");
    }
}

#[tokio::test]
async fn where_instances_are_configured_there_is_no_other() {
    let fake = fake();
    let router = sutler_api::router(&host(&fake));
    for request in [
        plan("/instances/emeaa/plan", "caller", &body("r")),
        plan("/instances/emeaa/apply", "caller", &body("r")),
        plan("/plan", "caller", &named("r", "emeaa")),
        get("/logs?kind=deployment&type=ksml&application=a&environment=b&instance=emeaa", "caller"),
        get("/instances/emeaa/operations", "caller"),
    ] {
        let path = request.uri().path().to_owned();
        let refused = shown(send(&router, request).await).await;
        assert!(refused.starts_with("404\n"), "{path}: {refused}");
        assert!(refused.contains(r#"there is no instance \"emeaa\" here"#), "{path}: {refused}");
    }
    assert!(fake.plans.lock().unwrap().is_empty());
    assert_eq!(send(&router, plan("/plan", "caller", &body("r"))).await.status(), 200, "for none at all");
}
