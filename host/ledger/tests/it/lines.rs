//! Records as lines of text.

use bytes::Bytes;
use futures::StreamExt as _;
use sutler_ledger::contract::{SECRET, Sample};
use sutler_ledger::lines::Line;
use sutler_ledger::{Audit, Keys, Ledger, LedgerError, Record, Takes};
use sutler_model::{Action, Digest, Use};
use tempfile::TempDir;

use crate::sqlite::{InFile, held, rig};

fn keys(rig: &InFile) -> Keys {
    Keys::open(&rig.folder.path().join("ledger.key")).unwrap()
}

async fn all(ledger: &dyn Ledger) -> Vec<Record> {
    ledger.export().map(Result::unwrap).collect().await
}

async fn filled() -> InFile {
    let rig = rig().await;
    rig.ledger.keep_plugin(Digest::of(b"\0asm"), Bytes::from_static(b"\0asm")).await.unwrap();
    held().nth(1).create(&*rig.ledger).await;
    let used = Some(Use { milli_cpus: 500, memory_mib: 64 });
    let takes = Takes { resources: vec![("main".parse().unwrap(), used)], ..Takes::default() };
    let actions = vec![Action::Create];
    Sample { takes, actions, ..Sample::default() }.nth(2).create(&*rig.ledger).await;
    rig.ledger
        .begin(Sample { request_id: "r-more".into(), ..Sample::default().nth(2) }.new_job())
        .await
        .unwrap();
    rig
}

fn why(line: &str, keys: &Keys) -> String {
    match Line::read(line, keys) {
        Err(e @ (LedgerError::Unreadable(_) | LedgerError::MissingKey { .. })) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_line_reads_back_as_it_was() {
    let rig = filled().await;
    let keys = keys(&rig);
    let records = all(&*rig.ledger).await;
    assert_eq!(records.len(), 6);
    for record in records {
        let line = Line::Record(record.clone()).write(&keys).unwrap();
        assert!(!line.contains(SECRET) && !line.contains('\n'), "{line}");
        let Line::Record(back) = Line::read(&line, &keys).unwrap() else { panic!("{line}") };
        match (record, back) {
            (
                Record::Job { job, events, route, body },
                Record::Job { job: j, events: e, route: r, body: b },
            ) => {
                assert!(job == j && job.request.contains(SECRET));
                assert_eq!((events, route, body), (e, r, b));
            }
            (Record::Audit(a), Record::Audit(b)) => assert_eq!(Audit { n: 0, ..a }, b),
            (a, b) => assert_eq!(format!("{a:?}"), format!("{b:?}")),
        }
    }
}

#[tokio::test]
async fn a_line_that_was_changed_or_is_of_another_key_or_version_is_refused() {
    let rig = filled().await;
    let keys = keys(&rig);
    let mut lines = Vec::new();
    for record in all(&*rig.ledger).await {
        lines.push(Line::Record(record).write(&keys).unwrap());
    }
    let job = lines.iter().find(|l| l.starts_with("{\"job\"")).unwrap();
    let plugin = lines.iter().find(|l| l.starts_with("{\"plugin\"")).unwrap();
    assert!(why(&plugin.replace("AGFzbQ==", "AGFzbgo="), &keys).contains("other bytes"));
    // A sealed text opens in its own job only.
    let id = &job[job.find("op_").unwrap()..][..35];
    let moved = job.replace(id, "op_00000000000000000000000000000000");
    assert!(why(&moved, &keys).contains("it was changed"), "{moved}");
    assert!(why(&job[..job.len() / 2], &keys).contains("cannot be read"));
    assert!(why(&job.replace("\"route\"", "\"rout\""), &keys).contains("rout"));
    let folder = TempDir::new().unwrap();
    Keys::rotate(&folder.path().join("k")).unwrap();
    let other = Keys::open(&folder.path().join("k")).unwrap();
    assert!(why(job, &other).contains("put that key back"));
    let head = Line::Head { hashes: keys.hashes_name() }.write(&keys).unwrap();
    assert!(matches!(Line::read(&head, &other), Ok(Line::Head { hashes }) if hashes == keys.hashes_name()));
    let newer = head.replace("\"version\":3", "\"version\":4,\"more\":[]");
    assert!(why(&newer, &keys).contains("format 4"), "{newer}");
    // What the versions before wrote is still read.
    for older in ["\"version\":2", "\"version\":1"] {
        assert!(Line::read(&head.replace("\"version\":3", older), &keys).is_ok());
    }
}
