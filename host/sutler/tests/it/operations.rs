//! Operations as their callers meet them: accepted, followed, asked for again, overlapping, stopped and gone on.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::json;
use sutler_ledger::{Job, Status};
use sutler_testkit::SutlerProcess;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Answered, Caller, SampleRequest, client, renewed};

use crate::listeners::hash;
use crate::seven::{self, CREATION, QUICK, deed, gate, until, waiting};
use crate::support::Site;

async fn world(operations: &str) -> (Site, SutlerProcess, Caller) {
    let site = seven::site(operations).await;
    let host = site.host().await;
    let api = Caller::new(&host.url);
    (site, host, api)
}

fn outcome(answered: &Answered) -> (u16, &str) {
    let of = if answered.json["outcome"] == "failed" { "code" } else { "outcome" };
    (answered.status, answered.json[of].as_str().unwrap_or_default())
}

fn error(answered: &Answered) -> (u16, &str) {
    (answered.status, answered.json["error"]["code"].as_str().unwrap_or_default())
}

/// Ends the host; the ledger's one job, with everything checked.
async fn job_of(site: &Site, mut host: SutlerProcess) -> Job {
    assert!(host.stop().await.success());
    seven::only(&seven::ledger(site.folder.path())).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_work_is_accepted_and_can_be_followed() {
    let (site, host, api) = world(QUICK).await;
    gate(&site.cluster, "closed");
    let body = seven::request(deed("third", "wait-at-gate")).id("r-slow").body();
    let accepted = api.post("/apply", &body).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let id = accepted.json["operationId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("op_"));
    assert_eq!(accepted.headers["location"], format!("/operations/{id}"));
    assert!(accepted.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);

    let running = until(&api, &id, |now| now["progress"]["message"] == "the gate is closed").await;
    let progress = &running["progress"];
    assert_eq!(
        (&running["status"], &progress["step"], &progress["title"], &progress["index"], &progress["total"]),
        (&json!("running"), &json!("third"), &json!("Make the third"), &json!(2), &json!(7)),
        "{running}"
    );
    let listed = api.get("/operations?status=running&application=orders").await.json;
    assert_eq!(listed["operations"][0]["operationId"], id, "{listed}");
    assert_eq!(listed["operations"][0]["requestId"], "r-slow");
    assert_eq!(api.get("/operations?status=completed").await.json["operations"], json!([]));

    // A stream that began while it waited goes on to its end.
    let stream = client().get(format!("{}/operations/{id}/events", host.url)).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut stream = stream.bytes_stream();
    let mut text = String::from_utf8(stream.next().await.unwrap().unwrap().to_vec()).unwrap();
    gate(&site.cluster, "open");
    while let Some(piece) = stream.next().await {
        text.push_str(&String::from_utf8_lossy(&piece.unwrap()));
    }
    let ids: Vec<u64> = text.lines().filter_map(|l| l.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let last = text.lines().rev().find_map(|l| l.strip_prefix("event: "));
    assert_eq!(last, Some("completed"), "{text}");
    let after = ids.len() as u64 - 2;
    let resumed = client().get(format!("{}/operations/{id}/events", host.url));
    let resumed = resumed.header("last-event-id", after).send().await.unwrap().text().await.unwrap();
    assert!(resumed.starts_with(&format!("id: {}\n", after + 1)), "{resumed}");
    assert_eq!(resumed.lines().filter(|l| l.starts_with("id: ")).count(), 2);

    let done = until(&api, &id, |now| now["status"] == "done").await;
    assert_eq!(done["resources"][0]["outputs"]["made"], json!(seven::names("main")), "{done}");
    seven::once(&site.cluster, &["main"]).unwrap();
    assert_eq!(job_of(&site, host).await.id.as_str(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_answered_again() {
    let (site, host, _) = world(QUICK).await;
    for (resource, settings, came_to) in
        [("good", json!({}), "succeeded"), ("bad", deed("third", "refuse"), "refused")]
    {
        let body = SampleRequest::new("tool/seven").change(resource, "create", settings).body();
        let first = seven::follow(&host.url, &body).await.unwrap();
        assert_eq!(outcome(&first), (200, came_to), "{}", first.text);
        site.cluster.forget_requests();
        let again = Caller::new(&host.url).post("/apply", &body).await;
        assert_eq!((again.status, &again.json), (200, &first.json));
        assert!(site.cluster.requests().is_empty(), "a repeat asked the cluster again");
    }
    let mut host = host;
    assert!(host.stop().await.success());
    let jobs = seven::histories(&seven::ledger(site.folder.path())).await.unwrap();
    assert_eq!(jobs.len(), 2, "a repeat is no operation of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_for_one_body() {
    let (_site, host, api) = world(QUICK).await;
    let body = seven::request(json!({"note": "one"})).id("r-1").body();
    seven::follow(&host.url, &body).await.unwrap();
    let id = api.get("/operations").await.json["operations"][0]["operationId"].clone();
    let other = seven::request(json!({"note": "two"})).id("r-1").body();
    let refused = api.post("/apply", &other).await;
    assert_eq!(error(&refused), (409, "request-id-reused"), "{}", refused.text);
    assert_eq!(refused.json["error"]["operationId"], id, "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_operation_for_a_resource_at_a_time() {
    let (site, _host, api) = world(QUICK).await;
    gate(&site.cluster, "closed");
    let body = seven::request(deed("second", "wait-at-gate")).body();
    let id = waiting(&api, &body).await;
    let joined = api.post("/apply", &renewed(&body)).await;
    assert_eq!((joined.status, joined.json["operationId"].as_str()), (202, Some(id.as_str())));
    let two = json!({"note": "another"});
    let over = SampleRequest::new("tool/seven").change("main", "update", two.clone());
    for other in [over.clone(), over.change("side", "create", two.clone())] {
        let refused = api.post("/apply", &other.body()).await;
        assert_eq!(error(&refused), (409, "operation-running"), "{}", refused.text);
        assert_eq!(refused.json["error"]["operationId"], id, "{}", refused.text);
        assert!(refused.headers.contains_key("retry-after"));
    }
    // Another resource is nobody's business.
    let beside = SampleRequest::new("tool/seven").change("side", "create", two).body();
    assert_eq!(outcome(&api.apply(&beside).await), (200, "succeeded"));
    gate(&site.cluster, "open");
    until(&api, &id, |now| now["outcome"] == "succeeded").await;
    assert_eq!(api.get("/operations").await.json["operations"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_worth_another_try_goes_on_where_it_stopped() {
    let (site, host, api) = world(&format!("{QUICK}attempts = 2\n")).await;
    gate(&site.cluster, "closed");
    let body = seven::request(deed("sixth", "fail-at-gate")).body();
    let failed = api.apply(&body).await;
    assert_eq!(outcome(&failed), (200, "gate-closed"), "{}", failed.text);
    assert_eq!(failed.json["retryable"], true);
    let made = seven::created(&site.cluster);
    assert_eq!(made.len(), 5, "{made:?}");
    gate(&site.cluster, "open");
    site.cluster.forget_requests();
    let answered = seven::follow(&host.url, &body).await.unwrap();
    assert_eq!(outcome(&answered), (200, "succeeded"), "{}", answered.text);
    let asked = site.cluster.requests();
    let creations = asked.iter().filter(|r| r.method == "POST").count();
    assert_eq!(creations, 2, "only the sixth and the seventh were left: {asked:?}");
    let (job, events) = {
        let mut host = host;
        assert!(host.stop().await.success());
        seven::only(&seven::ledger(site.folder.path())).await.unwrap()
    };
    seven::completed(&job).unwrap();
    assert_eq!(events.iter().filter(|e| e.what.name() == "retried").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_work_is_not_taken_up_again_over_newer_work() {
    let (site, _host, api) = world(&format!("{QUICK}attempts = 2\n")).await;
    gate(&site.cluster, "closed");
    let old = seven::request(deed("sixth", "fail-at-gate")).body();
    assert_eq!(outcome(&api.apply(&old).await), (200, "gate-closed"));
    gate(&site.cluster, "open");
    let newer = seven::request(json!({"note": "newer"})).body();
    assert_eq!(outcome(&api.apply(&newer).await), (200, "succeeded"));
    let id = api.get("/operations").await.json["operations"][0]["operationId"].clone();
    site.cluster.forget_requests();
    let refused = api.post("/apply", &old).await;
    assert_eq!(error(&refused), (409, "superseded"), "{}", refused.text);
    assert_eq!(refused.json["error"]["operationId"], id, "{}", refused.text);
    assert_eq!(site.cluster.requests().len(), 0, "nothing was done");
    // Whoever still wants that asks anew.
    assert_eq!(outcome(&api.apply(&renewed(&old)).await), (200, "succeeded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_work_is_taken_back_in_reverse() {
    let (site, host, api) = world(QUICK).await;
    gate(&site.cluster, "closed");
    let body = seven::request(deed("fifth", "wait-at-gate")).body();
    let id = waiting(&api, &body).await;
    assert_eq!(seven::created(&site.cluster).len(), 4);
    seven::cancel(&site, &id).await;
    let done = until(&api, &id, |now| now["status"] == "done").await;
    assert_eq!((&done["outcome"], &done["code"]), (&json!("failed"), &json!("cancelled")), "{done}");
    let removed =
        site.cluster.answers().into_iter().filter(|a| a.request.method == "DELETE" && a.status == 200);
    let removed: Vec<String> =
        removed.map(|a| a.request.path.rsplit_once('-').unwrap().1.to_owned()).collect();
    assert_eq!(removed, ["fourth", "third", "second", "first"]);
    assert_eq!(api.post("/apply", &body).await.json["code"], "cancelled", "also to who asks again");
    assert_eq!(job_of(&site, host).await.standing.status, Status::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_equal_calls_at_once_are_one_operation() {
    let (site, host, api) = world(&format!("{QUICK}\n[plugins.seven.limits]\nconcurrent-calls = 64\n")).await;
    gate(&site.cluster, "closed");
    let body = seven::request(deed("second", "wait-at-gate")).body();
    // Half of them repeat one call, half ask for the same under ids of their own.
    let calls = (0..50).map(|n| {
        let body = if n % 2 == 0 { body.clone() } else { renewed(&body) };
        let api = api.clone();
        tokio::spawn(async move { api.post("/apply", &body).await })
    });
    let answers: Vec<Answered> =
        futures::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let other = answers.iter().find(|a| a.status != 202);
    assert!(other.is_none(), "{other:?}");
    let mut ids: Vec<&str> = answers.iter().filter_map(|a| a.json["operationId"].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    gate(&site.cluster, "open");
    until(&api, ids[0], |now| now["outcome"] == "succeeded").await;
    seven::once(&site.cluster, &["main"]).unwrap();
    assert_eq!(job_of(&site, host).await.id.as_str(), ids[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_stops_hands_its_work_on() {
    let long = QUICK.replace("lease-seconds = 2", "lease-seconds = 600");
    let (site, mut host, api) = world(&long).await;
    gate(&site.cluster, "closed");
    let parked =
        SampleRequest::new("tool/seven").change("side", "create", deed("second", "wait-at-gate")).body();
    waiting(&api, &parked).await;
    // And one in the middle of a call that does not end.
    site.cluster.fail_nth_matching(3, CREATION, Fault::HoldAnswer);
    let body = seven::request(json!({})).body();
    assert_eq!(api.post("/apply", &body).await.status, 202);
    site.cluster.until_held(1).await;
    assert!(host.stop().await.success(), "{:?}", host.log_lines());
    gate(&site.cluster, "open");
    let host = site.host().await;
    let started = Instant::now();
    for body in [&body, &parked] {
        let answered = seven::follow(&host.url, body).await.unwrap();
        assert_eq!(outcome(&answered), (200, "succeeded"), "{}", answered.text);
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}, with a lease of 600 s");
    seven::once(&site.cluster, &["main", "side"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_host_of_a_file_does_not_wait_for_the_leases_of_a_dead_one() {
    let long = QUICK.replace("lease-seconds = 2", "lease-seconds = 600");
    let (site, mut host, api) = world(&long).await;
    site.cluster.fail_nth_matching(3, CREATION, Fault::HoldAnswer);
    let body = seven::request(json!({})).body();
    assert_eq!(api.post("/apply", &body).await.status, 202);
    site.cluster.until_held(1).await;
    host.kill().await;
    let host = site.host().await;
    let started = Instant::now();
    let answered = seven::follow(&host.url, &body).await.unwrap();
    assert_eq!(outcome(&answered), (200, "succeeded"), "{}", answered.text);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}, with a lease of 600 s");
    seven::once(&site.cluster, &["main"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_stays_on_the_plugin_that_it_began_with() {
    let (site, mut host, api) = world(QUICK).await;
    gate(&site.cluster, "closed");
    let before = deed("second", "wait-at-gate");
    let old = SampleRequest::new("tool/seven").change("old", "create", before).body();
    let id = waiting(&api, &old).await;
    // The same plugin with a custom section behind it: another digest.
    let file = site.folder.path().join("plugins/seven.wasm");
    let mut wasm = std::fs::read(&file).unwrap();
    let digest = |wasm: &[u8]| sutler_model::Digest::of(wasm);
    let first = digest(&wasm);
    wasm.extend([0, 6, 4, b'm', b'o', b'r', b'e', 1]);
    let second = digest(&wasm);
    std::fs::write(&file, &wasm).unwrap();
    // A host that has never seen the first file goes on with what is in the ledger.
    assert!(host.stop().await.success());
    let mut host = site.host().await;
    let api = Caller::new(&host.url);
    let new = SampleRequest::new("tool/seven").change("new", "create", json!({})).body();
    assert_eq!(outcome(&api.apply(&new).await), (200, "succeeded"));
    gate(&site.cluster, "open");
    until(&api, &id, |now| now["outcome"] == "succeeded").await;
    assert!(host.stop().await.success());
    let jobs = seven::histories(&seven::ledger(site.folder.path())).await.unwrap();
    let of =
        |resource: &str| jobs.iter().find(|(j, _)| j.resources[0].as_str() == resource).unwrap().0.digest;
    assert_eq!((of("old"), of("new")), (first, second));
    assert_ne!(first, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operations_of_others_are_not_there() {
    let callers: String = ["one", "two"]
        .iter()
        .map(|name| {
            format!(
                "[[access.callers]]\nname = {name:?}\ntoken-hash = [{:?}]\ntenants = [\"acme\"]\n",
                hash(name)
            )
        })
        .collect();
    let (site, _host, api) = world(&format!("{QUICK}\n{callers}")).await;
    gate(&site.cluster, "closed");
    let (one, two) = (api.clone().with_token("one"), api.with_token("two"));
    let id = waiting(&one, &seven::request(deed("first", "wait-at-gate")).body()).await;
    for path in [format!("/operations/{id}"), format!("/operations/{id}/events")] {
        assert_eq!(two.get(&path).await.status, 404, "{path}");
    }
    assert_eq!(one.get(&format!("/operations/{id}")).await.status, 200);
    assert_eq!(two.get("/operations").await.json["operations"], json!([]));
    assert_eq!(one.get("/operations").await.json["operations"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_caller_joins_by_the_same_whole_request() {
    let caller = |name: &str, tenant: &str| {
        format!(
            "[[access.callers]]\nname = {name:?}\ntoken-hash = [{:?}]\ntenants = [{tenant:?}]\n",
            hash(name)
        )
    };
    let callers = [caller("one", "acme"), caller("two", "acme"), caller("three", "globex")].concat();
    let (site, _host, api) = world(&format!("{QUICK}\n{callers}")).await;
    gate(&site.cluster, "closed");
    let [one, two, three] = ["one", "two", "three"].map(|name| api.clone().with_token(name));
    let body = seven::request(deed("second", "wait-at-gate")).id("r-shared").body();
    let id = waiting(&one, &body).await;
    let path = format!("/operations/{id}");
    // An id of its own: nobody learns by trying whether a body is equal.
    let refused = two.post("/apply", &renewed(&body)).await;
    assert_eq!(error(&refused), (409, "operation-running"), "{}", refused.text);
    assert_eq!(two.get(&path).await.status, 404);
    let other = seven::request(deed("third", "wait-at-gate")).id("r-shared").body();
    assert_eq!(error(&two.post("/apply", &other).await), (409, "operation-running"));
    assert_eq!(three.post("/apply", &body).await.status, 403, "it may not act for the tenant");
    let joined = two.post("/apply", &body).await;
    assert_eq!((joined.status, joined.json["operationId"].as_str()), (202, Some(id.as_str())));
    assert_eq!(two.get(&path).await.status, 200);
    assert_eq!(three.get(&path).await.status, 404);
    gate(&site.cluster, "open");
    let done = until(&two, &id, |now| now["outcome"] == "succeeded").await;
    assert_eq!(one.get(&path).await.json, done);
    seven::once(&site.cluster, &["main"]).unwrap();
}
