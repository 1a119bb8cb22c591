//! Each small chart through its life, crosswise: what one tool made the other one changes, and both end alike.

use std::sync::Arc;

use futures::StreamExt as _;
use sutler_testkit::real;

use super::charts::{Chart, all};
use super::rig::Rig;
use super::state::{assert_same, state};

/// Ours first in one namespace, the binary first in the other one.
async fn life(rig: &Rig, chart: &Chart) {
    let name = &chart.name;
    let (ours, theirs) = (format!("a-{name}"), format!("b-{name}"));
    let reference = rig.push(chart);
    rig.namespace(&ours);
    rig.namespace(&theirs);
    let same = |what: &str| assert_same(&state(rig, &ours), &state(rig, &theirs), &format!("{name}: {what}"));

    rig.upgrade(&reference, &ours, &chart.values, 1).await.unwrap();
    rig.binary_with(&theirs, "install", chart, &chart.values, &[]).unwrap();
    same("install");
    assert!(rig.binary(&ours, &["list"]).unwrap().contains("deployed"), "{name}");
    assert!(rig.binary(&ours, &["status", "app"]).unwrap().contains("STATUS: deployed"), "{name}");
    let all = |ns: &str| {
        let text = rig.binary(ns, &["get", "all", "app"]).unwrap().replace(ns, "NS");
        text.lines().filter(|l| !l.starts_with("LAST DEPLOYED")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(all(&ours), all(&theirs), "{name}: get all");

    rig.binary_with(&ours, "upgrade", chart, &chart.changed(2), &[]).unwrap();
    rig.upgrade(&reference, &theirs, &chart.changed(2), 2).await.unwrap();
    same("upgrade by the other");
    if chart.tests() {
        rig.binary(&ours, &["test", "app"]).unwrap();
        rig.test(&theirs, 3).await.unwrap();
        same("test");
    }
    rig.rollback(&ours, 1, 4).await.unwrap();
    rig.binary(&theirs, &["rollback", "app", "1"]).unwrap();
    same("rollback");
    assert!(rig.binary(&ours, &["history", "app"]).unwrap().contains("Rollback to 1"), "{name}");
    rig.binary(&ours, &["uninstall", "app"]).unwrap();
    rig.uninstall(&theirs, 5).await.unwrap();
    same("uninstall");
    rig.drop_namespace(&ours);
    rig.drop_namespace(&theirs);
}

/// A quarter of them, another one each time; those with hooks always.
fn sample(charts: &mut Vec<Chart>) {
    let mut at = super::clock() as usize % 4;
    charts.retain(|c| {
        at += 1;
        at.is_multiple_of(4) || c.name == "every-event"
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn real_charts_live_alike_under_both_tools() {
    let Some(world) = real() else { return };
    let rig = Arc::new(Rig::start(world, None).await);
    let mut charts: Vec<Chart> = all().into_iter().filter(|c| c.fails.is_none()).collect();
    match std::env::var("SUTLER_CHART").ok().as_deref() {
        Some("all") => {}
        Some(one) => charts.retain(|c| c.name == one),
        None => sample(&mut charts),
    }
    let names: Vec<&str> = charts.iter().map(|c| c.name.as_str()).collect();
    println!("SUTLER_CHART, one by one or `all`: {}", names.join(", "));
    assert!(!charts.is_empty());
    let charts = charts.into_iter();
    let lives = charts.map(|chart| {
        let rig = rig.clone();
        async move {
            let name = chart.name.clone();
            let life = tokio::spawn(async move { life(&rig, &chart).await });
            life.await.err().map(|e| {
                let panic = e.into_panic();
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                format!("{name}: {}", text.chars().take(6000).collect::<String>())
            })
        }
    });
    let wrong: Vec<String> =
        futures::stream::iter(lives).buffer_unordered(3).filter_map(|e| async { e }).collect().await;
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n\n"));
}
