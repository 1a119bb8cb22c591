use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sutler_ledger::contract::{Rig, Sample};
use sutler_ledger::{Ledger, LedgerError, ManualClock, Memory, Millis, Moment};

struct InMemory {
    clock: ManualClock,
    ledger: Arc<Memory>,
}

async fn rig() -> InMemory {
    let clock = ManualClock::new(Millis(1_800_000_000_000));
    InMemory { ledger: Arc::new(Memory::new(clock.clock())), clock }
}

impl Rig for InMemory {
    fn ledger(&self) -> Arc<dyn Ledger> {
        self.ledger.clone()
    }
    fn advance(&self, by: Duration) -> BoxFuture<'_, ()> {
        self.clock.advance(by);
        Box::pin(async {})
    }
    fn another(&self) -> BoxFuture<'_, Arc<dyn Ledger>> {
        let other: Arc<dyn Ledger> = Arc::new(Memory::new(self.clock.clock()));
        Box::pin(async { other })
    }
}

mod contract {
    sutler_ledger::contract_tests!(super::rig);
}

#[tokio::test]
async fn a_hook_fails_before_and_after() {
    let clock = ManualClock::new(Millis(0));
    let calls = Arc::new(AtomicU32::new(0));
    let seen = calls.clone();
    let ledger = Memory::new(clock.clock()).with_hook(Arc::new(move |name, moment| {
        let n = if name == "begin" { seen.fetch_add(1, Ordering::SeqCst) } else { 99 };
        match (n, moment) {
            (0, Moment::Before) => Some(LedgerError::Unavailable("not now".into())),
            (2, Moment::After) => Some(LedgerError::Unknown("who knows".into())),
            _ => None,
        }
    }));
    let new = || Sample::default().new_job();
    assert!(matches!(ledger.begin(new()).await, Err(LedgerError::Unavailable(_))));
    assert!(ledger.asked("axual", "apply", "r-1").await.unwrap().is_none(), "nothing was written");
    assert!(matches!(ledger.begin(new()).await, Err(LedgerError::Unknown(_))));
    assert!(ledger.asked("axual", "apply", "r-1").await.unwrap().is_some(), "it was written");
}

#[tokio::test]
async fn a_clock_set_back_does_not_move_the_ledger_back() {
    let clock = ManualClock::new(Millis(5000));
    let ledger = Memory::new(clock.clock());
    assert_eq!(ledger.now().await.unwrap(), Millis(5000));
    clock.set(Millis(1000));
    assert_eq!(ledger.now().await.unwrap(), Millis(5000));
}
