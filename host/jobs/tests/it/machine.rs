//! The transition table: every row, and nothing else.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sutler_jobs::machine::{Illegal, next, replay};
use sutler_ledger::{Happened, JobMode, Millis, Phase, Standing, Status};

fn standing(status: Status, phase: Phase, step: &str, attempt: u32, cancel_requested: bool) -> Standing {
    Standing { status, phase, step: step.into(), attempt, cancel_requested }
}

fn claimed() -> Happened {
    Happened::Claimed { token: 1, holder: "a".into() }
}
fn started(step: &str, attempt: u32) -> Happened {
    Happened::StepStarted { step: step.into(), attempt }
}
fn finished(next: &str) -> Happened {
    Happened::StepFinished { next: next.into() }
}
fn failed_step() -> Happened {
    Happened::StepFailed { code: "x".into(), due: Millis(1) }
}
fn failed() -> Happened {
    Happened::Failed { code: "x".into() }
}
fn waiting() -> Happened {
    Happened::Waiting { due: Millis(1) }
}
fn released() -> Happened {
    Happened::Released { due: Millis(1) }
}
fn retried(phase: Phase) -> Happened {
    Happened::Retried { phase }
}

use Happened::{CancelRequested, Cancelled, CleanupStarted, Completed, Drafted, Saved, Submitted};
use JobMode::{Adopt, Create};
use Phase::{Cleanup, Forward};
use Status::{Draft, Failed, Queued, Running};

#[test]
fn rows_of_the_table() {
    let s = standing;
    let rows = [
        (Create, None, Drafted, s(Draft, Forward, "", 0, false)),
        (Create, None, Submitted, s(Queued, Forward, "", 0, false)),
        (Create, Some(s(Draft, Forward, "", 0, false)), Submitted, s(Queued, Forward, "", 0, false)),
        (Create, Some(s(Queued, Forward, "", 0, false)), claimed(), s(Running, Forward, "", 0, false)),
        (Create, Some(s(Running, Forward, "", 0, false)), started("", 1), s(Running, Forward, "", 1, false)),
        // Step finished, save, wait: the count begins again.
        (Create, Some(s(Running, Forward, "a", 3, false)), finished("b"), s(Running, Forward, "b", 0, false)),
        (Create, Some(s(Running, Forward, "a", 3, false)), Saved, s(Running, Forward, "a", 0, false)),
        (Create, Some(s(Running, Forward, "a", 3, false)), waiting(), s(Running, Forward, "a", 0, false)),
        // Backoff: the count stays. Given back: the attempt is as if it had not been made.
        (Create, Some(s(Running, Forward, "a", 3, false)), failed_step(), s(Running, Forward, "a", 3, false)),
        (Create, Some(s(Running, Forward, "a", 3, false)), released(), s(Running, Forward, "a", 2, false)),
        (Create, Some(s(Running, Forward, "a", 3, false)), claimed(), s(Running, Forward, "a", 3, false)),
        (
            Create,
            Some(s(Running, Forward, "a", 3, false)),
            started("a", 4),
            s(Running, Forward, "a", 4, false),
        ),
        (
            Create,
            Some(s(Running, Forward, "g", 1, false)),
            Completed,
            s(Status::Completed, Forward, "g", 1, false),
        ),
        (Create, Some(s(Running, Forward, "a", 3, false)), failed(), s(Failed, Forward, "a", 3, false)),
        (Create, Some(s(Running, Cleanup, "a", 3, true)), failed(), s(Failed, Cleanup, "a", 3, true)),
        (
            Create,
            Some(s(Failed, Forward, "a", 3, false)),
            retried(Forward),
            s(Queued, Forward, "a", 0, false),
        ),
        (Create, Some(s(Failed, Cleanup, "a", 3, true)), retried(Cleanup), s(Queued, Cleanup, "a", 0, true)),
        (
            Create,
            Some(s(Status::Completed, Forward, "g", 1, false)),
            Submitted,
            s(Queued, Forward, "", 0, false),
        ),
        (Create, Some(s(Draft, Forward, "", 0, true)), Cancelled, s(Status::Cancelled, Forward, "", 0, true)),
        (
            Create,
            Some(s(Queued, Forward, "", 0, true)),
            Cancelled,
            s(Status::Cancelled, Forward, "", 0, true),
        ),
        (Create, Some(s(Running, Forward, "a", 2, true)), CleanupStarted, s(Running, Cleanup, "a", 0, true)),
        (Create, Some(s(Failed, Forward, "a", 2, true)), CleanupStarted, s(Running, Cleanup, "a", 0, true)),
        (Create, Some(s(Failed, Cleanup, "a", 2, true)), CleanupStarted, s(Running, Cleanup, "a", 0, true)),
        (
            Create,
            Some(s(Status::Completed, Forward, "a", 2, true)),
            CleanupStarted,
            s(Running, Cleanup, "a", 0, true),
        ),
        (
            Create,
            Some(s(Running, Cleanup, "a", 1, true)),
            Cancelled,
            s(Status::Cancelled, Cleanup, "a", 1, true),
        ),
        (
            Adopt,
            Some(s(Running, Forward, "a", 1, true)),
            Cancelled,
            s(Status::Cancelled, Forward, "a", 1, true),
        ),
        (
            Adopt,
            Some(s(Failed, Forward, "a", 1, true)),
            Cancelled,
            s(Status::Cancelled, Forward, "a", 1, true),
        ),
        (
            Adopt,
            Some(s(Status::Completed, Forward, "a", 1, true)),
            Cancelled,
            s(Status::Cancelled, Forward, "a", 1, true),
        ),
    ];
    for (mode, from, event, to) in rows {
        assert_eq!(next(mode, from.as_ref(), &event), Ok(to), "{from:?} {event:?}");
    }
}

