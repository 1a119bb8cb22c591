//! `sutler doctor`: registries, the ledger, and releases that were left under way.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use sutler_testkit::http::SampleRequest;
use sutler_testkit::registry::{Auth, Misbehaviour, Registry, RegistryOptions};

use crate::doctor::{command, findings, sutler, text};
use crate::support::Wanted;

fn doctor(config: &Path) -> Output {
    sutler(config, &["doctor", "--output", "json"])
}

/// A folder with a configuration and no plugins.
fn folder(toml: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(folder.path().join("sutler.toml"), format!("[catalog]\ndir = {plugins:?}\n\n{toml}"))
        .unwrap();
    folder
}

/// The only finding of an area.
fn one(o: &Output, area: &str) -> (String, String, String) {
    let levels = ["ok", "warning", "wrong"].map(|level| findings(o, area, level));
    let all: Vec<&Value> = levels.iter().flatten().collect();
    assert_eq!(all.len(), 1, "{}", text(o));
    let word = |key: &str| all[0][key].as_str().unwrap_or_default().to_owned();
    (word("level"), word("what"), word("todo"))
}

async fn registry(auth: Auth, tls: bool) -> Registry {
    Registry::start(RegistryOptions { auth, tls, ..RegistryOptions::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_as_they_are_configured() {
    let (user, password) = ("u".to_owned(), "hunter2".to_owned());
    let basic = || Auth::Basic { user: user.clone(), password: password.clone() };
    let expires = Duration::from_secs(60);
    let bearer = Auth::Bearer { user: user.clone(), password: password.clone(), expires };
    let page = registry(Auth::None, false).await;
    page.misbehave(Misbehaviour::NotARegistry);
    let gone = registry(Auth::None, false).await.host();
    let right = "plain-http = true\nusername = 'u'\npassword = 'hunter2'";
    let wrong = "plain-http = true\nusername = 'u'\npassword = 'hunter3'";
    for (registry, table, level, what, todo) in [
        (registry(Auth::None, false).await, "plain-http = true", "ok", "asks for no credentials", ""),
        (registry(basic(), false).await, right, "ok", "accepts its credentials", ""),
        (registry(bearer.clone(), false).await, right, "ok", "accepts its credentials", ""),
        (
            registry(basic(), false).await,
            wrong,
            "wrong",
            "refused the credentials of user u",
            "mend the credentials",
        ),
        (
            registry(bearer, false).await,
            wrong,
            "wrong",
            "refused the credentials of user u",
            "mend the credentials",
        ),
        (
            registry(basic(), false).await,
            "plain-http = true",
            "warning",
            "none are configured",
            "password-file",
        ),
        (registry(Auth::None, false).await, right, "warning", "were not tried", "pull a chart"),
        (registry(Auth::None, true).await, "", "wrong", "certificate", "set ca under"),
        (registry(Auth::None, true).await, "ca = 'CA'", "ok", "asks for no credentials", ""),
        (registry(Auth::None, false).await, "", "wrong", "cannot be reached", "plain-http under"),
        (page, "plain-http = true", "wrong", "it is no OCI registry", "host and port of an OCI registry"),
    ] {
        let folder = folder("");
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, registry.ca_pem().unwrap_or_default()).unwrap();
        let config = folder.path().join("sutler.toml");
        let table = table.replace("CA", &ca.display().to_string());
        let toml = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{toml}[registries.{:?}]\n{table}\n", registry.host())).unwrap();
        let got = doctor(&config);
        let found = one(&got, "registry");
        assert_eq!(found.0, level, "{table}: {found:?}");
        assert!(found.1.contains(what) && found.2.contains(todo), "{table}: {found:?}");
        assert_eq!(got.status.success(), level != "wrong", "{found:?}");
        assert!(!text(&got).contains("hunter"), "{found:?}");
    }
    let folder = folder(&format!("[registries.{gone:?}]\nplain-http = true\n"));
    let found = one(&doctor(&folder.path().join("sutler.toml")), "registry");
    assert!(found.0 == "wrong" && found.1.contains("cannot be reached"), "{found:?}");
}

#[test]
fn the_ledger() {
    let folder = folder("");
    let config = folder.path().join("sutler.toml");
    let (file, key) = (folder.path().join("ledger.db"), folder.path().join("ledger.key"));
    let found = one(&doctor(&config), "ledger");
    assert!(found.0 == "ok" && found.1.contains("sutler serve makes it"), "{found:?}");
    assert!(!file.exists() && !key.exists(), "a look makes nothing");

    assert!(sutler(&config, &["ledger", "migrate"]).status.success());
    // But for SQLite's own count of changes.
    let bytes = || {
        let mut bytes = std::fs::read(&file).unwrap();
        [24..28, 92..100].into_iter().for_each(|r| bytes[r].fill(0));
        bytes
    };
    let before = bytes();
    let found = one(&doctor(&config), "ledger");
    let words = "opens with its keys and schema";
    assert!(found.0 == "ok" && found.1.contains(words) && found.1.ends_with("can be written"), "{found:?}");
    assert_eq!(bytes(), before, "a look changes nothing");

    let trouble = folder.path().join("trouble");
    for (said, words) in [("full", "the disk is full"), ("read-only", "the disk or file is read-only")] {
        std::fs::write(&trouble, said).unwrap();
        let mut doctor = command(&config, &["doctor", "--output", "json"]);
        let found = one(&doctor.env("SUTLER_LEDGER_TROUBLE", &trouble).output().unwrap(), "ledger");
        assert!(
            found.0 == "wrong" && found.1.contains("cannot be written") && found.1.contains(words),
            "{found:?}"
        );
    }

    // Somebody else writes and does not end.
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let found = one(&doctor(&config), "ledger");
    assert!(found.0 == "wrong" && found.1.contains("locked"), "{found:?}");
    other.execute_batch("ROLLBACK").unwrap();

    let away = folder.path().join("away");
    std::fs::rename(&key, &away).unwrap();
    let found = one(&doctor(&config), "ledger");
    assert!(found.0 == "wrong" && found.1.contains("there is no key file"), "{found:?}");
    assert!(!key.exists(), "another key would hide that the right one is lost");
    std::fs::rename(&away, &key).unwrap();

    other.execute_batch("UPDATE refinery_schema_history SET version = version + 100").unwrap();
    let found = one(&doctor(&config), "ledger");
    assert!(found.0 == "wrong" && found.1.contains("newer than this version's"), "{found:?}");
    other.execute_batch("DELETE FROM refinery_schema_history").unwrap();
    let found = one(&doctor(&config), "ledger");
    assert!(found.0 == "warning" && found.2.contains("sutler ledger migrate"), "{found:?}");

    drop(other);
    std::fs::write(&file, "no database").unwrap();
    let found = one(&doctor(&config), "ledger");
    assert_eq!(found.0, "wrong", "{found:?}");
}

const RELEASES: &str = r#"
[plugins.hostile.grants.helm]
charts = ["oci://registry.example/charts/*"]
namespaces = ["ksml-{tenant}"]

[operations]
answer-within-milliseconds = 1500
attempts = 1

[ledger]
path = "FOLDER/ledger.db"
"#;

/// A record's Secret, as far as it is looked at.
fn record(name: &str, revision: u32, status: &str, job: Option<&str>) -> Value {
    let mut out = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
        "metadata": {
            "name": format!("sh.helm.release.v1.{name}.v{revision}"), "namespace": "ksml-acme",
            "labels": {"name": name, "owner": "helm", "version": revision.to_string(), "status": status},
        },
    });
    if let Some(job) = job {
        let mark = json!({"owner": "o", "request": "r", "call": "c", "job": job, "kind": "upgrade", "stage": "before", "base": 1});
        out["metadata"]["annotations"] = json!({"sutler.dev/operation": mark.to_string()});
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_that_were_left_under_way() {
    let world = Wanted::new().plugin("hostile").config(RELEASES).start().await;
    let config = world.folder.path().join("sutler.toml");
    let body = |application: &str, settings: Value| {
        SampleRequest::new("tool/hostile").application("id", application).create(settings).body()
    };
    let id = |json: &Value| json["operationId"].as_str().unwrap_or_else(|| panic!("{json}")).to_owned();
    let api = world.api();
    let runs = api.post("/apply", &body("a", json!({"do": "wait-forever", "in": ["apply"]}))).await;
    api.post("/apply", &body("b", json!({"do": "fail", "in": ["apply"]}))).await;
    std::fs::write(&config, &world.config).unwrap();
    let failed = sutler(&config, &["job", "list", "--status", "failed", "--json"]);
    let failed: Value = serde_json::from_slice(&failed.stdout).unwrap();
    let (runs, fails) = (id(&runs.json), failed[0]["id"].as_str().unwrap().to_owned());
    let unknown = "op_00000000000000000000000000000000";
    world.cluster.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ksml-acme"}}));
    let fine = doctor(&config);
    assert!(findings(&fine, "releases", "ok")[0]["what"].as_str().unwrap().contains("none is under way"));

    for record in [
        record("running", 2, "pending-upgrade", Some(&runs)),
        record("dead", 2, "pending-upgrade", Some(&fails)),
        record("strange", 2, "pending-upgrade", Some(unknown)),
        record("theirs", 1, "pending-install", None),
        record("rolled", 3, "pending-upgrade", None),
        // A later revision is there: this one is history.
        record("past", 1, "pending-upgrade", None),
        record("past", 2, "deployed", None),
        record("whole", 1, "deployed", None),
    ] {
        world.cluster.seed(record);
    }
    let got = doctor(&config);
    assert!(got.status.success(), "warnings only: {}", text(&got));
    let said = |level: &str| -> Vec<(String, String)> {
        let word = |f: &Value, key: &str| f[key].as_str().unwrap_or_default().to_owned();
        findings(&got, "releases", level).iter().map(|f| (word(f, "what"), word(f, "todo"))).collect()
    };
    let ok = said("ok");
    assert_eq!(ok.len(), 1, "{ok:?}");
    assert!(
        ok[0].0.contains("ksml-acme/running") && ok[0].0.contains(&format!("operation {runs} works on it")),
        "{ok:?}"
    );
    let warnings = said("warning");
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    for (name, what, todo) in [
        (
            "dead",
            format!("operation {fails} was cut off, and the operation is failed"),
            format!("sutler job retry {fails}"),
        ),
        (
            "strange",
            format!("operation {unknown}, which this ledger does not know"),
            "apply the application again".to_owned(),
        ),
        (
            "theirs",
            "by Helm or another tool".to_owned(),
            "helm uninstall theirs --namespace ksml-acme".to_owned(),
        ),
        (
            "rolled",
            "by Helm or another tool".to_owned(),
            "helm rollback rolled --namespace ksml-acme".to_owned(),
        ),
    ] {
        let found = warnings
            .iter()
            .find(|w| w.0.contains(&format!("/{name}:")))
            .unwrap_or_else(|| panic!("{warnings:?}"));
        assert!(found.0.contains(&what) && found.1.contains(&todo), "{found:?}");
    }
}
