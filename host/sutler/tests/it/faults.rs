//! Plugins that misbehave: each time the documented answer, and nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Caller, SampleRequest};

use crate::support::{GRANTS, Wanted, World};

/// (what the plugin does, in which export, the answer's outcome or failure code)
const TABLE: &[(&str, &str, &str)] = &[
    ("loop", "plan", "plugin-fault"),
    ("loop", "apply", "plugin-fault"),
    ("loop", "inspect", "plugin-fault"),
    ("allocate", "plan", "plugin-fault"),
    ("recurse", "plan", "plugin-fault"),
    ("trap", "plan", "plugin-fault"),
    ("trap", "apply", "plugin-fault"),
    ("trap", "inspect", "plugin-fault"),
    ("panic", "plan", "plugin-fault"),
    ("huge-answer", "plan", "plugin-fault"),
    ("huge-answer", "apply", "plugin-fault"),
    ("huge-answer", "inspect", "plugin-fault"),
    ("flood-log", "plan", "planned"),
    ("not-json", "plan", "plugin-broke-contract"),
    ("not-json", "apply", "plugin-broke-contract"),
    ("not-json", "inspect", "plugin-broke-contract"),
    ("break-schema", "apply", "plugin-broke-contract"),
    ("break-schema", "inspect", "plugin-broke-contract"),
    ("reserved-code", "plan", "plugin-broke-contract"),
    ("reserved-code", "apply", "plugin-broke-contract"),
    ("bad-code", "plan", "plugin-broke-contract"),
    ("unknown-step", "plan", "plugin-broke-contract"),
    ("unknown-step", "apply", "plugin-broke-contract"),
    ("next-forever", "apply", "plugin-broke-contract"),
    ("save-forever", "apply", "deadline-exceeded"),
    ("wait-forever", "apply", "deadline-exceeded"),
    ("bad-state", "apply", "plugin-broke-contract"),
    ("huge-state", "apply", "plugin-fault"),
    ("empty", "plan", "plugin-broke-contract"),
    ("empty", "apply", "plugin-broke-contract"),
    ("empty", "inspect", "plugin-broke-contract"),
    ("twice", "plan", "plugin-broke-contract"),
    ("twice", "apply", "plugin-broke-contract"),
    ("wrong-resource", "plan", "plugin-broke-contract"),
    ("wrong-resource", "inspect", "plugin-broke-contract"),
    ("fail", "plan", "quota-exceeded"),
    ("fail", "apply", "quota-exceeded"),
    ("fail-retryable", "apply", "busy"),
    ("fail-after", "apply", "quota-exceeded"),
    ("replace", "plan", "planned"),
    ("replace", "apply", "succeeded"),
    ("ok", "plan", "planned"),
    ("ok", "apply", "succeeded"),
];

/// The order of a round: two are always the same, one is new, or what `SUTLER_FAULT_SEED` says.
fn new_seed() -> u64 {
    let given = std::env::var("SUTLER_FAULT_SEED").ok().and_then(|s| s.parse().ok());
    given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(3, |d| d.as_secs()))
}

fn shuffled(seed: u64) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut all = TABLE.to_vec();
    all.sort_by_key(|row| sutler_model::Digest::of(format!("{seed} {row:?}").as_bytes()));
    all
}

async fn world() -> World {
    let config = format!("{GRANTS}\n[operations]\nattempts = 1\ndeadline-seconds = 3\n");
    Wanted::new().plugin("hostile").plugin("namespace").config(&config).start().await
}

fn body(export: &str, settings: &Value) -> Value {
    let request = SampleRequest::new("tool/hostile");
    match export {
        "inspect" => request.expect("main", settings.clone(), json!({})).body(),
        _ => request.change("main", "create", settings.clone()).body(),
    }
}

async fn ask(world: &World, export: &str, settings: &Value) -> Value {
    let answered = world.post(&format!("/{export}"), &body(export, settings)).await;
    assert_eq!(answered.status, 200, "{export} {settings}: {}", answered.text);
    answered.json
}

