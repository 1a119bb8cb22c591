//! Random sequences of operations, each step by one of the two tools, against a namespace where only helm works.

use sutler_testkit::real;

use super::charts::{Chart, named};
use super::rig::Rig;
use super::state::{assert_same, state};

/// How many sequences: `SUTLER_SEEDS`, a few by default.
fn seeds() -> u64 {
    std::env::var("SUTLER_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4)
}

const STEPS: usize = 7;
const CHARTS: [&str; 6] =
    ["every-event", "kinds-in-order", "policies-of-hooks", "deployment", "subcharts", "policies"];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

async fn sequence(rig: &Rig, seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1));
    let charts: Vec<Chart> = CHARTS.iter().map(|n| named(n)).collect();
    let (mixed, pure) = (format!("m-{seed}"), format!("p-{seed}"));
    rig.namespace(&mixed);
    rig.namespace(&pure);
    let client_side = dice.roll(3) == 0;
    let (mut revision, mut story) = (0, Vec::new());
    for step in 0..STEPS {
        let n = seed as usize * 100 + step;
        let (by_us, deed) = (dice.roll(2) == 0, dice.roll(10));
        let chart = &charts[dice.roll(CHARTS.len() as u64) as usize];
        let values = chart.changed(step + 1);
        let who = if by_us { "sutler" } else { "helm" };
        match (revision, deed) {
            // Only helm installs client-side.
            (0, _) if client_side => {
                story.push(format!("helm installs {} client-side", chart.name));
                for ns in [&mixed, &pure] {
                    rig.binary_with(ns, "install", chart, &values, &["--server-side=false"]).unwrap();
                }
                revision = 1;
            }
            (0, _) | (_, 0..5) => {
                let verb = if revision == 0 { "install" } else { "upgrade" };
                story.push(format!("{who}: {verb} {}", chart.name));
                if by_us {
                    rig.upgrade(&rig.push(chart), &mixed, &values, n).await.unwrap();
                } else {
                    rig.binary_with(&mixed, verb, chart, &values, &[]).unwrap();
                }
                rig.binary_with(&pure, verb, chart, &values, &[]).unwrap();
                revision += 1;
            }
            (_, 5..8) => {
                let to = 1 + dice.roll(revision) as u32;
                story.push(format!("{who}: rollback to {to}"));
                if by_us {
                    rig.rollback(&mixed, to, n).await.unwrap();
                } else {
                    rig.binary(&mixed, &["rollback", "app", &to.to_string()]).unwrap();
                }
                rig.binary(&pure, &["rollback", "app", &to.to_string()]).unwrap();
                revision += 1;
            }
            (_, 8) => {
                story.push(format!("{who}: test"));
                if by_us {
                    rig.test(&mixed, n).await.unwrap();
                } else {
                    rig.binary(&mixed, &["test", "app"]).unwrap();
                }
                rig.binary(&pure, &["test", "app"]).unwrap();
            }
            _ => {
                story.push(format!("{who}: uninstall"));
                if by_us {
                    rig.uninstall(&mixed, n).await.unwrap();
                } else {
                    rig.binary(&mixed, &["uninstall", "app"]).unwrap();
                }
                rig.binary(&pure, &["uninstall", "app"]).unwrap();
                revision = 0;
            }
        }
        let what = format!("seed {seed}, {}", story.join("; "));
        assert_same(&state(rig, &mixed), &state(rig, &pure), &what);
    }
    rig.drop_namespace(&mixed);
    rig.drop_namespace(&pure);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_sequences_end_as_helm_alone() {
    let Some(world) = real() else { return };
    let rig = Rig::start(world, None).await;
    let first: u64 = std::env::var("SUTLER_FIRST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds() {
        sequence(&rig, seed).await;
    }
}