#[test]
fn what_is_not_in_the_table() {
    let s = standing;
    let rows = [
        (Create, None, claimed()),
        (Create, None, Cancelled),
        (Create, Some(s(Draft, Forward, "", 0, false)), claimed()),
        (Create, Some(s(Draft, Forward, "", 0, false)), Cancelled),
        (Create, Some(s(Queued, Forward, "", 0, false)), started("", 1)),
        (Create, Some(s(Queued, Forward, "a", 0, true)), Cancelled),
        (Create, Some(s(Queued, Forward, "", 0, false)), CleanupStarted),
        (Create, Some(s(Running, Forward, "a", 1, false)), started("a", 1)),
        (Create, Some(s(Running, Forward, "a", 1, false)), started("a", 3)),
        (Create, Some(s(Running, Forward, "a", 1, false)), started("b", 2)),
        (Create, Some(s(Running, Forward, "a", 0, false)), finished("b")),
        (Create, Some(s(Running, Forward, "a", 1, false)), finished("a")),
        (Create, Some(s(Running, Forward, "a", 1, false)), finished("")),
        (Create, Some(s(Running, Forward, "a", 0, false)), Completed),
        (Create, Some(s(Running, Forward, "a", 0, false)), released()),
        (Create, Some(s(Running, Forward, "a", 1, false)), CleanupStarted),
        (Create, Some(s(Running, Forward, "a", 1, false)), Cancelled),
        (Create, Some(s(Running, Forward, "a", 0, true)), started("a", 1)),
        (Create, Some(s(Running, Forward, "a", 1, true)), Completed),
        (Create, Some(s(Running, Forward, "a", 1, true)), failed()),
        (Create, Some(s(Running, Forward, "a", 1, true)), waiting()),
        (Create, Some(s(Running, Forward, "a", 1, true)), Cancelled),
        (Create, Some(s(Running, Cleanup, "a", 1, true)), Completed),
        (Create, Some(s(Running, Cleanup, "a", 1, true)), CancelRequested),
        (Create, Some(s(Running, Cleanup, "a", 0, true)), Cancelled),
        (Create, Some(s(Failed, Forward, "a", 1, false)), claimed()),
        (Create, Some(s(Failed, Forward, "a", 1, false)), retried(Cleanup)),
        (Create, Some(s(Failed, Forward, "a", 1, false)), CleanupStarted),
        (Create, Some(s(Failed, Forward, "a", 1, false)), Submitted),
        (Create, Some(s(Status::Completed, Forward, "a", 1, false)), retried(Forward)),
        (Create, Some(s(Status::Completed, Forward, "a", 1, true)), Cancelled),
        (Adopt, Some(s(Running, Forward, "a", 1, true)), CleanupStarted),
    ];
    for (mode, from, event) in rows {
        assert!(next(mode, from.as_ref(), &event).is_err(), "{from:?} {event:?}");
    }
    for event in every_event("a", 1) {
        let cancelled = s(Status::Cancelled, Cleanup, "a", 0, true);
        assert!(next(Create, Some(&cancelled), &event).is_err(), "cancelled is terminal: {event:?}");
    }
}

/// One of each, for a job in `step` that has made `attempt` attempts.
fn every_event(step: &str, attempt: u32) -> Vec<Happened> {
    vec![
        Drafted,
        Submitted,
        claimed(),
        started(step, attempt + 1),
        finished(if step == "b" { "a" } else { "b" }),
        Saved,
        waiting(),
        failed_step(),
        released(),
        Completed,
        failed(),
        retried(Forward),
        retried(Cleanup),
        CancelRequested,
        CleanupStarted,
        Cancelled,
    ]
}

