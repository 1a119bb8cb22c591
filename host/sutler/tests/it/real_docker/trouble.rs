//! Hosts that die in the middle, owners of the same words, and what the doctor says.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sutler_testkit::docker::RUNNER;
use sutler_testkit::http::{Caller, renewed};
use sutler_testkit::{SutlerProcess, sutler_binary};

use super::site::{Site, settings};

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_a_host_that_dies_in_the_middle_is_made_up_for() {
    let Some(mut s) = Site::start("docker-killed", "").await else { return };
    let mut size = ["XS", "S"].into_iter().cycle();
    let mut before = json!({});
    for wait in [10, 60, 120, 200, 350, 700, 1500] {
        let mut wanted = settings();
        wanted["size"] = json!(size.next());
        // A secret of its own, so that each round replaces the container.
        wanted["kafka"]["security"]["password"] = json!(format!("password-{wait}"));
        let body = match before.is_null() || before == json!({}) {
            true => renewed(&s.request().create(wanted.clone()).body()),
            false => renewed(&s.request().update(wanted.clone(), before).body()),
        };
        let api = Caller::new(&s.host.url);
        let sent = api.try_send(http::Method::POST, "/apply", "application/json", Some(body.to_string()));
        let _cut_off = tokio::time::timeout(Duration::from_millis(wait), sent).await;
        s.host.kill().await;
        s.host = SutlerProcess::start(&s.config, &[]).await;
        // The caller asks again, as callers do: under the same id it is the same work.
        let answered = Caller::new(&s.host.url).apply(&body).await;
        assert_eq!(answered.json["outcome"], "succeeded", "after {wait} ms: {}", answered.text);
        let (name, made) = s.container();
        assert_eq!(made["State"]["Running"], true, "after {wait} ms");
        let login = s.docker.file(&name, "/ksml-secrets/kafka.properties").2;
        assert!(login.contains(&format!("password-{wait}")), "after {wait} ms");
        before = wanted;
    }
    // A host that is started anew knows what is there.
    let id = s.container().1["Id"].clone();
    let again = s.request().update(before.clone(), before.clone()).body();
    s.host.kill().await;
    s.host = SutlerProcess::start(&s.config, &[]).await;
    assert_eq!(s.planned(&again).await["action"], "no-op");
    assert_eq!(s.seen(before.clone(), json!({})).await["outputs"]["phase"], "Running");
    s.ok("/apply", &again).await;
    assert_eq!(s.container().1["Id"], id, "and leaves it alone");
    s.ok("/apply", &s.request().delete(before).body()).await;
    assert_eq!(s.docker.with_label(&s.label()), [""; 0]);
    assert_eq!(s.docker.volumes_with_label(&s.label()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_applications_of_the_same_words_do_not_meet() {
    let Some(s) = Site::start("docker-words", "").await else { return };
    let of = |application: &str, environment: &str| {
        s.request().application("id", application).application("environment", environment)
    };
    // a-b in c, and a in b-c.
    for (application, environment) in [("a-b", "c"), ("a", "b-c")] {
        s.ok("/apply", &of(application, environment).create(settings()).body()).await;
    }
    let names = s.docker.with_label(&s.label());
    assert!(names.len() == 2 && names[0] != names[1], "{names:?}");
    s.ok("/apply", &of("a", "b-c").delete(settings()).body()).await;
    let left = s.docker.with_label(&s.label());
    assert_eq!(left.len(), 1, "{left:?}");
    let labels = s.docker.inspect(&left[0]).unwrap()["Config"]["Labels"].clone();
    assert_eq!(
        (&labels["sutler.dev/application"], &labels["sutler.dev/environment"]),
        (&json!("a-b"), &json!("c"))
    );
    s.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_what_docker_cannot_do_is_refused() {
    let Some(s) = Site::start("docker-refused", "").await else { return };
    for (change, at) in [
        (json!({"replicas": 2}), "/replicas"),
        (json!({"networkPolicy": {"enabled": true}}), "/networkPolicy/enabled"),
        (
            json!({"metrics": {"enabled": true, "serviceMonitor": {"enabled": true}}}),
            "/metrics/serviceMonitor/enabled",
        ),
    ] {
        let mut wanted = settings();
        wanted.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answered = Caller::new(&s.host.url).apply(&s.request().create(wanted).body()).await;
        assert_eq!(
            (&answered.json["code"], &answered.json["path"]),
            (&json!("unsupported-settings"), &json!(at)),
            "{}",
            answered.text
        );
    }
    // More than is granted names the grant.
    let mut large = settings();
    large["size"] = json!("XL");
    let answered = Caller::new(&s.host.url).apply(&s.request().create(large).body()).await;
    assert!(answered.text.contains("max-memory-mib = 16384"), "{}", answered.text);
    assert_eq!(s.docker.with_label(&s.label()), [""; 0]);
}

fn doctor(s: &Site) -> (bool, Vec<Value>) {
    let o = Command::new(sutler_binary())
        .args(["doctor", "--output", "json", "--config"])
        .arg(s.file())
        .output()
        .unwrap();
    let all: Vec<Value> = serde_json::from_slice(&o.stdout).unwrap();
    (o.status.success(), all.into_iter().filter(|f| f["area"] == "docker").collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_the_doctor_lists_orphans() {
    let Some(mut s) = Site::start("docker-doctor", "").await else { return };
    s.create(settings()).await;
    let (name, made) = s.container();
    let mine = |found: &[Value]| -> Vec<Value> {
        let mut mine: Vec<Value> =
            found.iter().filter(|f| f["what"].as_str().unwrap().contains("docker-doctor")).cloned().collect();
        mine.sort_by_key(|f| f["what"].to_string());
        mine
    };
    let (_, found) = doctor(&s);
    assert!(found[0]["what"].as_str().unwrap().contains("answers") && found[0]["level"] == "ok", "{found:?}");
    assert!(!found.iter().any(|f| f["what"].as_str().unwrap().contains(&name)), "{found:?}");
    // One that no operation knows, and one whose plugin is gone.
    for (orphan, plugin, application) in
        [("docker-doctor-1", "ksml", "unknown"), ("docker-doctor-2", "other", "orders")]
    {
        let mut words = vec!["create".to_owned(), "--name".into(), orphan.into()];
        for (key, value) in made["Config"]["Labels"].as_object().unwrap() {
            let value = match key.as_str() {
                "sutler.dev/plugin" => plugin,
                "sutler.dev/application" => application,
                _ => value.as_str().unwrap(),
            };
            words.extend(["--label".to_owned(), format!("{key}={value}")]);
        }
        words.push(RUNNER.into());
        s.docker.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let (success, found) = doctor(&s);
    assert!(success, "orphans are warnings: {found:?}");
    let found = mine(&found);
    assert_eq!(found.len(), 2, "{found:?}");
    for (finding, why) in found.iter().zip(["no operation of this ledger", "its plugin other is not in"]) {
        assert_eq!(finding["level"], "warning");
        assert!(finding["what"].as_str().unwrap().contains(why), "{finding}");
    }
    // What it says to do, does it.
    for finding in &found {
        let todo = finding["todo"].as_str().unwrap();
        let words: Vec<&str> = todo.split_once(": docker ").unwrap().1.split(' ').collect();
        s.docker.run(&words);
    }
    assert_eq!(mine(&doctor(&s).1), [Value::Null; 0]);
    // One whose application was deleted, and that came back.
    s.ok("/apply", &s.request().delete(settings()).body()).await;
    let mut words = vec!["create".to_owned(), "--name".into(), name.clone()];
    for (key, value) in made["Config"]["Labels"].as_object().unwrap() {
        words.extend(["--label".to_owned(), format!("{key}={}", value.as_str().unwrap())]);
    }
    words.push(RUNNER.into());
    s.docker.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let (_, found) = doctor(&s);
    assert!(
        found.iter().any(|f| f["what"].as_str().unwrap().contains("deleted its application")),
        "{found:?}"
    );
    s.clear();
    // A daemon that is not there.
    s.config = s.config.replace(&s.docker.socket.display().to_string(), "/no/such/docker.sock");
    let (success, found) = doctor(&s);
    assert!(!success && found[0]["level"] == "wrong", "{found:?}");
    assert!(found[0]["what"].as_str().unwrap().contains("socket is not there"), "{found:?}");
}
