//! The plugin of seven steps: hosts that are quick to take work over, what it is asked, and what must be true of
//! its work whatever happened to the hosts meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use sutler_jobs::machine;
use sutler_ledger::{
    Event, Filter, Happened, Job, Keys, Ledger, Postgres, PostgresOptions, Sqlite, SqliteOptions, Status,
};
use sutler_testkit::cluster::Emulator;
use sutler_testkit::http::{Answered, Caller, SampleRequest};
use sutler_testkit::sutler_binary;

use crate::support::{Site, Wanted};

/// A host that died is succeeded three seconds after its last sign of life.
pub(crate) const QUICK: &str = r#"
[operations]
lease-seconds = 2
lease-margin-seconds = 0
takeover-after-seconds = 1
poll-milliseconds = 100
answer-within-milliseconds = 200
first-backoff-milliseconds = 100
"#;

const GRANTS: &str = r#"
[[plugins.seven.grants.kubernetes]]
verbs = ["get", "create", "delete"]
kinds = ["ConfigMap"]
namespaces = ["t-{tenant}"]
"#;

/// The request of each step's change.
pub(crate) const CREATION: &str = "POST /api/v1/namespaces/t-acme/configmaps";

const STEPS: [&str; 7] = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"];

/// A cluster, a folder and a configuration for hosts with the plugin, on a ledger of SQLite.
pub(crate) async fn site(operations: &str) -> Site {
    place(operations, "path = \"FOLDER/ledger.db\"").await
}

/// The same for hosts that share a database of PostgreSQL.
pub(crate) async fn shared_site(operations: &str, url: &str) -> Site {
    let site = place(operations, &format!("url = {url:?}\nkey-file = \"FOLDER/ledger.key\"")).await;
    let folder = site.folder.path();
    Keys::open_or_make(&folder.join("ledger.key"), &folder.join("ledger.db")).unwrap();
    site
}

async fn place(operations: &str, ledger: &str) -> Site {
    let config = format!("{operations}\n[ledger]\n{ledger}\n{GRANTS}");
    let site = Wanted::new().plugin("seven").config(&config).site().await;
    site.cluster.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t-acme"}}));
    site
}

pub(crate) fn request(settings: Value) -> SampleRequest {
    SampleRequest::new("tool/seven").create(settings)
}

/// The settings that have `what` happen in `step`.
pub(crate) fn deed(step: &str, what: &str) -> Value {
    json!({"deed": {"step": step, "what": what}})
}

/// What the steps `WaitAtGate` and `FailAtGate` look at.
pub(crate) fn gate(cluster: &Emulator, state: &str) {
    cluster.seed(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "gate", "namespace": "t-acme"}, "data": {"state": state},
    }));
}

pub(crate) fn names(resource: &str) -> Vec<String> {
    STEPS.iter().map(|s| format!("orders-{resource}-{s}")).collect()
}

/// Asks until there is the final answer: again after a 503, by the operation after a 202.
///
/// An error says that the host is gone.
pub(crate) async fn follow(url: &str, body: &Value) -> Result<Answered, reqwest::Error> {
    let api = Caller::new(url);
    let pause = || tokio::time::sleep(Duration::from_millis(100));
    loop {
        let text = Some(body.to_string());
        let first = api.try_send(Method::POST, "/apply", "application/json", text).await?;
        match first.status {
            200 => return Ok(first),
            202 => return done(&api, first.json["operationId"].as_str().unwrap()).await,
            503 => pause().await,
            other => panic!("apply answered {other}: {}", first.text),
        }
    }
}

/// The final answer of an operation, as apply would have told it.
pub(crate) async fn done(api: &Caller, id: &str) -> Result<Answered, reqwest::Error> {
    loop {
        let mut now = api.try_send(Method::GET, &format!("/operations/{id}"), "", None).await?;
        match (now.status, now.json["status"].as_str()) {
            (200, Some("done")) => {
                let answer = now.json.as_object_mut().unwrap();
                answer.retain(|name, _| name != "operationId" && name != "status");
                return Ok(now);
            }
            (200 | 503, _) => tokio::time::sleep(Duration::from_millis(100)).await,
            (other, _) => panic!("operation {id} answered {other}: {}", now.text),
        }
    }
}

/// Its id, once it waits at the gate.
pub(crate) async fn waiting(api: &Caller, body: &Value) -> String {
    let answered = api.post("/apply", body).await;
    assert_eq!(answered.status, 202, "{}", answered.text);
    let id = answered.json["operationId"].as_str().unwrap().to_owned();
    until(api, &id, |now| now["progress"]["message"] == "the gate is closed").await;
    id
}

