//! What `/metrics` says after work that is known.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_ledger::Happened;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Caller, SampleRequest};

use crate::seven::{self, CREATION, QUICK, deed, gate, waiting};

fn body(resource: &str, settings: Value) -> Value {
    SampleRequest::new("tool/seven").change(resource, "create", settings).body()
}

/// The sum of all lines of a metric whose labels hold `label`.
fn sum(text: &str, name: &str, label: &str) -> f64 {
    let line = |l: &str| {
        let (metric, value) = l.rsplit_once(' ')?;
        let (found, labels) = metric.split_once('{').unwrap_or((metric, ""));
        (found == name && labels.contains(label)).then(|| value.parse::<f64>().ok()).flatten()
    };
    text.lines().filter_map(line).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_steps_wakes_and_lost_leases_are_counted() {
    let site = seven::site(QUICK).await;
    let mut host = site.host().await;
    let (api, admin) = (Caller::new(&host.url), Caller::new(host.admin_url.clone().unwrap()));
    gate(&site.cluster, "closed");
    for (resource, settings, outcome) in
        [("good", json!({}), "succeeded"), ("bad", deed("third", "refuse"), "failed")]
    {
        let answer = seven::follow(&host.url, &body(resource, settings)).await.unwrap();
        assert_eq!(answer.json["outcome"], outcome, "{}", answer.text);
    }
    assert_eq!(sum(&admin.get("/metrics").await.text, "sutler_leases_lost_total", ""), 0.0);
    // A host that sleeps beyond the end of its lease loses it, and takes the job up again.
    site.cluster.fail_nth_matching(2, CREATION, Fault::HoldAnswer);
    assert_eq!(api.post("/apply", &body("slept", json!({}))).await.status, 202);
    site.cluster.until_held(1).await;
    host.signal("STOP").await;
    host.stopped().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    host.signal("CONT").await;
    let answer = seven::follow(&host.url, &body("slept", json!({}))).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    waiting(&api, &body("waits", deed("second", "wait-at-gate"))).await;
    // The jobs are counted now and then.
    let end = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = admin.get("/metrics").await.text;
        let of = |status: &str| sum(&text, "sutler_jobs", &format!("status=\"{status}\""));
        if ["completed", "failed", "running", "queued", "cancelled"].map(of) == [2.0, 1.0, 1.0, 0.0, 0.0] {
            break text;
        }
        assert!(Instant::now() < end, "{text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert!(sum(&text, "sutler_leases_lost_total", "") >= 1.0, "{text}");
    let steps = |outcome: &str| {
        let label = format!("outcome=\"{outcome}\"");
        sum(&text, "sutler_step_seconds_count", &label)
    };
    // Of the good one seven, of the one that slept as many.
    assert_eq!((steps("done"), steps("failed")), (2.0, 1.0), "{text}");
    assert!(steps("next") >= 12.0 && steps("wait") >= 1.0, "{text}");
    assert!(sum(&text, "sutler_step_seconds_sum", "pair=\"tool/seven\"") > 0.0);
    let lags = sum(&text, "sutler_wake_lag_seconds_count", "");
    assert!(sum(&text, "sutler_wake_lag_seconds_sum", "") < lags * 10.0, "{text}");
    assert!(host.stop().await.success());
    let jobs = seven::histories(&seven::ledger(site.folder.path())).await.unwrap();
    // A job's first token comes with the job; every other one is a claim that was measured.
    let claims = |(_, events): &(_, Vec<sutler_ledger::Event>)| {
        events.iter().filter(|e| matches!(e.what, Happened::Claimed { token, .. } if token > 1)).count()
    };
    let all = jobs.iter().map(claims).sum::<usize>();
    assert!(lags >= 2.0 && lags <= all as f64, "{lags} wakes were measured, {all} were made");
}
