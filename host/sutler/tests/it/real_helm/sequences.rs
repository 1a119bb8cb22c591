//! Random sequences of operations, each step by one of the two tools, against a namespace where only helm works.

use serde_json::Value;
use sutler_testkit::{Dice, real};

use super::charts::{Chart, named};
use super::rig::Rig;
use super::state::{assert_same, state};

/// `SUTLER_SEEDS` of them from `SUTLER_FIRST_SEED` on; otherwise two that are always the same and a new one.
fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let (count, first) = (number("SUTLER_SEEDS"), number("SUTLER_FIRST_SEED"));
    if count.is_none() && first.is_none() {
        return vec![2, 3, super::clock()];
    }
    let first = first.unwrap_or(1);
    (first..first + count.unwrap_or(1)).collect()
}

const STEPS: usize = 7;
const CHARTS: [&str; 6] =
    ["every-event", "kinds-in-order", "policies-of-hooks", "deployment", "subcharts", "policies"];

/// The two namespaces of one sequence.
struct Pair<'a> {
    rig: &'a Rig,
    mixed: String,
    pure: String,
    story: Vec<String>,
    /// The last step, in both.
    failed: bool,
}

impl Pair<'_> {
    fn helm(&self, ns: &str, arguments: &[&str]) -> Result<(), String> {
        self.rig.binary(ns, arguments).map(drop)
    }

    /// Both did it, or both failed.
    fn alike(&mut self, mixed: Result<(), String>, pure: Result<(), String>) {
        let story = self.story.join("; ");
        assert_eq!(mixed.is_ok(), pure.is_ok(), "{}: {story}\n{mixed:?}\n{pure:?}", self.mixed);
        self.failed = mixed.is_err();
    }

    fn client_side(&mut self, chart: &Chart, values: &Value) {
        self.story.push(format!("helm installs {} client-side", chart.name));
        let install = |ns| self.rig.binary_with(ns, "install", chart, values, &["--server-side=false"]);
        let [mixed, pure] = [&self.mixed, &self.pure].map(|ns| install(ns).map(drop));
        self.alike(mixed, pure);
    }

    async fn write(&mut self, us: Option<usize>, verb: &str, chart: &Chart, values: &Value) {
        self.story.push(format!("{}: {verb} {}", who(us), chart.name));
        let mixed = match us {
            Some(n) => told(self.rig.upgrade(&self.rig.push(chart), &self.mixed, values, n).await),
            None => self.rig.binary_with(&self.mixed, verb, chart, values, &[]).map(drop),
        };
        let pure = self.rig.binary_with(&self.pure, verb, chart, values, &[]).map(drop);
        self.alike(mixed, pure);
    }

    async fn rollback(&mut self, us: Option<usize>, to: u32) {
        self.story.push(format!("{}: rollback to {to}", who(us)));
        let arguments = ["rollback", "app", &to.to_string()];
        let mixed = match us {
            Some(n) => told(self.rig.rollback(&self.mixed, to, n).await),
            None => self.helm(&self.mixed, &arguments),
        };
        let pure = self.helm(&self.pure, &arguments);
        self.alike(mixed, pure);
    }

    async fn test(&mut self, us: Option<usize>) {
        self.story.push(format!("{}: test", who(us)));
        let mixed = match us {
            Some(n) => told(self.rig.test(&self.mixed, n).await),
            None => self.helm(&self.mixed, &["test", "app"]),
        };
        let pure = self.helm(&self.pure, &["test", "app"]);
        self.alike(mixed, pure);
    }

    async fn uninstall(&mut self, us: Option<usize>) {
        self.story.push(format!("{}: uninstall", who(us)));
        let mixed = match us {
            Some(n) => told(self.rig.uninstall(&self.mixed, n).await),
            None => self.helm(&self.mixed, &["uninstall", "app"]),
        };
        let pure = self.helm(&self.pure, &["uninstall", "app"]);
        self.alike(mixed, pure);
    }
}

fn told<T>(came: Result<T, sutler_helm::Error>) -> Result<(), String> {
    came.map(drop).map_err(|e| e.to_string())
}

const fn who(us: Option<usize>) -> &'static str {
    if us.is_some() { "sutler" } else { "helm" }
}

async fn sequence(rig: &Rig, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
    let charts: Vec<Chart> = CHARTS.iter().map(|n| named(n)).collect();
    let mut pair =
        Pair { rig, mixed: format!("m-{seed}"), pure: format!("p-{seed}"), story: Vec::new(), failed: false };
    rig.namespace(&pair.mixed);
    rig.namespace(&pair.pure);
    let client_side = dice.roll(3) == 0;
    let mut revision = 0;
    for step in 0..STEPS {
        let us = (dice.roll(2) == 0).then_some(seed as usize * 100 + step);
        let deed = dice.roll(10);
        let chart = &charts[dice.roll(CHARTS.len() as u64) as usize];
        let values = chart.changed(step + 1);
        match (revision, deed) {
            // Only helm installs client-side.
            (0, _) if client_side => pair.client_side(chart, &values),
            (0, _) => pair.write(us, "install", chart, &values).await,
            (_, 0..5) => pair.write(us, "upgrade", chart, &values).await,
            (_, 5..8) => pair.rollback(us, 1 + dice.roll(revision) as u32).await,
            (_, 8) => pair.test(us).await,
            _ => pair.uninstall(us).await,
        }
        revision = match deed {
            8 if revision > 0 => revision,
            9 if revision > 0 => 0,
            _ => revision + 1,
        };
        let what = format!("seed {seed}, {}", pair.story.join("; "));
        let mut states = [&pair.mixed, &pair.pure].map(|ns| state(rig, ns));
        if pair.failed {
            // Helm leaves a rollback pending whose hooks after it failed, and goes no further; ours has failed.
            states.iter_mut().for_each(|s| s.retain(|o| o["kind"] != "Record"));
        }
        assert_same(&states[0], &states[1], &what);
        if pair.failed {
            break;
        }
    }
    rig.drop_namespace(&pair.mixed);
    rig.drop_namespace(&pair.pure);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_sequences_end_as_helm_alone() {
    let Some(world) = real() else { return };
    let rig = Rig::start(world, None).await;
    for seed in seeds() {
        println!("SUTLER_FIRST_SEED={seed}");
        sequence(&rig, seed).await;
    }
}
