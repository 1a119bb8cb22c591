//! `sutler ledger` and `sutler job`, beside a serving host and without one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use sutler_testkit::http::{Answered, Caller, SampleRequest};
use sutler_testkit::{SutlerProcess, sutler_binary};
use tempfile::TempDir;

use crate::support::{GRANTS, Wanted, World};

pub(crate) const SETTING: &str = "setting-of-the-test";
const OPERATIONS: &str = "[operations]\nanswer-within-milliseconds = 1500\nfirst-backoff-milliseconds = 50\n\
     poll-milliseconds = 100\ntakeover-after-seconds = 1\nattempts = 1\n";

pub(crate) fn config(folder: &Path, plugins: &Path) -> String {
    let path = folder.join("ledger.db");
    format!("[catalog]\ndir = {plugins:?}\n\n[ledger]\npath = {path:?}\n\n{OPERATIONS}")
}

pub(crate) async fn world() -> World {
    let toml = format!("{GRANTS}\n[ledger]\npath = \"FOLDER/ledger.db\"\n\n{OPERATIONS}");
    let world = Wanted::new().plugin("hostile").config(&toml).start().await;
    let file = world.folder.path().join("sutler.toml");
    std::fs::write(file, config(world.folder.path(), &world.folder.path().join("plugins"))).unwrap();
    world
}

/// A folder with a configuration of its own and the plugins of another.
pub(crate) fn second(world: &World) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let toml = config(folder.path(), &world.folder.path().join("plugins"));
    std::fs::write(folder.path().join("sutler.toml"), toml).unwrap();
    folder
}

pub(crate) struct Said {
    pub(crate) code: i32,
    out: String,
    err: String,
}

impl Said {
    fn of(o: &Output) -> Self {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        Self { code: o.status.code().unwrap_or(-1), out: text(&o.stdout), err: text(&o.stderr) }
    }
    /// What it said, where it went well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }
    /// What it said, where it did not.
    #[track_caller]
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, 1, "{}{}", self.out, self.err);
        format!("{}{}", self.out, self.err)
    }
    #[track_caller]
    pub(crate) fn has(self, words: &[&str]) {
        let all = format!("{}{}", self.out, self.err);
        for w in words {
            assert!(all.contains(w), "{w:?} is missing in:\n{all}");
        }
    }
}

pub(crate) fn command(folder: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(sutler_binary());
    // The configuration is found in the folder itself.
    c.args(args).current_dir(folder).stdin(Stdio::null()).env_remove("SUTLER_CONFIG");
    c
}

pub(crate) fn sutler(folder: &Path, args: &[&str]) -> Said {
    Said::of(&command(folder, args).output().unwrap())
}

pub(crate) fn body(application: &str, settings: Value) -> Value {
    SampleRequest::new("tool/hostile").application("id", application).create(settings).body()
}

/// The audit's entries that fit, the newest first.
fn audited(folder: &Path, args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&sutler(folder, &[&["audit", "--json"][..], args].concat()).ok()).unwrap()
}

pub(crate) async fn apply(api: &Caller, body: &Value) -> Answered {
    let answered = api.post("/apply", body).await;
    assert!([200, 202].contains(&answered.status), "{}", answered.text);
    answered
}

pub(crate) fn id(answered: &Answered) -> String {
    answered.json["operationId"].as_str().unwrap_or_else(|| panic!("{}", answered.text)).to_owned()
}

