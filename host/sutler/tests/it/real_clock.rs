//! Hosts of one PostgreSQL whose own clocks differ.

use std::time::Duration;

use serde_json::{Value, json};
use sutler_testkit::SutlerProcess;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::postgres::Server;

use crate::seven::{self, CREATION, QUICK, deed, gate};
use crate::support::Site;

/// A host whose wall clock is an hour ahead; its monotonic clock runs as it should.
async fn ahead(site: &Site) -> SutlerProcess {
    let library = ["x86_64", "aarch64"]
        .map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1"))
        .into_iter()
        .find(|file| std::path::Path::new(file).exists());
    let library = library.expect("libfaketime is not installed: apt-get install faketime");
    let env = [("LD_PRELOAD", library.as_str()), ("FAKETIME", "+1h"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let host = SutlerProcess::start(&site.config, &env).await;
    let line = host.log_lines().into_iter().find_map(|l| serde_json::from_str::<Value>(&l).ok()).unwrap();
    let its = chrono::DateTime::parse_from_rfc3339(line["timestamp"].as_str().unwrap()).unwrap();
    let ahead = its.signed_duration_since(chrono::Utc::now()).num_minutes();
    assert!((58..=60).contains(&ahead), "its clock is {ahead} minutes ahead");
    host
}

fn body(resource: &str, settings: Value) -> Value {
    SampleRequest::new("tool/seven").change(resource, "create", settings).body()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_a_host_an_hour_ahead_takes_nothing_from_others() {
    let url = Server::shared().database().await;
    // By the clock that is ahead every deadline would be over.
    let site = seven::shared_site(&format!("{QUICK}deadline-seconds = 1800\n"), &url).await;
    let mut hosts = [site.host().await, ahead(&site).await];
    // Longer than a lease: the other host would have it for run out.
    for n in [3, 9, 15, 21] {
        site.cluster.fail_nth_matching(n, CREATION, Fault::Late(Duration::from_millis(2500)));
    }
    let resources = ["one", "two", "three", "four"];
    let calls = resources.iter().zip(hosts.iter().cycle()).map(|(resource, host)| {
        let (url, body) = (host.url.clone(), body(resource, json!({})));
        tokio::spawn(async move { seven::follow(&url, &body).await.unwrap() })
    });
    for answer in futures::future::join_all(calls).await {
        let answer = answer.unwrap();
        assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    }
    for host in &mut hosts {
        assert!(host.events("lease-lost").is_empty(), "{:?}", host.log_lines());
        assert!(host.stop().await.success());
    }
    seven::once(&site.cluster, &resources).unwrap();
    let jobs = seven::histories(&seven::shared_ledger(site.folder.path(), &url).await).await.unwrap();
    let server = chrono::Utc::now().timestamp_millis();
    for (job, _) in &jobs {
        seven::completed(job).unwrap();
        assert_eq!(job.deadline.since(job.created), Duration::from_secs(1800));
        assert!((server - job.created.0).abs() < 600_000, "made by the server's clock: {job:?}");
    }
    assert_eq!(jobs.len(), resources.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_a_host_an_hour_ahead_keeps_deadlines() {
    let url = Server::shared().database().await;
    let site = seven::shared_site(&format!("{QUICK}deadline-seconds = 4\n"), &url).await;
    let (mut behind, mut ahead) = (site.host().await, ahead(&site).await);
    gate(&site.cluster, "closed");
    for host in [&ahead, &behind] {
        let resource = if host.url == ahead.url { "ahead" } else { "behind" };
        let began =
            Caller::new(&host.url).post("/apply", &body(resource, deed("second", "wait-at-gate"))).await;
        assert_eq!(began.status, 202, "{}", began.text);
    }
    for (host, resource) in [(&behind, "ahead"), (&ahead, "behind")] {
        let same = body(resource, deed("second", "wait-at-gate"));
        let answer = seven::follow(&host.url, &same).await.unwrap();
        assert_eq!(answer.json["code"], "deadline-exceeded", "{}", answer.text);
    }
    for host in [&mut behind, &mut ahead] {
        assert!(host.stop().await.success());
    }
    for (job, _) in seven::histories(&seven::shared_ledger(site.folder.path(), &url).await).await.unwrap() {
        let took = job.updated.since(job.created);
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(30), "{took:?}: {job:?}");
    }
}
