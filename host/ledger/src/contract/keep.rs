//! Lists, counts, forgetting, moving, checking.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use sutler_model::Digest;

use super::rig::{Rig, Sample, claim, claimed, end, history, park, row, write};
use crate::{Begun, Filter, Job, Ledger, LedgerError, Record, Status};

const DAY: Duration = Duration::from_secs(86400);

fn ids(jobs: &[Job]) -> Vec<String> {
    jobs.iter().map(|j| j.id.to_string()).collect()
}

pub async fn lists_are_filtered_and_paged(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let mut all = Vec::new();
    for n in 0..10 {
        let caller = if n % 2 == 0 { "axual" } else { "other" };
        let pair = if n % 3 == 0 { "tool/x" } else { "deployment/ksml" };
        let sample = Sample { caller, pair, lease: Some(("host-1", 30)), ..Sample::default() };
        all.push(sample.nth(n).tenant(format!("t-{}", n % 5)).create(&*ledger).await);
    }
    ledger.commit(end(&all[3], Status::Completed)).await.unwrap();
    let newest = |keep: &dyn Fn(usize) -> bool| -> Vec<String> {
        let kept = all.iter().enumerate().filter(|(n, _)| keep(*n));
        kept.map(|(_, j)| j.id.to_string()).rev().collect()
    };
    let list = async |f: Filter| ids(&ledger.jobs(Filter { limit: f.limit.max(4), ..f }).await.unwrap());
    let many = || Filter { limit: 100, ..Filter::default() };
    assert_eq!(list(many()).await, newest(&|_| true));
    assert_eq!(list(Filter { caller: Some("other".into()), ..many() }).await, newest(&|n| n % 2 == 1));
    assert_eq!(list(Filter { status: Some(Status::Completed), ..many() }).await, newest(&|n| n == 3));
    assert_eq!(
        list(Filter { pair: Some("tool/x".parse().unwrap()), ..many() }).await,
        newest(&|n| n % 3 == 0)
    );
    assert_eq!(list(Filter { tenant: Some("t-1".into()), ..many() }).await, newest(&|n| n % 5 == 1));
    assert_eq!(list(Filter { application: Some("app-7".into()), ..many() }).await, newest(&|n| n == 7));
    assert_eq!(list(Filter { environment: Some("test".into()), ..many() }).await, newest(&|_| false));
    let page = list(Filter::default()).await;
    assert_eq!(page, newest(&|n| n >= 6));
    let before = Some(all[6].id.clone());
    assert_eq!(
        list(Filter { before: before.clone(), ..Filter::default() }).await,
        newest(&|n| (2..6).contains(&n))
    );
    let both = Filter { before, caller: Some("axual".into()), ..many() };
    assert_eq!(list(both).await, newest(&|n| n < 6 && n % 2 == 0));
}

pub async fn events_are_read_in_order(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let mut job = Sample { lease: Some(("host-1", 30)), ..Sample::default() }.create(&*ledger).await;
    for _ in 0..7 {
        job = ledger.commit(write(&job)).await.unwrap();
    }
    assert_eq!(history(&*ledger, &job).await.len(), 10);
    let page = ledger.events(job.id.clone(), 4, 3).await.unwrap();
    assert_eq!(page.iter().map(|e| e.seq).collect::<Vec<_>>(), [5, 6, 7]);
    assert!(ledger.events(job.id.clone(), 10, 3).await.unwrap().is_empty());
    assert!(ledger.events(crate::JobId::operation(), 0, 3).await.unwrap().is_empty());
}

