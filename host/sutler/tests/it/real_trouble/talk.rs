//! Watches and streams that break off again and again: whoever follows a log through sutler misses no line and hears
//! none twice.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::Value;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Caller, client};
use sutler_testkit::{Dice, real};

use super::model::Deed;
use super::operations::uuid;
use super::site::{Site, TALKING};

const LINES: usize = 100;

fn number(line: &str) -> Option<usize> {
    let line: Value = serde_json::from_str(line).ok()?;
    line["line"].as_str()?.rsplit_once("line ")?.1.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_logs_are_followed_through_cuts() {
    let Some(world) = real() else { return };
    let site = Site::start(world, "poll-milliseconds = 100").await;
    let ns = format!("talk-{}", uuid());
    site.namespace(&ns).await;
    let host = site.host().await;
    let body = Deed::Install(TALKING.into(), "line".into()).body(&site, &ns);
    let answer = Caller::new(&host.url).apply(&body).await;
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    let mut dice = Dice(crate::real_helm::clock());
    site.proxy.meet(move |line| match (line.contains("watch="), line.contains("follow=")) {
        (false, false) => Fault::None,
        _ => Fault::Cut(100 + dice.roll(1200) as usize),
    });
    let url = format!(
        "{}/logs?kind=tool&type=release&tenant={ns}&application=orders&environment=prod&follow=true",
        host.url
    );
    let began = Instant::now();
    let answer = client().get(url).header("accept", "application/x-ndjson").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut stream, mut text) = (answer.bytes_stream(), String::new());
    while text.lines().filter_map(number).count() < LINES {
        let piece = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
        let Ok(Some(Ok(piece))) = piece else { panic!("it ended: {piece:?} after\n{text}") };
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    let numbers: Vec<usize> = text.lines().filter_map(number).take(LINES).collect();
    assert_eq!(numbers, (0..LINES).collect::<Vec<_>>());
    let cut = |what: &str| {
        let all = site.proxy.passed_since(0);
        all.iter().filter(|p| p.line.contains(what) && matches!(p.fault, Fault::Cut(_))).count()
    };
    let (watches, streams) = (cut("watch="), cut("follow="));
    assert!(watches > 0 && streams > 2, "{watches} watches and {streams} streams were cut");
    let most = 20 + 2 * began.elapsed().as_secs() as usize;
    assert!(
        watches <= most,
        "a watch that is cut at once is begun {watches} times, at most {most} is polite"
    );
    eprintln!("figure: {LINES} lines followed through {watches} watches and {streams} streams that were cut");
    site.drop_namespace(&ns).await;
}