/// From, event, to: what the contract's table allows, told without attempts and flags.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("draft", "submitted", "queued"),
    ("draft", "cancel-requested", "draft"),
    ("draft", "cancelled", "cancelled"),
    ("queued", "claimed", "running"),
    ("queued", "cancel-requested", "queued"),
    ("queued", "cancelled", "cancelled"),
    ("queued cleanup", "claimed", "running cleanup"),
    ("running", "claimed", "running"),
    ("running", "step-started", "running"),
    ("running", "step-finished", "running"),
    ("running", "saved", "running"),
    ("running", "waiting", "running"),
    ("running", "step-failed", "running"),
    ("running", "released", "running"),
    ("running", "completed", "completed"),
    ("running", "failed", "failed"),
    ("running", "cancel-requested", "running"),
    ("running", "cleanup-started", "running cleanup"),
    ("running", "cancelled", "cancelled"),
    ("running cleanup", "claimed", "running cleanup"),
    ("running cleanup", "step-started", "running cleanup"),
    ("running cleanup", "step-finished", "running cleanup"),
    ("running cleanup", "saved", "running cleanup"),
    ("running cleanup", "waiting", "running cleanup"),
    ("running cleanup", "step-failed", "running cleanup"),
    ("running cleanup", "released", "running cleanup"),
    ("running cleanup", "failed", "failed cleanup"),
    ("running cleanup", "cancelled", "cancelled cleanup"),
    ("failed", "retried", "queued"),
    ("failed", "cancel-requested", "failed"),
    ("failed", "cleanup-started", "running cleanup"),
    ("failed", "cancelled", "cancelled"),
    ("failed cleanup", "retried", "queued cleanup"),
    ("failed cleanup", "cancel-requested", "failed cleanup"),
    ("failed cleanup", "cleanup-started", "running cleanup"),
    ("completed", "submitted", "queued"),
    ("completed", "cancel-requested", "completed"),
    ("completed", "cleanup-started", "running cleanup"),
    ("completed", "cancelled", "cancelled"),
];

fn place(s: &Standing) -> String {
    if s.phase == Cleanup { format!("{} cleanup", s.status) } else { s.status.to_string() }
}

/// Everything that can be reached, step by step: exactly the table.
#[test]
fn what_can_be_reached_is_the_table() {
    let mut found: BTreeSet<(String, &'static str, String)> = BTreeSet::new();
    for mode in [Create, Adopt] {
        let mut seen: Vec<Standing> = vec![];
        let mut open: Vec<Standing> =
            [Drafted, Submitted].iter().map(|e| next(mode, None, e).unwrap()).collect();
        while let Some(at) = open.pop() {
            if seen.contains(&at) || at.attempt > 3 {
                continue;
            }
            seen.push(at.clone());
            for event in every_event(&at.step, at.attempt) {
                if let Ok(to) = next(mode, Some(&at), &event) {
                    found.insert((place(&at), event.name(), place(&to)));
                    open.push(to);
                }
            }
        }
        assert!(seen.len() > 20, "{}", seen.len());
    }
    let allowed: BTreeSet<_> =
        ALLOWED.iter().map(|(a, e, b)| ((*a).to_owned(), *e, (*b).to_owned())).collect();
    let texts = |s: BTreeSet<(String, &str, String)>| {
        s.into_iter().map(|(a, e, b)| format!("{a} {e} {b}")).collect::<Vec<_>>()
    };
    assert_eq!(texts(found), texts(allowed.into_iter().collect()));
}

#[test]
fn replay_sees_more_than_one_event() {
    let begun = [Submitted, claimed(), started("", 1)];
    assert_eq!(replay(Create, &begun), Ok(standing(Running, Forward, "", 1, false)));
    assert_eq!(replay(Create, &[]), Err(Illegal::Empty));
    // Retried in its first step it looks untouched, and is not.
    let after_retry =
        [Submitted, claimed(), started("", 1), failed(), retried(Forward), CancelRequested, Cancelled];
    assert_eq!(replay(Create, &after_retry), Err(Illegal::Effects));
    assert!(replay(Adopt, &after_retry).is_ok());
    let untouched = [Submitted, CancelRequested, Cancelled];
    assert_eq!(replay(Create, &untouched), Ok(standing(Status::Cancelled, Forward, "", 0, true)));
}

fn any_event() -> impl Strategy<Value = Happened> {
    let step = prop_oneof![Just(""), Just("a"), Just("b")];
    prop_oneof![
        3 => (step.clone(), 1_u32..4).prop_map(|(s, n)| started(s, n)),
        2 => step.prop_map(finished),
        14 => (0_usize..16, 0_u32..3).prop_map(|(i, n)| every_event("a", n)[i].clone()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// Whatever is tried in whatever order, a job only goes where the table lets it.
    #[test]
    fn no_sequence_leaves_the_table(
        adopt in any::<bool>(),
        events in proptest::collection::vec(any_event(), 1..80),
    ) {
        let mode = if adopt { Adopt } else { Create };
        let mut at = next(mode, None, &Submitted).unwrap();
        let mut accepted = vec![Submitted];
        for event in events {
            match next(mode, Some(&at), &event) {
                Err(_) => {}
                Ok(to) => {
                    let edge = (place(&at), event.name(), place(&to));
                    let known = ALLOWED.iter().any(|(a, e, b)| (*a, *e, *b) == (&*edge.0, edge.1, &*edge.2));
                    prop_assert!(known, "{:?}", edge);
                    prop_assert!(at.status != Status::Cancelled, "left a terminal state by {:?}", event);
                    prop_assert!(to.attempt <= at.attempt + 1);
                    accepted.push(event);
                    at = to;
                }
            }
        }
        match replay(mode, &accepted) {
            Ok(replayed) => prop_assert_eq!(replayed, at),
            Err(e) => prop_assert_eq!(e, Illegal::Effects),
        }
    }
}
