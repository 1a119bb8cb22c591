//! The audit.

use std::time::Duration;

use futures::StreamExt as _;
use sutler_model::Action;

use super::rig::{Rig, Sample, end, id, write};
use crate::{Audit, AuditFilter, Deed, Job, Ledger, LedgerError, Millis, Names, Record, Status};

const DAY: Duration = Duration::from_secs(86400);

fn all() -> AuditFilter {
    AuditFilter { limit: 100, ..AuditFilter::default() }
}

/// Who did what to which resource, the newest first.
async fn told(ledger: &dyn Ledger, filter: AuditFilter) -> Vec<String> {
    let rows = ledger.audited(filter).await.unwrap();
    rows.iter().map(|r| format!("{} {} {}", r.actor, r.action, r.resource_id)).collect()
}

fn reload() -> Audit {
    Audit::of_host("ops", "reload", "host-1")
}

fn by(actor: &str, action: &'static str) -> Option<Deed> {
    Some(Deed { actor: actor.into(), action })
}

/// A job that creates `a` and deletes `b`, and leaves `c`.
fn three() -> Sample {
    let actions = vec![Action::Create, Action::Delete, Action::NoOp];
    Sample { resources: vec!["a", "b", "c"], actions, ..Sample::default() }
}

pub async fn what_is_asked_for_is_audited(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let sample = Sample { instance: Some("emea"), lease: Some(("host-1", 60)), ..three() };
    let job = sample.create(&*ledger).await;
    // A repeat, a join and another body change nothing.
    let join = Sample { request_id: "r-join".into(), ..sample.clone() };
    let busy = Sample { request_id: "r-busy".into(), body: 9, ..sample.clone() };
    for other in [&sample, &join, &busy] {
        ledger.begin(other.new_job()).await.unwrap();
    }
    // Nor does a host's own write, or one that is refused.
    let ended = ledger.commit(end(&job, Status::Failed)).await.unwrap();
    let stale = crate::Write { deed: by("ops", "cancel"), ..write(&job) };
    assert!(matches!(ledger.commit(stale).await, Err(LedgerError::Stale(_))));
    let retry = crate::Write { token: None, deed: by("ops", "retry"), ..write(&ended) };
    let again = ledger.commit(retry).await.unwrap();
    ledger.audit(reload()).await.unwrap();

    let rows = ledger.audited(all()).await.unwrap();
    let places: Vec<_> = rows.iter().map(Audit::place).collect();
    assert!(places.is_sorted_by(|a, b| a > b), "{places:?}");
    let told = told(&*ledger, all()).await;
    let retried = format!("ops retry {}", job.id);
    assert_eq!(told, ["ops reload host-1", &retried, "axual delete b", "axual create a"]);
    let [reloaded, retried, deleted, created] = &rows[..] else { panic!("{rows:?}") };
    for row in [created, deleted] {
        assert_eq!((row.resource_type.as_str(), row.at), ("deployment/ksml", job.created));
        assert_eq!(row.application.as_ref(), Some(&job.application));
        assert_eq!((row.operation.as_ref(), row.request_id.as_deref()), (Some(&job.id), Some("r-1")));
    }
    assert_eq!((retried.resource_type.as_str(), retried.at), ("operation", again.updated));
    assert_eq!(retried.application.as_ref(), Some(&job.application));
    assert_eq!((reloaded.resource_type.as_str(), &reloaded.application), ("host", &None));
    assert!(reloaded.at >= again.updated);
    assert_eq!(ledger.check().await.unwrap(), []);
}

async fn of(ledger: &dyn Ledger, n: usize, instance: Option<&'static str>, tenant: &str) -> Job {
    let sample = Sample { instance, tenant: tenant.into(), ..Sample::default() };
    let actions = vec![if n.is_multiple_of(2) { Action::Create } else { Action::Update }];
    // One application id for all: instances and tenants tell them apart.
    let sample = Sample { request_id: format!("r-{n}"), actions, ..sample };
    sample.create(ledger).await
}

