//! Bad input: which status, which words, which place.

use axum::body::Body;
use axum::http::Request;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use sutler_api::{ApiConfig, UnknownFields};

use crate::fake::{access, api, body, fake, get, post, public, send, shown};

async fn check(request: Request<Body>, want: Expect) {
    want.assert_eq(&shown(send(&public(), request).await).await);
}

/// A fine body with one change.
fn with(change: impl FnOnce(&mut Value)) -> String {
    let mut body = body("r-1");
    change(&mut body);
    body.to_string()
}

#[tokio::test]
async fn fields() {
    check(post("/plan", with(|b| b["requestID"] = json!("x"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"requestID is not a field here; did you mean requestId?","path":"/requestID"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"][0]["setings"] = json!({}))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"setings is not a field here; did you mean settings?","path":"/changes/0/setings"}}"#]]).await;
    check(post("/plan", with(|b| b["application"]["region"] = json!("x"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"region is not a field here; known are id, environment, tenant, instance","path":"/application/region"}}"#]]).await;
    check(post("/plan", with(|b| b["planHash"] = json!("x"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"planHash is not a field here; known are requestId, kind, type, application, changes","path":"/planHash"}}"#]]).await;
    check(
        post("/plan", with(|b| drop(b.as_object_mut().unwrap().remove("type")))),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"type is missing","path":"/type"}}"#]],
    )
    .await;
    check(
        post("/plan", with(|b| drop(b["application"].as_object_mut().unwrap().remove("environment")))),
        expect![[r#"
            400
            {"error":{"code":"invalid-request","message":"environment is missing","path":"/application/environment"}}"#]],
    )
    .await;
    check(post("/plan", with(|b| b["changes"][0]["action"] = json!("destroy"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"action \"destroy\" is not valid: use create, update, replace or delete","path":"/changes/0/action"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"][0]["action"] = json!(7))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"a string is expected here, not integer `7`","path":"/changes/0/action"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"][0]["resource"] = json!("Main"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"identifier \"Main\" is not valid: use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit","path":"/changes/0/resource"}}"#]]).await;
    check(post("/plan", with(|b| b["kind"] = json!("artifact"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"kind \"artifact\" is not valid: use target, tool, deployment, managed-resource or consumed-resource","path":"/kind"}}"#]]).await;
    check(post("/plan", with(|b| b["type"] = json!("-"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"identifier \"-\" is not valid: use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit","path":"/type"}}"#]]).await;
    check(post("/plan", with(|b| b["requestId"] = json!("a b"))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"requestId \"a b\" is not valid: use 1 to 128 visible ASCII characters without spaces","path":"/requestId"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"] = json!([]))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"changes is empty; name at least one resource","path":"/changes"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"][0] = json!(["main", "create", {}]))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"an object is expected here, not a list","path":"/changes/0"}}"#]]).await;
    check(post("/plan", with(|b| b["application"] = json!(["orders", "prod"]))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"an object is expected here, not a list","path":"/application"}}"#]]).await;
    check(post("/plan", with(|b| b["kind"] = json!({}))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"a string is expected here, not an object","path":"/kind"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"] = json!({}))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"a list is expected here, not an object","path":"/changes"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"] = json!([b["changes"][0], b["changes"][0]]))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"resource \"main\" is named twice; a call has one change for each resource","path":"/changes/1/resource"}}"#]]).await;
    check(post("/plan", with(|b| b["changes"][0]["settings"] = Value::Null)), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"settings is missing; create needs it, if only as {}","path":"/changes/0/settings"}}"#]]).await;
    check(post("/apply", with(|b| b["planHash"] = json!(""))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"planHash is not one that POST /plan answered; leave it out or copy it from there","path":"/planHash"}}"#]]).await;
    check(
        post("/inspect", with(|b| b["changes"] = json!([{"resource": "main", "expected": {"setting": 1}}]))),
        expect![[r#"
            400
            {"error":{"code":"invalid-request","message":"setting is not a field here; did you mean settings?","path":"/changes/0/expected/setting"}}"#]],
    )
    .await;
    check(
        post("/inspect", with(|b| b["changes"] = json!([{"resource": "main"}, {"resource": "main"}]))),
        expect![[r#"
            400
            {"error":{"code":"invalid-request","message":"resource \"main\" is named twice; a call has one change for each resource","path":"/changes/1/resource"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn keys_that_are_there_twice() {
    check(
        post("/plan", with(|_| ()).replacen('{', r#"{"kind":"tool","#, 1)),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"kind is there twice; keep one","path":"/kind"}}"#]],
    )
    .await;
    check(post("/plan", with(|_| ()).replace(r#""size":"S""#, r#""size":"S","size":"XL""#)), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"size is there twice; keep one","path":"/changes/0/settings/size"}}"#]]).await;
    check(
        post("/plan", with(|_| ()).replace(r#""id":"orders""#, r#""id":"orders","id":"other""#)),
        expect![[r#"
            400
            {"error":{"code":"invalid-request","message":"id is there twice; keep one","path":"/application/id"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn bytes() {
    check(
        post("/plan", ""),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the body is empty; send a JSON object"}}"#]],
    )
    .await;
    check(post("/plan", "{\"kind\":"), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the body is not JSON: EOF while parsing a value at line 1 column 8"}}"#]]).await;
    check(
        post("/plan", "[1, 2"),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"an object is expected here, not a list","path":""}}"#]],
    )
    .await;
    check(
        post("/plan", "[1, 2]"),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"an object is expected here, not a list","path":""}}"#]],
    )
    .await;
    check(post("/plan", format!("{} {{}}", with(|_| ()))), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the body is not one JSON value: trailing characters at line 1 column 243"}}"#]]).await;
    check(
        post("/plan", b"{\"kind\": \"\xff\"}".to_vec()),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the body is not UTF-8 at byte 10"}}"#]],
    )
    .await;
    check(
        post("/plan", "[".repeat(1000)),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the body is nested deeper than 128 at byte 128"}}"#]],
    )
    .await;
    check(
        post("/plan", "{\"a\":".repeat(500_000)),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the body is nested deeper than 128 at byte 640"}}"#]],
    )
    .await;
    check(post("/plan", vec![b' '; 5 * 1024 * 1024]), expect![[r#"
        413 connection: close
        {"error":{"code":"body-too-large","message":"the body is larger than 4194304 bytes ([api] max-body-bytes)"}}"#]]).await;
    // Without Content-Length the bytes are counted as they come.
    let chunks = futures::stream::iter((0..5).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024])));
    check(post("/plan", Body::from_stream(chunks)), expect![[r#"
        413 connection: close
        {"error":{"code":"body-too-large","message":"the body is larger than 4194304 bytes ([api] max-body-bytes)"}}"#]]).await;
    let cut = futures::stream::iter([Ok(b"{".to_vec()), Err(std::io::Error::other("cut"))]);
    check(
        post("/plan", Body::from_stream(cut)),
        expect![[r#"
        400 connection: close
        {"error":{"code":"invalid-request","message":"the body ended before it was complete"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn depth_is_counted_to_the_level() {
    let nested = |levels: usize| {
        let deep = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        with(|b| b["changes"][0]["settings"] = json!("DEEP")).replace("\"DEEP\"", &deep)
    };
    // The envelope has three levels: the body, changes, one change.
    let status = async |levels| send(&public(), post("/plan", nested(levels))).await.status().as_u16();
    assert_eq!(status(125).await, 200);
    assert_eq!(status(126).await, 400);
    // Brackets in texts are no depth.
    let body =
        with(|b| b["changes"][0]["settings"] = json!({"a": "[".repeat(500), "b": "\\\"[".repeat(500)}));
    assert_eq!(send(&public(), post("/plan", body)).await.status().as_u16(), 200);
}

#[tokio::test]
async fn media_types() {
    for (media, status) in [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonx", 415),
    ] {
        let mut request = post("/plan", with(|_| ()));
        request.headers_mut().insert("content-type", media.parse().unwrap());
        assert_eq!(send(&public(), request).await.status().as_u16(), status, "{media}");
    }
    let mut request = post("/plan", with(|_| ()));
    request.headers_mut().remove("content-type");
    check(request, expect![[r#"
        415 accept: application/json
        {"error":{"code":"unsupported-media-type","message":"send the body as Content-Type: application/json, in UTF-8"}}"#]]).await;
    let mut request = post("/plan", with(|_| ()));
    request.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    check(
        request,
        expect![[r#"
        415 accept: application/json
        {"error":{"code":"unsupported-media-type","message":"send the body without Content-Encoding"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn routes_and_methods() {
    check(get("/plan"), expect![[r#"
        405 allow: POST
        {"error":{"code":"method-not-allowed","message":"this route does not take GET; the Allow header says what it takes"}}"#]]).await;
    check(post("/handles", ""), expect![[r#"
        405 allow: GET,HEAD
        {"error":{"code":"method-not-allowed","message":"this route does not take POST; the Allow header says what it takes"}}"#]]).await;
    check(
        get("/operations/op_1"),
        expect![[r#"
        404
        {"error":{"code":"not-found","message":"there is no operation op_1"}}"#]],
    )
    .await;
    check(get("/plugins"), expect![[r#"
        404
        {"error":{"code":"not-found","message":"there is no route /plugins; GET /openapi.json lists them"}}"#]]).await;
}

#[tokio::test]
async fn fields_that_are_not_known_may_be_ignored() {
    let fake = fake();
    let config = ApiConfig { unknown_fields: UnknownFields::Ignore, ..ApiConfig::default() };
    let router = sutler_api::router(&api(&fake, access(), config));
    let plan = with(|b| {
        b["trace"] = json!(1);
        b["application"]["region"] = json!("x");
        b["changes"][0]["note"] = json!("y");
        b["changes"][0]["settings"] = json!({"note": "z"});
    });
    assert_eq!(send(&router, post("/plan", plan)).await.status(), 200);
    assert_eq!(
        fake.plans.lock().unwrap()[0].changes[0].settings,
        Some(json!({"note": "z"})),
        "settings are not the envelope"
    );
    let inspect =
        with(|b| b["changes"] = json!([{"resource": "main", "x": 1, "expected": {"y": 2, "settings": {}}}]));
    assert_eq!(send(&router, post("/inspect", inspect)).await.status(), 200);
    expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"action \"x\" is not valid: use create, update, replace or delete","path":"/changes/0/action"}}"#]].assert_eq(
        &shown(send(&router, post("/plan", with(|b| b["changes"][0]["action"] = json!("x")))).await).await,
    );
}
