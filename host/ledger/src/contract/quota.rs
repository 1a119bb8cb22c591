//! What applications take, and the quotas that it is held against.

use std::time::Duration;

use futures::StreamExt as _;
use sutler_model::{Measure, OverQuota, Quota, QuotaOf, Quotas, Use};

use super::rig::{Rig, Sample, claim, claimed, end, id, row, write};
use crate::{Begun, Filter, Happened, Job, Ledger, LedgerError, Phase, Record, Status, Takes};

const DAY: Duration = Duration::from_secs(86400);

const fn uses(milli_cpus: u64, memory_mib: u64) -> Option<Use> {
    Some(Use { milli_cpus, memory_mib })
}

fn applications(n: u64) -> Quota {
    Quota { applications: Some(n), ..Quota::default() }
}

fn takes(resource: &str, after: Option<Use>, instance: Quota, tenant: Quota) -> Takes {
    Takes { resources: vec![(id(resource), after)], quotas: Quotas { instance, tenant } }
}

/// Job number `n` of the instance, which makes its application take this much.
fn sample(n: usize, after: Option<Use>, instance: Quota) -> Sample {
    let takes = takes("main", after, instance, Quota::default());
    Sample { instance: Some("emea"), takes, lease: Some(("host-1", 3600)), ..Sample::default() }.nth(n)
}

/// The same application as number `of`, asked for anew.
fn again(of: usize, request: usize, after: Option<Use>, instance: Quota) -> Sample {
    Sample { request_id: format!("r-again-{request}"), body: 2, ..sample(of, after, instance) }
}

