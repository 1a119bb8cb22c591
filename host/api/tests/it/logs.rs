//! `GET /logs`: its query, its three forms, its ends.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use expect_test::{Expect, expect};
use futures::StreamExt as _;
use sutler_api::ApiConfig;
use sutler_logs::{Since, StreamOptions};

use crate::fake::{OPERATION, access, api, fake, get, public, send, shown, text};

const BASE: &str = "/logs?kind=deployment&type=ksml&application=orders&environment=prod&tenant=acme";

fn ask(more: &str, accept: Option<&str>) -> Request<Body> {
    let mut request = get(&format!("{BASE}{more}"));
    if let Some(a) = accept {
        request.headers_mut().insert("accept", a.parse().unwrap());
    }
    request
}

async fn check(request: Request<Body>, want: Expect) {
    want.assert_eq(&shown(send(&public(), request).await).await);
}

#[tokio::test]
async fn forms() {
    check(
        ask("", None),
        expect![[r#"
        200
        [orders-0/ksml] one
        [orders-0/ksml] two "quoted"
        --- gap: orders-0/ksml from 2026-01-31T12:00:01Z to ?: the log was rotated ---
        [orders-1/ksml] three
    "#]],
    )
    .await;
    check(
        ask("&timestamps&pod=orders-0&container=ksml", Some("*/*")),
        expect![[r#"
        200
        2026-01-31T12:00:01.000000001Z one
        2026-01-31T12:00:01.000000001Z two "quoted"
        --- gap: orders-0/ksml from 2026-01-31T12:00:01Z to ?: the log was rotated ---
        2026-01-31T12:00:02.000000001Z three
    "#]],
    )
    .await;
    check(
        ask("&pod=orders-0", Some("text/plain")),
        expect![[r#"
        200
        [orders-0/ksml] one
        [orders-0/ksml] two "quoted"
        --- gap: orders-0/ksml from 2026-01-31T12:00:01Z to ?: the log was rotated ---
        [orders-1/ksml] three
    "#]],
    )
    .await;
    check(ask("", Some("application/x-ndjson")), expect![[r#"
        200
        {"pod":"orders-0","container":"ksml","timestamp":"2026-01-31T12:00:01.000000001Z","line":"one"}
        {"pod":"orders-0","container":"ksml","timestamp":"2026-01-31T12:00:01.000000001Z","line":"two \"quoted\""}
        {"gap":{"pod":"orders-0","container":"ksml","from":"2026-01-31T12:00:01Z","reason":"the log was rotated"}}
        {"pod":"orders-1","container":"ksml","timestamp":"2026-01-31T12:00:02.000000001Z","line":"three"}
    "#]]).await;
    check(ask("", Some("text/event-stream")), expect![[r#"
        200
        id: orders-0/ksml/2026-01-31T12:00:01.000000001Z/1
        data: {"pod":"orders-0","container":"ksml","timestamp":"2026-01-31T12:00:01.000000001Z","line":"one"}

        id: orders-0/ksml/2026-01-31T12:00:01.000000001Z/2
        data: {"pod":"orders-0","container":"ksml","timestamp":"2026-01-31T12:00:01.000000001Z","line":"two \"quoted\""}

        event: gap
        data: {"gap":{"pod":"orders-0","container":"ksml","from":"2026-01-31T12:00:01Z","reason":"the log was rotated"}}

        id: orders-1/ksml/2026-01-31T12:00:02.000000001Z/1
        data: {"pod":"orders-1","container":"ksml","timestamp":"2026-01-31T12:00:02.000000001Z","line":"three"}

    "#]]).await;
}

#[tokio::test]
async fn accept() {
    for (accept, got) in [
        ("*/*", "text/plain; charset=utf-8"),
        ("text/*", "text/plain; charset=utf-8"),
        ("application/*", "application/x-ndjson"),
        ("text/plain;q=0.5, text/event-stream", "text/event-stream"),
        ("application/json, application/x-ndjson;q=0.1", "application/x-ndjson"),
        ("*/*, text/plain;q=0", "application/x-ndjson"),
        ("application/json", "application/json"),
        ("text/plain;q=0", "application/json"),
    ] {
        let response = send(&public(), ask("", Some(accept))).await;
        assert_eq!(response.headers()["content-type"], got, "{accept}");
        assert_eq!(response.status().as_u16(), if got == "application/json" { 406 } else { 200 }, "{accept}");
    }
    check(ask("", Some("application/json")), expect![[r#"
        406
        {"error":{"code":"not-acceptable","message":"logs come as text/plain, application/x-ndjson or text/event-stream; name one in Accept"}}"#]]).await;
}

#[tokio::test]
async fn parameters_that_are_refused() {
    check(ask("&sinceSeconds=5&sinceTime=2026-01-31T12:00:00Z", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"sinceSeconds and sinceTime are both there; keep one","path":"?sinceTime"}}"#]]).await;
    check(ask("&sinceTime=yesterday", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"sinceTime is a time of RFC 3339 and no leap second, such as 2026-01-31T12:00:00Z (write + as %2B)","path":"?sinceTime"}}"#]]).await;
    check(ask("&sinceSeconds=0", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"sinceSeconds is a whole number from 1 to 9223372036854775807","path":"?sinceSeconds"}}"#]]).await;
    check(ask("&tailLines=-1", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"tailLines is a whole number from 0 to 9223372036854775807","path":"?tailLines"}}"#]]).await;
    check(ask("&limitBytes=0", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"limitBytes is a whole number from 1 to 9223372036854775807","path":"?limitBytes"}}"#]]).await;
    // What the API server would refuse once the stream is open.
    for (name, value) in [
        ("sinceSeconds", "9223372036854775808"),
        ("tailLines", "18446744073709551615"),
        ("limitBytes", "9223372036854775808"),
        ("limitBytes", "18446744073709551616"),
        ("sinceTime", "2026-11-30T10:00:60Z"),
        ("sinceTime", "2026-12-31T23:59:60Z"),
        ("sinceTime", "0000-01-01T00:00:00%2B01:00"),
        ("sinceTime", "9999-12-31T23:59:59-01:00"),
    ] {
        let answer = shown(send(&public(), ask(&format!("&{name}={value}"), None)).await).await;
        let path = format!("\"path\":\"?{name}\"");
        assert!(answer.starts_with("400") && answer.contains(&path), "{name}={value}: {answer}");
    }
    check(
        ask("&follow=yes", None),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"follow is true or false","path":"?follow"}}"#]],
    )
    .await;
    check(ask("&taillines=5", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"taillines is not a parameter here; did you mean tailLines?","path":"?taillines"}}"#]]).await;
    check(ask("&color=red", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"color is not a parameter here; known are kind, type, tenant, application, environment, instance, resource, follow, previous, container, pod, sinceSeconds, sinceTime, tailLines, limitBytes, timestamps","path":"?color"}}"#]]).await;
    check(
        ask("&kind=tool", None),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"kind is there twice; keep one","path":"?kind"}}"#]],
    )
    .await;
    check(ask("&pod=../../etc", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"pod is the name of a pod: 1 to 253 of a-z, 0-9, '-' and '.'","path":"?pod"}}"#]]).await;
    check(ask("&resource=A", None), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"identifier \"A\" is not valid: use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit","path":"?resource"}}"#]]).await;
    check(
        get("/logs"),
        expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"kind is missing","path":"?kind"}}"#]],
    )
    .await;
    check(get("/logs?kind=artifact"), expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"kind \"artifact\" is not valid: use target, tool, deployment, managed-resource or consumed-resource","path":"?kind"}}"#]]).await;
}

#[tokio::test]
async fn parameters_reach_the_host() {
    let fake = fake();
    let router = sutler_api::router(&api(&fake, access(), ApiConfig::default()));
    let seen = async |request| {
        assert_eq!(send(&router, request).await.status(), 200);
        fake.inquiries.lock().unwrap().pop().unwrap()
    };
    let (inquiry, options) = seen(ask("&resource=main&resource=other&resource=main&previous=1&container=c&pod=p&sinceSeconds=60&tailLines=0&limitBytes=9", None)).await;
    assert_eq!(inquiry.resources.iter().map(|r| r.resource.as_str()).collect::<Vec<_>>(), ["main", "other"]);
    assert_eq!(
        options,
        StreamOptions {
            follow: false,
            previous: true,
            container: Some("c".into()),
            pod: Some("p".into()),
            since: Some(Since::Ago(Duration::from_secs(60))),
            tail_lines: Some(0),
            limit_bytes: Some(9)
        }
    );
    let (_, options) = seen(ask("&sinceTime=2026-01-31T12:00:00%2B01:00", None)).await;
    assert_eq!(options.since, Some(Since::Time("2026-01-31T12:00:00+01:00".into())));
    // As Kubernetes writes times.
    let (_, options) = seen(ask("&sinceTime=2026-01-31t12:00:00.5z", None)).await;
    assert_eq!(options.since, Some(Since::Time("2026-01-31T12:00:00.500Z".into())));
    let most = i64::MAX.unsigned_abs();
    let (_, options) =
        seen(ask(&format!("&sinceSeconds={most}&tailLines={most}&limitBytes={most}"), None)).await;
    assert_eq!(options.since, Some(Since::Ago(Duration::from_secs(most))));
    assert_eq!((options.tail_lines, options.limit_bytes), (Some(most), Some(most)));
    let mut resumed = ask("&tailLines=5&sinceSeconds=60", Some("text/event-stream"));
    resumed.headers_mut().insert("last-event-id", "orders-0/ksml/2026-01-31T12:00:05.5Z/1".parse().unwrap());
    let (_, options) = seen(resumed).await;
    assert_eq!(options.since, Some(Since::Time("2026-01-31T11:59:55.500000000Z".into())));
    assert_eq!(options.tail_lines, None);
}

#[tokio::test]
async fn failures_become_statuses() {
    let of = |name: &str| {
        get(&format!("/logs?kind=deployment&type=ksml&application={name}&environment=prod&tenant=acme"))
    };
    check(
        of("nothing"),
        expect![[r#"
        404
        {"error":{"code":"not-found","message":"no pod is there"}}"#]],
    )
    .await;
    check(
        of("forbidden"),
        expect![[r#"
        403
        {"error":{"code":"not-granted","message":"logs of acme are not granted"}}"#]],
    )
    .await;
    check(
        of("unhandled"),
        expect![[r#"
        404
        {"error":{"code":"pair-not-handled","message":"nobody handles it"}}"#]],
    )
    .await;
    check(
        of("busy"),
        expect![[r#"
        503 retry-after: 5
        {"error":{"code":"dependency-timeout","message":"try again"}}"#]],
    )
    .await;
    // Asking again would change nothing, so nobody is told to.
    check(
        of("broken"),
        expect![[r#"
        422
        {"error":{"code":"trap","message":"it broke"}}"#]],
    )
    .await;
    check(
        of("tenantless"),
        expect![[r#"
        422
        {"error":{"code":"tenant-required","message":"name a tenant","path":"/namespace"}}"#]],
    )
    .await;
}

#[tokio::test]
async fn a_stream_that_the_host_ends_says_so() {
    for (accept, end) in [
        ("text/plain", "--- end: this host is stopping; ask again with sinceTime ---\n"),
        (
            "application/x-ndjson",
            "{\"end\":{\"reason\":\"this host is stopping; ask again with sinceTime\"}}\n",
        ),
        (
            "text/event-stream",
            "event: end\ndata: {\"reason\":\"this host is stopping; ask again with sinceTime\"}\n\n",
        ),
    ] {
        let api = api(&fake(), access(), ApiConfig::default());
        let router = sutler_api::router(&api);
        let response = send(&router, ask("&follow=true", Some(accept))).await;
        let mut lines = response.into_body().into_data_stream();
        let first = lines.next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("three"));
        assert_eq!(api.running().len(), 1, "an open stream is a running request");
        api.stop();
        let last =
            tokio::time::timeout(Duration::from_secs(5), lines.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&last), end);
        assert!(lines.next().await.is_none());
        drop(lines);
        assert_eq!(api.running().len(), 0);
    }
}

#[tokio::test]
async fn streams_have_limits_of_their_own() {
    let config = ApiConfig { max_log_streams: 1, max_event_streams: 1, ..ApiConfig::default() };
    let api = api(&fake(), access(), config);
    let router = sutler_api::router(&api);
    let open = send(&router, ask("&follow=true", None)).await;
    expect![[r#"
        503 retry-after: 1
        {"error":{"code":"overloaded","message":"this host is at its limit of 1 streams at once; try again in 1 s"}}"#]].assert_eq(&shown(send(&router, ask("", None)).await).await);
    assert_eq!(send(&router, get("/handles")).await.status(), 200);
    // Nor do streams of events take the place of logs, and logs not theirs.
    let events = format!("/operations/{OPERATION}/events");
    let listening = send(&router, get(&events)).await;
    assert_eq!(listening.status(), 200);
    expect![[r#"
        503 retry-after: 1
        {"error":{"code":"overloaded","message":"this host is at its limit of 1 streams of events at once; try again in 1 s"}}"#]].assert_eq(&shown(send(&router, get(&events)).await).await);
    drop(listening);
    // The client goes away.
    drop(open);
    assert_eq!(api.running().len(), 0);
    assert!(text(send(&router, ask("", None)).await).await.contains("three"));
}
