//! Several hosts on one PostgreSQL: whatever becomes of some of them or of the server, each operation has one end and
//! each change is made once.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use sutler_ledger::{Happened, POSTGRES_FAILPOINTS};
use sutler_testkit::SutlerProcess;
use sutler_testkit::cluster::Fault;
use sutler_testkit::http::{Answered, Caller, SampleRequest, renewed};
use sutler_testkit::postgres::{Cut, Proxy, Server};

use crate::crash::{self, On};
use crate::seven::{self, CREATION, QUICK, deed, gate};
use crate::support::Site;

/// A database of its own, and a site for hosts that share it.
async fn site(server: &Server) -> (Site, String) {
    let url = server.database().await;
    (seven::shared_site(QUICK, &url).await, url)
}

/// The holders that claimed the only job, in order, after the usual checks of its end.
async fn ended_well(site: &Site, url: &str) -> Result<Vec<String>, String> {
    seven::once(&site.cluster, &["main"])?;
    let (job, events) = seven::only(&seven::shared_ledger(site.folder.path(), url).await).await?;
    seven::completed(&job)?;
    let holders = events.into_iter().filter_map(|e| match e.what {
        Happened::Claimed { holder, .. } => Some(holder),
        _ => None,
    });
    Ok(holders.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_killed_at_every_point_of_its_own_code() {
    crash::at_every_point(On::Postgres(Server::shared()), POSTGRES_FAILPOINTS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_killed_anywhere_again_and_again() {
    crash::anywhere(On::Postgres(Server::shared())).await;
}

/// Where a host is paused.
#[derive(Debug, Clone, Copy)]
enum Pause {
    /// At the n-th passage of a point of its own code.
    At(&'static str, u32),
    /// While the answer to its n-th change is on its way.
    During(usize),
}

/// A host is paused beyond its lease, another one ends its work, and it wakes up.
async fn paused(server: &Server, pause: Pause) -> Result<(), String> {
    let (site, url) = site(server).await;
    let point = match pause {
        Pause::At(name, n) => format!("stop:{name}:{n}"),
        Pause::During(n) => {
            site.cluster.fail_nth_matching(n, CREATION, Fault::HoldAnswer);
            String::new()
        }
    };
    let mut sleeper = SutlerProcess::start(&site.config, &[("SUTLER_FAILPOINT", &point)]).await;
    let body = seven::request(json!({})).body();
    let asked = tokio::spawn({
        let (url, body) = (sleeper.url.clone(), body.clone());
        async move {
            Caller::new(url)
                .try_send(http::Method::POST, "/apply", "application/json", Some(body.to_string()))
                .await
        }
    });
    if let Pause::During(_) = pause {
        site.cluster.until_held(1).await;
        sleeper.signal("STOP").await;
    }
    sleeper.stopped().await;
    let mut other = site.host().await;
    let answer = seven::follow(&other.url, &body).await.map_err(|e| e.to_string())?;
    if answer.json["outcome"] != "succeeded" {
        return Err(format!("it came to {}", answer.text));
    }
    let before = seven::only(&seven::shared_ledger(site.folder.path(), &url).await).await?;
    sleeper.signal("CONT").await;
    // Its caller hears of the end that another host brought about, and whatever it still wanted has been tried
    // once it has stopped.
    let heard = seven::follow(&sleeper.url, &body).await.map_err(|e| e.to_string())?;
    if heard.json != answer.json {
        return Err(format!("the host that slept says {}", heard.text));
    }
    let _whatever = asked.await;
    sleeper.stop().await;
    if sleeper.events("lease-lost").is_empty() {
        return Err("it did not notice that it had lost its lease".into());
    }
    other.stop().await;
    let after = seven::only(&seven::shared_ledger(site.folder.path(), &url).await).await?;
    if before != after {
        return Err(format!("a stale write: {before:?} became {after:?}"));
    }
    let holders = ended_well(&site, &url).await?;
    if holders.first() == holders.last() {
        return Err(format!("nobody took over: {holders:?}"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_a_paused_host_writes_nothing_once_it_wakes() {
    let at = ["jobs-before-call", "jobs-after-call", "jobs-before-write"];
    let mut all: Vec<Pause> = at.into_iter().flat_map(|p| [2, 4, 8].map(|n| Pause::At(p, n))).collect();
    all.extend([3, 6].map(Pause::During));
    let server = Server::shared();
    let each = all.into_iter().map(|pause| async move { (pause, paused(server, pause).await) });
    let came: Vec<_> = futures::stream::iter(each).buffer_unordered(6).collect().await;
    let bad: Vec<_> = came.iter().filter(|(_, came)| came.is_err()).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_another_host_takes_over_from_a_killed_one() {
    let (site, url) = site(Server::shared()).await;
    let mut hosts = vec![site.host().await, site.host().await, site.host().await];
    let body = seven::request(json!({})).body();
    // Two of three hosts die of the same operation, each in the middle of a change.
    for (n, held) in [(2, 1), (3, 2)] {
        site.cluster.fail_nth_matching(n, CREATION, Fault::HoldAnswer);
        if held == 1 {
            assert_eq!(Caller::new(&hosts[0].url).post("/apply", &body).await.status, 202);
        }
        site.cluster.until_held(held).await;
        let ledger = seven::shared_ledger(site.folder.path(), &url).await;
        let holder = seven::histories(&ledger).await.unwrap()[0].0.lease.clone().unwrap().holder;
        let works = |h: &SutlerProcess| holder.contains(&format!("/{}/", h.id().unwrap()));
        let place = hosts.iter().position(works).unwrap();
        hosts.remove(place).kill().await;
    }
    let mut last = hosts.remove(0);
    let answer = seven::follow(&last.url, &body).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    assert!(last.stop().await.success());
    let mut holders = ended_well(&site, &url).await.unwrap();
    holders.sort();
    holders.dedup();
    assert_eq!(holders.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_restarted_in_the_middle_of_a_step() {
    // Not the shared server: nobody else's connections end.
    let server = Server::start(|_| Vec::new());
    for (stop, n) in [(Server::kill as fn(&Server), 3), (Server::shut_down, 5)] {
        let (site, url) = site(&server).await;
        let (mut one, mut two) = (site.host().await, site.host().await);
        site.cluster.fail_nth_matching(n, CREATION, Fault::Late(Duration::from_millis(500)));
        let body = seven::request(json!({})).body();
        assert_eq!(Caller::new(&one.url).post("/apply", &body).await.status, 202);
        site.cluster.until_held(1).await;
        tokio::task::block_in_place(|| {
            stop(&server);
            server.start_again();
        });
        let answer = seven::follow(&two.url, &body).await.unwrap();
        assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
        for host in [&mut one, &mut two] {
            assert!(host.stop().await.success());
        }
        ended_well(&site, &url).await.unwrap();
    }
}

/// Plans and inspections are answered without a ledger; the rest says when to try again, and then goes.
#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_away_at_the_start_of_a_host() {
    let server = Server::start(|_| Vec::new());
    let (site, url) = site(&server).await;
    server.kill();
    let mut host = site.host().await;
    let api = Caller::new(&host.url);
    let body = seven::request(json!({})).body();
    assert_eq!(api.post("/plan", &body).await.json["outcome"], "planned");
    let mut inspect = body.clone();
    inspect["changes"] = json!([{"resource": "main"}]);
    assert_eq!(api.post("/inspect", &inspect).await.json["outcome"], "inspected");
    let list = api.get("/operations").await;
    for refused in [api.post("/apply", &body).await, list] {
        assert_eq!(refused.status, 503, "{}", refused.text);
        assert!(refused.headers.contains_key("retry-after"));
        assert!(!refused.text.contains("postgres"), "callers hear nothing of the server: {}", refused.text);
    }
    tokio::task::block_in_place(|| server.start_again());
    // The host tries again by itself.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while api.post("/apply", &body).await.status == 503 {
        assert!(std::time::Instant::now() < until, "{:?}", host.log_lines());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let answer = seven::follow(&host.url, &body).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    assert!(host.stop().await.success());
    ended_well(&site, &url).await.unwrap();
}

/// A rolling upgrade: hosts of both versions share the ledger, each takes over from the other, and what one answered
/// the other answers again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs SUTLER_PREVIOUS_BIN; cargo xtask soak builds it"]
async fn real_postgres_the_binary_of_before_beside_this_one() {
    let before = std::env::var_os("SUTLER_PREVIOUS_BIN").map(std::path::PathBuf::from).unwrap();
    let (site, url) = site(Server::shared()).await;
    let started = SutlerProcess::try_start_of(&before, &site.config, &[]).await;
    let mut old = started.unwrap_or_else(|e| panic!("{}: {e}", before.display()));
    old.wait_ready().await;
    let body = |resource: &str, settings| {
        SampleRequest::new("tool/seven").change(resource, "create", settings).body()
    };
    // Begun by the old one on its own schema; the new one brings that forward.
    gate(&site.cluster, "closed");
    let parked = body("parked", deed("fourth", "wait-at-gate"));
    let id = seven::waiting(&Caller::new(&old.url), &parked).await;
    let mut new = site.host().await;
    for (host, other, resource) in [(&old, &new, "old"), (&new, &old, "new")] {
        let body = body(resource, json!({}));
        let answer = seven::follow(&host.url, &body).await.unwrap();
        assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
        let again = seven::follow(&other.url, &body).await.unwrap();
        assert_eq!((again.status, &again.json), (200, &answer.json), "a repeat at the other one");
        assert_eq!(Caller::new(&other.url).get(&format!("/operations/{id}")).await.status, 200);
    }
    // Each dies in the middle of a change, and the other one ends its work.
    let taken = body("taken-from-new", json!({}));
    site.cluster.fail_nth_matching(3, CREATION, Fault::HoldAnswer);
    assert_eq!(Caller::new(&new.url).post("/apply", &taken).await.status, 202);
    site.cluster.until_held(1).await;
    new.kill().await;
    assert_eq!(seven::follow(&old.url, &taken).await.unwrap().json["outcome"], "succeeded");
    new = site.host().await;
    let taken = body("taken-from-old", json!({}));
    site.cluster.fail_nth_matching(3, CREATION, Fault::HoldAnswer);
    assert_eq!(Caller::new(&old.url).post("/apply", &taken).await.status, 202);
    site.cluster.until_held(2).await;
    old.kill().await;
    assert_eq!(seven::follow(&new.url, &taken).await.unwrap().json["outcome"], "succeeded");
    gate(&site.cluster, "open");
    let answer = seven::follow(&new.url, &parked).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    assert!(new.stop().await.success());
    seven::once(&site.cluster, &["parked", "old", "new", "taken-from-new", "taken-from-old"]).unwrap();
    let jobs = seven::histories(&seven::shared_ledger(site.folder.path(), &url).await).await.unwrap();
    eprintln!("figure: {} operations of two versions' hosts ended once each", jobs.len());
    assert_eq!(jobs.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_a_cut_connection_does_nothing_twice() {
    let server = Server::shared();
    for cut in [Cut::Before, Cut::After, Cut::Silence] {
        let url = server.database().await;
        let proxy = Proxy::to(server.port()).await;
        let by_proxy = url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port));
        let site = seven::shared_site(QUICK, &by_proxy).await;
        let mut host = site.host().await;
        // The write that goes on to the sixth step.
        proxy.arm(cut, "sixth");
        let body = seven::request(json!({})).body();
        let answer = seven::follow(&host.url, &body).await.unwrap();
        assert_eq!(answer.json["outcome"], "succeeded", "{cut:?}: {}", answer.text);
        assert!(proxy.was_cut(), "{cut:?}");
        host.stop().await;
        ended_well(&site, &url).await.unwrap_or_else(|e| panic!("{cut:?}: {e}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_equal_calls_at_three_hosts_are_one_operation() {
    let (site, url) = site(Server::shared()).await;
    gate(&site.cluster, "closed");
    let mut hosts = [site.host().await, site.host().await, site.host().await];
    let body = seven::request(deed("second", "wait-at-gate")).body();
    // At the same instant, a third of them repeating one call, the others under ids of their own.
    let calls = (0..60).map(|n| {
        let api = Caller::new(&hosts[n % 3].url);
        let body = if n % 9 < 3 { body.clone() } else { renewed(&body) };
        tokio::spawn(async move { api.post("/apply", &body).await })
    });
    let answers: Vec<Answered> =
        futures::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let other = answers.iter().find(|a| a.status != 202);
    assert!(other.is_none(), "{other:?}");
    let mut ids: Vec<&str> = answers.iter().filter_map(|a| a.json["operationId"].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    gate(&site.cluster, "open");
    for host in &mut hosts {
        let answer = seven::follow(&host.url, &body).await.unwrap();
        assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
        assert!(host.stop().await.success());
    }
    ended_well(&site, &url).await.unwrap();
}
