//! What comes back where the input is fine, and who may ask.

use axum::body::Body;
use axum::http::Request;
use expect_test::{Expect, expect};
use serde_json::json;
use sutler_access::Access;
use sutler_api::ApiConfig;

use crate::fake::{access, api, body, fake, get, post, public, send, shown, text};

async fn check(request: Request<Body>, want: Expect) {
    want.assert_eq(&shown(send(&public(), request).await).await);
}

fn named(request_id: &str) -> String {
    body(request_id).to_string()
}

#[tokio::test]
async fn work() {
    check(post("/plan", named("r-1")), expect![[r#"
        200
        {"outcome":"planned","planHash":"ab12","changes":[{"resource":"main","action":"create","fields":[{"path":"/size","after":"seen","afterUnknown":false,"sensitive":false,"requiresReplace":false},{"path":"/password","afterUnknown":false,"sensitive":true,"requiresReplace":false}],"warnings":["it is small"]}],"steps":[{"name":"install","title":"Install the chart"}]}"#]]).await;
    check(post("/apply", named("r-1")), expect![[r#"
        200
        {"outcome":"succeeded","resources":[{"resource":"main","outputs":{"url":"http://orders"},"secretOutputs":{"password":"hunter2"}}]}"#]]).await;
    let mut inspect = body("r-1");
    inspect["changes"] =
        json!([{"resource": "main", "expected": {"settings": {"size": "S"}, "outputs": null}}]);
    check(post("/inspect", inspect.to_string()), expect![[r#"
        200
        {"outcome":"inspected","resources":[{"resource":"main","presence":"present","settings":{"size":"XL"},"drift":[{"path":"/size","expected":"S","actual":"XL","class":"foreign-owner"}],"warnings":[]}]}"#]]).await;
    check(post("/apply", named("fail")), expect![[r#"
        200
        {"outcome":"failed","code":"quota-exceeded","reason":"the namespace has no room for 4 cores","resource":"main","path":"/size","retryable":false,"resources":[{"resource":"main","outputs":{"url":"http://orders"},"secretOutputs":{"password":"hunter2"}}]}"#]]).await;
    check(post("/plan", named("fault")), expect![[r#"
        200
        {"outcome":"failed","code":"plugin-fault","reason":"plugin ksml broke","retryable":true,"resources":[],"faultId":"flt_0123456789ab"}"#]]).await;
    let mut stale = body("r-1");
    stale["planHash"] = json!("old");
    check(
        post("/apply", stale.to_string()),
        expect![[r#"
        200
        {"outcome":"failed","code":"plan-stale","reason":"plan again","retryable":false,"resources":[]}"#]],
    )
    .await;
}

#[tokio::test]
async fn calls_that_broke() {
    check(post("/plan", named("overloaded")), expect![[r#"
        503 retry-after: 7
        {"error":{"code":"overloaded","message":"plugin ksml is at its limit of 4 calls at once; try again in 7 s"}}"#]]).await;
    check(
        post("/apply", named("stopping")),
        expect![[r#"
        503 retry-after: 1
        {"error":{"code":"stopping","message":"this host is stopping; try another one"}}"#]],
    )
    .await;
    check(
        post("/plan", named("unavailable")),
        expect![[r#"
        503 retry-after: 5
        {"error":{"code":"unavailable","message":"the cluster is away"}}"#]],
    )
    .await;
    for path in ["/plan", "/apply"] {
        let mut request = post(path, named("panic"));
        request.headers_mut().insert("x-request-id", "mine".parse().unwrap());
        check(request, expect![[r#"
            500
            {"error":{"code":"internal","message":"this host broke while it answered; its operator finds the reason in the log under request mine"}}"#]]).await;
    }
}

#[tokio::test]
async fn who_may_ask() {
    let change = |name: &'static str, value: Option<&str>| {
        let mut request = post("/plan", named("r-1"));
        match value {
            Some(v) => drop(request.headers_mut().insert(name, v.parse().unwrap())),
            None => drop(request.headers_mut().remove(name)),
        }
        request
    };
    check(change("authorization", None), expect![[r#"
        401 www-authenticate: Bearer realm="sutler"
        {"error":{"code":"unauthorized","message":"there is no Authorization header; send Authorization: Bearer TOKEN"}}"#]]).await;
    check(change("authorization", Some("Bearer wrong")), expect![[r#"
        401 www-authenticate: Bearer realm="sutler"
        {"error":{"code":"unauthorized","message":"the token is not known here; it may have been replaced"}}"#]]).await;
    check(change("authorization", Some("Basic eDp5")), expect![[r#"
        401 www-authenticate: Bearer realm="sutler"
        {"error":{"code":"unauthorized","message":"the Authorization header is not of the form: Bearer TOKEN"}}"#]]).await;
    check(change("authorization", Some("Bearer operator")), expect![[r#"
        403
        {"error":{"code":"forbidden","message":"this is an operator's token; the provisioner API takes a caller's ([[access.callers]])"}}"#]]).await;
    let mut two = post("/plan", named("r-1"));
    two.headers_mut().append("authorization", "Bearer other".parse().unwrap());
    assert_eq!(send(&public(), two).await.status(), 401);
    let mut other = body("r-1");
    other["application"]["tenant"] = json!("globex");
    check(post("/plan", other.to_string()), expect![[r#"
        403
        {"error":{"code":"forbidden","message":"caller axual may not act for tenant \"globex\"; its token is for tenant \"acme\"","path":"/application/tenant"}}"#]]).await;
    check(
        get("/logs?kind=deployment&type=ksml&application=orders&environment=prod&tenant=globex"),
        expect![[r#"
            403
            {"error":{"code":"forbidden","message":"caller axual may not act for tenant \"globex\"; its token is for tenant \"acme\"","path":"?tenant"}}"#]],
    )
    .await;
    // Refused before the body is read, so a caller without a token learns nothing of it.
    let mut request = post("/plan", "not json");
    request.headers_mut().remove("authorization");
    assert_eq!(send(&public(), request).await.status(), 401);
}

#[tokio::test]
async fn without_tokens_no_browser_gets_through() {
    let router = sutler_api::router(&api(&fake(), Access::open(), ApiConfig::default()));
    let call = |headers: &[(&'static str, &str)]| {
        let mut request = post("/plan", named("r-1"));
        request.headers_mut().remove("authorization");
        request.headers_mut().insert("host", "localhost:8080".parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        request
    };
    for (headers, status) in [
        (vec![], 200),
        (vec![("host", "evil.example")], 403),
        (vec![("origin", "https://evil.example")], 403),
        (vec![("sec-fetch-site", "cross-site")], 403),
        (vec![("content-type", "text/plain")], 415),
    ] {
        assert_eq!(send(&router, call(&headers)).await.status().as_u16(), status, "{headers:?}");
    }
    expect![[r#"
        403
        {"error":{"code":"forbidden","message":"without configured tokens this host refuses calls of browser pages (the request has an Origin); configure tokens"}}"#]].assert_eq(&shown(send(&router, call(&[("origin", "https://evil.example")])).await).await);
    let mut preflight = Request::options("/plan").header("host", "localhost").body(Body::empty()).unwrap();
    preflight.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    let answer = send(&router, preflight).await;
    assert_eq!(answer.status(), 405);
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
    let mut reload =
        Request::post("/plugins/reload").header("host", "localhost").body(Body::empty()).unwrap();
    let admin = sutler_api::admin_router(&api(&fake(), Access::open(), ApiConfig::default()));
    reload.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(send(&admin, reload).await.status(), 415);
}

#[tokio::test]
async fn health() {
    let fake = fake();
    let router = sutler_api::router(&api(&fake, access(), ApiConfig::default()));
    let bare = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    let check =
        async |path: &str, want: Expect| want.assert_eq(&shown(send(&router, bare(path)).await).await);
    check(
        "/healthz",
        expect![[r#"
        200
        {"status":"ok"}"#]],
    )
    .await;
    check(
        "/readyz",
        expect![[r#"
        200
        {"status":"ok"}"#]],
    )
    .await;
    check("/readyz?verbose", expect![[r#"
        200
        {"status":"ok","pairs":[{"kind":"deployment","type":"ksml","health":"healthy"},{"kind":"tool","type":"sick","health":"quarantined"}]}"#]]).await;
    check(
        "/readyz/deployment/ksml",
        expect![[r#"
            200
            {"status":"ok","pairs":[{"kind":"deployment","type":"ksml","health":"healthy"}]}"#]],
    )
    .await;
    check("/readyz/tool/sick", expect![[r#"
        503
        {"status":"not-ready","reasons":["plugin ksml of tool/sick is quarantined"],"pairs":[{"kind":"tool","type":"sick","health":"quarantined"}]}"#]]).await;
    check(
        "/readyz/tool/none",
        expect![[r#"
        404
        {"error":{"code":"not-found","message":"this host does not serve tool/none"}}"#]],
    )
    .await;
    check("/readyz/nonsense/none", expect![[r#"
        404
        {"error":{"code":"not-found","message":"kind \"nonsense\" is not valid: use target, tool, deployment, managed-resource or consumed-resource"}}"#]]).await;
    fake.not_ready.lock().unwrap().push("plugins are being compiled (1 of 3)".into());
    check(
        "/readyz",
        expect![[r#"
        503
        {"status":"not-ready","reasons":["plugins are being compiled (1 of 3)"]}"#]],
    )
    .await;
    check("/handles", expect![[r#"
        401 www-authenticate: Bearer realm="sutler"
        {"error":{"code":"unauthorized","message":"there is no Authorization header; send Authorization: Bearer TOKEN"}}"#]]).await;
    let handles = shown(send(&router, get("/handles")).await).await;
    expect![[r#"
        200
        {"handles":[{"kind":"tool","type":"sick","summary":"KSML","settingsSchema":{"type":"object"},"outputsSchema":{"type":"object"},"steps":[{"name":"install","title":"Install the chart"}],"logs":true,"plugin":"ksml","version":"0.1.0","digest":"sha256:00","health":"quarantined"},{"kind":"deployment","type":"ksml","summary":"KSML","settingsSchema":{"type":"object"},"outputsSchema":{"type":"object"},"steps":[{"name":"install","title":"Install the chart"}],"logs":true,"plugin":"ksml","version":"0.1.0","digest":"sha256:00","health":"healthy"}]}"#]].assert_eq(&handles);
}

#[tokio::test]
async fn admin() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let api = sutler_api::Api::new(fake(), access(), ApiConfig::default(), Some(recorder.handle())).unwrap();
    let router = sutler_api::admin_router(&api);
    let ask = |request: axum::http::request::Builder, token: &str| {
        request.header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap()
    };
    let check = async |request, want: Expect| want.assert_eq(&shown(send(&router, request).await).await);
    check(ask(Request::get("/plugins"), "operator"), expect![[r#"
        200
        {"plugins":[{"name":"ksml","state":"loaded","version":"0.1.0","digest":"sha256:00","pairs":[{"kind":"deployment","type":"ksml"}],"faults":1},{"name":"bad","state":"broken","reason":"it is not a component","pairs":[],"faults":0}]}"#]]).await;
    check(ask(Request::get("/plugins/ksml/faults"), "operator"), expect![[r#"
        200
        {"faults":[{"id":"flt_0123456789ab","kind":"trap","plugin":"ksml","export":"plan","message":"unreachable","frames":["ksml::plan"]}]}"#]]).await;
    check(
        ask(Request::get("/plugins/none/faults"), "operator"),
        expect![[r#"
        404
        {"error":{"code":"not-found","message":"there is no such plugin; GET /plugins lists them"}}"#]],
    )
    .await;
    check(ask(Request::post("/plugins/reload"), "operator"), expect![[r#"
        200
        {"plugins":[{"name":"ksml","state":"loaded","version":"0.1.0","digest":"sha256:00","pairs":[{"kind":"deployment","type":"ksml"}],"faults":1},{"name":"bad","state":"broken","reason":"it is not a component","pairs":[],"faults":0}]}"#]]).await;
    check(ask(Request::get("/plugins"), "caller"), expect![[r#"
        403
        {"error":{"code":"forbidden","message":"this is a caller's token; the admin API takes an operator's ([[access.operators]])"}}"#]]).await;
    check(
        ask(Request::post("/plan"), "operator"),
        expect![[r#"
        404
        {"error":{"code":"not-found","message":"there is no route /plan; GET /openapi.json lists them"}}"#]],
    )
    .await;
    assert_eq!(send(&router, ask(Request::get("/metrics"), "caller")).await.status(), 403);
    metrics::with_local_recorder(&recorder, || metrics::counter!("sutler_test_total").increment(3));
    let metrics = text(send(&router, ask(Request::get("/metrics"), "operator")).await).await;
    assert!(metrics.contains("sutler_test_total 3"), "{metrics}");
}

#[tokio::test]
async fn request_ids_and_traces() {
    let router = public();
    let header = async |name: &'static str, sent: Option<(&'static str, &str)>| {
        let mut request = get("/handles");
        if let Some((n, v)) = sent {
            request.headers_mut().insert(n, axum::http::HeaderValue::from_bytes(v.as_bytes()).unwrap());
        }
        send(&router, request).await.headers()[name].to_str().unwrap().to_owned()
    };
    assert_eq!(header("x-request-id", Some(("x-request-id", "mine-1"))).await, "mine-1");
    let long = "x".repeat(129);
    for bad in ["a b", "", "é", long.as_str()] {
        let got = header("x-request-id", Some(("x-request-id", bad))).await;
        assert!(got.starts_with("req_") && got.len() == 36, "{bad} {got}");
    }
    assert_ne!(header("x-request-id", None).await, header("x-request-id", None).await);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let got = header("traceparent", Some(("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01")))).await;
    assert!(
        got.starts_with(&format!("00-{trace}-")) && got.ends_with("-01") && !got.contains("00f067aa0ba902b7"),
        "{got}"
    );
    let got = header("traceparent", Some(("traceparent", "00-nonsense"))).await;
    assert!(got.len() == 55 && got.ends_with("-00"), "{got}");
}

#[tokio::test]
async fn base_path() {
    let config = ApiConfig { base_path: "/provisioner".into(), ..ApiConfig::default() };
    let router = sutler_api::router(&api(&fake(), access(), config));
    for (path, status) in [
        ("/provisioner/plan", 405),
        ("/provisioner/handles", 200),
        ("/provisioner/healthz", 200),
        ("/healthz", 200),
        ("/readyz", 200),
        ("/handles", 404),
        ("/provisioner/none", 404),
    ] {
        let response = send(&router, get(path)).await;
        assert_eq!(response.status().as_u16(), status, "{path}");
        if status >= 400 {
            assert!(text(response).await.starts_with(r#"{"error":{"code":""#), "{path}");
        }
    }
    let document = text(send(&router, get("/provisioner/openapi.json")).await).await;
    assert!(document.contains(r#""servers":[{"url":"/provisioner"}]"#));
    for bad in ["x", "/x/", "/", "/a//b", "/{x}", "/a b", "/..", "/a/../b", "/."] {
        let config = ApiConfig { base_path: bad.into(), ..ApiConfig::default() };
        assert!(config.check().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn routes_of_an_instance() {
    let fake = fake();
    let one = sutler_access::CallerConfig {
        name: "one".into(),
        token_hash: vec![sutler_access::hash_token("caller")],
        tenants: vec!["*".into()],
        instances: vec!["emea".into()],
        max_requests: None,
        max_log_streams: None,
        audit: false,
    };
    let config = sutler_access::AccessConfig { callers: vec![one], operators: Vec::new() };
    let router = sutler_api::router(&api(&fake, Access::new(&config, &[]).unwrap(), ApiConfig::default()));
    let with = |path: &str, instance: Option<&str>| {
        let mut body = body("r-1");
        if let Some(i) = instance {
            body["application"]["instance"] = json!(i);
        }
        post(path, body.to_string())
    };
    for (path, instance, status) in [
        ("/plan", None, 403),
        ("/plan", Some("emea"), 200),
        ("/plan", Some("apac"), 403),
        ("/instances/emea/plan", None, 200),
        ("/instances/emea/plan", Some("emea"), 200),
        ("/instances/emea/plan", Some("apac"), 403),
        ("/instances/apac/plan", None, 403),
        ("/instances/apac/plan", Some("apac"), 403),
        ("/instances/EMEA/plan", None, 404),
    ] {
        let got = send(&router, with(path, instance)).await.status().as_u16();
        assert_eq!(got, status, "{path} {instance:?}");
    }
    let plans = std::mem::take(&mut *fake.plans.lock().unwrap());
    assert!(plans.iter().all(|p| p.application.instance.as_ref().is_some_and(|i| i.as_str() == "emea")));
    assert_eq!(plans.len(), 3);
    for (path, status) in [
        ("/instances/emea/handles", 200),
        ("/instances/apac/handles", 403),
        ("/instances/emea/logs?kind=deployment&type=ksml&application=orders&environment=prod", 200),
        ("/instances/emea/healthz", 404),
    ] {
        assert_eq!(send(&router, get(path)).await.status().as_u16(), status, "{path}");
    }
    expect![[r#"
        403
        {"error":{"code":"forbidden","message":"the route is for instance \"emea\", not \"apac\"","path":"/application/instance"}}"#]].assert_eq(&shown(send(&router, with("/instances/emea/plan", Some("apac"))).await).await);
}
