//! Hosts that pause, die and come back, over a network and a ledger that fail, seed by seed: whatever happens in
//! whatever order, every job ends, every effect exists once, and no stale write is taken.
//!
//! `SUTLER_SIMULATION_SEEDS=10000` runs more; `SUTLER_SIMULATION_SEED=123` runs one again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sutler_jobs::machine::replay;
use sutler_jobs::{Answered, Ended, New, OperationError, OperationsConfig, Who};
use sutler_ledger::{Happened, JobId, Ledger, Memory, Status};
use tokio::time::Instant;

use crate::common::{asked_of, clock, new_of};
use crate::flaky::Weather;
use crate::simulated::{SimHost, Worked};

/// Trouble ends after so long, so that everything can.
const TROUBLE: Duration = Duration::from_secs(90);
/// And everything has ended after so long.
const END: Duration = Duration::from_secs(1200);

/// What is outside of the hosts, and what is watched.
#[derive(Default)]
pub(crate) struct World {
    /// Names of what exists; making one that exists gives that one.
    pub(crate) effects: Mutex<BTreeSet<String>>,
    /// How often something came into being.
    pub(crate) made: Mutex<BTreeMap<String, u32>>,
    /// The newest token of each job.
    pub(crate) tokens: Mutex<BTreeMap<JobId, u64>>,
    pub(crate) wrong: Mutex<Vec<String>>,
    /// What happened, for comparing two runs.
    pub(crate) trace: Mutex<Vec<String>>,
    pub(crate) counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl World {
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }
    pub(crate) fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }
    pub(crate) fn trace(&self, start: Instant, what: String) {
        self.trace.lock().unwrap().push(format!("{} {what}", start.elapsed().as_micros()));
    }
}

pub(crate) fn chance(percent: u32) -> bool {
    fastrand::u32(0..100) < percent
}

pub(crate) fn millis(most: u64) -> Duration {
    Duration::from_micros(fastrand::u64(0..=most * 1000))
}

struct Outcome {
    trace: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

fn run(seed: u64) -> Result<Outcome, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    fastrand::seed(seed);
    runtime.block_on(simulate())
}

fn config() -> OperationsConfig {
    OperationsConfig {
        attempts: if chance(30) { 3 } else { 1000 },
        lease_seconds: 6,
        takeover_after_seconds: 1,
        longest_backoff_seconds: 4,
        workers: fastrand::u32(1..4),
        ..OperationsConfig::default()
    }
}

async fn simulate() -> Result<Outcome, String> {
    let world = Arc::new(World::default());
    let ledger = Arc::new(Memory::new(clock()));
    let weather = Arc::new(Weather::new(TROUBLE));
    let config = config();
    let hosts: Vec<Arc<SimHost>> = (0..fastrand::usize(2..4))
        .map(|n| SimHost::new(n, world.clone(), ledger.clone(), weather.clone(), config.clone()))
        .collect();
    let chaos: Vec<_> = hosts.iter().map(|h| tokio::spawn(h.clone().suffer(TROUBLE))).collect();
    let clients: Vec<_> = (0..fastrand::u8(1..4)).map(|n| tokio::spawn(client(n, hosts.clone()))).collect();
    let mut jobs = vec![];
    let all = async {
        for c in clients {
            jobs.push(c.await.unwrap());
        }
        for c in chaos {
            c.await.unwrap();
        }
    };
    if tokio::time::timeout(END, all).await.is_err() {
        let events = everything(&ledger).await;
        return Err(format!("not everything ended; {events}"));
    }
    // Whatever is still on its way arrives.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for (id, cancelled) in jobs {
        judge(&world, &ledger, &id, cancelled).await;
    }
    for host in &hosts {
        host.kill();
    }
    let wrong = world.wrong.lock().unwrap().clone();
    if !wrong.is_empty() {
        return Err(format!("{wrong:#?}; {}", everything(&ledger).await));
    }
    Ok(Outcome { trace: world.trace.lock().unwrap().clone(), counts: world.counts.lock().unwrap().clone() })
}

