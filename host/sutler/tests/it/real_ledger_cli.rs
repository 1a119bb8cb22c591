//! `sutler ledger` and `sutler job` on a PostgreSQL that hosts share.

use std::path::Path;

use serde_json::{Value, json};
use sutler_ledger::Keys;
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::postgres::Server;

use crate::ledger_cli::sutler;
use crate::seven::{self, QUICK, deed, gate, waiting};
use crate::support::Site;

const ONCE: &str = "attempts = 1\n";

fn body(resource: &str, settings: Value) -> Value {
    SampleRequest::new("tool/seven").change(resource, "create", settings).body()
}

/// A site whose folder has its configuration, as a person works in it.
async fn site(url: &str) -> Site {
    let site = seven::shared_site(&format!("{QUICK}{ONCE}"), url).await;
    std::fs::write(site.folder.path().join("sutler.toml"), &site.config).unwrap();
    site
}

/// A folder with a ledger of its own on another database, and the plugins of the site.
fn second(site: &Site, from: &str, url: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("ledger.key");
    Keys::open_or_make(&key, &folder.path().join("ledger.db")).unwrap();
    let old = site.folder.path().join("ledger.key");
    let config = site.config.replace(from, url).replace(old.to_str().unwrap(), key.to_str().unwrap());
    std::fs::write(folder.path().join("sutler.toml"), config).unwrap();
    folder
}

