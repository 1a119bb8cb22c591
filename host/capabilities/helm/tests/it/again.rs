//! The host dies at any request of an operation, and the same call comes again: it ends right, no hook that had ended
//! runs twice, and nothing stays pending. What another tool holds is left alone.

use serde_json::{Value, json};
use sutler_helm::{Error, Options, Outcome, Release};
use sutler_model::{Call, Mode};
use sutler_testkit::cluster::Fault;

use crate::release::{rewrite, secret_names};
use crate::support::{World, call, config_map, deployment, hook, of, owner};

/// What is done with the release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Deed {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
    Test,
}

pub(crate) const DEEDS: [Deed; 5] =
    [Deed::Install, Deed::Upgrade, Deed::Rollback, Deed::Uninstall, Deed::Test];

fn chart(w: &World, value: &str) {
    let hooks: Vec<Value> = ["install", "upgrade", "rollback", "delete"]
        .iter()
        .flat_map(|event| {
            [
                hook(
                    "Job",
                    &format!("pre-{event}"),
                    &[&format!("pre-{event}")],
                    0,
                    &["before-hook-creation", "hook-succeeded"],
                ),
                hook("ConfigMap", &format!("more-{event}"), &[&format!("pre-{event}")], 1, &[]),
                hook("Job", &format!("post-{event}"), &[&format!("post-{event}")], 0, &[]),
            ]
        })
        .chain([hook("Job", "t", &["test"], 0, &[])])
        .collect();
    w.hooked(
        &[config_map("m", value), deployment("d", 1), config_map(&format!("only-{value}"), value)],
        &hooks,
    );
}

