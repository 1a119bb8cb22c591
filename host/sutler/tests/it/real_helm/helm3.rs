//! Helm 3 as a second judge of what releases mean: it works on ours and we on its, which are applied client-side and
//! merged three-way.

use futures::StreamExt as _;
use serde_json::{Value, json};
use sutler_testkit::real;

use super::charts::{Chart, named};
use super::rig::Rig;
use super::state::{assert_same, state};

const CHARTS: [&str; 4] = ["kinds-in-order", "deployment", "counted-hooks", "policies"];

fn helm3(rig: &Rig, ns: &str, arguments: &[&str]) -> String {
    rig.world.run(&rig.world.helm3, &[arguments, &["-n", ns]].concat()).unwrap()
}

/// Without blank lines, of which Helm 3 keeps fewer between documents, and without the time.
fn solid(text: &str) -> String {
    text.lines()
        .filter(|l| !l.trim().is_empty() && !l.starts_with("LAST DEPLOYED"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// What both generations of Helm mean alike: who wrote which field and how a release was applied is not in it.
fn meaning(rig: &Rig, ns: &str) -> Vec<Value> {
    let mut all = state(rig, ns);
    for object in &mut all {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let release = &object["release"];
        if object["kind"] == "Record" {
            let info = &release["info"];
            let hooks = release["hooks"].as_array().into_iter().flatten();
            let hooks: Vec<Value> = hooks.map(|h| json!([h["name"], h["last_run"]["phase"]])).collect();
            *object = json!({
                "kind": "Record", "metadata": {"name": object["metadata"]["name"]},
                "status": [info["status"], info["description"], object["metadata"]["labels"]["status"]],
                "manifest": solid(release["manifest"].as_str().unwrap()), "values": release["config"], "hooks": hooks,
            });
        }
    }
    all
}

/// Steps by one of the two.
struct Life<'a> {
    rig: &'a Rig,
    chart: &'a Chart,
    reference: &'a sutler_helm::ChartReference,
    ns: &'a str,
}

impl Life<'_> {
    async fn write(&self, us: bool, values: &Value, n: usize) {
        if us {
            self.rig.upgrade(self.reference, self.ns, values, n).await.unwrap();
            return;
        }
        let (archive, file) = self.rig.files(self.ns, self.chart, values);
        helm3(self.rig, self.ns, &["upgrade", "--install", "app", &archive, "-f", &file]);
    }

    async fn rollback(&self, us: bool, to: u32, n: usize) {
        if us {
            self.rig.rollback(self.ns, to, n).await.unwrap();
        } else {
            helm3(self.rig, self.ns, &["rollback", "app", &to.to_string()]);
        }
    }

    async fn uninstall(&self, us: bool, n: usize) {
        if us {
            self.rig.uninstall(self.ns, n).await.unwrap();
        } else {
            helm3(self.rig, self.ns, &["uninstall", "app"]);
        }
    }

    /// What Helm 3 tells of the release.
    fn told(&self, revision: usize) -> String {
        let tell = |arguments: &[&str]| helm3(self.rig, self.ns, arguments).replace(self.ns, "NS");
        let history: Value = serde_json::from_str(&tell(&["history", "app", "-o", "json"])).unwrap();
        let history: Vec<Value> = history
            .as_array()
            .unwrap()
            .iter()
            .map(|h| json!([h["revision"], h["status"], h["chart"], h["description"]]))
            .collect();
        let list: Value = serde_json::from_str(&tell(&["list", "-a", "-o", "json"])).unwrap();
        let list = json!([list[0]["name"], list[0]["revision"], list[0]["status"], list[0]["chart"]]);
        assert_eq!(list[1], json!(revision.to_string()), "{}: {list}", self.chart.name);
        let (status, all) = (tell(&["status", "app"]), tell(&["get", "all", "app"]));
        format!("{history:?}\n{list}\n{}\n{}", solid(&status), solid(&all))
    }
}

/// Alone in one namespace, with us in two others: there each step is the other's.
async fn life(rig: &Rig, chart: &Chart) {
    let name = &chart.name;
    let reference = rig.push(chart);
    let run = uuid::Uuid::new_v4().simple().to_string()[..6].to_owned();
    let spaces = ["p", "a", "b"].map(|s| format!("three-{s}-{name}-{run}"));
    let lives = spaces.each_ref().map(|ns| Life { rig, chart, reference: &reference, ns });
    // Whose turn it is in each.
    let turns = |step: usize| [false, step.is_multiple_of(2), !step.is_multiple_of(2)];
    let same = |what: &str| {
        let [alone, others @ ..] = lives.each_ref().map(|l| meaning(rig, l.ns));
        others.iter().for_each(|o| assert_same(o, &alone, &format!("{name}: {what}")));
    };
    let told = |revision: usize| {
        let [alone, others @ ..] = lives.each_ref().map(|l| l.told(revision));
        others.iter().for_each(|o| assert_eq!(*o, alone, "{name}: as Helm 3 tells revision {revision}"));
    };
    lives.iter().for_each(|l| rig.namespace(l.ns));
    for (step, values) in [chart.values.clone(), chart.changed(2), chart.changed(3)].iter().enumerate() {
        for (life, us) in lives.iter().zip(turns(step)) {
            life.write(us, values, step).await;
        }
        same(&format!("revision {}", step + 1));
    }
    told(3);
    for (step, to) in [(4, 1), (5, 2)] {
        for (life, us) in lives.iter().zip(turns(step)) {
            life.rollback(us, to, step).await;
        }
        same(&format!("rollback to {to}"));
    }
    told(5);
    for (life, us) in lives.iter().zip(turns(6)) {
        life.uninstall(us, 6).await;
    }
    same("uninstall");
    lives.iter().for_each(|l| rig.drop_namespace(l.ns));
}

#[tokio::test(flavor = "multi_thread")]
async fn real_helm_3_and_we_work_on_each_others_releases() {
    let Some(world) = real() else { return };
    let rig = Rig::start(world, None).await;
    let charts = CHARTS.map(named);
    futures::stream::iter(&charts).for_each_concurrent(3, |chart| life(&rig, chart)).await;
}