pub async fn the_audit_is_filtered_and_paged(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let places = [(None, ""), (None, "acme"), (Some("emea"), "acme"), (Some("emea"), "globex")];
    let mut jobs = Vec::new();
    for (n, (instance, tenant)) in places.into_iter().enumerate() {
        jobs.push(of(&*ledger, n, instance, tenant).await);
        rig.advance(Duration::from_secs(10)).await;
    }
    ledger.audit(reload()).await.unwrap();
    let found = async |f: AuditFilter| -> Vec<usize> {
        let rows = ledger.audited(f).await.unwrap();
        // The reload comes after the jobs.
        let nth = |r: &Audit| jobs.iter().position(|j| Some(&j.id) == r.operation.as_ref()).unwrap_or(4);
        rows.iter().map(nth).collect()
    };
    let is = |text: &str| Some(text.to_owned());
    let only = |names: &[&str]| Names::Only(names.iter().map(|n| (*n).to_owned()).collect());
    let seen = |instances: Names, tenants: Names| AuditFilter { instances, tenants, ..all() };
    for (filter, expected) in [
        (all(), &[4, 3, 2, 1, 0][..]),
        (seen(only(&["emea"]), Names::All), &[3, 2]),
        (seen(only(&["emea", "apac"]), only(&["acme"])), &[2]),
        (seen(Names::All, only(&["acme", "globex"])), &[3, 2, 1]),
        (seen(only(&[]), Names::All), &[4, 1, 0]),
        (seen(only(&[]), only(&[])), &[4, 0]),
        (AuditFilter { of_applications: true, ..seen(only(&[]), only(&[])) }, &[0]),
        (AuditFilter { of_applications: true, ..all() }, &[3, 2, 1, 0]),
        (AuditFilter { instance: is("emea"), ..all() }, &[3, 2]),
        (AuditFilter { tenant: is("acme"), ..all() }, &[2, 1]),
        (AuditFilter { tenant: is("acme"), ..seen(only(&["apac"]), Names::All) }, &[]),
        (AuditFilter { environment: is("prod"), application: is("orders"), ..all() }, &[3, 2, 1, 0]),
        (AuditFilter { environment: is("test"), ..all() }, &[]),
        (AuditFilter { actor: is("ops"), ..all() }, &[4]),
        (AuditFilter { action: is("update"), ..all() }, &[3, 1]),
        (AuditFilter { resource_type: is("deployment/ksml"), ..all() }, &[3, 2, 1, 0]),
        (AuditFilter { resource_id: is("host-1"), ..all() }, &[4]),
        (AuditFilter { operation: Some(jobs[1].id.clone()), ..all() }, &[1]),
        (AuditFilter { from: Some(jobs[1].created), to: Some(jobs[3].created), ..all() }, &[2, 1]),
        (AuditFilter { limit: 2, ..all() }, &[4, 3]),
    ] {
        assert_eq!(found(filter.clone()).await, expected, "{filter:?}");
    }
    let (mut before, mut pages) = (None, Vec::new());
    loop {
        let page = ledger.audited(AuditFilter { limit: 2, before, ..all() }).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.place());
        pages.push(page.len());
    }
    assert_eq!(pages, [2, 2, 1]);
}

pub async fn the_audit_outlives_its_jobs_until_it_is_old(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let old = three().create(&*ledger).await;
    ledger.commit(end(&old, Status::Completed)).await.unwrap();
    rig.advance(40 * DAY).await;
    assert_eq!(ledger.purge(30 * DAY).await.unwrap(), 1);
    let young = Sample { request_id: "r-2".into(), ..three() };
    young.create(&*ledger).await;
    assert_eq!(ledger.forget_audited(41 * DAY).await.unwrap(), 0);
    assert_eq!(told(&*ledger, all()).await.len(), 4);
    assert_eq!(ledger.forget_audited(40 * DAY).await.unwrap(), 2);
    assert_eq!(told(&*ledger, all()).await, ["axual delete b", "axual create a"]);
    assert_eq!(ledger.forget_audited(40 * DAY).await.unwrap(), 0);

    // What is imported beside young rows stands where its time says, and is forgotten by it.
    let young = ledger.audited(all()).await.unwrap()[0].at;
    let ago = |d: Duration| Millis(young.0 - Millis(0).plus(d).0);
    for (actor, at) in [("younger", ago(10 * DAY)), ("older", ago(50 * DAY)), ("old", ago(45 * DAY))] {
        let row = Audit { actor: actor.into(), at, ..reload() };
        ledger.import(Record::Audit(row)).await.unwrap();
    }
    let of_hosts = || AuditFilter { resource_type: Some("host".into()), ..all() };
    let reloads = ["younger reload host-1", "old reload host-1", "older reload host-1"];
    assert_eq!(told(&*ledger, of_hosts()).await, reloads);
    let first = ledger.audited(AuditFilter { limit: 1, ..of_hosts() }).await.unwrap()[0].place();
    assert_eq!(told(&*ledger, AuditFilter { before: Some(first), ..of_hosts() }).await, reloads[1..]);
    assert_eq!(ledger.forget_audited(40 * DAY).await.unwrap(), 2);
    assert_eq!(told(&*ledger, of_hosts()).await, reloads[..1]);
    assert_eq!(ledger.check().await.unwrap(), []);
}

pub async fn the_audit_survives_export_and_import(rig: &dyn Rig) {
    let (ledger, other) = (rig.ledger(), rig.another().await);
    three().create(&*ledger).await;
    for _ in 0..700 {
        ledger.audit(reload()).await.unwrap();
    }
    let foreign = Sample { instance: Some("emea"), request_id: "r-2".into(), ..three() };
    foreign.create(&*ledger).await;
    let records: Vec<_> = ledger.export().collect().await;
    for r in records {
        other.import(r.unwrap()).await.unwrap();
    }
    let many = || AuditFilter { limit: 1000, ..all() };
    let bare = async |l: &dyn Ledger| -> Vec<Audit> {
        l.audited(many()).await.unwrap().into_iter().map(|r| Audit { n: 0, ..r }).collect()
    };
    let rows = bare(&*other).await;
    assert_eq!(rows.len(), 704);
    assert_eq!(rows, bare(&*ledger).await);
    assert_eq!(rows[0].application.as_ref().unwrap().instance, Some(id("emea")));
    let exported: Vec<_> = other.export().collect().await;
    let audits = exported.iter().filter(|r| matches!(r, Ok(Record::Audit(_)))).count();
    assert_eq!(audits, 704);
    assert_eq!(other.check().await.unwrap(), []);
}
