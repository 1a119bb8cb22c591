//! From one ledger into another and back.

use bytes::Bytes;
use futures::StreamExt as _;
use sutler_ledger::{Begun, Job, LeaseChange, Ledger, Record, Status};
use sutler_model::Digest;

use super::contract::rig;
use crate::sqlite::{answer, held, save};

async fn all(ledger: &dyn Ledger) -> Vec<Record> {
    ledger.export().map(Result::unwrap).collect().await
}

/// Everything that a record holds, as a text.
fn texts(records: &[Record]) -> Vec<String> {
    let rest = |j: &Job| {
        let Job { application, resources, caller, request_id, request, state, answer, .. } = j;
        let (a, b) = (format!("{application:?} {resources:?}"), format!("{caller} {request_id}"));
        let times = (j.due, j.deadline, j.created, j.updated);
        format!("{a} {b} {request} {state} {answer:?} {times:?} {} {}", j.plugin, j.digest)
    };
    let text = |r: &Record| match r {
        Record::Job { job, .. } => format!("{r:?} {}", rest(job)),
        other => format!("{other:?}"),
    };
    let mut out: Vec<String> = records.iter().map(text).collect();
    out.sort();
    out
}

async fn into(records: Vec<Record>, ledger: &dyn Ledger) {
    for record in records {
        ledger.import(record).await.unwrap();
    }
}

/// A ledger with a job in each state.
async fn fill(ledger: &dyn Ledger) {
    for n in 0..12 {
        let mut sample = held().nth(n).tenant(if n % 3 == 0 { "acme" } else { "" });
        sample.resources = if n % 2 == 0 { vec!["main"] } else { vec!["b", "a"] };
        let job = sample.create(ledger).await;
        if n == 5 {
            let joined = sutler_ledger::contract::Sample { request_id: "r-join".into(), ..sample };
            assert!(matches!(ledger.begin(joined.new_job()).await.unwrap(), Begun::Joined(_)));
        }
        let mut write = save(&job, "{\"größe\":\"ä\\u0001\"}");
        match n % 4 {
            0 => continue,
            1 => write = answer(&job, "{\"outcome\":\"succeeded\"}"),
            2 => {
                write.lease = LeaseChange::Release;
                write.due_after = std::time::Duration::from_secs(90);
                write.events = vec![sutler_ledger::Happened::Waiting { due: sutler_ledger::Millis(90_000) }];
            }
            _ => {
                write.standing.cancel_requested = true;
                // Whatever a plugin takes for a code.
                let code = "odd}\0\\u0000\u{2028}\"'".to_owned();
                write.events =
                    vec![sutler_ledger::Happened::StepFailed { code, due: sutler_ledger::Millis(5) }];
            }
        }
        ledger.commit(write).await.unwrap();
    }
    let mut draft = held().nth(50);
    (draft.lease, draft.status) = (None, Status::Draft);
    draft.create(ledger).await;
    ledger.keep_plugin(Digest::of(b"topics"), Bytes::from_static(b"topics")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_survives_the_way_to_postgresql_and_back() {
    let (first, shared, last) = (crate::sqlite::rig().await, rig().await, crate::sqlite::rig().await);
    fill(&*first.ledger).await;
    let records = all(&*first.ledger).await;
    assert_eq!(records.len(), 13 + 1 + 1);
    into(records.clone(), &*shared.ledger).await;
    assert_eq!(shared.ledger.check().await.unwrap(), []);
    let between = all(&*shared.ledger).await;
    assert_eq!(texts(&between), texts(&records));
    into(between, &*last.ledger).await;
    assert_eq!(last.ledger.check().await.unwrap(), []);
    assert_eq!(texts(&all(&*last.ledger).await), texts(&records));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_shows_one_moment() {
    let rig = rig().await;
    for n in 0..250 {
        held().nth(n).create(&*rig.ledger).await;
    }
    let mut export = rig.ledger.export();
    let first = export.next().await.unwrap().unwrap();
    // What comes later is not in it, and does not wait for it.
    held().nth(1000).create(&*rig.ledger).await;
    let rest: Vec<_> = export.collect().await;
    assert_eq!(rest.len(), 249);
    assert!(matches!(first, Record::Job { .. }) && rest.iter().all(Result::is_ok));
    // One that is not read to its end holds up nobody.
    drop(rig.ledger.export().next().await);
    assert_eq!(all(&*rig.ledger).await.len(), 251);
}

#[tokio::test]
async fn what_a_text_cannot_hold_is_refused_for_good_and_a_code_holds_everything() {
    let rig = rig().await;
    fill(&*rig.ledger).await;
    let code = |e: &sutler_ledger::Event| match &e.what {
        sutler_ledger::Happened::StepFailed { code, due } => Some((code.clone(), due.0 - e.at.0)),
        _ => None,
    };
    let mut codes = Vec::new();
    for record in all(&*rig.ledger).await {
        if let Record::Job { events, .. } = record {
            codes.extend(events.iter().filter_map(code));
        }
    }
    assert_eq!(codes, vec![("odd}\0\\u0000\u{2028}\"'".to_owned(), 5); 3]);
    let mut new = held().nth(99).new_job();
    new.job.request_id = "r\0".into();
    let got = rig.ledger.begin(new).await;
    assert!(matches!(got, Err(sutler_ledger::LedgerError::Unreadable(_))), "{got:?}");
}
