//! Requests that are wrong, and what is said to them.

use http::Method;
use serde_json::{Value, json};
use sutler_testkit::http::SampleRequest;

use crate::support::{GRANTS, Wanted, World};

async fn world() -> World {
    Wanted::new().plugin("hostile").plugin("namespace").config(GRANTS).start().await
}

fn plan() -> Value {
    SampleRequest::new("tool/hostile").create(json!({"do": "ok"})).body()
}

#[tokio::test]
async fn wrong_bodies() {
    let world = world().await;
    let with = |f: &dyn Fn(&mut Value)| {
        let mut b = plan();
        f(&mut b);
        b.to_string()
    };
    let deep = format!("{{\"requestId\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
    let table: Vec<(&str, String, u16, &str, &str)> = vec![
        ("unknown field", with(&|b| b["colour"] = json!("red")), 400, "invalid-request", "/colour"),
        (
            "unknown field below",
            with(&|b| b["changes"][0]["acton"] = json!("x")),
            400,
            "invalid-request",
            "/changes/0/acton",
        ),
        ("wrong type", with(&|b| b["changes"] = json!(3)), 400, "invalid-request", "/changes"),
        (
            "wrong action",
            with(&|b| b["changes"][0]["action"] = json!("destroy")),
            400,
            "invalid-request",
            "/changes/0/action",
        ),
        (
            "duplicate resource",
            with(&|b| {
                let c = b["changes"][0].clone();
                b["changes"] = json!([c, c]);
            }),
            400,
            "invalid-request",
            "/changes/1/resource",
        ),
        ("no changes", with(&|b| b["changes"] = json!([])), 400, "invalid-request", "/changes"),
        (
            "too many changes",
            with(&|b| {
                let one =
                    |i| json!({"resource": format!("r{i}"), "action": "create", "settings": {"do": "ok"}});
                b["changes"] = (0..1001).map(one).collect();
            }),
            400,
            "invalid-request",
            "/changes",
        ),
        (
            "identifier",
            with(&|b| b["application"]["id"] = json!("Orders!")),
            400,
            "invalid-request",
            "/application/id",
        ),
        ("kind", with(&|b| b["kind"] = json!("artifact")), 400, "invalid-request", "/kind"),
        ("no json", "nonsense".into(), 400, "invalid-request", ""),
        ("depth", deep, 400, "invalid-request", ""),
        ("too large", format!("{{\"requestId\":\"{}\"}}", "x".repeat(5 << 20)), 413, "too-large", ""),
    ];
    for (what, body, status, code, path) in table {
        let answered = world.api().send(Method::POST, "/plan", "application/json", Some(body)).await;
        let error = &answered.json["error"];
        assert_eq!(answered.status, status, "{what}: {}", answered.text);
        if status == 400 {
            assert_eq!(error["code"], code, "{what}: {}", answered.text);
        }
        if !path.is_empty() {
            assert_eq!(error["path"], path, "{what}: {}", answered.text);
        }
        assert!(error["message"].as_str().is_some_and(|m| m.len() > 10), "{what}: {}", answered.text);
        assert!(answered.headers.contains_key("x-request-id"), "{what}");
    }
}

#[tokio::test]
async fn bodies_that_are_not_utf8_and_pages_of_browsers() {
    let world = world().await;
    let client = sutler_testkit::http::client();
    let url = format!("{}/plan", world.host.url);
    let post = || client.post(&url).header("content-type", "application/json");
    let answer = post().body(vec![b'{', b'"', 0xff, 0xfe, b'"', b'}']).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(answer.text().await.unwrap().contains("UTF-8"));
    for (name, value) in
        [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site"), ("host", "evil.example")]
    {
        let answer = post().header(name, value).body(plan().to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{name}");
    }
    let form =
        client.post(&url).header("content-type", "text/plain").body(plan().to_string()).send().await.unwrap();
    assert_eq!(form.status(), 415);
}

#[tokio::test]
async fn work_that_cannot_be_done_is_an_answer() {
    let world = world().await;
    let ask = async |body: Value| world.post("/plan", &body).await;
    let unknown = ask(SampleRequest::new("tool/nobody").create(json!({})).body()).await;
    assert_eq!((unknown.status, unknown.json["code"].as_str()), (200, Some("pair-not-handled")));
    for (settings, path) in [
        (json!({"do": "ok", "namespace": 7}), "/namespace"),
        (json!({"do": "ok", "colour": 7}), "/colour"),
        (json!({"do": "dance"}), "/do"),
        (json!({}), ""),
    ] {
        let answer = ask(SampleRequest::new("tool/hostile").create(settings.clone()).body()).await;
        assert_eq!(
            (answer.status, answer.json["code"].as_str()),
            (200, Some("invalid-settings")),
            "{}",
            answer.text
        );
        assert_eq!(answer.json["path"], path, "{settings}: {}", answer.text);
        assert_eq!(answer.json["resource"], "main");
    }
}

/// What is taken at all can be applied, kept and told again, however deep it is.
#[tokio::test]
async fn what_is_nested_as_deep_as_may_be_is_done() {
    let world = world().await;
    // The body, `changes`, a change and its settings are around it.
    let nested = |depth: usize| {
        let mut value = json!(1);
        for _ in 0..depth {
            value = json!([value]);
        }
        SampleRequest::new("tool/hostile").create(json!({"do": "ok", "value": value})).body()
    };
    let most = nested(124);
    assert_eq!(world.post("/plan", &nested(125)).await.status, 400);
    let applied = world.post("/apply", &most).await;
    assert_eq!(
        (applied.status, applied.json["outcome"].as_str()),
        (200, Some("succeeded")),
        "{}",
        applied.text
    );
    let again = world.post("/apply", &most).await;
    assert_eq!(again.text, applied.text);
}

/// An answer is not many times what was asked, and says whatever has to be agreed to.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_changes_are_told_together() {
    let world = world().await;
    let settings = |add: u32| {
        let many: Vec<u32> = (0..30_000).map(|n| n + add).collect();
        json!({"do": "ok", "value": many, "fixed": format!("f{add}")})
    };
    let body = SampleRequest::new("tool/hostile").update(settings(1), settings(0)).body();
    let plan = world.post("/plan", &body).await;
    assert_eq!(plan.json["outcome"], "planned", "{:.300}", plan.text);
    let change = &plan.json["changes"][0];
    let told: Vec<(&str, bool)> = change["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["path"].as_str().unwrap(), f["requiresReplace"] == true))
        .collect();
    assert_eq!(told, [("/fixed", true), ("/value", false)]);
    assert_eq!(change["fields"][1]["after"][29_999], 30_000);
    assert!(change["warnings"].to_string().contains("30001 fields differ"), "{}", change["warnings"]);
    assert!(plan.text.len() < 2 * body.to_string().len(), "{} bytes", plan.text.len());
}

#[tokio::test]
async fn routes_methods_and_headers() {
    let world = world().await;
    let api = world.api();
    assert_eq!(api.get("/nowhere").await.status, 404);
    assert_eq!(api.get("/operations/op_1").await.status, 404);
    let wrong = api.get("/plan").await;
    assert_eq!((wrong.status, wrong.headers["allow"].to_str().unwrap()), (405, "POST"));
    assert_eq!(api.get("/metrics").await.status, 404, "metrics are on the admin listener");
    let document = api.get("/openapi.json").await.json;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for path in ["/plan", "/apply", "/inspect", "/handles", "/logs", "/healthz", "/readyz", "/openapi.json"] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/readyz/tool/hostile", 200)] {
        assert_eq!(api.get(path).await.status, status, "{path}");
    }
    let traced = sutler_testkit::http::client()
        .post(format!("{}/plan", world.host.url))
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("x-request-id", "from-the-caller")
        .json(&plan())
        .send()
        .await
        .unwrap();
    assert_eq!(traced.headers()["x-request-id"], "from-the-caller");
    assert!(
        traced.headers()["traceparent"].to_str().unwrap().starts_with("00-0af7651916cd43dd8448eb211c80319c-")
    );
    let metrics = world.admin().get("/metrics").await.text;
    assert!(
        metrics.contains("sutler_calls_total{export=\"plan\",pair=\"tool/hostile\",outcome=\"succeeded\"} 1"),
        "{metrics}"
    );
}
