//! Operations of several namespaces at once through a faulty API server, as the dice of each namespace have it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use sutler_testkit::cluster::{Fault, Passed, namespace};
use sutler_testkit::http::{Caller, renewed};
use sutler_testkit::{Dice, RealWorld, real};

use super::model::{Deed, Standing};
use super::site::Site;

const ABREAST: usize = 4;

const OPERATIONS: &str =
    "first-backoff-milliseconds = 50\nlongest-backoff-seconds = 2\npoll-milliseconds = 100";

/// A fifth of all requests meets something.
fn fault(dice: &mut Dice) -> Fault {
    match dice.roll(40) {
        0 => Fault::Status(500),
        1 => Fault::Status(429),
        2 => Fault::Status(503),
        3 => Fault::Drop,
        4 | 5 => Fault::DropAnswer,
        6 => Fault::Delay(Duration::from_millis(dice.roll(100))),
        7 => Fault::Cut(dice.roll(400) as usize),
        // It ends what it meets, so it is rare.
        8 if dice.roll(3) == 0 => Fault::Status(409),
        _ => Fault::None,
    }
}

/// What a failure says that this is the reason of.
const fn words(fault: Fault) -> &'static [&'static str] {
    match fault {
        Fault::Status(500) => &["answered 500"],
        Fault::Status(429) => &["answered 429"],
        Fault::Status(503) => &["answered 503"],
        Fault::Status(409) => &["changed meanwhile", "somebody else changed"],
        Fault::Drop | Fault::DropAnswer => &["cannot be reached"],
        Fault::Cut(_) => &["broke off", "cannot be reached"],
        _ => &[],
    }
}

/// Equal seeds give each namespace equal dice, in whatever order the namespaces' requests arrive.
struct Weather {
    seed: u64,
    dice: BTreeMap<String, Dice>,
    calm: BTreeSet<String>,
}

impl Weather {
    fn fault(&mut self, line: &str) -> Fault {
        let of = namespace(line);
        // What is asked for no namespace is asked for all of them.
        if self.calm.contains(of) || (of.is_empty() && !self.calm.is_empty()) {
            return Fault::None;
        }
        // Names differ from run to run, their ends do not.
        let lane = of.bytes().last().map_or(0, u64::from);
        let seed = self.seed.wrapping_mul(31).wrapping_add(lane);
        fault(self.dice.entry(of.to_owned()).or_insert(Dice(seed)))
    }
}

/// What became of a round.
#[derive(Debug, Default)]
struct Lived {
    operations: usize,
    failed: usize,
    kinds: BTreeMap<String, usize>,
}

struct Round {
    site: Site,
    url: String,
    weather: Arc<Mutex<Weather>>,
}

impl Round {
    /// Does it, until it is right; answers whether it failed at first.
    async fn operate(&self, ns: &str, deed: &Deed, after: &Standing) -> Result<bool, String> {
        let body = deed.body(&self.site, ns);
        let from = self.site.proxy.count();
        let Some(first) = self.failed(ns, &body, from).await? else {
            return after.check(&self.site, ns).await.map(|()| false);
        };
        self.weather.lock().unwrap().calm.insert(ns.to_owned());
        let mut again = self.failed(ns, &renewed(&body), from).await?;
        if again.is_some() {
            // What a hook failed of before may be told only now; then nothing is left to tell.
            again = self.failed(ns, &renewed(&body), from).await?;
        }
        self.weather.lock().unwrap().calm.remove(ns);
        if let Some(again) = again {
            return Err(format!("it failed ({first}), and without faults too: {again}"));
        }
        after.check(&self.site, ns).await.map(|()| true)
    }

    /// Asks; why it failed, where it did, of something that happened since the request `from`.
    async fn failed(&self, ns: &str, body: &Value, from: usize) -> Result<Option<String>, String> {
        let answer = Caller::new(&self.url).apply(body).await;
        match (answer.status, answer.json["outcome"].as_str()) {
            (200, Some("succeeded")) => return Ok(None),
            (200, Some("failed")) => {}
            _ => return Err(format!("answered {}: {}", answer.status, answer.text)),
        }
        let passed = self.site.proxy.passed_since(from);
        let met = passed.iter().filter(|p| p.namespace() == ns || p.namespace().is_empty());
        let reason = answer.json["reason"].as_str().unwrap_or_default();
        if !met.flat_map(|p| words(p.fault)).any(|w| reason.contains(w)) {
            return Err(format!("nothing of this happened: {}", answer.text));
        }
        Ok(Some(answer.text))
    }

