//! A control plane that is away, takes a pair for somebody else, or takes all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use sutler_api::{Register, RegisterConfig};
use sutler_model::Secret;
use tokio_util::sync::CancellationToken;

use crate::fake::{Fake, fake};

#[derive(Default)]
struct Plane {
    /// What to answer next; 201 when nothing is left.
    answers: Mutex<VecDeque<(u16, Value)>>,
    asked: Mutex<Vec<(Option<String>, Value)>>,
}

async fn register(
    State(plane): State<Arc<Plane>>,
    headers: HeaderMap,
    body: axum::Json<Value>,
) -> impl IntoResponse {
    let token = headers.get("authorization").map(|v| v.to_str().unwrap().to_owned());
    plane.asked.lock().unwrap().push((token, body.0));
    let (status, body) = plane.answers.lock().unwrap().pop_front().unwrap_or((201, json!({})));
    (StatusCode::from_u16(status).unwrap(), [("location", "/elsewhere")], axum::Json(body))
}

/// Registers `pairs` against these answers and returns what was asked, once it was asked `times`.
async fn run(fake: &Arc<Fake>, answers: Vec<(u16, Value)>, times: usize) -> Vec<(Option<String>, Value)> {
    let plane = Arc::new(Plane { answers: Mutex::new(answers.into()), ..Plane::default() });
    let app = Router::new().route("/api/provisioners", post(register)).with_state(plane.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let config = RegisterConfig {
        control_plane: url,
        public_url: "https://sutler.example/p".into(),
        token: Some(Secret::new("plane-token")),
        name: "sutler".into(),
    };
    let stop = CancellationToken::new();
    let pause = Duration::from_millis(5);
    let register = Register::new(config, fake.clone()).unwrap().with_pauses(pause, pause);
    assert!(!format!("{register:?}").contains("plane-token"));
    let running = tokio::spawn(register.run(stop.clone()));
    let began = std::time::Instant::now();
    while plane.asked.lock().unwrap().len() < times {
        assert!(began.elapsed() < Duration::from_secs(10), "asked {:?}", plane.asked.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It would ask again by now, if it were to.
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), running).await.unwrap().unwrap();
    serving.abort();
    std::mem::take(&mut *plane.asked.lock().unwrap())
}

fn handles(asked: &(Option<String>, Value)) -> String {
    let one = |h: &Value| format!("{}/{}", h["kind"].as_str().unwrap(), h["type"].as_str().unwrap());
    asked.1["handles"].as_array().unwrap().iter().map(one).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn until_it_is_answered_and_then_no_more() {
    let fake = fake();
    let asked =
        run(&fake, vec![(503, json!({})), (302, json!({})), (409, json!({"error": {"code": "other"}}))], 4)
            .await;
    assert_eq!(asked.len(), 4, "after a 2xx it is quiet");
    let want = json!({"name": "sutler", "url": "https://sutler.example/p", "handles": [{"kind": "tool", "type": "sick"}, {"kind": "deployment", "type": "ksml"}]});
    assert_eq!(asked[3], (Some("Bearer plane-token".into()), want));
    assert!(fake.lost.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_pair_that_somebody_else_has_is_lost_and_the_rest_registered() {
    for answer in [
        json!({"error": {"code": "pair-taken", "pairs": [{"kind": "deployment", "type": "ksml"}]}}),
        json!({"error": {"code": "pair-taken", "message": "…", "pair": "deployment/ksml"}}),
        json!({"code": "pair-taken", "pairs": ["deployment/ksml", "deployment/not-ours"]}),
    ] {
        let fake = fake();
        let asked = run(&fake, vec![(409, answer)], 2).await;
        assert_eq!(asked.iter().map(handles).collect::<Vec<_>>(), ["tool/sick deployment/ksml", "tool/sick"]);
        assert_eq!(*fake.lost.lock().unwrap(), ["deployment/ksml".parse().unwrap()]);
    }
}

#[tokio::test]
async fn new_pairs_are_told() {
    let fake = fake();
    let later = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        later.pairs.lock().unwrap().push("target/new".parse().unwrap());
    });
    let asked = run(&fake, Vec::new(), 2).await;
    assert_eq!(
        asked.iter().map(handles).collect::<Vec<_>>(),
        ["tool/sick deployment/ksml", "target/new tool/sick deployment/ksml"]
    );
}

#[test]
fn addresses_that_are_refused() {
    for (control_plane, public_url) in [
        ("control-plane:80", "https://p"),
        ("ftp://x", "https://p"),
        ("https://u:p@x", "https://p"),
        ("https://x", "not a url"),
    ] {
        let config = RegisterConfig {
            control_plane: control_plane.into(),
            public_url: public_url.into(),
            token: None,
            name: "s".into(),
        };
        let error = Register::new(config, fake()).unwrap_err().to_string();
        assert!(error.starts_with("[register] ") && !error.contains("u:p"), "{error}");
    }
}
