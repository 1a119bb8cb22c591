//! A host that is killed at every point: what was accepted is brought to its end, and nothing is done twice.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_jobs::FAILPOINTS as IN_JOBS;
use sutler_ledger::{FAILPOINTS as IN_LEDGER, Happened, Ledger, Status};
use sutler_testkit::SutlerProcess;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::Caller;
use sutler_testkit::postgres::Server;

use crate::seven::{self, CREATION, QUICK};
use crate::support::Site;

/// Worlds at once: most of a world's time is waiting for leases to run out.
const ABREAST: usize = 12;
/// A life that gets nowhere has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a world's ledger is on.
#[derive(Clone, Copy)]
pub(crate) enum On {
    Sqlite,
    Postgres(&'static Server),
}

/// How one host of a world ends.
#[derive(Debug, Clone)]
enum Kill {
    /// At the n-th passage of a point of its own code.
    At(&'static str, u32),
    /// So long after it began to listen.
    After(Duration),
    /// While the n-th creation from then is held up so.
    During(usize, Fault),
}

/// What a world went through.
#[derive(Default)]
struct Lived {
    /// By the kills of the plan, in order: whether the host died of it.
    fired: Vec<bool>,
    attempts: usize,
    claims: usize,
}

/// One host until its end: of the kill, or, where the work is done before that, after it.
async fn life(site: &Site, body: &Value, kill: &Kill) -> bool {
    let text;
    let env = match kill {
        Kill::At(name, n) => {
            text = format!("{name}:{n}");
            vec![("SUTLER_FAILPOINT", text.as_str())]
        }
        _ => vec![],
    };
    let held = site.cluster.held();
    if let Kill::During(n, fault) = kill {
        site.cluster.fail_nth_matching(*n, CREATION, *fault);
    }
    let Ok(mut host) = SutlerProcess::try_start(&site.config, &env).await else { return true };
    let url = host.url.clone();
    let killed = tokio::select! {
        () = host.ended() => return true,
        () = due(site, kill, held) => true,
        answered = seven::follow(&url, body) => answered.is_err(),
    };
    if killed && matches!(kill, Kill::At(..)) {
        // Its caller noticed first.
        host.ended().await;
        return true;
    }
    host.kill().await;
    killed
}

async fn due(site: &Site, kill: &Kill, held: usize) {
    match kill {
        Kill::At(..) => std::future::pending().await,
        Kill::After(time) => tokio::time::sleep(*time).await,
        Kill::During(..) => site.cluster.until_held(held + 1).await,
    }
}

/// Hosts die one after the other, the last one lives; then everything must be true.
async fn survives(on: On, settings: Value, kills: &[Kill]) -> Result<Lived, String> {
    let (site, url) = match on {
        On::Sqlite => (seven::site(QUICK).await, None),
        On::Postgres(server) => {
            let url = server.database().await;
            (seven::shared_site(QUICK, &url).await, Some(url))
        }
    };
    let body = seven::request(settings).body();
    let mut lived = Lived::default();
    for kill in kills {
        lived.fired.push(life(&site, &body, kill).await);
    }
    let mut host = site.host().await;
    let answer = seven::follow(&host.url, &body).await.map_err(|e| format!("the last host: {e:?}"))?;
    if answer.json["outcome"] != "succeeded" {
        return Err(format!("it came to {}", answer.text));
    }
    if answer.json["resources"][0]["outputs"]["made"] != json!(seven::names("main")) {
        return Err(format!("outputs: {}", answer.text));
    }
    let again = seven::follow(&host.url, &body).await.map_err(|e| format!("the last host: {e:?}"))?;
    if again.json != answer.json {
        return Err(format!("answered {} and then {}", answer.text, again.text));
    }
    host.kill().await;
    seven::once(&site.cluster, &["main"])?;
    let ledger: Box<dyn Ledger> = match url {
        None => Box::new(seven::ledger(site.folder.path())),
        Some(url) => Box::new(seven::shared_ledger(site.folder.path(), &url).await),
    };
    let (job, events) = seven::only(&*ledger).await?;
    seven::completed(&job)?;
    let count = |name: &str| events.iter().filter(|e| e.what.name() == name).count();
    (lived.attempts, lived.claims) = (count("step-started"), count("claimed"));
    Ok(lived)
}

/// An operation that waits in its fifth step is cancelled; the host that takes it back dies of `kill`, the next one
/// ends it.
async fn taken_back(kill: Kill) -> Result<(), String> {
    let site = seven::site(QUICK).await;
    seven::gate(&site.cluster, "closed");
    let body = seven::request(seven::deed("fifth", "wait-at-gate")).body();
    let mut host = site.host().await;
    let id = seven::waiting(&Caller::new(&host.url), &body).await;
    host.kill().await;
    seven::cancel(&site, &id).await;
    if !life(&site, &body, &kill).await {
        return Err("the host lived".into());
    }
    let mut host = site.host().await;
    let answer = seven::follow(&host.url, &body).await.map_err(|e| e.to_string())?;
    if answer.json["code"] != "cancelled" {
        return Err(format!("it came to {}", answer.text));
    }
    host.kill().await;
    let made = seven::created(&site.cluster);
    if made.len() != 4 || made.values().any(|n| *n != 1) {
        return Err(format!("created: {made:?}"));
    }
    let left = |name: &&String| site.cluster.object("ConfigMap", "t-acme", name).is_some();
    if let Some(left) = made.keys().find(left) {
        return Err(format!("{left} is left"));
    }
    let (job, _) = seven::only(&seven::ledger(site.folder.path())).await?;
    match job.standing.status {
        Status::Cancelled => Ok(()),
        other => Err(format!("it is {other}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_takes_work_back() {
    let points = ["jobs-before-call", "jobs-after-call", "jobs-before-write", "jobs-after-write"];
    let kills = points.into_iter().flat_map(|p| [1, 3, 5].map(|n| Kill::At(p, n)));
    let each = kills.map(|kill| async move { (kill.clone(), taken_back(kill).await) });
    let came: Vec<_> = futures::stream::iter(each).buffer_unordered(ABREAST).collect().await;
    let bad: Vec<_> = came.iter().filter(|(_, came)| came.is_err()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Many worlds, some at once. Answers what became of each, in any order.
async fn worlds<T: Clone + std::fmt::Debug>(
    on: On,
    all: Vec<T>,
    plan: impl Fn(&T) -> (Value, Vec<Kill>),
) -> Vec<(T, Lived)> {
    let each = all.into_iter().map(|which| {
        let (settings, kills) = plan(&which);
        async move {
            let over = Err(format!("nothing within {PATIENCE:?}"));
            let came =
                tokio::time::timeout(PATIENCE, survives(on, settings.clone(), &kills)).await.unwrap_or(over);
            (which, settings, kills, came)
        }
    });
    let mut all = futures::stream::iter(each).buffer_unordered(ABREAST);
    let (mut good, mut bad) = (vec![], vec![]);
    while let Some((which, settings, kills, came)) = all.next().await {
        match came {
            Ok(lived) => good.push((which, lived)),
            Err(why) => {
                eprintln!("{which:?}: {why}\n  settings {settings}, kills {kills:?}");
                bad.push(which);
            }
        }
    }
    assert!(bad.is_empty(), "{} worlds survived, these did not: {bad:?}", good.len());
    good
}

/// The passages of a point at which hosts die. An operation takes ten calls and as many writes, and is claimed once
/// after it was parked; the ledger has other writes between.
fn passages(name: &str) -> Vec<u32> {
    match name {
        "jobs-before-begin" | "jobs-after-begin" | "jobs-after-claim" => vec![1],
        of_jobs if of_jobs.starts_with("jobs-") => (1..=10).collect(),
        _ => vec![1, 2, 3, 4, 6, 9, 13],
    }
}

/// A host dies at each passage of each point of the ledger's code and of the jobs'.
pub(crate) async fn at_every_point(on: On, of_ledger: &[&'static str]) {
    let points = of_ledger.iter().chain(IN_JOBS).copied();
    let all = points.flat_map(|name| passages(name).into_iter().map(move |n| (name, n))).collect();
    let lived = worlds(on, all, |(name, n)| (json!({}), vec![Kill::At(name, *n)])).await;
    let alive: Vec<_> = lived.iter().filter(|(_, l)| l.fired != [true]).map(|(which, _)| which).collect();
    assert!(alive.is_empty(), "nobody died at {alive:?}; is the binary one with failpoints?");
    eprintln!("figure: {} operations survived a death each", lived.len());
}

/// Hosts die as each seed says.
pub(crate) async fn anywhere(on: On) {
    let seeds = seeds();
    eprintln!("seeds {:?} to {:?}; replay one by SUTLER_CRASH_SEED", seeds.first(), seeds.last());
    let lived = worlds(on, seeds, |seed| chance(*seed)).await;
    let deaths: usize = lived.iter().map(|(_, l)| l.fired.iter().filter(|f| **f).count()).sum();
    eprintln!("figure: {} operations survived {deaths} deaths", lived.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_point_of_its_own_code() {
    at_every_point(On::Sqlite, IN_LEDGER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_again_and_again() {
    anywhere(On::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_each_change() {
    let faults = [Fault::Hold, Fault::HoldAnswer, Fault::Late(Duration::from_millis(4000))];
    let all = (1..=7).flat_map(|n| faults.map(|f| (n, f))).collect();
    let lived = worlds(On::Sqlite, all, |(n, fault)| (json!({}), vec![Kill::During(*n, *fault)])).await;
    for ((n, fault), l) in &lived {
        assert_eq!(l.fired, [true], "{n} {fault:?}");
        assert!(l.claims >= 2 && l.attempts >= 11, "{n} {fault:?}: {} claims", l.claims);
    }
}

/// Up to three hosts that die somewhere, and settings that ask for more or less.
fn chance(seed: u64) -> (Value, Vec<Kill>) {
    let mut state = seed;
    // SplitMix64.
    let mut below = move |n: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    };
    let names: Vec<&'static str> = IN_LEDGER.iter().chain(IN_JOBS).copied().collect();
    let steps = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"];
    let settings =
        if below(2) == 0 { json!({}) } else { seven::deed(steps[below(steps.len())], "fail-once") };
    let millis = |n: usize| Duration::from_millis(n as u64);
    let kills = (0..=below(3))
        .map(|_| match below(4) {
            0 => Kill::At(names[below(names.len())], 1 + u32::try_from(below(24)).unwrap()),
            1 => Kill::After(millis(below(4000))),
            2 => Kill::During(1 + below(5), if below(2) == 0 { Fault::Hold } else { Fault::HoldAnswer }),
            _ => Kill::During(1 + below(5), Fault::Late(millis(below(6000)))),
        })
        .collect();
    (settings, kills)
}

/// A few seeds that are always the same and a new one, or what `SUTLER_CRASH_SEED` or `SUTLER_CRASH_SEEDS` say.
fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let new = std::time::UNIX_EPOCH.elapsed().map_or(7, |d| d.as_millis() as u64);
    match (number("SUTLER_CRASH_SEED"), number("SUTLER_CRASH_SEEDS")) {
        (Some(one), _) => vec![one],
        (None, Some(many)) => (new..new + many).collect(),
        (None, None) => (1..=6).chain([new]).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_kills_its_host_each_time_runs_out_of_attempts() {
    let site = seven::site(&format!("{QUICK}attempts = 3\n")).await;
    let body = seven::request(json!({})).body();
    let mut deaths = 0;
    let answer = loop {
        let env = [("SUTLER_FAILPOINT", "jobs-before-call:1")];
        let mut host = SutlerProcess::start_unready(&site.config, &env).await;
        match seven::follow(&host.url, &body).await {
            Ok(answer) => break answer,
            Err(_) => host.ended().await,
        }
        deaths += 1;
        assert!(deaths <= 3, "it goes on killing hosts");
    };
    assert_eq!(deaths, 3);
    assert_eq!(
        (answer.status, answer.json["outcome"].as_str(), answer.json["code"].as_str()),
        (200, Some("failed"), Some("attempts-used-up")),
        "{}",
        answer.text
    );
    assert_eq!(seven::created(&site.cluster).len(), 0);
    let (job, events) = seven::only(&seven::ledger(site.folder.path())).await.unwrap();
    assert_eq!(job.standing.status, Status::Failed);
    let last = events.last().map(|e| e.what.clone());
    assert_eq!(last, Some(Happened::Failed { code: "attempts-used-up".into() }));
}