pub(crate) async fn deed(w: &World, call: &Call, deed: Deed) -> Result<Outcome, Error> {
    let (grants, of, options) = (&w.grants, of("app"), Options::default());
    match deed {
        Deed::Install => {
            chart(w, "1");
            w.helm.upgrade(call, grants, &w.chart, &of, r#"{"v":1}"#, options).await
        }
        Deed::Upgrade => {
            chart(w, "2");
            w.helm.upgrade(call, grants, &w.chart, &of, r#"{"v":2}"#, options).await
        }
        Deed::Rollback => w.helm.rollback(call, grants, &of, 1, options).await,
        Deed::Uninstall => w.helm.uninstall(call, grants, &of, false).await,
        Deed::Test => w.helm.test(call, grants, &of).await,
    }
}

/// A world where the deed is the next thing to do.
pub(crate) async fn ready_for(what: Deed) -> World {
    let w = World::start().await;
    for before in DEEDS.iter().take_while(|d| **d != what).filter(|d| **d != Deed::Uninstall) {
        crate::support::done(deed(&w, &call(Mode::Apply), *before).await.unwrap());
    }
    w.cluster.forget_requests();
    w
}

/// Everything that counts, without times and ids.
pub(crate) fn state(w: &World) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for mut o in w.cluster.objects() {
        if o["kind"] == "Pod" || o["kind"] == "Namespace" {
            continue;
        }
        if o["type"] == "helm.sh/release.v1" {
            let mut r = crate::support::record(&o);
            for h in r["hooks"].as_array_mut().into_iter().flatten() {
                let run = h["last_run"].as_object_mut().unwrap();
                run.retain(|k, _| k == "phase");
            }
            let info = r["info"].as_object_mut().unwrap();
            info.retain(|k, _| !k.ends_with("deployed"));
            o = json!({"kind": "Record", "metadata": {"name": o["metadata"]["name"]}, "status": o["metadata"]["labels"]["status"], "release": r});
        }
        let m = o["metadata"].as_object_mut().unwrap();
        m.retain(|k, _| matches!(k.as_str(), "name" | "labels" | "annotations"));
        o.as_object_mut().unwrap().remove("status");
        out.push(o);
    }
    out
}

/// How often each hook's Job was made.
fn runs(w: &World) -> Vec<String> {
    let mut out: Vec<String> = w
        .cluster
        .answers()
        .iter()
        .filter(|a| a.status == 201 && a.request.path.contains("/jobs/"))
        .map(|a| a.request.path.rsplit('/').next().unwrap_or_default().to_owned())
        .collect();
    out.sort();
    out
}

async fn finished(w: &World, call: &Call, what: Deed) -> Result<Release, Error> {
    for _ in 0..50 {
        if let Outcome::Done(release) = deed(w, call, what).await? {
            return Ok(release);
        }
    }
    panic!("{what:?} makes no progress");
}

async fn killed(what: Deed, n: usize, fault: Fault, whole: &[Value], once: &[String]) -> bool {
    let w = ready_for(what).await;
    let (call, before) = (call(Mode::Apply), runs(&w).len());
    w.cluster.fail_nth_matching(n, "", fault);
    let reached = tokio::select! {
        got = finished(&w, &call, what) => { got.unwrap(); false }
        () = w.cluster.until_held(1) => true,
    };
    if !reached {
        return false;
    }
    // The process is gone; another one is asked the same. Records of the release may be gone with it.
    match finished(&w, &call, what).await {
        Err(Error::NotFound) if what == Deed::Uninstall => {}
        got => drop(got.unwrap()),
    }
    assert_eq!(state(&w), whole, "{what:?} killed at request {n}, {fault:?}");
    let mut ran = runs(&w);
    ran.drain(..before.min(ran.len()));
    assert_eq!(runs(&w).len() - before, once.len(), "{what:?} at {n}, {fault:?}: hooks ran {ran:?}");
    true
}

async fn killed_at_every_request_of(what: Deed) {
    let w = ready_for(what).await;
    let before = runs(&w).len();
    finished(&w, &call(Mode::Apply), what).await.unwrap();
    let (whole, all) = (state(&w), runs(&w));
    let once = &all[..all.len() - before];
    let mut points = 0;
    for n in 1.. {
        let mut more = false;
        for fault in [Fault::Hold, Fault::HoldAnswer] {
            more |= killed(what, n, fault, &whole, once).await;
        }
        if !more {
            break;
        }
        points = n;
    }
    assert!(points > 5, "{what:?} makes {points} requests");
}

#[tokio::test]
async fn an_install_killed_at_every_request() {
    killed_at_every_request_of(Deed::Install).await;
}

#[tokio::test]
async fn an_upgrade_killed_at_every_request() {
    killed_at_every_request_of(Deed::Upgrade).await;
}

#[tokio::test]
async fn a_rollback_killed_at_every_request() {
    killed_at_every_request_of(Deed::Rollback).await;
}

#[tokio::test]
async fn an_uninstall_killed_at_every_request() {
    killed_at_every_request_of(Deed::Uninstall).await;
}

#[tokio::test]
async fn a_test_killed_at_every_request() {
    killed_at_every_request_of(Deed::Test).await;
}

/// The process that is killed: this test program again, told what to do.
#[tokio::test]
async fn child() {
    let Ok(told) = std::env::var("SUTLER_HELM_CHILD") else { return };
    let told: Value = serde_json::from_str(&told).unwrap();
    let w = World::of(&told["way"]).await;
    let mut call = call(Mode::Apply);
    call.request_id = told["call"].as_str().unwrap().to_owned();
    let what = DEEDS.into_iter().find(|d| format!("{d:?}") == told["deed"]).unwrap();
    finished(&w, &call, what).await.unwrap();
}

async fn process_killed(what: Deed, n: usize, fault: Fault, whole: &[Value]) -> bool {
    let w = ready_for(what).await;
    let call = call(Mode::Apply);
    w.cluster.fail_nth_matching(n, "", fault);
    let told = json!({"way": w.way(), "call": call.request_id, "deed": format!("{what:?}")});
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "again::child", "--nocapture"])
        .env("SUTLER_HELM_CHILD", told.to_string())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    tokio::select! {
        status = child.wait() => {
            assert!(status.unwrap().success(), "{what:?} at {n}");
            return false;
        }
        () = w.cluster.until_held(1) => child.kill().await.unwrap(),
    }
    match finished(&w, &call, what).await {
        Err(Error::NotFound) if what == Deed::Uninstall => {}
        got => drop(got.unwrap()),
    }
    assert_eq!(state(&w), whole, "{what:?}, its process killed at request {n}, {fault:?}");
    true
}

