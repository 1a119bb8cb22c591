//! Ledgers that are linked, changed by hand, or under another key file, and what is said of them.

use std::os::unix::fs::symlink;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use sutler_testkit::SutlerProcess;

use crate::ledger_cli::{apply, body, config, id, second, sutler, waiting, world};

const LISTEN: &str = "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_of_a_linked_ledger_is_refused_and_harms_nothing() {
    let world = world().await;
    let folder = world.folder.path();
    let running = id(&apply(&world.api(), &body("orders", waiting())).await);
    let other = second(&world);
    let at = |name: &str| other.path().join(name);
    symlink(folder.join("ledger.db"), at("ledger.db")).unwrap();
    std::fs::hard_link(folder.join("ledger.db"), at("hard.db")).unwrap();
    // Beside the hard link there are no keys: that is the first thing that is wrong with it.
    std::fs::copy(folder.join("ledger.key"), at("hard.key")).unwrap();
    for name in ["ledger.db", "hard.db"] {
        let toml = std::fs::read_to_string(at("sutler.toml")).unwrap().replace("ledger.db", name);
        let Err(said) = SutlerProcess::try_start(&format!("{toml}\n{LISTEN}"), &[]).await else {
            panic!("{name} is served twice")
        };
        assert!(said.contains("another host serves the ledger"), "{name}: {said}");
    }
    // Commands find the ledger and its keys by the link.
    assert!(sutler(other.path(), &["job", "list", "--status", "running"]).ok().contains(&running));
    assert!(!at("ledger.key").exists() && !at("ledger.db.lock").exists());
    sutler(folder, &["job", "cancel", &running]).ok();
    assert_eq!(sutler(folder, &["job", "watch", &running]).code, 2);
    sutler(folder, &["ledger", "check"]).ok();
}

/// Everything in the one file.
fn whole(file: &Path) -> Vec<u8> {
    Connection::open(file).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    std::fs::read(file).unwrap()
}