    /// So many operations, one after the other; answers how many of them failed at first.
    async fn lane(&self, seed: u64, ns: &str, count: usize) -> Result<usize, String> {
        self.site.namespace(ns).await;
        let (mut dice, mut standing, mut failed) = (Dice(seed), Standing::default(), 0);
        let mut story = String::new();
        for step in 0..count {
            let deed = Deed::next(&mut dice, &standing, &self.site.revisions(ns).await, step);
            let _ = write!(story, "{deed:?}; ");
            standing = deed.done(&standing);
            let came = self.operate(ns, &deed, &standing).await;
            failed += usize::from(came.map_err(|e| format!("{ns}: {story}: {e}"))?);
        }
        self.judged(ns, &standing)?;
        self.site.drop_namespace(ns).await;
        Ok(failed)
    }

    /// What the helm binary makes of the release.
    fn judged(&self, ns: &str, standing: &Standing) -> Result<(), String> {
        let world = &self.site.world;
        let listed = world.run(&world.helm, &["list", "-q", "-n", ns])?;
        if standing.release.is_none() {
            return if listed.trim().is_empty() { Ok(()) } else { Err(format!("helm lists {listed}")) };
        }
        let status = world.run(&world.helm, &["status", "app", "-n", ns])?;
        let history = world.run(&world.helm, &["history", "app", "-n", ns])?;
        let clean = status.contains("STATUS: deployed") && !history.contains("pending");
        if clean { Ok(()) } else { Err(format!("helm says {status}\n{history}")) }
    }
}

fn kinds(passed: &[Passed]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for p in passed {
        let kind = match p.fault {
            Fault::None => continue,
            Fault::Status(code) => code.to_string(),
            Fault::Drop => "lost before".into(),
            Fault::DropAnswer => "lost after".into(),
            Fault::Cut(_) => "cut".into(),
            Fault::Delay(_) => "late".into(),
            other => format!("{other:?}"),
        };
        *out.entry(kind).or_default() += 1;
    }
    out
}

async fn round(world: &RealWorld, seed: u64, operations: usize) -> Lived {
    println!("SUTLER_FAULTY_SEED={seed}");
    let site = Site::start(world.clone(), OPERATIONS).await;
    let mut host = site.host().await;
    let weather = Weather { seed, dice: BTreeMap::new(), calm: BTreeSet::new() };
    let weather = Arc::new(Mutex::new(weather));
    let of = weather.clone();
    site.proxy.meet(move |line| of.lock().unwrap().fault(line));
    let round = Round { site, url: host.url.clone(), weather };
    let run = uuid();
    let lanes = (0..ABREAST).map(|lane| {
        let (round, ns) = (&round, format!("faulty-{run}-{lane}"));
        async move { round.lane(seed * 7 + lane as u64, &ns, operations.div_ceil(ABREAST)).await }
    });
    let came = futures::future::join_all(lanes).await;
    let bad: Vec<String> = came.iter().filter_map(|c| c.clone().err()).collect();
    let log = || tail(&host.log_lines());
    assert!(bad.is_empty(), "SUTLER_FAULTY_SEED={seed}\n{}\n{}", bad.join("\n\n"), log());
    let panics: Vec<String> = host.log_lines().into_iter().filter(|l| l.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:?}");
    host.stop().await;
    Lived {
        operations: operations.div_ceil(ABREAST) * ABREAST,
        failed: came.into_iter().flatten().sum(),
        kinds: kinds(&round.site.proxy.passed_since(0)),
    }
}

/// The last of what it logged beyond its requests.
fn tail(lines: &[String]) -> String {
    let told: Vec<&str> =
        lines.iter().filter(|l| !l.contains("\"level\":\"INFO\"")).map(String::as_str).collect();
    told[told.len().saturating_sub(20)..].join("\n")
}

/// The end of a name that no other run has.
pub(crate) fn uuid() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}

/// `SUTLER_FAULTY_OPERATIONS` in one round of `SUTLER_FAULTY_SEED` (default: from the clock); otherwise a small round of
/// a seed that is always the same, and one of a new one.
#[tokio::test(flavor = "multi_thread")]
async fn real_operations_through_a_faulty_api_server() {
    let Some(world) = real() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let clock = crate::real_helm::clock();
    let rounds = match (number("SUTLER_FAULTY_OPERATIONS"), number("SUTLER_FAULTY_SEED")) {
        (None, None) => vec![(7, 16), (clock, 16)],
        (count, seed) => vec![(seed.unwrap_or(clock), count.unwrap_or(16))],
    };
    for (seed, operations) in rounds {
        let Lived { operations, failed, kinds } = round(&world, seed, operations as usize).await;
        assert!(!kinds.is_empty(), "the proxy did nothing");
        let total: usize = kinds.values().sum();
        let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        eprintln!(
            "figure: {operations} operations through {total} faults ({}); {failed} failed, for a true reason, and \
             were right when asked again",
            kinds.join(", ")
        );
    }
}
