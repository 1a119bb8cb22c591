//! The host's process is killed when one of its requests reaches the API server, before or after its effect. Another
//! host on the same ledger is asked the same: it ends right, and no hook ran twice.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Caller, renewed};
use sutler_testkit::{Dice, RealWorld, SutlerProcess, real};

use super::model::{Deed, Standing};
use super::operations::uuid;
use super::site::Site;
use crate::seven::follow;

const ABREAST: usize = 4;

/// A host that died is succeeded soon.
const OPERATIONS: &str = "takeover-after-seconds = 1\npoll-milliseconds = 100\nfirst-backoff-milliseconds = 100\n\
                          answer-within-milliseconds = 200";

const CHART: &str = "counted-hooks";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
}

const WHATS: [What; 4] = [What::Install, What::Upgrade, What::Rollback, What::Uninstall];

impl What {
    fn deed(self) -> Deed {
        let x = |n: u8| (CHART.to_owned(), format!("v{n}"));
        match self {
            Self::Install => Deed::Install(x(1).0, x(1).1),
            Self::Upgrade => Deed::Upgrade(x(2).0, x(2).1),
            Self::Rollback => Deed::Rollback(1, x(1).0, x(1).1),
            Self::Uninstall => Deed::Uninstall,
        }
    }

    /// The revision that it ends with.
    const fn revision(self) -> Option<u64> {
        match self {
            Self::Install => Some(1),
            Self::Upgrade => Some(2),
            Self::Rollback => Some(3),
            Self::Uninstall => None,
        }
    }

    /// Its hooks' Jobs.
    fn hooks(self) -> [String; 2] {
        let event = match self {
            Self::Install => "install",
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
            Self::Uninstall => "delete",
        };
        ["pre", "post"].map(|when| format!("app-{when}-{event}"))
    }
}

/// A release's namespace where the deed is the next thing to do, and the host that brought it there.
async fn ready(site: &Site, ns: &str, what: What) -> SutlerProcess {
    site.namespace(ns).await;
    let host = site.host().await;
    for before in WHATS.into_iter().take_while(|w| *w != what) {
        let answer = Caller::new(&host.url).apply(&before.deed().body(site, ns)).await;
        assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    }
    host
}

/// The Jobs that there have been, by name and uid, as the API server answered.
fn jobs(site: &Site, from: usize) -> BTreeMap<String, BTreeSet<String>> {
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for passed in site.proxy.passed_since(from) {
        let path = passed.line.split(['?', ' ']).nth(1).unwrap_or_default();
        let made = passed.writes() && !passed.line.starts_with("DELETE") && !passed.uid.is_empty();
        if let (true, Some((_, name))) = (made, path.split_once("/jobs/")) {
            out.entry(name.to_owned()).or_default().insert(passed.uid);
        }
    }
    out
}

/// Whether the host died of it: an operation may have fewer requests.
async fn case(world: &RealWorld, what: What, n: usize, fault: Fault) -> Result<bool, String> {
    let site = Site::start(world.clone(), OPERATIONS).await;
    let ns = format!("killed-{}", uuid());
    let mut host = ready(&site, &ns, what).await;
    let from = site.proxy.count();
    site.proxy.fail_nth_matching(n, "", fault);
    let body = what.deed().body(&site, &ns);
    let url = host.url.clone();
    let killed = tokio::select! {
        answer = follow(&url, &body) => {
            answer.map_err(|e| format!("the host ended by itself: {e}"))?;
            false
        }
        () = site.proxy.until_held(1) => true,
    };
    host.kill().await;
    let mut heir = site.host().await;
    let answer = follow(&heir.url, &body).await.map_err(|e| format!("the next host: {e}"))?;
    if answer.json["outcome"] != "succeeded" {
        return Err(format!("it came to {}", answer.text));
    }
    let before = Standing { release: Some((CHART.into(), String::new())), configured: None };
    what.deed().done(&before).check(&site, &ns).await?;
    let last = site.revisions(&ns).await.last().map(|r| r.number);
    if last != what.revision() {
        return Err(format!("it ended with revision {last:?}"));
    }
    let ran: BTreeMap<String, usize> =
        jobs(&site, from).into_iter().map(|(name, uids)| (name, uids.len())).collect();
    if ran != what.hooks().map(|name| (name, 1)).into() {
        return Err(format!("hooks ran {ran:?}"));
    }
    heir.kill().await;
    site.drop_namespace(&ns).await;
    Ok(killed)
}

