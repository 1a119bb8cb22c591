//! A disk that takes nothing more: what needs no ledger is served, the rest says when to try again, what was accepted
//! goes on once there is room, and nothing is restarted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::{SutlerProcess, sutler_binary};

use crate::seven::{self, QUICK, deed, gate, until, waiting};
use crate::support::Site;

fn body(resource: &str, settings: Value) -> Value {
    SampleRequest::new("tool/seven").change(resource, "create", settings).body()
}

/// More than fits into pages that the file has already.
fn late() -> Value {
    body("late", json!({"note": "x".repeat(50_000)}))
}

/// While the disk is in trouble, with one operation that was accepted before.
async fn refuses_what_it_cannot_keep(api: &Caller, accepted: &str) {
    let new = late();
    let refused = api.post("/apply", &new).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.json["error"]["code"], "unavailable", "{}", refused.text);
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    for word in ["disk", "read-only", "ledger.db"] {
        assert!(!refused.text.contains(word), "callers hear nothing of the disk: {}", refused.text);
    }
    assert_eq!(api.post("/plan", &new).await.json["outcome"], "planned");
    let mut inspect = new.clone();
    inspect["changes"] = json!([{"resource": "late"}]);
    assert_eq!(api.post("/inspect", &inspect).await.json["outcome"], "inspected");
    // What is there can still be read.
    let read = api.get(&format!("/operations/{accepted}")).await;
    assert_eq!((read.status, &read.json["status"]), (200, &json!("running")), "{}", read.text);
}

/// Once the trouble is over.
async fn goes_on(site: &Site, mut host: SutlerProcess, accepted: &str) {
    let api = Caller::new(&host.url);
    gate(&site.cluster, "open");
    until(&api, accepted, |now| now["outcome"] == "succeeded").await;
    let answer = seven::follow(&host.url, &late()).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    seven::once(&site.cluster, &["main", "late"]).unwrap();
    assert!(host.stop().await.success());
}

async fn in_trouble(said: &str) {
    let site = seven::site(QUICK).await;
    let trouble = site.folder.path().join("trouble");
    let env = [("SUTLER_LEDGER_TROUBLE", trouble.to_str().unwrap())];
    let host = SutlerProcess::start(&site.config, &env).await;
    let api = Caller::new(&host.url);
    gate(&site.cluster, "closed");
    let accepted = waiting(&api, &body("main", deed("third", "wait-at-gate"))).await;
    std::fs::write(&trouble, said).unwrap();
    refuses_what_it_cannot_keep(&api, &accepted).await;
    std::fs::remove_file(&trouble).unwrap();
    goes_on(&site, host, &accepted).await;
    let jobs = seven::histories(&seven::ledger(site.folder.path())).await.unwrap();
    assert_eq!(jobs.len(), 2, "what was refused left nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_new_work_and_loses_none() {
    in_trouble("full").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_disk_refuses_new_work_and_loses_none() {
    in_trouble("read-only").await;
}

/// A small file system in memory; it goes with its owner.
struct Small(PathBuf);

impl Small {
    fn new(at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(at));
        Self(at.to_owned())
    }
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }
}