const CHANGES: [(&str, &str); 14] = [
    ("DELETE FROM plugins", "is unfinished and its plugin sha256:"),
    ("UPDATE provisioning_jobs SET tenant = 'globex' WHERE status = 'completed'", "says tenant \"globex\""),
    ("UPDATE provisioning_jobs SET application = 'x' WHERE status = 'completed'", "says application \"x\""),
    ("UPDATE provisioning_jobs SET token = token + 1 WHERE status = 'completed'", "has the token 2"),
    ("UPDATE provisioning_jobs SET token = 0 WHERE status = 'completed'", "has the token 0"),
    ("UPDATE provisioning_jobs SET revision = 77 WHERE status = 'failed'", "has revision 77"),
    (
        "UPDATE provisioning_jobs SET resources = '[\"more\"]' WHERE status = 'failed'",
        "says resources \"more\"",
    ),
    ("UPDATE provisioning_jobs SET attempt = 7 WHERE status = 'failed'", "its events come to"),
    ("DELETE FROM sealed_answers", "has ended and has no answer"),
    (
        "UPDATE job_events SET what = replace(what, '\"attempt\":1', '\"attempt\":2')",
        "do not follow each other",
    ),
    (
        "UPDATE job_events SET what = replace(what, 'quota-exceeded', 'quota-exceedee')",
        "by its events and with",
    ),
    (
        "UPDATE job_events SET what = replace(what, '\"step-started\"', '\"step-stbrted\"')",
        "an event in the ledger",
    ),
    (
        "UPDATE job_events SET what = replace(what, '\"completed\"', '\"cancelled\"')",
        "do not follow each other",
    ),
    ("UPDATE job_events SET what = replace(what, '\"token\":1', '\"token\":3')", "and its events end with 3"),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_by_hand_is_found() {
    let mut world = world().await;
    let folder = world.folder.path().to_owned();
    apply(&world.api(), &body("done", json!({"do": "ok"}))).await;
    apply(&world.api(), &body("sad", json!({"do": "fail", "in": ["apply"]}))).await;
    id(&apply(&world.api(), &body("orders", waiting())).await);
    world.host.stop().await;
    let file = folder.join("ledger.db");
    let good = whole(&file);
    sutler(&folder, &["ledger", "check"]).ok();
    for (sql, words) in CHANGES {
        std::fs::write(&file, &good).unwrap();
        let ledger = Connection::open(&file).unwrap();
        ledger.execute_batch(sql).unwrap();
        drop(ledger);
        let said = sutler(&folder, &["ledger", "check"]).refused();
        assert!(said.contains(words) && said.contains("restore a backup"), "{sql}: {said}");
    }
    std::fs::write(&file, &good).unwrap();
    sutler(&folder, &["ledger", "check"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_key_is_asked_for_once_and_nothing_is_exported() {
    let mut world = world().await;
    let folder = world.folder.path().to_owned();
    for n in 0..3 {
        apply(&world.api(), &body(&format!("app-{n}"), json!({"do": "ok"}))).await;
    }
    world.host.stop().await;
    let key = folder.join("ledger.key");
    let right = std::fs::read_to_string(&key).unwrap();
    let name =
        right.lines().find_map(|l| l.strip_prefix("active = \"")).unwrap().trim_end_matches('"').to_owned();
    std::fs::remove_file(&key).unwrap();
    sutler_ledger::Keys::rotate(&key).unwrap();
    let said = sutler(&folder, &["ledger", "check"]).refused();
    assert_eq!(said.matches(&name).count(), 1, "{said}");
    assert!(
        said.contains("3 jobs are sealed with keys that are not in") && said.contains("put these back"),
        "{said}"
    );
    assert!(!said.contains("restore a backup") && !said.contains("ledger export"), "{said}");
    let said = sutler(&folder, &["ledger", "export", "all.jsonl"]).refused();
    assert!(said.contains("nothing was exported") && said.contains(&name), "{said}");
    assert!(!folder.join("all.jsonl").exists());
    std::fs::write(&key, right).unwrap();
    sutler(&folder, &["ledger", "export", "all.jsonl"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_the_end_of_an_export_is_not_passed_over() {
    let mut world = world().await;
    let folder = world.folder.path().to_owned();
    apply(&world.api(), &body("done", json!({"do": "ok"}))).await;
    world.host.stop().await;
    sutler(&folder, &["ledger", "export", "all.jsonl"]).ok();
    let text = std::fs::read_to_string(folder.join("all.jsonl")).unwrap();
    let (to, key) = (second(&world), folder.join("ledger.key"));
    sutler(to.path(), &["ledger", "migrate"]).ok();
    let import = |text: String| {
        std::fs::write(folder.join("in.jsonl"), text).unwrap();
        let (file, key) = (folder.join("in.jsonl"), key.to_str().unwrap());
        sutler(to.path(), &["ledger", "import", file.to_str().unwrap(), "--key-file", key])
    };
    for more in [text.as_str(), "\n", "cut"] {
        let said = import(format!("{text}{more}")).refused();
        assert!(
            said.contains("there is more after the last line") && said.contains("export again"),
            "{said}"
        );
        assert_eq!(sutler(to.path(), &["job", "list"]).ok().lines().count(), 1, "nothing came of it");
    }
    assert!(import(text).ok().contains("imported 1 jobs"));
}

#[test]
fn numbers_and_places_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let plain = config(at, at);
    let url = "url = \"postgres://me:hidden@db/jobs";
    let key = format!("key-file = {:?}\n", at.join("ledger.key"));
    let without = plain.replace("attempts = 1\n", "");
    let path = plain.lines().find(|l| l.starts_with("path = ")).unwrap();
    for (toml, words) in [
        (plain.replace("attempts = 1", "attempts = 0"), "[operations] attempts: use at least 1"),
        (format!("{without}workers = 0\n"), "[operations] workers: use at least 1"),
        (format!("{without}lease-seconds = 0\n"), "[operations] lease-seconds: use at least 1"),
        (format!("{without}keep-days = 0\n"), "[operations] keep-days: use at least 1"),
        (
            plain.replace("poll-milliseconds = 100", "poll-milliseconds = 0"),
            "poll-milliseconds: use 10 to 60000",
        ),
        (format!("{plain}[operations.limits]\neach-tenant = 0\n"), "limits.each-tenant: use at least 1"),
        (format!("{plain}[operations.deadlines]\n\"tool/a\" = 0\n"), "deadlines.\"tool/a\": use at least 1"),
        (format!("{plain}[operations.leases]\n\"tool\" = 1\n"), "[operations] "),
        (plain.replace("[ledger]\n", &format!("[ledger]\n{url}\"\n{key}")), "url and path"),
        (
            plain.replace(path, &format!("{url}?sslmode=bogus\"\n{key}")),
            "sslmode is \"bogus\"; use disable, prefer, require",
        ),
    ] {
        std::fs::write(at.join("sutler.toml"), &toml).unwrap();
        let said = sutler(at, &["config", "check"]).refused();
        assert!(said.contains(words) && !said.contains("hidden"), "{toml}\n{said}");
        // The same words wherever the ledger or the operations are needed.
        let said = sutler(at, &["job", "list"]).refused();
        assert!(said.contains(words) || said.contains("there is no ledger at"), "{toml}\n{said}");
    }
    std::fs::write(at.join("sutler.toml"), &plain).unwrap();
    sutler(at, &["config", "check"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_too_short_is_told_at_the_start() {
    let short = format!("{}[operations.leases]\n\"tool/seven\" = 1\n", crate::seven::QUICK);
    let site = crate::seven::site(&short).await;
    let host = site.host().await;
    let told = host.events("lease-too-short");
    assert_eq!(told.len(), 1, "{told:?}");
    let said = told[0].to_string();
    assert!(said.contains("tool/seven") && told[0].to_string().contains("\"held\":"), "{said}");
}