#[tokio::test]
async fn a_process_that_is_killed() {
    for (what, stride) in
        [(Deed::Install, 5), (Deed::Upgrade, 8), (Deed::Rollback, 8), (Deed::Uninstall, 8), (Deed::Test, 3)]
    {
        let w = ready_for(what).await;
        finished(&w, &call(Mode::Apply), what).await.unwrap();
        let whole = state(&w);
        for n in (2..).step_by(stride) {
            let fault = if n % 2 == 0 { Fault::Hold } else { Fault::HoldAnswer };
            if !process_killed(what, n, fault, &whole).await {
                break;
            }
        }
    }
}

#[tokio::test]
async fn another_request_of_the_same_owner_builds_on_what_was_cut_off() {
    for (n, status) in [(1, "pending-install"), (2, "failed")] {
        let w = ready_for(Deed::Install).await;
        w.cluster.fail_nth_matching(n, "PUT", Fault::HoldAnswer);
        let first = call(Mode::Apply);
        tokio::select! {
            got = finished(&w, &first, Deed::Install) => panic!("{got:?}"),
            () = w.cluster.until_held(1) => {}
        }
        assert!(secret_names(&w)[0].contains("pending-install"), "{status}");
        let release = finished(&w, &call(Mode::Apply), Deed::Upgrade).await.unwrap();
        assert_eq!(release.revision, 2);
        assert_eq!(w.cluster.object("ConfigMap", "ns", "m").unwrap()["data"]["key"], "2");
        assert!(secret_names(&w).iter().all(|s| !s.contains("pending")), "{:?}", secret_names(&w));
    }
}

#[tokio::test]
async fn a_foreign_pending_record_is_left_alone() {
    let w = ready_for(Deed::Upgrade).await;
    // As Helm's own upgrade would leave it: our labels copied, no annotation.
    let mut record = w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1").unwrap();
    record["metadata"]["annotations"] = json!({});
    record["metadata"]["labels"]["status"] = json!("pending-upgrade");
    rewrite(&mut record, |r| r["info"]["status"] = json!("pending-upgrade"));
    assert_eq!(record["metadata"]["labels"]["sutler.dev/owner"], owner("orders").hash());
    w.cluster.seed(record);
    let before = w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1");
    let e = deed(&w, &call(Mode::Apply), Deed::Upgrade).await.unwrap_err();
    assert!(
        matches!(&e, Error::Pending(m) if m.contains("release app") && m.contains("roll back or uninstall")),
        "{e:?}"
    );
    assert!(matches!(deed(&w, &call(Mode::Apply), Deed::Test).await, Err(Error::Pending(_))));
    assert_eq!(w.cluster.object("Secret", "ns", "sh.helm.release.v1.app.v1"), before);
    assert_eq!(w.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn nothing_is_written_once_the_lease_is_lost() {
    let w = ready_for(Deed::Install).await;
    let mut call = call(Mode::Apply);
    call.fence = sutler_model::Fence::until(std::time::Instant::now() + std::time::Duration::from_secs(60));
    let fence = call.fence.clone();
    let late = Fault::Late(std::time::Duration::from_millis(200));
    w.cluster.fail_next_matching("PATCH /apis/batch/v1/namespaces/ns/jobs/pre-install", late);
    let lose = async {
        w.cluster.until_held(1).await;
        fence.lose();
        w.writes()
    };
    let (got, before) = tokio::join!(deed(&w, &call, Deed::Install), lose);
    assert_eq!(got, Err(Error::TimedOut));
    assert_eq!(w.writes(), before, "the one that was on its way was the last");
}