/// How many requests it makes of itself.
async fn requests(world: &RealWorld, what: What) -> usize {
    let site = Site::start(world.clone(), OPERATIONS).await;
    let ns = format!("killed-{}", uuid());
    let host = ready(&site, &ns, what).await;
    let from = site.proxy.count();
    let answer = follow(&host.url, &what.deed().body(&site, &ns)).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    site.drop_namespace(&ns).await;
    site.proxy.count() - from
}

async fn points(world: &RealWorld) -> Vec<(What, usize, Fault)> {
    if std::env::var("SUTLER_KILL_POINTS").is_ok_and(|p| p == "all") {
        let mut all = Vec::new();
        for what in WHATS {
            let last = requests(world, what).await;
            let each = (1..=last).flat_map(|n| [(what, n, Fault::Hold), (what, n, Fault::HoldAnswer)]);
            all.extend(each);
        }
        return all;
    }
    let mut dice = Dice(crate::real_helm::clock());
    let fixed = [(9, Fault::HoldAnswer), (12, Fault::Hold), (14, Fault::HoldAnswer), (8, Fault::Hold)];
    let new = WHATS.map(|what| {
        let n = 1 + dice.roll(20) as usize;
        (what, n, if dice.roll(2) == 0 { Fault::Hold } else { Fault::HoldAnswer })
    });
    WHATS.into_iter().zip(fixed).map(|(what, (n, fault))| (what, n, fault)).chain(new).collect()
}

/// `SUTLER_KILL_POINTS=all` for every one.
#[tokio::test(flavor = "multi_thread")]
async fn real_hosts_killed_at_requests_of_a_release() {
    let Some(world) = real() else { return };
    let points = points(&world).await;
    if points.len() < 10 {
        println!("killed at {points:?}");
    }
    let each = points.into_iter().map(|(what, n, fault)| {
        let world = &world;
        async move { ((what, n, fault), case(world, what, n, fault).await) }
    });
    let came: Vec<_> = futures::stream::iter(each).buffer_unordered(ABREAST).collect().await;
    let bad: Vec<_> = came.iter().filter(|(_, came)| came.is_err()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let kills = came.iter().filter(|(_, came)| *came == Ok(true)).count();
    assert!(kills > 3, "only {kills} hosts died");
    eprintln!(
        "figure: {kills} hosts killed at their requests, each operation ended right, each hook ran once"
    );
}

/// helm is held up in the middle of an upgrade: the release is its own until somebody decides otherwise, also when it
/// died.
#[tokio::test(flavor = "multi_thread")]
async fn real_a_release_that_helm_holds_is_left_alone() {
    let Some(world) = real() else { return };
    let site = Site::start(world, &format!("{OPERATIONS}\nattempts = 2")).await;
    let ns = format!("held-{}", uuid());
    let host = ready(&site, &ns, What::Upgrade).await;
    let (archive, values) = site.files(CHART, &json!({"x": "helm"}));
    site.proxy.fail_nth_matching(1, &format!("PATCH /api/v1/namespaces/{ns}/configmaps/app-a"), Fault::Hold);
    let mut helm = tokio::process::Command::new(&site.world.helm)
        .args(["upgrade", "app", &archive, "-f", &values, "-n", &ns])
        .env("KUBECONFIG", site.same_way().kubeconfig)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    tokio::select! {
        ended = helm.wait() => panic!("helm was not held up: {ended:?}"),
        () = site.proxy.until_held(1) => {}
    }
    let held = site.revisions(&ns).await;
    assert_eq!(held.last().map(|r| r.status.as_str()), Some("pending-upgrade"), "{held:?}");
    let body: Value = What::Upgrade.deed().body(&site, &ns);
    for alive in [true, false] {
        if !alive {
            helm.kill().await.unwrap();
        }
        let from = site.proxy.count();
        let answer = Caller::new(&host.url).apply(&renewed(&body)).await;
        assert_eq!(answer.json["code"], "pending", "{}", answer.text);
        assert!(answer.text.contains("roll back or uninstall"), "{}", answer.text);
        let wrote: Vec<_> = site.proxy.passed_since(from).into_iter().filter(|p| p.writes()).collect();
        assert!(wrote.is_empty(), "{wrote:?}");
        assert_eq!(site.revisions(&ns).await, held, "alive: {alive}");
    }
    let answer = Caller::new(&host.url).apply(&What::Uninstall.deed().body(&site, &ns)).await;
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    Standing::default().check(&site, &ns).await.unwrap();
    site.drop_namespace(&ns).await;
}