pub async fn depth_counts(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let base = Sample { lease: Some(("host-1", 600)), ..Sample::default() };
    let mut jobs = Vec::new();
    for n in 0..6 {
        jobs.push(base.nth(n).create(&*ledger).await);
    }
    ledger.commit(end(&jobs[0], Status::Failed)).await.unwrap();
    ledger.commit(park(&jobs[1], Duration::from_secs(5))).await.unwrap();
    ledger.commit(park(&jobs[2], Duration::from_secs(500))).await.unwrap();
    Sample { status: Status::Draft, ..Sample::default() }.nth(8).create(&*ledger).await;
    Sample::default().nth(9).create(&*ledger).await;
    rig.advance(Duration::from_secs(7)).await;
    let depth = ledger.depth().await.unwrap();
    let counts: Vec<_> = depth.jobs.iter().map(|(s, n)| (*s, *n)).collect();
    assert_eq!(counts, [("draft", 1), ("failed", 1), ("queued", 1), ("running", 5)]);
    assert_eq!((depth.due, depth.oldest_due.as_secs()), (2, 7));
    assert_eq!(claimed(&*ledger, claim("host-2", 9)).await.len(), 2);
    assert_eq!(ledger.depth().await.unwrap().due, 0);
}

pub async fn old_final_jobs_are_purged(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let base = Sample { lease: Some(("host-1", 600)), ..Sample::default() };
    let old = base.nth(1).create(&*ledger).await;
    let joined = Sample { request_id: "r-join".into(), ..base.nth(1) };
    assert!(matches!(ledger.begin(joined.new_job()).await.unwrap(), Begun::Joined(_)));
    let running = base.nth(2).create(&*ledger).await;
    ledger.commit(end(&old, Status::Completed)).await.unwrap();
    rig.advance(DAY).await;
    let young = base.nth(3).create(&*ledger).await;
    ledger.commit(end(&young, Status::Failed)).await.unwrap();
    assert_eq!(ledger.purge(2 * DAY).await.unwrap(), 0);
    assert_eq!(ledger.purge(DAY).await.unwrap(), 1);
    assert!(ledger.job(old.id.clone()).await.unwrap().is_none());
    assert!(ledger.events(old.id.clone(), 0, 9).await.unwrap().is_empty());
    assert!(ledger.asked("axual", "apply", "r-1").await.unwrap().is_none());
    assert!(ledger.asked("axual", "apply", "r-join").await.unwrap().is_none());
    for kept in [&running, &young] {
        row(&*ledger, kept).await;
        assert!(ledger.asked("axual", "apply", &kept.request_id).await.unwrap().is_some());
    }
    base.nth(1).create(&*ledger).await;
    assert_eq!(ledger.check().await.unwrap(), []);
}

pub async fn plugins_stay_while_a_job_needs_them(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let digest = Digest::of(b"topics");
    let bytes = Bytes::from_static(b"\0asm topics");
    assert!(ledger.plugin(digest).await.unwrap().is_none());
    for _ in 0..2 {
        ledger.keep_plugin(digest, bytes.clone()).await.unwrap();
    }
    let unused = Digest::of(b"unused");
    ledger.keep_plugin(unused, Bytes::from_static(b"unused")).await.unwrap();
    let job = Sample { lease: Some(("host-1", 600)), ..Sample::default() }.create(&*ledger).await;
    ledger.purge(DAY).await.unwrap();
    assert!(ledger.plugin(unused).await.unwrap().is_some(), "a job that needs it may be about to begin");
    rig.advance(2 * DAY).await;
    ledger.purge(DAY).await.unwrap();
    assert_eq!(ledger.plugin(digest).await.unwrap(), Some(bytes));
    assert!(ledger.plugin(unused).await.unwrap().is_none());
    ledger.commit(end(&job, Status::Completed)).await.unwrap();
    rig.advance(2 * DAY).await;
    assert_eq!(ledger.purge(DAY).await.unwrap(), 1);
    assert!(ledger.plugin(digest).await.unwrap().is_none());
}

async fn all(ledger: &dyn Ledger) -> Vec<Record> {
    ledger.export().map(Result::unwrap).collect().await
}

/// Records as texts that compare whole; what a job holds is in it too.
fn texts(records: &[Record]) -> Vec<String> {
    let job =
        |j: &Job| format!("{j:?} {} {} {:?} {:?} {:?}", j.request, j.state, j.answer, j.created, j.deadline);
    let text = |r: &Record| match r {
        Record::Job { job: j, .. } => format!("{r:?} {}", job(j)),
        other => format!("{other:?}"),
    };
    let mut out: Vec<String> = records.iter().map(text).collect();
    out.sort();
    out
}

