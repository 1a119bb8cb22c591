//! What a ledger and its jobs do not say alike.

use std::sync::Arc;

use bytes::Bytes;
use sutler_jobs::check;
use sutler_ledger::{Event, Happened, Job, JobId, Ledger, Memory, Millis, Phase, Record};
use sutler_model::Digest;

use crate::common::{Script, accepted, clock, done, goes_on, host, ledger, new, row, stops, wait};

const PLUGIN: &[u8] = b"one";

/// The problems of a ledger with this job alone.
async fn problems(job: &Job, events: &[Event], plugin: bool) -> Vec<String> {
    let ledger = Memory::new(clock());
    if plugin {
        ledger.keep_plugin(Digest::of(PLUGIN), Bytes::from_static(PLUGIN)).await.unwrap();
    }
    let (job, events) = (Box::new(job.clone()), events.to_vec());
    ledger.import(Record::Job { job, events, route: "apply".into(), body: [1; 32] }).await.unwrap();
    check(&ledger).await.unwrap().into_iter().map(|p| format!("{}: {}", p.at, p.message)).collect()
}

/// One that waits in its second step, and one that has failed.
async fn jobs() -> [(Job, Vec<Event>); 2] {
    let (ledger, _) = ledger();
    let (ops, _) =
        host(&ledger, Script::new("a", |s| if s.step.is_empty() { goes_on("two") } else { wait(60_000) }));
    let waiting = accepted(&ops.begin(new("r-1")).await.unwrap());
    let waiting = row(&ledger, &waiting).await;
    let (ledger, _) = crate::common::ledger();
    let (ops, _) = host(&ledger, Script::new("a", |_| stops("quota-exceeded", false)));
    ops.begin(new("r-2")).await.unwrap();
    let failed = ledger.jobs(sutler_ledger::Filter { limit: 1, ..Default::default() }).await.unwrap();
    let failed: JobId = failed[0].id.clone();
    [waiting, row(&ledger, &failed).await]
}

type Change = fn(&mut Job, &mut Vec<Event>);

fn text(of: &Arc<str>, from: &str, to: &str) -> Arc<str> {
    assert!(of.contains(from), "{from} is not in {of}");
    of.replacen(from, to, 1).into()
}

#[tokio::test(start_paused = true)]
async fn what_a_row_and_its_request_and_events_do_not_say_alike_is_named() {
    let [(waiting, events), (failed, ends)] = jobs().await;
    assert_eq!(problems(&waiting, &events, true).await, Vec::<String>::new());
    // What has ended needs no plugin.
    assert_eq!(problems(&failed, &ends, false).await, Vec::<String>::new());
    let lacking = problems(&waiting, &events, false).await;
    assert!(lacking.len() == 1 && lacking[0].contains("is unfinished and its plugin sha256:"), "{lacking:?}");

    let table: [(Change, &str); 19] = [
        (|j, _| j.application.tenant = Some("globex".parse().unwrap()), "says tenant \"globex\""),
        (
            |j, _| j.application.id = "payments".parse().unwrap(),
            "says application \"payments\" and its request \"orders\"",
        ),
        (|j, _| j.application.environment = "test".parse().unwrap(), "says environment \"test\""),
        (|j, _| j.application.instance = Some("emea".parse().unwrap()), "says instance \"emea\""),
        (|j, _| j.pair = "deployment/other".parse().unwrap(), "says pair \"deployment/other\""),
        (
            |j, _| j.resources = vec!["main".parse().unwrap(), "more".parse().unwrap()],
            "says resources \"main, more\"",
        ),
        (|j, _| j.request_id = "r-9".into(), "says request id \"r-9\""),
        (|j, _| j.subject_id = "payments".into(), "is about \"payments\""),
        (|j, _| j.token += 1, "has the token 2, and its events end with 1"),
        (|j, _| j.revision = 99, "has revision 99"),
        (|j, _| j.revision = 0, "has revision 0"),
        (|j, _| j.standing.step = "twp".into(), "and its row says running ("),
        (|j, _| j.standing.phase = Phase::Cleanup, "and its row says running ("),
        (|j, _| j.request = text(&j.request, "\"pair\"", "\"pbir\""), "its request is damaged"),
        (|j, _| j.request = text(&j.request, "}", ""), "its request is damaged"),
        (|j, _| j.state = text(&j.state, "{", "["), "its state is damaged"),
        (|j, _| j.answer = Some("{".into()), "its answer is damaged"),
        (
            |_, e| {
                for e in e.iter_mut().filter(|e| matches!(e.what, Happened::StepFinished { .. })) {
                    e.what = Happened::StepFinished { next: "twp".into() };
                }
            },
            "its events do not follow each other",
        ),
        (
            |_, e| {
                e.push(Event {
                    seq: 99,
                    at: Millis(0),
                    what: Happened::Claimed { token: 1, holder: "b".into() },
                })
            },
            "do not grow",
        ),
    ];
    for (n, (change, words)) in table.into_iter().enumerate() {
        let (mut job, mut events) = (waiting.clone(), events.clone());
        change(&mut job, &mut events);
        let found = problems(&job, &events, true).await;
        assert!(found.iter().any(|p| p.contains(words) && p.starts_with(job.id.as_str())), "{n}: {found:?}");
    }

    let mut other = failed.clone();
    other.answer = other.answer.as_ref().map(|a| text(a, "quota-exceeded", "quota-exceedec"));
    let found = problems(&other, &ends, true).await;
    assert!(
        found.len() == 1 && found[0].contains("failed with \"quota-exceeded\" by its events"),
        "{found:?}"
    );
    other.answer = None;
    let found = problems(&other, &ends, true).await;
    assert!(found.len() == 1 && found[0].contains("has ended and has no answer"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn texts_may_be_as_deep_as_they_like() {
    let [(mut job, events), (mut failed, ends)] = jobs().await;
    let deep = format!("{}7{}", "[".repeat(50_000), "]".repeat(50_000));
    job.request = text(&job.request, "{\"size\":3}", &deep);
    job.state = text(&job.state, "\"applied\":[]", &format!("\"applied\":{deep}"));
    assert_eq!(problems(&job, &events, true).await, Vec::<String>::new());
    failed.answer = failed.answer.as_ref().map(|a| text(a, "\"applied\":[]", &format!("\"applied\":{deep}")));
    assert_eq!(problems(&failed, &ends, true).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn who_holds_a_job_is_who_claimed_it() {
    let (ledger, _) = ledger();
    let look = ledger.clone();
    let (to, seen) = tokio::sync::oneshot::channel();
    let to = std::sync::Mutex::new(Some(to));
    let play = move |s: crate::common::Seen| -> futures::future::BoxFuture<'static, sutler_jobs::Ran> {
        let (look, to) = (look.clone(), to.lock().unwrap().take());
        Box::pin(async move {
            let _ = to.unwrap().send(row(&look, &s.id).await);
            done()
        })
    };
    let (ops, _) = host(&ledger, Script::slow("a", play));
    ops.begin(new("r-1")).await.unwrap();
    let (mut job, events) = seen.await.unwrap();
    assert_eq!(problems(&job, &events, true).await, Vec::<String>::new());
    if let Some(lease) = &mut job.lease {
        lease.holder = "b".into();
    }
    let found = problems(&job, &events, true).await;
    assert!(
        found.len() == 1 && found[0].contains("is held by \"b\", and was last claimed by \"a\""),
        "{found:?}"
    );
}