/// An operation as it is read, once it is `so`.
pub(crate) async fn until(api: &Caller, id: &str, so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let now = api.get(&format!("/operations/{id}")).await;
        if now.status == 200 && so(&now.json) {
            return now.json;
        }
        assert!(Instant::now() < end, "{}", now.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// As an operator has a job taken back, beside a serving host or without one.
pub(crate) async fn cancel(site: &Site, id: &str) {
    let file = site.folder.path().join("sutler.toml");
    std::fs::write(&file, &site.config).unwrap();
    let mut command = tokio::process::Command::new(sutler_binary());
    let out = command.args(["job", "cancel", id, "--config"]).arg(&file).output().await.unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// How often each name was created, by the answers that were given.
pub(crate) fn created(cluster: &Emulator) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for a in cluster.answers().iter().filter(|a| a.status == 201) {
        *count.entry(a.request.body["metadata"]["name"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
    }
    count
}

/// Each change was made once, is still there, and repeats of it were told so.
pub(crate) fn once(cluster: &Emulator, resources: &[&str]) -> Result<(), String> {
    let wanted: BTreeMap<String, usize> =
        resources.iter().flat_map(|r| names(r)).map(|name| (name, 1)).collect();
    let found = created(cluster);
    if found != wanted {
        return Err(format!("created: {found:?}"));
    }
    for answer in cluster.answers() {
        let line = format!("{} {} {}", answer.request.method, answer.request.path, answer.status);
        let of_ours = answer.request.path.starts_with("/api/v1/namespaces/t-acme/configmaps");
        let right = match answer.request.method.as_str() {
            "GET" => true,
            "POST" => matches!(answer.status, 201 | 409),
            _ => false,
        };
        if of_ours && !right {
            return Err(format!("unexpected: {line}"));
        }
    }
    match wanted.keys().find(|name| cluster.object("ConfigMap", "t-acme", name).is_none()) {
        Some(missing) => Err(format!("{missing} is gone")),
        None => Ok(()),
    }
}

/// Every job of a ledger with its events, each history checked.
pub(crate) async fn histories(ledger: &dyn Ledger) -> Result<Vec<(Job, Vec<Event>)>, String> {
    let problems = sutler_jobs::check(ledger).await.map_err(|e| e.to_string())?;
    if !problems.is_empty() {
        return Err(format!("the ledger has problems: {problems:?}"));
    }
    let filter = Filter { limit: 1000, ..Filter::default() };
    let mut all = Vec::new();
    for job in ledger.jobs(filter).await.map_err(|e| e.to_string())? {
        let events = ledger.events(job.id.clone(), 0, 10_000).await.map_err(|e| e.to_string())?;
        legal(&job, &events)?;
        all.push((job, events));
    }
    Ok(all)
}

/// The events are without gaps, allowed in this order, and what they come to is the row; no token was used again.
fn legal(job: &Job, events: &[Event]) -> Result<(), String> {
    if !events.iter().map(|e| e.seq).eq(1..=events.len() as u64) {
        return Err(format!("gaps: {events:?}"));
    }
    let end = machine::replay(job.mode, events.iter().map(|e| &e.what)).map_err(|e| e.to_string())?;
    if end != job.standing {
        return Err(format!("the events come to {end:?}, the row says {:?}", job.standing));
    }
    let tokens: Vec<u64> = events
        .iter()
        .filter_map(|e| match e.what {
            Happened::Claimed { token, .. } => Some(token),
            _ => None,
        })
        .collect();
    if !tokens.windows(2).all(|w| w[0] < w[1]) || tokens.last() != Some(&job.token) {
        return Err(format!("tokens {tokens:?}, the row has {}", job.token));
    }
    if !events.windows(2).all(|w| w[0].at <= w[1].at) {
        return Err(format!("time went back: {events:?}"));
    }
    Ok(())
}

/// The ledger of a folder whose host has ended.
pub(crate) fn ledger(folder: &Path) -> Sqlite {
    let keys = Keys::open(&folder.join("ledger.key")).unwrap();
    Sqlite::open(&folder.join("ledger.db"), keys, SqliteOptions::default()).unwrap()
}

/// The database of hosts that shared it.
pub(crate) async fn shared_ledger(folder: &Path, url: &str) -> Postgres {
    let keys = Keys::open(&folder.join("ledger.key")).unwrap();
    Postgres::open(url, keys, PostgresOptions::default()).await.unwrap()
}

/// The one job that there is, which has to be final.
pub(crate) async fn only(ledger: &dyn Ledger) -> Result<(Job, Vec<Event>), String> {
    let mut all = histories(ledger).await?;
    match (all.pop(), all.is_empty()) {
        (Some((job, events)), true) if job.standing.status.is_final() => Ok((job, events)),
        (Some((job, _)), true) => Err(format!("{job:?} is not final")),
        (job, _) => Err(format!("{} jobs instead of one", all.len() + usize::from(job.is_some()))),
    }
}

pub(crate) fn completed(job: &Job) -> Result<(), String> {
    match job.standing.status {
        Status::Completed => Ok(()),
        other => Err(format!("{} is {other}", job.id)),
    }
}
