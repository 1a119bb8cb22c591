//! What logs and metrics say of a request, and what they never say.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};

use crate::fake::{body, get, post, public, send, text};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Requests with a marker wherever a client can put text.
async fn requests() {
    let router = public();
    let mut plan = body("r-MARKER");
    plan["changes"][0]["settings"] = json!({"password": "MARKER"});
    let mut request = post("/apply", plan.to_string());
    request.headers_mut().insert("cookie", "MARKER".parse().unwrap());
    assert!(text(send(&router, request).await).await.contains("hunter2"));
    let mut request = post("/plan?token=MARKER", "{\"MARKER\": 1}");
    request.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    assert_eq!(send(&router, request).await.status(), 400);
    let mut request = post("/plan", plan.to_string());
    request.headers_mut().insert("authorization", "Bearer MARKER".parse().unwrap());
    assert_eq!(send(&router, request).await.status(), 401);
    assert_eq!(send(&router, get("/MARKER")).await.status(), 404);
    let logs = "/logs?kind=deployment&type=ksml&application=orders&environment=prod&tenant=acme&pod=marker";
    text(send(&router, get(logs)).await).await;
    let odd = Request::builder().method("MARKER").uri("/plan").body(Body::empty()).unwrap();
    assert_eq!(send(&router, odd).await.status(), 405);
}

#[test]
fn one_event_a_request_without_anything_of_the_client() {
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || runtime().block_on(requests()));
    let log = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    for never in ["MARKER", "marker", "hunter2", "Bearer"] {
        assert!(!log.contains(never), "{never} in {log}");
    }
    let events: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let requests: Vec<&Value> = events.iter().filter(|e| e["fields"]["event"] == "request").collect();
    let short: Vec<String> = requests
        .iter()
        .map(|e| {
            let f = &e["fields"];
            assert!(
                f["duration_ms"].as_f64().is_some_and(|d| d >= 0.0) && f["request_id"].is_string(),
                "{e}"
            );
            assert_eq!(e["span"]["trace_id"].as_str().unwrap().len(), 32);
            format!(
                "{} {} {} {}",
                f["method"].as_str().unwrap(),
                f["route"].as_str().unwrap(),
                f["status"],
                f["caller"]
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            "POST /apply 200 \"axual\"",
            "POST /plan 400 \"axual\"",
            "POST /plan 401 null",
            "GET unmatched 404 null",
            "GET /logs 200 \"axual\"",
            "other /plan 405 null"
        ]
    );
    assert_eq!(requests[1]["fields"]["request_id"], "mine");
    assert!(events.iter().any(|e| e["fields"]["event"] == "logs-end" && e["fields"]["items"] == 4));
}

#[test]
fn metrics_have_only_known_labels() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || runtime().block_on(requests()));
    let shown = recorder.handle().render();
    let mut counted: Vec<&str> =
        shown.lines().filter(|l| l.starts_with("sutler_http_requests_total{")).collect();
    counted.sort_unstable();
    assert_eq!(
        counted,
        [
            r#"sutler_http_requests_total{method="GET",route="/logs",status="200"} 1"#,
            r#"sutler_http_requests_total{method="GET",route="unmatched",status="404"} 1"#,
            r#"sutler_http_requests_total{method="POST",route="/apply",status="200"} 1"#,
            r#"sutler_http_requests_total{method="POST",route="/plan",status="400"} 1"#,
            r#"sutler_http_requests_total{method="POST",route="/plan",status="401"} 1"#,
            r#"sutler_http_requests_total{method="other",route="/plan",status="405"} 1"#,
        ]
    );
    assert!(shown.contains("sutler_http_request_duration_seconds"), "{shown}");
    assert!(!shown.contains("MARKER"), "{shown}");
}
