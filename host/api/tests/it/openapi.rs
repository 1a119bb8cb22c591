//! The document says what the routers do.

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use sutler_api::ApiConfig;

use crate::fake::{access, api, fake, send, text};

async fn document(router: &axum::Router) -> Value {
    let response = send(router, Request::get("/openapi.json").body(Body::empty()).unwrap()).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    serde_json::from_str(&text(response).await).unwrap()
}

fn references<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            out.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|v| references(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let api = api(&fake(), access(), ApiConfig::default());
    for (router, routes) in [
        (
            sutler_api::router(&api),
            vec![
                "get /audit",
                "get /handles",
                "get /healthz",
                "get /instances/{instance}/audit",
                "get /instances/{instance}/handles",
                "get /instances/{instance}/logs",
                "get /instances/{instance}/operations",
                "get /instances/{instance}/operations/{id}",
                "get /instances/{instance}/operations/{id}/events",
                "get /logs",
                "get /openapi.json",
                "get /operations",
                "get /operations/{id}",
                "get /operations/{id}/events",
                "get /readyz",
                "get /readyz/{kind}/{type}",
                "post /apply",
                "post /inspect",
                "post /instances/{instance}/apply",
                "post /instances/{instance}/inspect",
                "post /instances/{instance}/plan",
                "post /plan",
            ],
        ),
        (
            sutler_api::admin_router(&api),
            vec![
                "get /audit",
                "get /healthz",
                "get /metrics",
                "get /openapi.json",
                "get /plugins",
                "get /plugins/{name}/faults",
                "post /plugins/reload",
            ],
        ),
    ] {
        let document = document(&router).await;
        assert_eq!(document["openapi"], "3.1.0");
        let mut described: Vec<String> = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().keys().filter(|k| *k != "parameters");
            described.extend(methods.map(|method| format!("{method} {path}")));
        }
        described.sort();
        assert_eq!(described, routes);
        // Each is there: neither an unknown route nor a wrong method.
        for route in &described {
            let (method, path) = route.split_once(' ').unwrap();
            let path = path
                .replace("{instance}", "emea")
                .replace("{kind}", "deployment")
                .replace("{type}", "ksml")
                .replace("{name}", "ksml");
            let request = Request::builder()
                .method(method.to_uppercase().as_str())
                .uri(path)
                .body(Body::empty())
                .unwrap();
            let status = send(&router, request).await.status().as_u16();
            assert!(![404, 405].contains(&status), "{route} {status}");
        }
        let mut ids = Vec::new();
        for item in document["paths"].as_object().unwrap().values() {
            ids.extend(
                item.as_object().unwrap().values().filter_map(|o| o.get("operationId")).map(Value::to_string),
            );
        }
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!((ids.len(), count), (routes.len(), routes.len()), "each operation has an id of its own");
        let mut refs = Vec::new();
        references(&document, &mut refs);
        assert!(!refs.is_empty());
        for r in refs {
            assert!(document.pointer(r.strip_prefix('#').unwrap()).is_some(), "dangling {r}");
        }
    }
}

#[tokio::test]
async fn the_bodies_of_the_contract_fit_their_schemas() {
    let document = document(&sutler_api::router(&api(&fake(), access(), ApiConfig::default()))).await;
    let keys = |name: &str| {
        let schema = &document["components"]["schemas"][name];
        let mut keys: Vec<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys.join(" ")
    };
    assert_eq!(keys("PlanBody"), "application changes kind requestId type");
    assert_eq!(keys("ApplyBody"), "application changes kind planHash requestId type");
    assert_eq!(keys("ChangeBody"), "action previousOutputs previousSettings resource settings");
    assert_eq!(keys("PlannedBody"), "changes planHash steps");
    assert_eq!(keys("FailedBody"), "code details faultId path reason resource resources retryable");
    assert_eq!(document["components"]["schemas"]["KindName"]["enum"][3], "managed-resource");
    let plan = &document["components"]["schemas"]["PlanAnswer"]["oneOf"];
    assert!(plan.to_string().contains(r#""planned""#) && plan.to_string().contains(r#""failed""#), "{plan}");
}
