//! Work that goes on after its call.

use axum::http::{Request, header};
use axum::{Router, body::Body};
use expect_test::{Expect, expect};
use http_body_util::BodyExt as _;
use sutler_api::{ApiConfig, router};

use crate::fake::{OPERATION, access, api, body, fake, get, post, public, send, shown, text};

async fn check(request: Request<Body>, want: Expect) {
    want.assert_eq(&shown(send(&public(), request).await).await);
}

#[tokio::test]
async fn work_that_goes_on_is_accepted() {
    let answer = send(&public(), post("/apply", body("long").to_string())).await;
    assert_eq!(answer.status(), 202);
    assert_eq!(answer.headers()[header::LOCATION], format!("/operations/{OPERATION}"));
    assert_eq!(answer.headers()[header::RETRY_AFTER], "2");
    assert_eq!(text(answer).await, format!(r#"{{"operationId":"{OPERATION}"}}"#));
    let based = ApiConfig { base_path: "/sutler".into(), ..ApiConfig::default() };
    let routes = router(&api(&fake(), access(), based));
    let answer = send(&routes, post("/sutler/apply", body("long").to_string())).await;
    assert_eq!(answer.headers()[header::LOCATION], format!("/sutler/operations/{OPERATION}"));
    let mut of_instance = body("long");
    of_instance["application"]["instance"] = "emea".into();
    let answer = send(&public(), post("/instances/emea/apply", of_instance.to_string())).await;
    assert_eq!(answer.headers()[header::LOCATION], format!("/instances/emea/operations/{OPERATION}"));
}

#[tokio::test]
async fn what_is_in_the_way_is_named() {
    check(post("/apply", body("busy").to_string()), expect![[r#"
        409 retry-after: 1
        {"error":{"code":"operation-running","message":"asked by axual","operationId":"op_0190a000000070008000000000000000"}}"#]]).await;
    check(post("/apply", body("reused").to_string()), expect![[r#"
        409
        {"error":{"code":"request-id-reused","message":"asked by axual","operationId":"op_0190a000000070008000000000000000"}}"#]]).await;
}

#[tokio::test]
async fn an_operation_and_its_end() {
    check(get(&format!("/operations/{OPERATION}")), expect![[r#"
        200 retry-after: 2
        {"status":"running","operationId":"op_0190a000000070008000000000000000","progress":{"step":"install","title":"Install the chart","index":1,"total":2,"message":"2 of 3 pods are ready","attempt":1,"cancelling":false},"retryAfterSeconds":2}"#]]).await;
    check(get("/operations/op_done"), expect![[r#"
        200
        {"status":"done","operationId":"op_0190a000000070008000000000000000","outcome":"succeeded","resources":[{"resource":"main","outputs":{"url":"http://orders"},"secretOutputs":{"password":"hunter2"}}]}"#]]).await;
    check(
        get("/operations/op_other"),
        expect![[r#"
        404
        {"error":{"code":"not-found","message":"there is no operation op_other"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn a_path_that_is_no_text_is_refused_as_everything_is() {
    for path in [
        "/operations/%ff",
        "/operations/%ff/events",
        "/readyz/%ff/ksml",
        // Not the root's operation either.
        "/instances/%ff/operations/op_done",
        "/instances/%ff/handles",
    ] {
        let answer = send(&public(), get(path)).await;
        assert_eq!(answer.status(), 400, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json", "{path}");
        let said = text(answer).await;
        assert!(
            said.starts_with(r#"{"error":{"code":"invalid-request","message":"the path"#),
            "{path}: {said}"
        );
    }
}

#[tokio::test]
async fn a_list_is_filtered_and_paged() {
    let fake = fake();
    let routes: Router = router(&api(&fake, access(), ApiConfig::default()));
    let page =
        send(&routes, get("/operations?limit=2&status=failed&kind=deployment&type=ksml&tenant=acme")).await;
    let page: serde_json::Value = serde_json::from_str(&text(page).await).unwrap();
    assert_eq!(page["operations"].as_array().map(Vec::len), Some(2));
    assert_eq!(page["next"], OPERATION);
    assert_eq!(page["operations"][0]["createdAt"], "2026-01-01T00:00:00.000Z");
    let last = send(&routes, get("/operations")).await;
    assert!(!text(last).await.contains("\"next\""), "two of fifty is the last page");
    let filters = fake.filters.lock().unwrap().clone();
    assert_eq!((filters[0].limit, filters[0].status.as_deref()), (2, Some("failed")));
    assert_eq!(filters[0].pair.as_ref().map(ToString::to_string).as_deref(), Some("deployment/ksml"));
    assert_eq!((filters[0].tenant.as_deref(), filters[1].limit), (Some("acme"), 50));
    for wrong in ["status=odd", "kind=deployment", "limit=many", "sort=age", "kind=thing&type=x"] {
        let answer = send(&routes, get(&format!("/operations?{wrong}"))).await;
        assert_eq!(answer.status(), 400, "{wrong}");
    }
}

#[tokio::test]
async fn events_go_on_where_they_were_cut() {
    let whole = send(&public(), get(&format!("/operations/{OPERATION}/events"))).await;
    assert_eq!(whole.headers()[header::CONTENT_TYPE], "text/event-stream");
    expect![[r#"
        id: 1
        event: submitted
        data: {"event":"submitted","seq":1}

        id: 2
        event: claimed
        data: {"event":"claimed","seq":2}

        id: 3
        event: completed
        data: {"event":"completed","seq":3}

    "#]]
    .assert_eq(&text(whole).await);
    let mut request = get(&format!("/operations/{OPERATION}/events"));
    request.headers_mut().insert("last-event-id", "2".parse().unwrap());
    let rest = send(&public(), request).await.into_body().collect().await.unwrap().to_bytes();
    assert!(rest.starts_with(b"id: 3\n"), "{rest:?}");
    let by_query = send(&public(), get(&format!("/operations/{OPERATION}/events?after=2"))).await;
    assert!(text(by_query).await.starts_with("id: 3\n"));
    assert_eq!(send(&public(), get("/operations/op_none/events")).await.status(), 404);
    let mut odd = get(&format!("/operations/{OPERATION}/events"));
    odd.headers_mut().insert("last-event-id", "orders".parse().unwrap());
    assert_eq!(send(&public(), odd).await.status(), 400);
}

#[tokio::test]
async fn operations_are_for_callers() {
    let routes = router(&api(&fake(), access(), ApiConfig::default()));
    for path in [
        "/operations".to_owned(),
        format!("/operations/{OPERATION}"),
        format!("/operations/{OPERATION}/events"),
    ] {
        let nobody = Request::get(&path).body(Body::empty()).unwrap();
        assert_eq!(send(&routes, nobody).await.status(), 401, "{path}");
    }
}