fn came_to(answer: &Value) -> &str {
    if answer["outcome"] == "failed" { &answer["code"] } else { &answer["outcome"] }
        .as_str()
        .unwrap_or("nothing")
}

/// Plans of another plugin, one after the other, until told to stop; answers how many, and the worst.
fn beside(url: &str, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<(u32, Vec<String>)> {
    let api = Caller::new(url);
    tokio::spawn(async move {
        let (mut done, mut wrong) = (0, vec![]);
        while !stop.load(Ordering::Relaxed) {
            let body = SampleRequest::new("target/kubernetes-namespace")
                .create(json!({"labels": {"a": "b"}}))
                .body();
            let answered = api.post("/plan", &body).await;
            done += 1;
            if answered.json["outcome"] != "planned" {
                wrong.push(answered.text);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        (done, wrong)
    })
}

fn resident_kib(world: &World) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.host.id().unwrap())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn sandboxes_in_use(world: &World) -> String {
    let text = world.admin().get("/metrics").await.text;
    text.lines().find(|l| l.starts_with("sutler_sandboxes_in_use")).unwrap_or("none").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_harm_has_its_answer_and_touches_nobody_else() {
    let world = world().await;
    let stop = Arc::new(AtomicBool::new(false));
    let other = beside(&world.host.url, stop.clone());
    let mut settled = 0;
    for (round, seed) in [1, 2, new_seed()].into_iter().enumerate() {
        println!("round {round}: seed {seed}");
        for (deed, export, expected) in shuffled(seed) {
            let mut settings = json!({"do": deed, "in": [export]});
            if deed == "flood-log" {
                // Enough for the log's limit, and little enough for the CPU's on a busy machine.
                settings["value"] = json!(2_000);
            }
            let answer = ask(&world, export, &settings).await;
            assert_eq!(came_to(&answer), expected, "{deed} in {export}: {answer}");
            if matches!(expected, "plugin-fault" | "plugin-broke-contract") {
                let id = answer["faultId"].as_str().unwrap_or_else(|| panic!("no fault id: {answer}"));
                let reason = answer["reason"].as_str().unwrap();
                assert!(
                    reason.contains("hostile") && reason.contains(export) && reason.contains(id),
                    "{answer}"
                );
            }
        }
        if round == 0 {
            settled = resident_kib(&world);
        }
    }
    let grown = resident_kib(&world).saturating_sub(settled);
    assert!(grown < 64 << 10, "two more rounds of faults cost {grown} KiB");
    stop.store(true, Ordering::Relaxed);
    let (done, wrong) = other.await.unwrap();
    assert!(done > 50 && wrong.is_empty(), "{done} calls beside, wrong: {wrong:?}");
    let until = Instant::now() + Duration::from_secs(20);
    while sandboxes_in_use(&world).await != "sutler_sandboxes_in_use 0" {
        assert!(Instant::now() < until, "{}", sandboxes_in_use(&world).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn faults_name_their_frames_for_the_operator() {
    let world = world().await;
    let answer = ask(&world, "plan", &json!({"do": "recurse"})).await;
    let faults = world.admin().get("/plugins/hostile/faults").await.json;
    let list = faults["faults"].as_array().unwrap_or_else(|| panic!("{faults}"));
    assert_eq!(list[0]["id"], answer["faultId"]);
    assert_eq!(list[0]["export"], "plan");
    let frames = list[0]["frames"].to_string();
    assert!(frames.contains("dig"), "the frames have the function's name: {frames}");
    assert_eq!(world.admin().get("/plugins/nobody/faults").await.status, 404);
    let panicked = ask(&world, "plan", &json!({"do": "panic"})).await;
    assert_eq!(came_to(&panicked), "plugin-fault");
}

#[tokio::test]
async fn waiting_for_a_slow_cluster_is_the_dependencys_fault() {
    let world = world().await;
    world.cluster.fail_next_matching("configmaps", Fault::Delay(Duration::from_secs(20)));
    let answer = ask(&world, "plan", &json!({"do": "sleep-in-host", "namespace": "t-acme"})).await;
    assert_eq!((came_to(&answer), &answer["retryable"]), ("dependency-timeout", &json!(true)), "{answer}");
}

#[tokio::test]
async fn what_is_not_granted_is_named() {
    let world = world().await;
    let plan = ask(&world, "plan", &json!({"do": "other-tenant-namespace", "namespace": "t-other"})).await;
    let warning = plan["changes"][0]["warnings"][0].as_str().unwrap_or_default();
    assert!(
        warning.starts_with("not-granted: get ConfigMap") && warning.contains("[plugins.hostile.grants]"),
        "{plan}"
    );
    let apply = ask(&world, "apply", &json!({"do": "other-tenant-namespace", "namespace": "t-other"})).await;
    assert!(
        apply["resources"][0]["outputs"]["answer"].as_str().unwrap_or_default().starts_with("not-granted"),
        "{apply}"
    );
    assert!(world.cluster.requests().iter().all(|r| !r.path.contains("t-other")), "the cluster was asked");
}

#[tokio::test]
async fn a_tenants_own_limits_hold_besides_the_plugins() {
    let table = "verbs = [\"get\"]\nkinds = [\"ConfigMap\"]\nnamespaces = [\"elsewhere\"]\n";
    let config = format!(
        "{GRANTS}\n[[tenants.acme.grants.kubernetes]]\n{table}\n[[instances.emea.grants.kubernetes]]\n{table}\n\
         [instances.apac]\n"
    );
    let world = Wanted::new().plugin("hostile").config(&config).start().await;
    for (tenant, instance, says) in [
        ("acme", None, "not-granted: get ConfigMap"),
        ("globex", None, "not-found"),
        ("globex", Some("emea"), "not-granted: get ConfigMap"),
        ("globex", Some("apac"), "not-found"),
    ] {
        let settings = json!({"do": "other-tenant-namespace", "namespace": format!("t-{tenant}")});
        let mut request = SampleRequest::new("tool/hostile").application("tenant", tenant);
        if let Some(i) = instance {
            request = request.application("instance", i);
        }
        let plan = world.post("/plan", &request.create(settings).body()).await.json;
        let warning = plan["changes"][0]["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.starts_with(says), "{tenant} {instance:?}: {plan}");
        if warning.starts_with("not-granted") {
            let layer = if instance.is_some() { "[instances.emea.grants]" } else { "[tenants.acme.grants]" };
            assert!(warning.contains(layer), "{warning}");
        }
    }
}

#[tokio::test]
async fn reading_calls_cannot_write() {
    let world = world().await;
    let before = world.cluster.resource_version();
    for export in ["plan", "inspect"] {
        let answer = ask(&world, export, &json!({"do": "write-in-plan", "namespace": "t-acme"})).await;
        let list = if export == "plan" { &answer["changes"] } else { &answer["resources"] };
        assert_eq!(list[0]["warnings"][0], "read-only-call", "{answer}");
    }
    assert_eq!(world.cluster.resource_version(), before);
}

#[tokio::test]
async fn equal_plans_are_equal_down_to_clock_and_random() {
    let world = world().await;
    for deed in ["clock", "random"] {
        let one = ask(&world, "plan", &json!({"do": deed})).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let two = ask(&world, "plan", &json!({"do": deed})).await;
        assert_eq!(one, two);
        assert_eq!(one["planHash"].as_str().map(str::len), Some(64));
    }
    let other = ask(&world, "plan", &json!({"do": "random", "value": 8})).await;
    assert_ne!(other["planHash"], ask(&world, "plan", &json!({"do": "random"})).await["planHash"]);
}

#[tokio::test]
async fn secrets_reach_the_plugin_and_nothing_else() {
    let config = format!("{GRANTS}\n[plugins.hostile.secrets.password]\nfile = \"FOLDER/password\"\n");
    let wanted = Wanted::new().plugin("hostile").config(&config).unready();
    // The file has to be there before the plugin is loaded: reload afterwards.
    let world = wanted.start().await;
    std::fs::write(world.folder.path().join("password"), "hunter2-of-the-test\n").unwrap();
    world.reload().await;
    let answer = ask(&world, "apply", &json!({"do": "leak-secret", "in": ["apply"]})).await;
    assert_eq!(answer["resources"][0]["outputs"]["answer"], "hunter2-of-the-test");
    let planned = ask(&world, "plan", &json!({"do": "ok", "secret": "in-a-setting"})).await;
    let field =
        planned["changes"][0]["fields"].as_array().unwrap().iter().find(|f| f["path"] == "/secret").unwrap();
    assert_eq!((&field["sensitive"], &field["after"]), (&json!(true), &Value::Null));
    let log = world.host.log_lines().join("\n");
    assert!(log.contains("[redacted]"), "the plugin's log line is there");
    assert!(!log.contains("hunter2-of-the-test") && !log.contains("in-a-setting"), "{log}");
}

#[tokio::test]
async fn a_secret_in_the_wrong_place_is_not_shown_either() {
    let world = world().await;
    let mut plan = body("plan", &json!({"do": "ok", "secret": "S3CRET-NEW"}));
    plan["changes"][0]["previousSettings"] = json!([["S3CRET-OLD"]]);
    let mut seen = body("inspect", &json!({"do": "ok"}));
    seen["changes"][0]["expected"]["settings"] = json!(["S3CRET-OLD", {"secret": "S3CRET-NEW"}]);
    for (path, request) in [("/plan", plan), ("/inspect", seen)] {
        let answer = world.post(path, &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.text.contains("S3CRET"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_plan_that_no_longer_holds_changes_nothing() {
    let world = world().await;
    let settings = json!({"do": "ok"});
    let hash = ask(&world, "plan", &settings).await["planHash"].clone();
    let mut apply = body("apply", &settings);
    apply["planHash"] = hash.clone();
    assert_eq!(world.post("/apply", &apply).await.json["outcome"], "succeeded");
    apply["planHash"] = json!("0".repeat(64));
    assert_eq!(world.post("/apply", &apply).await.json["code"], "plan-stale");
    let mut replacing = body("apply", &json!({"do": "replace", "in": ["plan"]}));
    assert_eq!(world.post("/apply", &replacing).await.json["code"], "replace-required");
    replacing["changes"][0]["action"] = json!("replace");
    assert_eq!(world.post("/apply", &replacing).await.json["outcome"], "succeeded");
}

#[tokio::test]
async fn too_many_calls_at_once_are_refused_before_any_work() {
    let config = format!("{}\n", GRANTS.replace("log-kib = 32", "log-kib = 32\nconcurrent-calls = 2"));
    let world = Wanted::new().plugin("hostile").plugin("namespace").config(&config).start().await;
    let request = body("plan", &json!({"do": "loop"}));
    let calls = (0..8).map(|_| world.post("/plan", &request));
    let answers = futures::future::join_all(calls).await;
    let refused: Vec<_> = answers.iter().filter(|a| a.status == 503).collect();
    assert!(!refused.is_empty() && refused.len() <= 6, "{} of 8 refused", refused.len());
    assert_eq!(refused[0].json["error"]["code"], "overloaded", "{}", refused[0].text);
    assert!(refused[0].headers.contains_key("retry-after"));
    // Another plugin was not touched by that.
    let namespace = SampleRequest::new("target/kubernetes-namespace").create(json!({})).body();
    assert_eq!(world.post("/plan", &namespace).await.json["outcome"], "planned");
}
