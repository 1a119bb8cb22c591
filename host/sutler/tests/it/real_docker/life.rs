//! The whole life of an application.

use serde_json::{Value, json};

use super::site::{PASSWORD, Site, settings};

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_life_of_an_application() {
    let Some(s) = Site::start("docker-life", "").await else { return };
    let create = s.request().create(settings()).body();
    let plan = s.ok("/plan", &create).await;
    assert_eq!(plan, s.ok("/plan", &create).await, "two plans are equal");
    assert!(s.docker.with_label(&s.label()).is_empty(), "a plan changes nothing");
    let outputs = s.create(settings()).await;
    let (name, made) = s.container();
    assert_eq!(
        (&outputs["release"], &outputs["ready"], &outputs["phase"]),
        (&json!(name), &json!(true), &json!("Running")),
        "{outputs}"
    );
    let host = &made["HostConfig"];
    assert_eq!((&host["Memory"], &host["NanoCpus"]), (&json!(2_u64 << 30), &json!(500_000_000)));
    assert_eq!(host["RestartPolicy"]["Name"], "unless-stopped");
    assert!(!made.to_string().contains(PASSWORD), "{made}");
    let (mode, user, login) = s.docker.file(&name, "/ksml-secrets/kafka.properties");
    assert!(login.contains(PASSWORD));
    assert_eq!((mode, user), (0o400, 65532));
    let runner = s.docker.file(&name, "/ksml/config/ksml-runner.yaml").2;
    let runner: Value = serde_json::from_str(&runner).unwrap();
    assert_eq!(runner["ksml"]["definitions"], json!({"orders": "orders.yaml"}));
    assert_eq!(runner["kafka"]["application.id"], json!(name), "no other application's");
    assert!(s.docker.file(&name, "/ksml/definitions/orders.yaml").2.contains("topic: in"));

    restarted(&s, &name, &outputs).await;
    updated(&s, &name).await;
    stopped_and_started(&s, &outputs).await;

    let delete = s.request().delete(settings()).body();
    s.ok("/apply", &delete).await;
    s.ok("/apply", &delete).await;
    assert_eq!(s.docker.with_label(&s.label()), [""; 0]);
    assert_eq!(s.docker.volumes_with_label(&s.label()), [""; 0]);
    assert_eq!(s.seen(settings(), outputs).await["presence"], "absent");
    let log = s.host.log_lines().join("\n");
    assert!(!log.contains(PASSWORD), "{log}");
}

async fn restarted(s: &Site, name: &str, outputs: &Value) {
    s.docker.kill_process(name);
    // A container that is about to start again is told as running, too.
    let up = |state: &Value| state["Running"] == true && state["Restarting"] == false;
    s.until(name, |c| c["RestartCount"] == 1 && up(&c["State"])).await;
    let seen = s.seen(settings(), outputs.clone()).await;
    assert_eq!((&seen["presence"], &seen["drift"]), (&json!("present"), &json!([])), "{seen}");
    assert_eq!(seen["outputs"]["pods"]["restarts"], 1, "{seen}");
    assert!(s.docker.file(name, "/ksml-secrets/kafka.properties").2.contains(PASSWORD), "files stay");
    let again = s.request().update(settings(), settings()).body();
    assert_eq!(s.planned(&again).await["action"], "no-op");
}

