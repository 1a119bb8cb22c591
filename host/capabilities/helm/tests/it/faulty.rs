//! An API server that refuses, drops, delays and loses answers at random: every operation is right in the end, and what
//! fails on the way says why. `SUTLER_SEEDS` for more of them.

use std::time::Duration;

use futures::StreamExt as _;
use sutler_helm::{Error, Outcome};
use sutler_model::Mode;
use sutler_testkit::Dice;
use sutler_testkit::cluster::Fault;

use crate::again::{DEEDS, Deed, deed, ready_for, state};
use crate::release::secret_names;
use crate::support::call;

/// What passes by itself; a conflict that is none is told apart below.
fn fault(dice: &mut Dice) -> Fault {
    match dice.roll(12) {
        0 => Fault::Status(500),
        1 => Fault::Status(429),
        2 => Fault::Status(503),
        3 => Fault::Drop,
        4 | 5 => Fault::DropAnswer,
        6 => Fault::Delay(Duration::from_millis(20)),
        _ => Fault::None,
    }
}

fn true_reason(e: &Error) -> bool {
    match e {
        Error::Unavailable(m) => {
            m.contains("cannot be reached")
                || m.contains("answered 5")
                || m.contains("answered 429")
                || m.contains("broke off")
        }
        Error::Pending(m) => m.contains("meanwhile") || m.contains("another operation holds"),
        _ => false,
    }
}

async fn through(what: Deed, seed: u64) {
    let calm = ready_for(what).await;
    while let Outcome::InProgress(_) = deed(&calm, &call(Mode::Apply), what).await.unwrap() {}
    let w = ready_for(what).await;
    let mut dice = Dice(seed);
    let faults: Vec<Fault> = (0..60).map(|_| fault(&mut dice)).collect();
    faults.iter().for_each(|f| w.cluster.fail_next(*f));
    let call = call(Mode::Apply);
    for turn in 0.. {
        match deed(&w, &call, what).await {
            Ok(Outcome::Done(_)) => break,
            Ok(Outcome::InProgress(_)) => {}
            // The last answer of an uninstall was lost.
            Err(Error::NotFound) if what == Deed::Uninstall && turn > 0 => break,
            Err(e) => assert!(true_reason(&e), "{what:?}, seed {seed}: {e:?}"),
        }
        assert!(turn < 100, "{what:?}, seed {seed}: no end");
    }
    assert_eq!(state(&w), state(&calm), "{what:?}, seed {seed}");
    assert!(secret_names(&w).iter().all(|s| !s.contains("pending")), "{what:?}, seed {seed}");
}

#[tokio::test]
async fn through_a_faulty_api_server() {
    let seeds: u64 = std::env::var("SUTLER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    // Side by side, since most of the time is spent in pauses before requests are sent again.
    for what in DEEDS {
        let all = (1..=seeds).map(|seed| through(what, seed * 31 + what as u64));
        futures::stream::iter(all).buffer_unordered(16).collect::<()>().await;
    }
}

#[tokio::test]
async fn a_conflict_fails_the_revision_with_its_reason() {
    let w = ready_for(Deed::Upgrade).await;
    // One that passes is no reason yet.
    for _ in 0..5 {
        w.cluster.fail_next_matching("PATCH /api/v1/namespaces/ns/configmaps/m?", Fault::Status(409));
    }
    let e = deed(&w, &call(Mode::Apply), Deed::Upgrade).await.unwrap_err();
    assert!(
        matches!(&e, Error::Other { code: "conflict", message } if message.contains("ConfigMap \"m\"")),
        "{e:?}"
    );
    assert_eq!(secret_names(&w), ["sh.helm.release.v1.app.v1 deployed", "sh.helm.release.v1.app.v2 failed"]);
}
