//! Logs of an application on Docker, by the same route as those of pods.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_testkit::http::client;

use super::site::{Site, settings};

impl Site {
    fn url(&self, query: &str) -> String {
        format!(
            "{}/logs?kind=deployment&type=ksml&tenant={}&application=orders&environment=prod&{query}",
            self.host.url, self.tenant
        )
    }

    async fn lines(&self, query: &str) -> Vec<String> {
        let answer = client().get(self.url(query)).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.text().await.unwrap().lines().map(str::to_owned).collect()
    }
}

/// What Docker itself shows, each line with its time.
fn judged(s: &Site, name: &str) -> Vec<String> {
    s.docker.run(&["logs", "--timestamps", name]).lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_logs_are_followed_over_a_restart_each_line_once() {
    let Some(s) = Site::start("docker-follow", "").await else { return };
    s.create(settings()).await;
    let (name, _) = s.container();
    let url = s.url("follow=true&timestamps=true&pod=") + &name + "&container=" + &name;
    let answer = client().get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut body, mut text) = (answer.bytes_stream(), String::new());
    let mut killed = false;
    // Until the run after the kill has said something.
    while text.matches("INFO started").count() < 2 || !text.trim_end().ends_with("INFO line 2") {
        let piece = tokio::time::timeout(Duration::from_secs(30), body.next()).await;
        text.push_str(&String::from_utf8_lossy(&piece.expect("a line within 30 s").unwrap().unwrap()));
        if !killed && text.contains("INFO line 2\n") {
            s.docker.kill_process(&name);
            killed = true;
        }
    }
    let got: Vec<&str> = text.lines().collect();
    let want = judged(&s, &name);
    assert_eq!(got, want[..got.len()], "each line once, and in order");
    drop(body);
    s.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_logs_are_followed_over_a_replacement() {
    let Some(s) = Site::start("docker-replace", "").await else { return };
    s.create(settings()).await;
    let answer = client().get(s.url("follow=true")).send().await.unwrap();
    let mut body = answer.bytes_stream();
    let mut larger = settings();
    larger["size"] = json!("S");
    s.ok("/apply", &s.request().update(larger, settings()).body()).await;
    let mut text = String::new();
    while text.matches("INFO started").count() < 2 {
        let piece = tokio::time::timeout(Duration::from_secs(30), body.next()).await;
        text.push_str(&String::from_utf8_lossy(&piece.expect("a line within 30 s").unwrap().unwrap()));
    }
    assert!(text.contains("INFO stopped") && !text.contains("gap"), "{text}");
    drop(body);
    s.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_logs_have_their_options() {
    let Some(s) = Site::start("docker-options", "").await else { return };
    s.create(settings()).await;
    let (name, _) = s.container();
    while judged(&s, &name).len() < 5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    s.docker.run(&["stop", &name]);
    let all = judged(&s, &name);
    let text = |line: &String| line.split_once(' ').unwrap().1.to_owned();
    let prefix = format!("[{name}/{name}] ");
    let shown: Vec<String> = all.iter().map(|l| format!("{prefix}{}", text(l))).collect();
    assert_eq!(s.lines("").await, shown);
    assert_eq!(s.lines("tailLines=2").await, shown[shown.len() - 2..]);
    assert_eq!(s.lines("timestamps=true").await[0], format!("{prefix}{}", all[0]));
    // A time within a second: what is before it is not shown.
    let third = all[2].split_once(' ').unwrap().0;
    assert_eq!(s.lines(&format!("sinceTime={third}")).await, shown[2..]);
    assert_eq!(s.lines("sinceSeconds=3600").await, shown);
    let first = text(&all[0]);
    assert_eq!(s.lines(&format!("limitBytes={}", first.len() + 1)).await, shown[..1]);
    // What follows a container that does not run ends.
    let followed = tokio::time::timeout(Duration::from_secs(30), s.lines("follow=true")).await;
    assert_eq!(followed.expect("it ends"), shown);
    let previous = client().get(s.url("previous=true")).send().await.unwrap();
    let refused: Value = previous.json().await.unwrap();
    assert_eq!(refused["error"]["code"], "not-supported", "{refused}");
    let other = client().get(s.url("pod=other")).send().await.unwrap();
    assert_eq!(other.status(), 404);
    s.clear();
}