impl Small {
    fn remount(&self, how: &str) {
        run(Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Mounting needs root.
#[tokio::test(flavor = "multi_thread")]
async fn real_disk_that_is_full_refuses_new_work_and_loses_none() {
    let mut site = seven::site(QUICK).await;
    let small = Small::new(&site.folder.path().join("small"));
    site.config = site.config.replace("/ledger.db", "/small/ledger.db");
    let host = SutlerProcess::start(&site.config, &[]).await;
    let api = Caller::new(&host.url);
    gate(&site.cluster, "closed");
    let accepted = waiting(&api, &body("main", deed("third", "wait-at-gate"))).await;
    small.fill();
    // The log beside the ledger's file may have some room of before.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    for n in 0.. {
        let fills = body(&format!("fills-{n}"), json!({"note": "x".repeat(50_000)}));
        if api.post("/apply", &fills).await.status == 503 {
            break;
        }
        assert!(std::time::Instant::now() < end, "it takes everything");
    }
    refuses_what_it_cannot_keep(&api, &accepted).await;
    std::fs::remove_file(small.0.join("filler")).unwrap();
    gate(&site.cluster, "open");
    until(&api, &accepted, |now| now["outcome"] == "succeeded").await;
    let answer = seven::follow(&host.url, &late()).await.unwrap();
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    drop(host);
}

/// What `sutler` says in a folder, with its exit code.
fn sutler(folder: &Path, args: &[&str]) -> (i32, String) {
    let out = Command::new(sutler_binary()).args(args).current_dir(folder).output().unwrap();
    let text = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    (out.status.code().unwrap_or(-1), text)
}

/// Mounting needs root.
#[tokio::test(flavor = "multi_thread")]
async fn real_disk_that_is_read_only_can_be_looked_at() {
    let mut site = seven::site(QUICK).await;
    let folder = site.folder.path().to_owned();
    let small = Small::new(&folder.join("small"));
    site.config = site.config.replace("/ledger.db", "/small/ledger.db");
    std::fs::write(folder.join("sutler.toml"), &site.config).unwrap();
    let mut host = SutlerProcess::start(&site.config, &[]).await;
    gate(&site.cluster, "closed");
    let accepted = waiting(&Caller::new(&host.url), &body("main", deed("third", "wait-at-gate"))).await;
    // As a backup takes it that looks at no log: the log, but not what hosts share.
    let (copy, second) = (small.0.join("copy"), folder.join("second"));
    std::fs::create_dir(&copy).unwrap();
    for name in ["ledger.db", "ledger.db-wal", "ledger.key"] {
        std::fs::copy(small.0.join(name), copy.join(name)).unwrap();
    }
    assert!(host.stop().await.success());
    small.remount("ro");

    let (code, said) = sutler(&folder, &["ledger", "check"]);
    assert!(code == 0 && said.contains("fine") && said.contains("1 running"), "{said}");
    let (code, said) = sutler(&folder, &["job", "list"]);
    assert!(code == 0 && said.contains(&accepted), "{said}");
    let (code, said) = sutler(&folder, &["ledger", "export", "all.jsonl"]);
    assert!(code == 0 && said.contains("1 jobs"), "{said}");
    assert!(!small.0.join("ledger.db-shm").exists());

    let read_only = format!("its folder {} is read-only", small.0.canonicalize().unwrap().display());
    let (code, said) = sutler(&folder, &["job", "cancel", &accepted]);
    assert!(code == 1 && said.contains(&read_only) && said.contains("let this user write there"), "{said}");
    let (code, said) = sutler(&folder, &["doctor"]);
    assert!(code == 1 && said.contains(&read_only) && !said.contains("sutler ledger check says"), "{said}");

    std::fs::create_dir(&second).unwrap();
    let config = site.config.replace("/small/ledger.db", "/small/copy/ledger.db");
    std::fs::write(second.join("sutler.toml"), config).unwrap();
    for args in [&["ledger", "check"][..], &["job", "list"]] {
        let (code, said) = sutler(&second, args);
        assert!(code == 1 && said.contains("ledger.db-wal; copy both with the key file"), "{said}");
    }
    small.remount("rw");
    let (code, said) = sutler(&second, &["ledger", "check"]);
    assert!(code == 0 && said.contains("1 running"), "{said}");
}

/// Mounting needs root.
#[test]
fn real_disk_that_is_full_is_what_the_doctor_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let small = Small::new(&at.join("small"));
    std::fs::create_dir(at.join("plugins")).unwrap();
    let toml = format!(
        "[catalog]\ndir = {:?}\n[ledger]\npath = {:?}\n",
        at.join("plugins"),
        small.0.join("ledger.db")
    );
    std::fs::write(at.join("sutler.toml"), toml).unwrap();
    assert_eq!(sutler(at, &["ledger", "migrate"]).0, 0);
    let (code, said) = sutler(at, &["doctor"]);
    assert!(code == 0 && said.contains("can be written"), "{said}");
    small.fill();
    let (code, said) = sutler(at, &["doctor"]);
    assert!(code == 1 && said.contains("cannot be written") && said.contains("has room"), "{said}");
}