async fn updated(s: &Site, name: &str) {
    let before = s.container().1["Id"].clone();
    let mut larger = settings();
    larger["size"] = json!("S");
    let update = s.request().update(larger.clone(), settings()).body();
    assert_eq!(s.planned(&update).await["action"], "update");
    s.ok("/apply", &update).await;
    let (same, made) = s.container();
    assert_eq!((same.as_str(), &made["HostConfig"]["Memory"]), (name, &json!(4_u64 << 30)));
    assert_ne!(made["Id"], before, "another spec is another container");
    // A new secret alone.
    let mut secret = larger.clone();
    secret["kafka"]["security"]["password"] = json!("another-password");
    let update = s.request().update(secret.clone(), larger).body();
    let planned = s.planned(&update).await;
    assert_eq!(planned["action"], "update", "{planned}");
    assert!(!planned.to_string().contains("another-password"), "{planned}");
    s.ok("/apply", &update).await;
    assert!(s.docker.file(name, "/ksml-secrets/kafka.properties").2.contains("another-password"));
    s.ok("/apply", &s.request().update(settings(), secret).body()).await;
    // What a person stopped is drift, and an update without any change starts it.
    s.docker.run(&["stop", name]);
    let seen = s.seen(settings(), json!({})).await;
    assert!(seen["drift"].to_string().contains("/container/running"), "{seen}");
    let again = s.request().update(settings(), settings()).body();
    assert_eq!(s.planned(&again).await["action"], "update");
    s.ok("/apply", &again).await;
    assert_eq!(s.container().1["State"]["Running"], true);
}

async fn stopped_and_started(s: &Site, outputs: &Value) {
    let mut still = settings();
    still["running"] = json!(false);
    let stop = s.request().update(still.clone(), settings()).body();
    let stopped = s.ok("/apply", &stop).await["resources"][0]["outputs"].clone();
    assert_eq!(stopped["phase"], "Stopped", "{stopped}");
    assert_eq!(s.docker.with_label(&s.label()), [""; 0], "a stopped application has no container");
    assert_eq!(s.docker.volumes_with_label(&s.label()).len(), 2, "its state and the record stay");
    let seen = s.seen(still.clone(), stopped).await;
    assert_eq!((&seen["presence"], &seen["drift"]), (&json!("present"), &json!([])), "{seen}");
    assert_eq!(s.planned(&stop).await["action"], "no-op");
    let started = s.ok("/apply", &s.request().update(settings(), still).body()).await;
    assert_eq!(started["resources"][0]["outputs"]["release"], outputs["release"]);
    assert_eq!(s.docker.volumes_with_label(&s.label()).len(), 1, "the record is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_a_job_runs_once() {
    let Some(s) = Site::start("docker-job", "KSML_RUN_SECONDS = \"1\"").await else { return };
    let mut job = settings();
    job["restartPolicy"] = json!("never");
    let outputs = s.create(job.clone()).await;
    let (name, made) = s.container();
    assert_eq!(made["HostConfig"]["RestartPolicy"]["Name"], "no");
    let ended = s.until(&name, |c| c["State"]["Running"] == false).await;
    assert_eq!((&ended["State"]["ExitCode"], &ended["RestartCount"]), (&json!(0), &json!(0)));
    let seen = s.seen(job.clone(), outputs).await;
    assert_eq!(seen["outputs"]["phase"], "Completed", "{seen}");
    assert_eq!(seen["outputs"]["pods"]["lastTermination"]["exitCode"], 0, "{seen}");
    let again = s.request().update(job.clone(), job.clone()).body();
    assert_eq!(s.planned(&again).await["action"], "no-op");
    let mut larger = job.clone();
    larger["size"] = json!("S");
    let update = s.request().update(larger, job.clone()).body();
    assert!(s.planned(&update).await["warnings"].to_string().contains("runs again"));
    s.ok("/apply", &update).await;
    assert_ne!(s.container().1["Id"], made["Id"], "a job that changes is made anew");
    s.ok("/apply", &s.request().delete(job).body()).await;
    assert_eq!(s.docker.with_label(&s.label()), [""; 0]);
    s.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_an_application_that_ends_again_and_again_has_failed() {
    // What it cannot listen on ends it at once.
    let Some(s) = Site::start("docker-loops", "KSML_PORT = \"no-port\"").await else { return };
    let body = s.request().create(settings()).body();
    let answered = sutler_testkit::http::Caller::new(&s.host.url).apply(&body).await;
    assert_eq!(answered.json["outcome"], "failed", "{}", answered.text);
    assert_eq!(answered.json["code"], "not-ready", "{}", answered.text);
    assert!(answered.text.contains("cannot stay up"), "{}", answered.text);
    s.clear();
}