fn jobs(folder: &Path, args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&sutler(folder, &[&["job", "list", "--json"][..], args].concat()).ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_jobs_are_listed_shown_watched_retried_and_cancelled() {
    let url = Server::shared().database().await;
    let site = site(&url).await;
    let folder = site.folder.path();
    let said = sutler(folder, &["job", "list"]).refused();
    assert!(said.contains("schema 0") && said.contains("sutler ledger migrate"), "{said}");
    sutler(folder, &["ledger", "migrate"]).ok();
    assert!(jobs(folder, &[]).is_empty());
    let mut host = site.host().await;
    let api = Caller::new(&host.url);
    gate(&site.cluster, "closed");
    let waits = waiting(&api, &body("waits", deed("second", "wait-at-gate"))).await;
    let failed = api.apply(&body("fails", deed("sixth", "fail-at-gate"))).await;
    assert_eq!(failed.json["code"], "gate-closed", "{}", failed.text);

    let running = jobs(folder, &["--status", "running"]);
    assert_eq!(running.iter().map(|j| &j["id"]).collect::<Vec<_>>(), [&json!(waits)]);
    let shown = sutler(folder, &["job", "show", &waits]).ok();
    for part in ["the gate is closed", "step-started", "acme/prod/orders"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let failed = jobs(folder, &["--status", "failed"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(sutler(folder, &["job", "watch", &failed]).code, 1);
    gate(&site.cluster, "open");
    assert!(sutler(folder, &["job", "retry", &failed]).ok().contains("goes on with seven"));
    let watched = sutler(folder, &["job", "watch", &failed]).ok();
    assert!(watched.contains("retried") && watched.contains("completed"), "{watched}");
    assert_eq!(sutler(folder, &["job", "watch", &waits]).code, 0);
    sutler(folder, &["job", "cancel", &waits]).ok();
    assert_eq!(sutler(folder, &["job", "watch", &waits]).code, 2);
    assert_eq!(jobs(folder, &["--status", "cancelled"]).len(), 1);
    assert!(host.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_a_ledger_is_checked_exported_and_imported() {
    let (url, other) = (Server::shared().database().await, Server::shared().database().await);
    let site = site(&url).await;
    let from = site.folder.path();
    let mut host = site.host().await;
    gate(&site.cluster, "closed");
    let done = body("done", json!({}));
    let first = seven::follow(&host.url, &done).await.unwrap();
    let waits = waiting(&Caller::new(&host.url), &body("waits", deed("second", "wait-at-gate"))).await;
    assert!(sutler(from, &["ledger", "check"]).ok().contains("1 completed, 1 running"));
    sutler(from, &["ledger", "export", "served.jsonl"]).has(&["2 jobs", "1 plugins"]);
    // Nothing is imported into a ledger that is served.
    let refused = sutler(from, &["ledger", "import", "served.jsonl"]).refused();
    assert!(refused.contains("a host serves it"), "{refused}");
    assert!(host.stop().await.success());
    // The host's own export may hold a call under way, whose one attempt then counts.
    sutler(from, &["ledger", "export", "all.jsonl"]).has(&["2 jobs", "1 plugins"]);

    let second = second(&site, &url, &other);
    let (to, all, key) = (second.path(), from.join("all.jsonl"), from.join("ledger.key"));
    let import = ["ledger", "import", all.to_str().unwrap(), "--key-file", key.to_str().unwrap()];
    assert!(sutler(to, &import).refused().contains("sutler ledger migrate"));
    sutler(to, &["ledger", "migrate"]).ok();
    assert!(sutler(to, &import).ok().contains("imported 2 jobs"));
    assert!(sutler(to, &import).refused().contains("is in the ledger already"));
    assert!(sutler(to, &["ledger", "check"]).ok().contains("1 completed, 1 running"));
    // A host of the second one recognises repeats and goes on with what was unfinished.
    let config = std::fs::read_to_string(to.join("sutler.toml")).unwrap();
    let mut host = sutler_testkit::SutlerProcess::start(&config, &[]).await;
    assert_eq!(seven::follow(&host.url, &done).await.unwrap().json, first.json);
    gate(&site.cluster, "open");
    sutler(to, &["job", "watch", &waits]).ok();
    assert!(host.stop().await.success());
    seven::once(&site.cluster, &["done", "waits"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_what_was_changed_by_hand_is_found() {
    let url = Server::shared().database().await;
    let site = site(&url).await;
    let folder = site.folder.path();
    let mut host = site.host().await;
    gate(&site.cluster, "closed");
    seven::follow(&host.url, &body("done", json!({}))).await.unwrap();
    waiting(&Caller::new(&host.url), &body("waits", deed("second", "wait-at-gate"))).await;
    assert!(host.stop().await.success());
    sutler(folder, &["ledger", "check"]).ok();
    let sql = |text: &'static str| sutler_testkit::postgres::sql(&url, text);
    sql(
        "CREATE TABLE good AS SELECT * FROM provisioning_jobs; CREATE TABLE told AS SELECT * FROM job_events",
    )
    .await;
    for (change, words) in [
        (
            "UPDATE provisioning_jobs SET tenant = 'globex' WHERE status = 'completed'",
            "says tenant \"globex\"",
        ),
        (
            "UPDATE provisioning_jobs SET application = 'x' WHERE status = 'completed'",
            "says application \"x\"",
        ),
        (
            "UPDATE provisioning_jobs SET token = token + 1 WHERE status = 'completed'",
            "and its events end with ",
        ),
        ("UPDATE provisioning_jobs SET revision = 99", "has revision 99"),
        ("UPDATE job_events SET what = replace(what, 'second', 'sfcond')", "its events"),
        (
            "UPDATE job_events SET what = replace(what, '\"attempt\":1', '\"attempt\":2')",
            "do not follow each other",
        ),
        ("DELETE FROM plugins", "is unfinished and its plugin sha256:"),
    ] {
        sql(change).await;
        let said = sutler(folder, &["ledger", "check"]).refused();
        assert!(said.contains(words), "{change}: {said}");
        sql("UPDATE provisioning_jobs j SET (tenant, application, token, revision) = \
             (g.tenant, g.application, g.token, g.revision) FROM good g WHERE g.n = j.n; \
             UPDATE job_events e SET what = t.what FROM told t WHERE t.job = e.job AND t.seq = e.seq")
        .await;
    }
    let said = sutler(folder, &["ledger", "check"]).refused();
    assert!(said.contains(" 1 problems"), "all but the plugin is as it was: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_postgres_the_doctor_says_whether_the_ledger_can_be_written() {
    let url = Server::shared().database().await;
    let site = site(&url).await;
    let folder = site.folder.path();
    sutler(folder, &["ledger", "migrate"]).ok();
    sutler(folder, &["doctor"]).has(&["it opens with its keys, and can be written"]);
    // As on a standby.
    let name = url.rsplit('/').next().and_then(|n| n.split('?').next()).unwrap();
    let read_only = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = on");
    sutler_testkit::postgres::sql(&url, &read_only).await;
    sutler(folder, &["doctor"]).has(&["it cannot be written", "read-only"]);
}
