use std::time::Duration;

use serde_json::json;
use sutler_testkit::control_plane::{Answer, ControlPlane};
use sutler_testkit::http::Caller;

#[tokio::test]
async fn it_answers_as_told_and_remembers() {
    let taken = Answer::PairTaken(vec![("tool".into(), "x".into())]);
    let plane = ControlPlane::start([Answer::Status(503), taken]).await;
    let caller = Caller::new(plane.url()).with_token("secret");
    let body = json!({"name": "n", "handles": []});
    assert_eq!(caller.post("/provisioners", &body).await.status, 503);
    let taken = caller.post("/provisioners", &body).await;
    assert_eq!(
        (taken.status, &taken.json),
        (409, &json!({"code": "pair-taken", "pairs": [{"kind": "tool", "type": "x"}]}))
    );
    assert_eq!(caller.post("/provisioners", &body).await.status, 201);
    assert_eq!(caller.get("/provisioners").await.status, 404);
    let seen = plane.wait_for(3, Duration::from_secs(1)).await;
    assert_eq!((seen[0].authorization.as_deref(), &seen[0].body), (Some("Bearer secret"), &body));
}