/// Sends one apply to one host after another until it has its final answer; some take their work back.
async fn client(n: u8, hosts: Vec<Arc<SimHost>>) -> (JobId, bool) {
    tokio::time::sleep(millis(20_000)).await;
    let request_id = format!("r-{n}");
    let new = new_of(asked_of(&request_id, &format!("app-{n}"), None), [n; 32]);
    let cancel_at = chance(50).then(|| Instant::now() + millis(30_000));
    let mut cancelled = false;
    let mut known = None;
    loop {
        let host = &hosts[fastrand::usize(0..hosts.len())];
        if let (Some(id), Some(at)) = (&known, cancel_at)
            && !cancelled
            && at <= Instant::now()
        {
            let id = JobId::clone(id);
            if let Some(Ok(_)) =
                host.ask(|ops| async move { ops.cancel(Who::Operator("ops"), &id).await }).await
            {
                cancelled = true;
            }
        }
        match host.ask(|ops| apply(ops, new.clone())).await {
            Some(Ok(Answered::Done(id, ended))) if cancel_at.is_none() || cancelled => {
                if let Some(over) = over(&ended) {
                    return (id, over == "cancelled");
                }
                if !matches!(&ended, Ended::Failed { failure, .. } if failure.retryable) {
                    let id = id.clone();
                    let _others_too = host
                        .ask(|ops| async move { ops.retry(Who::Operator("ops"), &id, false).await })
                        .await;
                }
            }
            Some(Ok(Answered::Done(id, _) | Answered::Accepted { id, .. })) => known = Some(id),
            Some(Err(
                OperationError::Ledger(_) | OperationError::Stopping | OperationError::Contended(_),
            ))
            | None => {}
            Some(Err(e)) => panic!("{e:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100) + millis(3000)).await;
    }
}

/// Whether nothing more is to come.
fn over(ended: &Ended) -> Option<&'static str> {
    match ended {
        Ended::Succeeded(_) => Some("succeeded"),
        Ended::Failed { failure, .. } if failure.code == "cancelled" => Some("cancelled"),
        Ended::Failed { .. } => None,
    }
}

async fn apply(ops: sutler_jobs::Operations, new: New) -> Result<Answered, OperationError> {
    match ops.asked(&new.caller, new.asked.request.id.as_str(), &new.body).await? {
        Some(answer) => Ok(answer),
        None => ops.begin(new).await,
    }
}

async fn judge(world: &World, ledger: &Memory, id: &JobId, cancelled: bool) {
    let job = ledger.job(id.clone()).await.unwrap().unwrap();
    let wanted = if cancelled { Status::Cancelled } else { Status::Completed };
    if job.standing.status != wanted {
        world.wrong(format!("{id} is {} instead of {wanted}", job.standing.status));
    }
    if job.lease.is_some() {
        world.wrong(format!("{id} is final and held"));
    }
    let events = ledger.events(id.clone(), 0, u32::MAX).await.unwrap();
    let happened: Vec<Happened> = events.iter().map(|e| e.what.clone()).collect();
    match replay(job.mode, &happened) {
        Ok(standing) if standing == job.standing => {}
        other => world.wrong(format!("{id} replays to {other:?}, its row is {:?}", job.standing)),
    }
    let tokens: Vec<u64> = happened
        .iter()
        .filter_map(|h| if let Happened::Claimed { token, .. } = h { Some(*token) } else { None })
        .collect();
    if tokens.windows(2).any(|w| w[0] >= w[1]) {
        world.wrong(format!("{id} has tokens {tokens:?}"));
    }
    let effects = world.effects.lock().unwrap();
    let mine: BTreeSet<String> = effects.iter().filter(|e| e.starts_with(id.as_str())).cloned().collect();
    let want: BTreeSet<String> =
        if cancelled { BTreeSet::new() } else { Worked::STEPS.iter().map(|s| Worked::name(id, s)).collect() };
    if mine != want {
        world.wrong(format!("{id}: {mine:?} exist instead of {want:?}"));
    }
    let made = world.made.lock().unwrap();
    if let Some((name, n)) = made.iter().find(|(name, n)| name.starts_with(id.as_str()) && **n != 1) {
        world.wrong(format!("{name} was made {n} times"));
    }
}

async fn everything(ledger: &Memory) -> String {
    let mut out = String::new();
    let jobs = ledger.jobs(sutler_ledger::Filter { limit: 100, ..Default::default() }).await.unwrap();
    for job in jobs {
        out.push_str(&format!("\n{job:?}"));
        for e in ledger.events(job.id.clone(), 0, u32::MAX).await.unwrap() {
            out.push_str(&format!("\n  {} {} {:?}", e.at.0 - 1_800_000_000_000, e.seq, e.what));
        }
    }
    out
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

#[test]
fn nothing_is_lost_and_nothing_is_done_twice() {
    let seeds = match number("SUTLER_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SUTLER_SIMULATION_SEEDS").unwrap_or(200),
    };
    let several = seeds.end - seeds.start > 100;
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| run(seed));
        match outcome {
            Ok(Ok(o)) => o.counts.into_iter().for_each(|(k, n)| *counts.entry(k).or_default() += n),
            Ok(Err(wrong)) => panic!("SUTLER_SIMULATION_SEED={seed}: {wrong}"),
            Err(_) => panic!("SUTLER_SIMULATION_SEED={seed} panicked, see above"),
        }
    }
    println!("figure: {counts:?}");
    // The trouble that this is about did happen.
    for what in
        ["paused", "died", "unavailable", "unknown-done", "unknown-not-done", "late", "taken-over", "undone"]
    {
        assert!(!several || counts.get(what).is_some_and(|n| *n > 0), "{what} never happened: {counts:?}");
    }
}

#[test]
fn a_seed_runs_the_same_again() {
    for seed in [3, 4] {
        let (a, b) = (run(seed).unwrap().trace, run(seed).unwrap().trace);
        assert!(a.len() > 50, "{}", a.len());
        assert_eq!(a, b);
    }
}