pub async fn everything_survives_export_and_import(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let base = Sample { lease: Some(("host-1", 60)), ..Sample::default() };
    let done = base.nth(1).create(&*ledger).await;
    let joined = Sample { request_id: "r-join".into(), ..base.nth(1) };
    ledger.begin(joined.new_job()).await.unwrap();
    ledger.commit(end(&done, Status::Completed)).await.unwrap();
    let parked = base.nth(2).create(&*ledger).await;
    ledger.commit(park(&parked, DAY)).await.unwrap();
    let running = base.nth(3).create(&*ledger).await;
    for n in 10..250 {
        Sample::default().nth(n).create(&*ledger).await;
    }
    ledger.keep_plugin(Digest::of(b"topics"), Bytes::from_static(b"topics")).await.unwrap();
    let records = all(&*ledger).await;
    assert_eq!(records.len(), 3 + 240 + 1 + 1);

    let other = rig.another().await;
    for r in &records {
        other.import(r.clone()).await.unwrap();
    }
    assert_eq!(texts(&all(&*other).await), texts(&records));
    assert!(row(&*other, &parked).await == row(&*ledger, &parked).await);
    assert_eq!(other.check().await.unwrap(), []);
    // It goes on where it was: repeats, overlap and claims.
    assert!(matches!(other.begin(joined.new_job()).await.unwrap(), Begun::Repeated(j) if j.id == done.id));
    let busy = Sample { body: 5, request_id: "r-new".into(), ..base.nth(3) };
    let busy = Sample { request_id: "r-new".into(), ..busy };
    assert_eq!(other.begin(busy.new_job()).await.unwrap(), Begun::Busy(running.id.clone()));
    assert_eq!(claimed(&*other, claim("host-2", 500)).await.len(), 240);
}

pub async fn an_import_does_not_overwrite(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample::default().create(&*ledger).await;
    let record = all(&*ledger).await.remove(0);
    assert!(matches!(ledger.import(record.clone()).await, Err(LedgerError::Unreadable(_))));
    let other = rig.another().await;
    let rival = Sample { request_id: "r-2".into(), body: 3, ..Sample::default() }.create(&*other).await;
    assert!(matches!(other.import(record).await, Err(LedgerError::Busy(id)) if id == rival.id));
    assert!(other.job(job.id).await.unwrap().is_none());
    assert_eq!(other.check().await.unwrap(), []);
}

pub async fn a_probe_leaves_nothing(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let job = Sample::default().create(&*ledger).await;
    for _ in 0..3 {
        ledger.probe().await.unwrap();
    }
    assert!(row(&*ledger, &job).await == job);
    let all: Vec<_> = ledger.export().collect().await;
    assert!(matches!(&all[..], [Ok(Record::Job { .. })]), "{all:?}");
    assert_eq!(ledger.check().await.unwrap(), []);
}

pub async fn a_healthy_ledger_has_no_problems(rig: &dyn Rig) {
    let ledger = rig.ledger();
    assert_eq!(ledger.check().await.unwrap(), []);
    let base = Sample { lease: Some(("host-1", 600)), ..Sample::default() };
    let one = base.nth(1).create(&*ledger).await;
    let two = base.nth(2).create(&*ledger).await;
    Sample { status: Status::Draft, ..Sample::default() }.nth(3).create(&*ledger).await;
    ledger.commit(end(&one, Status::Cancelled)).await.unwrap();
    ledger.commit(park(&two, DAY)).await.unwrap();
    assert_eq!(ledger.check().await.unwrap(), []);
}

pub async fn time_does_not_go_back(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let first = ledger.now().await.unwrap();
    rig.advance(Duration::from_secs(90)).await;
    let second = ledger.now().await.unwrap();
    assert!(second >= first.plus(Duration::from_secs(90)));
    let job = Sample::default().create(&*ledger).await;
    assert!(job.created >= second);
}