pub(crate) fn waiting() -> Value {
    json!({"do": "wait-forever", "in": ["apply"], "value": SETTING})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_listed_shown_watched_and_cancelled_beside_its_host() {
    let world = world().await;
    let folder = world.folder.path();
    let job = id(&apply(&world.api(), &body("orders", waiting())).await);
    apply(&world.api(), &body("done", json!({"do": "ok"}))).await;

    let table = sutler(folder, &["job", "list"]).ok();
    let line = table.lines().find(|l| l.contains(&job)).unwrap_or_else(|| panic!("{table}"));
    for cell in ["running", "tool/hostile", "acme/prod/orders"] {
        assert!(line.contains(cell), "{cell}: {table}");
    }
    assert!(table.starts_with("ID ") && table.lines().count() == 3, "{table}");
    for (filter, there) in [
        (["--status", "running"], true),
        (["--status", "failed"], false),
        (["--pair", "tool/hostile"], true),
        (["--pair", "tool/other"], false),
        (["--tenant", "globex"], false),
        (["--application", "orders"], true),
        (["--environment", "test"], false),
    ] {
        let got = sutler(folder, &[&["job", "list", "--json"][..], &filter].concat()).ok();
        let got: Vec<Value> = serde_json::from_str(&got).unwrap();
        assert_eq!(got.iter().any(|j| j["id"] == *job), there, "{filter:?}: {got:?}");
    }
    assert_eq!(sutler(folder, &["job", "list", "--limit", "1"]).ok().lines().count(), 2);
    assert_eq!(sutler(folder, &["job", "list", "--status", "lost"]).code, 2);

    let shown = sutler(folder, &["job", "show", &job]).ok();
    for part in ["Waiting for nothing.", "step-started", "waiting", "sha256:", "acme/prod/orders"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = sutler(folder, &["job", "show", &job, "--json"]).ok();
    assert!(!shown.contains(SETTING) && !json.contains(SETTING) && !table.contains(SETTING));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["status"], &json["events"][0]["event"]), (&json!("running"), &json!("submitted")));

    sutler(folder, &["job", "retry", &job]).has(&["only one that has failed can be retried"]);
    let watch = command(folder, &["job", "watch", &job]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(sutler(folder, &["job", "cancel", &job]).ok().contains("is being taken back"));
    let watched = tokio::task::spawn_blocking(|| Said::of(&watch.wait_with_output().unwrap())).await.unwrap();
    assert_eq!(watched.code, 2, "{}{}", watched.out, watched.err);
    let mut names = watched.out.lines().filter_map(|l| l.split_whitespace().nth(2));
    assert!(names.any(|n| n == "cancel-requested") && names.any(|n| n == "cancelled"), "{}", watched.out);
    assert!(sutler(folder, &["job", "cancel", &job]).ok().contains("is cancelled"));
    let audit: Vec<Value> = audited(folder, &["--operation", &job, "--action", "cancel"]);
    let [cancelled] = &audit[..] else { panic!("once: {audit:?}") };
    assert_eq!((&cancelled["actor"], &cancelled["tenant"]), (&json!("command line"), &json!("acme")));
    let answer = world.api().get(&format!("/operations/{job}")).await;
    assert_eq!(answer.json["code"], "cancelled", "{}", answer.text);

    let none = "op_00000000000000000000000000000000";
    for what in ["show", "cancel", "retry", "watch"] {
        assert!(sutler(folder, &["job", what, none]).refused().contains("there is no job"), "{what}");
    }
}

/// A component with another digest that does the same.
fn relabelled(wasm: &[u8]) -> Vec<u8> {
    // A custom section: id 0, 5 bytes, a name of 4.
    [wasm, b"\0\x05\x04more"].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_is_retried_on_either_generation() {
    let world = world().await;
    let folder = world.folder.path();
    let failed = apply(&world.api(), &body("orders", json!({"do": "fail", "in": ["apply"]}))).await;
    assert_eq!(failed.json["code"], "quota-exceeded", "{}", failed.text);
    let list = sutler(folder, &["job", "list", "--status", "failed", "--json"]).ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    let (job, old) = (list[0]["id"].as_str().unwrap(), list[0]["digest"].as_str().unwrap());
    let watch = || sutler(folder, &["job", "watch", job]);
    let watched = watch();
    assert_eq!(watched.code, 1);
    assert!(watched.out.contains("quota-exceeded: Asked to fail."), "{}", watched.out);

    let file = world.plugin_file("hostile.wasm");
    let wasm = std::fs::read(&file).unwrap();
    std::fs::write(&file, relabelled(&wasm)).unwrap();
    let new = sutler_model::Digest::of(&relabelled(&wasm)).to_string();
    let retried = sutler(folder, &["job", "retry", job, "--same-digest"]).ok();
    assert!(retried.contains(old) && !retried.contains(&new), "{retried}");
    assert_eq!(watch().code, 1);
    // The host has not read its folder again: it takes the new generation out of the ledger.
    let retried = sutler(folder, &["job", "retry", job]).ok();
    assert!(retried.contains(&new), "{retried}");
    let watched = watch();
    assert_eq!(watched.code, 1);
    let count = |what: &str| watched.out.lines().filter(|l| l.contains(what)).count();
    assert_eq!((count("retried"), count(" failed ")), (2, 3), "{}", watched.out);
    let audit = audited(folder, &["--operation", job]);
    let told: Vec<_> = audit.iter().map(|e| (e["actor"].as_str().unwrap(), e["action"].clone())).collect();
    let by = "command line";
    assert_eq!(told, [(by, json!("retry")), (by, json!("retry")), ("anonymous", json!("create"))]);

    std::fs::remove_file(&file).unwrap();
    let none = sutler(folder, &["job", "retry", job]).refused();
    assert!(none.contains("serves tool/hostile now") && none.contains("--same-digest"), "{none}");

    let done = apply(&world.api(), &body("done", json!({"do": "ok"}))).await;
    assert_eq!(done.json["outcome"], "succeeded", "{}", done.text);
    let list = sutler(folder, &["job", "list", "--status", "completed", "--json"]).ok();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(sutler(folder, &["job", "watch", list[0]["id"].as_str().unwrap()]).code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_moves_with_everything_in_it() {
    let mut world = world().await;
    let from = world.folder.path().to_owned();
    let ok = body("done", json!({"do": "ok", "value": SETTING}));
    let first = apply(&world.api(), &ok).await;
    apply(&world.api(), &body("sad", json!({"do": "fail", "in": ["apply"]}))).await;
    let wait = body("orders", waiting());
    let running = id(&apply(&world.api(), &wait).await);
    // The same under another request id joins it.
    assert_eq!(id(&apply(&world.api(), &sutler_testkit::http::renewed(&wait)).await), running);
    sutler(&from, &["ledger", "import", "nothing.jsonl"]).has(&["nothing.jsonl"]);
    world.host.stop().await;

    let said = sutler(&from, &["ledger", "export", "all.jsonl"]);
    said.has(&[
        "3 jobs",
        "1 plugins",
        "1 further request ids",
        "what 3 resources take",
        "3 entries of the audit",
        "ledger.key is needed",
    ]);
    assert!(sutler(&from, &["ledger", "export", "all.jsonl"]).refused().contains("is there already"));
    let text = std::fs::read_to_string(from.join("all.jsonl")).unwrap();
    assert!(!text.contains(SETTING) && text.lines().count() == 2 + 3 + 1 + 1 + 3 + 3);
    let piped = sutler(&from, &["ledger", "export", "-"]).ok();
    assert_eq!(piped.lines().count(), text.lines().count());

    let second = second(&world);
    let to = second.path();
    let (all, key) = (from.join("all.jsonl"), from.join("ledger.key"));
    let (all, key) = (all.to_str().unwrap(), key.to_str().unwrap());
    sutler(to, &["ledger", "import", all]).has(&["--key-file"]);
    let cut: PathBuf = from.join("cut.jsonl");
    std::fs::write(&cut, &text[..text.len() - 40]).unwrap();
    let refused = sutler(to, &["ledger", "import", cut.to_str().unwrap(), "--key-file", key]).refused();
    assert!(refused.contains("line 12"), "{refused}");
    std::fs::write(&cut, &text[..text.rfind("{\"end\"").unwrap()]).unwrap();
    let refused = sutler(to, &["ledger", "import", cut.to_str().unwrap(), "--key-file", key]).refused();
    assert!(refused.contains("was cut after line 12"), "{refused}");
    assert_eq!(sutler(to, &["job", "list"]).ok().lines().count(), 1, "nothing came of what was refused");

    assert!(sutler(to, &["ledger", "import", all, "--key-file", key]).ok().contains("imported 3 jobs"));
    let again = sutler(to, &["ledger", "import", all, "--key-file", key]).refused();
    assert!(again.contains("is in the ledger already"), "{again}");
    // So is an audit that outlived its jobs.
    let mut lines: Vec<&str> =
        text.lines().filter(|l| l.contains("\"sutler-ledger\"") || l.contains("\"audit\"")).collect();
    assert_eq!(lines.len(), 1 + 3, "{text}");
    lines.push("{\"end\":{\"records\":3,\"unreadable\":0}}\n");
    std::fs::write(&cut, lines.join("\n")).unwrap();
    let again = sutler(to, &["ledger", "import", cut.to_str().unwrap(), "--key-file", key]).refused();
    assert!(again.contains("line 2: this entry of the audit is in the ledger already"), "{again}");
    assert!(sutler(to, &["ledger", "check"]).ok().contains("fine"));
    for args in [&["job", "list", "--json"][..], &["job", "show", &running, "--json"]] {
        assert_eq!(sutler(to, args).ok(), sutler(&from, args).ok());
    }
    goes_on(&world, to, (&ok, &first), &running).await;
}

/// A host of the second ledger recognises repeats and goes on with what was unfinished.
async fn goes_on(world: &World, to: &Path, repeat: (&Value, &Answered), running: &str) {
    let toml = config(to, &world.folder.path().join("plugins"));
    let host = SutlerProcess::start(&format!("{toml}\n[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n"), &[]).await;
    let again = Caller::new(&host.url).post("/apply", repeat.0).await;
    assert_eq!((again.status, &again.json), (200, &repeat.1.json), "{}", again.text);
    sutler(to, &["ledger", "migrate"]).has(&["nothing to do"]);
    sutler(to, &["job", "cancel", running]).ok();
    assert_eq!(sutler(to, &["job", "watch", running]).code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_ledger_is_told_and_what_is_readable_is_saved() {
    let mut world = world().await;
    let folder = world.folder.path().to_owned();
    for n in 0..30 {
        apply(&world.api(), &body(&format!("app-{n}"), json!({"do": "ok", "value": SETTING.repeat(100)})))
            .await;
    }
    world.host.stop().await;
    let file = folder.join("ledger.db");
    // Everything into the one file that is cut below.
    let ledger = rusqlite::Connection::open(&file).unwrap();
    ledger.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(ledger);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..100]).unwrap();
    sutler(&folder, &["ledger", "check"]).refused();
    sutler(&folder, &["ledger", "check"]).has(&["has only 100 bytes", "restore a backup"]);
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    sutler(&folder, &["ledger", "check"]).refused();
    sutler(&folder, &["ledger", "check"]).has(&["damaged", "restore a backup", "sutler ledger export"]);
    // What the cut left is saved.
    std::fs::write(&file, &whole[..whole.len() - 2 * 4096]).unwrap();
    sutler(&folder, &["ledger", "check"]).refused();
    sutler(&folder, &["ledger", "export", "left.jsonl"]).refused();
    let left = std::fs::read_to_string(folder.join("left.jsonl")).unwrap();
    assert!(left.lines().filter(|l| l.starts_with("{\"job\"")).count() > 5, "{}", left.lines().count());

    // One sealed text is damaged: the others are saved.
    std::fs::write(&file, &whole).unwrap();
    let bad = sutler(&folder, &["job", "list", "--application", "app-7", "--json"]).ok();
    let bad: Value = serde_json::from_str(&bad).unwrap();
    let sql = format!(
        "UPDATE sealed_requests SET sealed = zeroblob(60) WHERE job = (SELECT n FROM provisioning_jobs WHERE id = '{}')",
        bad[0]["id"].as_str().unwrap()
    );
    rusqlite::Connection::open(&file).unwrap().execute_batch(&sql).unwrap();
    let checked = sutler(&folder, &["ledger", "check"]).refused();
    assert!(
        checked.contains("Readable: 29 jobs") && checked.contains("Not readable: 1 records"),
        "{checked}"
    );
    let saved = sutler(&folder, &["ledger", "export", "saved.jsonl"]).refused();
    assert!(saved.contains("1 records could not be read"), "{saved}");
    std::fs::rename(&file, folder.join("damaged.db")).unwrap();
    sutler(&folder, &["ledger", "import", "saved.jsonl"]).has(&["imported 29 jobs", "1 records"]);
    sutler(&folder, &["ledger", "check"]).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_beside_a_serving_host_and_answers_stay() {
    let mut world = world().await;
    let folder = world.folder.path().to_owned();
    let ok = body("done", json!({"do": "ok"}));
    let first = apply(&world.api(), &ok).await;
    let job = serde_json::from_str::<Value>(&sutler(&folder, &["job", "list", "--json"]).ok()).unwrap();
    let path = format!("/operations/{}", job[0]["id"].as_str().unwrap());
    let before = world.api().get(&path).await;
    assert_eq!(before.status, 200, "{}", before.text);

    let key = folder.join("ledger.key");
    let old: Vec<String> = std::fs::read_to_string(&key).unwrap().lines().map(str::to_owned).collect();
    let old = old.iter().find(|l| l.starts_with('k')).unwrap();
    let said = sutler(&folder, &["ledger", "rotate-key"]).ok();
    assert!(said.contains("3 texts were sealed again") && said.contains("--finish"), "{said}");
    assert_eq!(world.api().get(&path).await.json, before.json);
    apply(&world.api(), &body("more", json!({"do": "ok"}))).await;
    world.host.stop().await;
    let said = sutler(&folder, &["ledger", "rotate-key", "--finish"]).ok();
    assert!(said.contains("may be removed"), "{said}");
    let text = std::fs::read_to_string(&key).unwrap();
    std::fs::write(&key, text.replace(&format!("{old}\n"), "")).unwrap();
    assert!(!std::fs::read_to_string(&key).unwrap().contains(old.as_str()));
    sutler(&folder, &["ledger", "check"]).ok();

    let toml = config(&folder, &folder.join("plugins"));
    let host = SutlerProcess::start(&format!("{toml}\n[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n"), &[]).await;
    let api = Caller::new(&host.url);
    assert_eq!(api.get(&path).await.json, before.json);
    assert_eq!(api.post("/apply", &ok).await.json, first.json, "a repeat is recognised under the new key");
}

#[test]
fn a_ledger_is_made_and_its_schema_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("sutler.toml"), config(at, at)).unwrap();
    assert!(sutler(at, &["ledger", "check"]).refused().contains("there is no ledger at"));
    assert!(sutler(at, &["job", "list"]).refused().contains("there is no ledger at"));
    assert!(sutler(at, &["ledger", "migrate"]).ok().contains("a new ledger with schema"));
    assert!(sutler(at, &["ledger", "migrate"]).ok().contains("nothing to do"));
    assert!(sutler(at, &["ledger", "check"]).ok().contains("no jobs"));
    std::fs::write(at.join("sutler.toml"), "[ledger]\npath = \"sutler.toml\"\nkey-file = \"ledger.key\"\n")
        .unwrap();
    sutler(at, &["ledger", "migrate"]).refused();
}