async fn refusal(ledger: &dyn Ledger, sample: &Sample) -> Option<OverQuota> {
    let new = sample.new_job();
    let told = ledger.over_quota(new.job.application.clone(), new.job.pair.clone(), new.takes.clone()).await;
    match ledger.begin(new).await.unwrap() {
        Begun::OverQuota(over) => {
            assert_eq!(told.unwrap().as_ref(), Some(&over), "a plan is told what its apply hears");
            assert!(ledger.asked(sample.caller, "apply", &sample.request_id).await.unwrap().is_none());
            Some(over)
        }
        Begun::Created(_) => {
            assert_eq!(told.unwrap(), None);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// What a quota that allows nothing says is used of a measure.
async fn used(ledger: &dyn Ledger, measure: Measure) -> u64 {
    let mut quota = Quota::default();
    match measure {
        Measure::Applications => quota.applications = Some(0),
        Measure::MilliCpus => quota.milli_cpus = Some(0),
        Measure::MemoryMib => quota.memory_mib = Some(0),
    }
    let new = sample(999_999, uses(1, 1), quota).new_job();
    let over = ledger.over_quota(new.job.application, new.job.pair, new.takes).await.unwrap();
    over.expect("nothing fits into nothing").used
}

async fn all_used(ledger: &dyn Ledger) -> (u64, u64, u64) {
    let [a, c, m] = Measure::ALL;
    (used(ledger, a).await, used(ledger, c).await, used(ledger, m).await)
}

pub async fn the_last_place_goes_to_one_job(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let tasks: Vec<_> = (0..32)
        .map(|n| {
            let ledger = ledger.clone();
            let new = sample(n, uses(100, 10), applications(5)).new_job();
            tokio::spawn(async move { ledger.begin(new).await.unwrap() })
        })
        .collect();
    let (mut created, mut refused) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Begun::Created(_) => created += 1,
            Begun::OverQuota(over) => {
                refused += 1;
                let expected = OverQuota {
                    of: QuotaOf::Instance,
                    measure: Measure::Applications,
                    used: 5,
                    asked: 1,
                    limit: 5,
                };
                assert_eq!(over, expected);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((created, refused), (5, 27));
    assert_eq!(all_used(&*ledger).await, (5, 500, 50));
}

/// A write that begins to take back what a final job did.
async fn clean_up(ledger: &dyn Ledger, job: &Job) -> Job {
    let mut w = write(job);
    (w.token, w.standing.cancel_requested) = (None, true);
    (w.standing.status, w.standing.phase) = (Status::Running, Phase::Cleanup);
    w.events = vec![Happened::CancelRequested, Happened::CleanupStarted];
    ledger.commit(w).await.unwrap()
}

pub async fn what_counts_follows_the_job(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let free = Quota::default();
    let job = sample(1, uses(100, 10), free).create(&*ledger).await;
    assert_eq!(all_used(&*ledger).await, (1, 100, 10), "from the moment when the job is accepted");
    ledger.commit(end(&job, Status::Completed)).await.unwrap();
    assert_eq!(all_used(&*ledger).await, (1, 100, 10));

    // An update counts with its larger side until it is over.
    let job = again(1, 2, uses(300, 5), free).create(&*ledger).await;
    assert_eq!(all_used(&*ledger).await, (1, 300, 10));
    let failed = ledger.commit(end(&job, Status::Failed)).await.unwrap();
    assert_eq!(all_used(&*ledger).await, (1, 300, 10), "what a failed job made may still run");
    let cleaning = clean_up(&*ledger, &failed).await;
    ledger.commit(end(&cleaning, Status::Cancelled)).await.unwrap();
    assert_eq!(all_used(&*ledger).await, (1, 100, 10), "taken back to what it was");

    let job = again(1, 3, uses(0, 0), free).create(&*ledger).await;
    ledger.commit(end(&job, Status::Completed)).await.unwrap();
    assert_eq!(all_used(&*ledger).await, (1, 0, 0), "stopped, and still an application");

    let job = again(1, 4, None, free).create(&*ledger).await;
    assert_eq!(all_used(&*ledger).await, (1, 0, 0), "a delete frees when it is done");
    ledger.commit(end(&job, Status::Completed)).await.unwrap();
    assert_eq!(all_used(&*ledger).await, (0, 0, 0));

    // A create that was taken back leaves nothing, whether it had ended or not.
    for (n, status) in [(5, Status::Completed), (6, Status::Failed)] {
        let job = sample(n, uses(7, 7), free).create(&*ledger).await;
        let ended = ledger.commit(end(&job, status)).await.unwrap();
        assert_eq!(all_used(&*ledger).await, (1, 7, 7));
        let cleaning = clean_up(&*ledger, &ended).await;
        ledger.commit(end(&cleaning, Status::Cancelled)).await.unwrap();
        assert_eq!(all_used(&*ledger).await, (0, 0, 0));
    }
    assert_eq!(ledger.check().await.unwrap(), []);
}

pub async fn a_tenant_has_a_quota_within_its_instances(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let of = |n: usize, tenant: &str, most: Quota| {
        let takes = takes("main", uses(1000, 64), Quota::default(), most);
        Sample { takes, ..sample(n, None, Quota::default()).tenant(tenant) }
    };
    let cpus = Quota { milli_cpus: Some(2500), ..Quota::default() };
    assert_eq!(refusal(&*ledger, &of(1, "acme", cpus)).await, None);
    assert_eq!(refusal(&*ledger, &of(2, "acme", cpus)).await, None);
    let over =
        OverQuota { of: QuotaOf::Tenant, measure: Measure::MilliCpus, used: 2000, asked: 1000, limit: 2500 };
    assert_eq!(refusal(&*ledger, &of(3, "acme", cpus)).await, Some(over));
    assert_eq!(refusal(&*ledger, &of(4, "globex", cpus)).await, None, "another tenant has its own");
    assert_eq!(refusal(&*ledger, &of(5, "", cpus)).await, None, "those without a tenant too");
    let elsewhere = Sample { instance: Some("apac"), ..of(6, "acme", cpus) };
    assert_eq!(refusal(&*ledger, &elsewhere).await, None, "and so has the tenant elsewhere");
}

pub async fn a_quota_that_was_lowered_touches_nothing_that_runs(rig: &dyn Rig) {
    let ledger = rig.ledger();
    for n in 1..=3 {
        let job = sample(n, uses(1000, 100), applications(3)).create(&*ledger).await;
        ledger.commit(end(&job, Status::Completed)).await.unwrap();
    }
    let none = Quota { applications: Some(0), milli_cpus: Some(0), memory_mib: Some(0) };
    for (n, after) in [(1, uses(1000, 100)), (2, uses(500, 100)), (3, None)] {
        let job = again(n, n, after, none).create(&*ledger).await;
        ledger.commit(end(&job, Status::Completed)).await.unwrap();
    }
    assert_eq!(all_used(&*ledger).await, (2, 1500, 200));
    let over = refusal(&*ledger, &again(2, 9, uses(501, 100), none)).await.unwrap();
    assert_eq!((over.measure, over.used, over.asked, over.limit), (Measure::MilliCpus, 1500, 1, 0));
    // A second resource of an application is no second application.
    let mut side = again(2, 10, None, applications(0));
    side.resources = vec!["side"];
    side.takes = takes("side", uses(1, 1), applications(0), Quota::default());
    assert_eq!(refusal(&*ledger, &side).await, None);
}

pub async fn forgotten_jobs_still_count(rig: &dyn Rig) {
    let ledger = rig.ledger();
    for (n, status) in [(1, Status::Completed), (2, Status::Failed), (3, Status::Cancelled)] {
        let job = sample(n, uses(10, 1), Quota::default()).create(&*ledger).await;
        ledger.commit(end(&job, status)).await.unwrap();
    }
    let gone = sample(4, uses(10, 1), Quota::default()).create(&*ledger).await;
    ledger.commit(end(&gone, Status::Completed)).await.unwrap();
    let gone = again(4, 4, None, Quota::default()).create(&*ledger).await;
    ledger.commit(end(&gone, Status::Completed)).await.unwrap();
    assert_eq!(all_used(&*ledger).await, (2, 20, 2));
    rig.advance(2 * DAY).await;
    assert_eq!(ledger.purge(DAY).await.unwrap(), 5);
    assert_eq!(all_used(&*ledger).await, (2, 20, 2));
    let left =
        ledger.export().filter(|r| std::future::ready(matches!(r, Ok(Record::Taken(_))))).count().await;
    assert_eq!(left, 2, "what is gone is forgotten");
    // Numbers of forgotten jobs are given anew; nothing is mistaken for theirs.
    for n in 11..=15 {
        let job = sample(n, None, Quota::default()).create(&*ledger).await;
        ledger.commit(end(&job, Status::Cancelled)).await.unwrap();
    }
    assert_eq!(all_used(&*ledger).await, (2, 20, 2));
}

/// A job that has ended is not taken up again once a later one changed what it made: neither forward nor to clean up.
pub async fn what_a_later_job_changed_is_left_alone(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let reopened = |job: &Job, phase| {
        let mut w = write(job);
        (w.token, w.standing.status, w.standing.phase) = (None, Status::Queued, phase);
        w.events = vec![Happened::Retried { phase }];
        w
    };
    let two = |n: usize, request: usize, after: Option<Use>| {
        let mut s = again(n, request, after, applications(2));
        s.resources = vec!["main", "side"];
        s.takes.resources.push((id("side"), after));
        s
    };
    for (n, status) in [(1, Status::Failed), (2, Status::Completed)] {
        let job = two(n, n, uses(10, 1)).create(&*ledger).await;
        let ended = ledger.commit(end(&job, status)).await.unwrap();
        let later = again(n, n + 10, None, applications(2)).create(&*ledger).await;
        let refused = ledger.commit(reopened(&ended, Phase::Forward)).await;
        assert!(matches!(&refused, Err(LedgerError::Busy(id)) if *id == later.id), "{refused:?}");
        let over = ledger.commit(end(&later, Status::Completed)).await.unwrap();
        for phase in [Phase::Forward, Phase::Cleanup] {
            let refused = ledger.commit(reopened(&ended, phase)).await;
            assert!(matches!(&refused, Err(LedgerError::Superseded(id)) if *id == later.id), "{refused:?}");
        }
        assert!(row(&*ledger, &job).await == ended, "a refused write leaves nothing");
        // The later one is the last: it may be.
        let again = ledger.commit(reopened(&over, Phase::Cleanup)).await.unwrap();
        ledger.commit(end(&again, Status::Completed)).await.unwrap();
    }
    // An earlier one does not stand in the way of one that changed nothing.
    let none = again(2, 31, None, applications(2)).create(&*ledger).await;
    ledger.commit(end(&none, Status::Completed)).await.unwrap();
    let gone = again(2, 32, None, applications(2)).create(&*ledger).await;
    let failed = ledger.commit(end(&gone, Status::Failed)).await.unwrap();
    ledger.commit(reopened(&failed, Phase::Forward)).await.unwrap();
    assert_eq!(ledger.check().await.unwrap(), []);
}

pub async fn what_is_taken_survives_export_and_import(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let done = sample(1, uses(10, 1), Quota::default()).create(&*ledger).await;
    ledger.commit(end(&done, Status::Completed)).await.unwrap();
    let running = again(1, 2, uses(30, 0), Quota::default()).create(&*ledger).await;
    let other = rig.another().await;
    let records: Vec<Record> = ledger.export().map(Result::unwrap).collect().await;
    for r in records {
        other.import(r).await.unwrap();
    }
    assert_eq!(all_used(&*other).await, (1, 30, 1));
    let there = row(&*other, &running).await;
    let cleaning = clean_up(&*other, &other.commit(end(&there, Status::Failed)).await.unwrap()).await;
    other.commit(end(&cleaning, Status::Cancelled)).await.unwrap();
    assert_eq!(all_used(&*other).await, (1, 10, 1));
    assert_eq!(all_used(&*ledger).await, (1, 30, 1));
}

pub async fn lists_tell_instances_apart(rig: &dyn Rig) {
    let ledger = rig.ledger();
    for (n, instance) in [(1, Some("emea")), (2, Some("apac")), (3, None)] {
        Sample { instance, ..Sample::default() }.nth(n).create(&*ledger).await;
    }
    let listed = async |instance: Option<&str>| {
        let filter = Filter { instance: instance.map(str::to_owned), limit: 9, ..Filter::default() };
        let jobs = ledger.jobs(filter).await.unwrap();
        jobs.into_iter().map(|j| j.request_id).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some("emea")).await, ["r-1"]);
    assert_eq!(listed(Some("apac")).await, ["r-2"]);
    assert_eq!(listed(Some("none")).await.len(), 0);
    assert_eq!(listed(None).await.len(), 3);
}

pub async fn equal_names_in_two_instances_never_meet(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let base = sample(1, uses(10, 1), Quota::default());
    for (n, instance) in [(1, Some("emea")), (2, Some("apac")), (3, None)] {
        Sample { instance, request_id: format!("r-{n}"), body: 9, ..base.clone() }.create(&*ledger).await;
    }
    assert_eq!(all_used(&*ledger).await, (1, 10, 1));
    rig.advance(Duration::from_secs(7200)).await;
    assert_eq!(claimed(&*ledger, claim("host-2", 9)).await.len(), 3);
}

/// An application as the history below knows it.
#[derive(Default, Clone)]
struct Known {
    counts: Option<Use>,
    running: Option<(Job, Option<Use>, Option<Use>)>,
}

fn larger(a: Option<Use>, b: Option<Use>) -> Option<Use> {
    a.zip(b).map_or(a.or(b), |(a, b)| Some(a.max(b)))
}

fn sums(known: &[Known]) -> (u64, u64, u64) {
    let there: Vec<Use> = known.iter().filter_map(|k| k.counts).collect();
    let all = there.iter().copied().fold(Use::default(), |a, b| a + b);
    (there.len() as u64, all.milli_cpus, all.memory_mib)
}

pub async fn a_long_history_is_counted_right(rig: &dyn Rig) {
    let ledger = rig.ledger();
    let quota = Quota { applications: Some(3), milli_cpus: Some(1000), memory_mib: None };
    let mut known = vec![Known::default(); 5];
    // The same dice each time.
    let mut dice = 7_u64;
    let mut throw = move |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let mut refused = 0;
    for step in 0..150 {
        let n = usize::try_from(throw(5)).unwrap();
        if let Some((job, before, after)) = known[n].running.take() {
            let status =
                [Status::Completed, Status::Failed, Status::Cancelled][usize::try_from(throw(3)).unwrap()];
            ledger.commit(end(&job, status)).await.unwrap();
            known[n].counts = match status {
                Status::Completed => after,
                Status::Cancelled => before,
                _ => larger(before, after),
            };
        } else {
            let after = if throw(4) == 0 { None } else { uses(throw(6) * 100, throw(4)) };
            let (before, (applications, cpus, _)) = (known[n].counts, sums(&known));
            let grows =
                after.unwrap_or_default().milli_cpus.saturating_sub(before.unwrap_or_default().milli_cpus);
            let fits = (before.is_some() || after.is_none() || applications < 3)
                && (grows == 0 || cpus + grows <= 1000);
            match ledger.begin(again(n, step, after, quota).new_job()).await.unwrap() {
                Begun::Created(job) => {
                    assert!(fits, "step {step}");
                    known[n] = Known { counts: larger(before, after), running: Some((job, before, after)) };
                }
                Begun::OverQuota(over) => {
                    assert!(!fits, "step {step}: {over}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(all_used(&*ledger).await, sums(&known), "step {step}");
    }
    assert!(refused > 9, "{refused} refusals: the quotas were hardly met");
}
