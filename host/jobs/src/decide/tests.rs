use sutler_ledger::{JobId, JobKind, Lease};
use sutler_model::{Applied, Digest, Identifier, Pause, PluginName};

use super::*;
use crate::OperationsConfig;

fn policy() -> Policy {
    OperationsConfig { attempts: 3, ..OperationsConfig::default() }.policy().unwrap()
}

fn job(mode: JobMode, status: Status, phase: Phase, attempt: u32, cancel_requested: bool) -> Job {
    let id = |s: &str| Identifier::parse(s).unwrap();
    let held = Lease { holder: "a".into(), until: Millis(1000) };
    Job {
        id: JobId::operation(),
        kind: JobKind::Provisioning,
        mode,
        subject_type: "application".into(),
        subject_id: "orders".into(),
        pair: "deployment/ksml".parse().unwrap(),
        application: sutler_model::Application {
            id: id("orders"),
            environment: id("prod"),
            tenant: None,
            instance: None,
        },
        resources: vec![id("main")],
        plugin: PluginName::parse("ksml").unwrap(),
        digest: Digest::of(b"one"),
        caller: "platform".into(),
        request_id: "r-1".into(),
        standing: Standing { status, phase, step: "two".into(), attempt, cancel_requested },
        due: Millis(0),
        lease: (status == Status::Running).then_some(held),
        token: 4,
        revision: 9,
        deadline: Millis(0),
        created: Millis(0),
        updated: Millis(0),
        request: "".into(),
        state: "".into(),
        answer: None,
    }
}

fn at<'a>(policy: &'a Policy, left: u64) -> At<'a> {
    let deadline_left = Duration::from_secs(left);
    At { policy, deadline_left, jitter: 0.5, stopping: false, version: "2.0.0" }
}

fn names(change: &Change) -> Vec<&'static str> {
    change.events.iter().map(Happened::name).collect()
}

fn code(change: &Change) -> Option<String> {
    match change.answer.clone()?? {
        Ended::Succeeded(_) => Some("succeeded".into()),
        Ended::Failed { failure, .. } => Some(failure.code),
    }
}

fn stop(code: &str) -> Ran {
    let applied = vec![Applied {
        resource: Identifier::parse("main").unwrap(),
        outputs: serde_json::json!({}),
        secret_outputs: serde_json::json!({}),
    }];
    let failure = Failure::new(code, "why").retryable();
    Ran::Stopped(Stopped { failure, applied, state: "{\"s\":1}".into() }, None)
}

#[test]
fn adopted_things_are_only_let_go() {
    let (policy, kept) = (policy(), Kept::start());
    // One that is held is let go by its holder, at once and without a call.
    let held = job(JobMode::Adopt, Status::Running, Phase::Forward, 1, false);
    let asked = cancel(&held, &kept, &policy).unwrap().unwrap();
    assert_eq!(names(&asked), ["cancel-requested"]);
    let held = Job { standing: asked.standing, ..held };
    for change in
        [interrupted(&held, &kept, &at(&policy, 9)), settle(&held, &kept, &stop("x"), &at(&policy, 9))]
    {
        let change = change.unwrap();
        assert_eq!(names(&change).last(), Some(&"cancelled"));
        assert_eq!((code(&change).as_deref(), change.then), (Some("cancelled"), Then::Ended));
    }
    for status in [Status::Queued, Status::Failed, Status::Completed] {
        let change =
            cancel(&job(JobMode::Adopt, status, Phase::Forward, 1, false), &kept, &policy).unwrap().unwrap();
        assert_eq!(names(&change), ["cancel-requested", "cancelled"], "{status}");
    }
}

#[test]
fn a_retried_job_that_waits_is_cleaned_up_by_whoever_claims_it() {
    let (policy, kept) = (policy(), Kept::start());
    let queued = job(JobMode::Create, Status::Queued, Phase::Forward, 0, false);
    let change = cancel(&queued, &kept, &policy).unwrap().unwrap();
    assert_eq!((names(&change), change.standing.status), (vec!["cancel-requested"], Status::Queued));
    let standing = next(JobMode::Create, Some(&change.standing), &claimed()).unwrap();
    let change = open(&Job { standing, ..queued }, &kept, &at(&policy, 0)).unwrap();
    assert_eq!(
        names(&change),
        ["cleanup-started", "step-started"],
        "a deadline that is over does not hinder it"
    );
    assert_eq!((change.then, change.deadline), (Then::Call, Some(Duration::from_secs(86_400))));
    // Asked again, nothing changes.
    let again = job(JobMode::Create, Status::Running, Phase::Cleanup, 1, true);
    assert_eq!(cancel(&again, &kept, &policy), Ok(None));
}

fn claimed() -> Happened {
    Happened::Claimed { token: 5, holder: "b".into() }
}

#[test]
fn before_a_call() {
    let (policy, kept) = (policy(), Kept::start());
    let open = |attempt, left| {
        super::open(
            &job(JobMode::Create, Status::Running, Phase::Forward, attempt, false),
            &kept,
            &at(&policy, left),
        )
        .unwrap()
    };
    let begun = open(2, 9);
    assert_eq!(begun.events, [Happened::StepStarted { step: "two".into(), attempt: 3 }]);
    assert_eq!(code(&open(3, 9)).as_deref(), Some("attempts-used-up"));
    assert_eq!(code(&open(0, 0)).as_deref(), Some("deadline-exceeded"));
}

#[test]
fn after_a_call_that_stopped() {
    let (policy, kept) = (policy(), Kept::start());
    let settle = |attempt, left, ran: &Ran| {
        let job = job(JobMode::Create, Status::Running, Phase::Forward, attempt, false);
        super::settle(&job, &kept, ran, &at(&policy, left)).unwrap()
    };
    let again = settle(2, 99, &stop("unavailable"));
    assert_eq!((names(&again), again.then), (vec!["step-failed"], Then::Parked));
    assert_eq!(again.due, Duration::from_millis(1500));
    let stored = again.kept.unwrap();
    assert_eq!(
        (stored.state.as_str(), stored.written_by.as_str(), stored.applied.len()),
        ("{\"s\":1}", "2.0.0", 1)
    );
    for (attempt, left, code) in [(3, 99, "unavailable"), (2, 1, "unavailable"), (1, 99, "plugin-fault")] {
        let change = settle(attempt, left, &stop(code));
        let Some(Some(Ended::Failed { failure, applied, .. })) = change.answer else { panic!("{change:?}") };
        assert_eq!((failure.code.as_str(), failure.retryable, applied.len()), (code, true, 1));
    }
    let pause = |secs| {
        let pause = Pause { state: "{}".into(), after: Duration::from_secs(secs), message: String::new() };
        settle(1, 60, &Ran::Progress(Progress::Wait(pause))).due
    };
    assert_eq!(
        [pause(0), pause(7), pause(7000)],
        [LEAST_PAUSE, Duration::from_secs(7), Duration::from_secs(60)]
    );
}

#[test]
fn what_was_reached_is_in_the_hosts_own_failures() {
    let policy = policy();
    let job = job(JobMode::Create, Status::Running, Phase::Forward, 1, false);
    let kept = settle(&job, &Kept::start(), &stop("unavailable"), &at(&policy, 99)).unwrap().kept.unwrap();
    let over = open(&job, &kept, &at(&policy, 0)).unwrap();
    let Some(Some(Ended::Failed { applied, .. })) = over.answer else { panic!() };
    assert_eq!(applied.len(), 1);
}
