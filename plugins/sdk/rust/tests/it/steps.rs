//! Pipelines: steps side by side, saved and waited for, taken back.

use std::time::Duration;

use sutler_sdk::Action::{Create, Update};
use sutler_sdk::log;
use sutler_sdk::prelude::*;
use sutler_sdk::testing::{Session, reset, world};

struct Machine;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Settings {
    #[serde(default = "four")]
    size: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("writeOnly" = true))]
    password: Option<String>,
}
const fn four() -> u8 {
    4
}

#[derive(Serialize, JsonSchema)]
struct Outputs {
    id: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(tag = "step", content = "state", rename_all = "kebab-case")]
enum Step {
    #[default]
    Make,
    Made {
        id: String,
        polls: u32,
    },
}
impl Steps for Step {
    const ALL: &'static [StepInfo] =
        &[StepInfo::new("make", "Make it", 10), StepInfo::new("made", "Wait for it", 10)];
}

impl Pipeline for Machine {
    const PAIR: Pair = Pair::new(Kind::ManagedResource, "machine");
    const SUMMARY: &'static str = "A machine";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = Step;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let stored = world(|w| w.config.get(&of.resource).cloned());
        stored.map(|settings| Actual::new(settings, Outputs { id: "m".into() })).transpose()
    }
    fn apply(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        match at.step {
            Step::Make => {
                log::info(&format!("make {}", of.resource));
                if of.wanted()?.size == 0 {
                    return Err(Error::new("quota-exceeded", "no machine of size 0").at("/size"));
                }
                Ok(Progress::Next(Step::Made { id: format!("m-{}", of.resource), polls: 0 }))
            }
            Step::Made { id, polls: 0 } => Ok(Progress::Save(Step::Made { id, polls: 1 })),
            Step::Made { id, polls } if polls < 3 && of.resource == "main" => {
                Ok(Progress::wait(Step::Made { id, polls: polls + 1 }, Duration::from_secs(1), "booting"))
            }
            Step::Made { id, .. } => Ok(Progress::Done(Outputs { id })),
        }
    }
    fn cancel(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        log::info(&format!(
            "cancel {} at {}",
            of.resource,
            if matches!(at.step, Step::Make) { "make" } else { "made" }
        ));
        Ok(Progress::Gone)
    }
}

#[test]
fn resources_go_through_the_steps_side_by_side() {
    reset(json!({}));
    let mut s = Session::<Machine>::new("orders", "prod", None);
    let changes = [("main", Create, json!({}), Value::Null), ("other", Create, json!({}), Value::Null)];
    let done = s.apply_all(&changes).unwrap();
    assert_eq!((&done["main"], &done["other"]), (&json!({"id": "m-main"}), &json!({"id": "m-other"})));
    // The save of `other` came before the first pause of `main` was over.
    assert_eq!(s.trail, ["made", "booting"]);
    let made: Vec<String> = world(|w| w.log.iter().filter(|l| l.contains("make")).cloned().collect());
    assert_eq!(made.len(), 2, "each is made once: {made:?}");
}

#[test]
fn a_failure_names_its_resource_and_place() {
    reset(json!({}));
    let mut s = Session::<Machine>::new("orders", "prod", None);
    assert_eq!(s.apply(Create, json!({"size": 0}), Value::Null).unwrap_err().code, "quota-exceeded");
}

#[test]
fn cancel_runs_for_each_resource() {
    reset(json!({}));
    let mut s = Session::<Machine>::new("orders", "prod", None);
    s.cancel(&[("main", Create, json!({}), Value::Null), ("other", Create, json!({}), Value::Null)]).unwrap();
    assert_eq!(world(|w| w.log.len()), 2);
}

#[test]
fn plans_compare_in_the_callers_spelling() {
    for (live, wanted, action, before) in [
        (json!(null), json!({}), "Create", json!(null)),
        (json!({"size": 4}), json!({}), "NoOp", json!({})),
        (json!({"size": 4}), json!({"size": 4}), "NoOp", json!({"size": 4})),
        (json!({"size": 4}), json!({"size": 5}), "Update", json!({"size": 4})),
        (json!({"size": 5}), json!({}), "Update", json!({"size": 5})),
        // A secret that stays is no change, and no secret of before is ever told.
        (json!({"size": 4, "password": "x"}), json!({"password": "x"}), "NoOp", json!({})),
        (json!({"size": 4, "password": "x"}), json!({"password": "y"}), "Update", json!({})),
    ] {
        reset(if live.is_null() { json!({}) } else { json!({"main": live}) });
        let s = Session::<Machine>::new("orders", "prod", None);
        let plan = s.plan(Update, wanted.clone(), Value::Null).unwrap();
        assert_eq!(
            (&plan["action"], &plan["before"]),
            (&json!(format!("Action::{action}")), &before),
            "{live} -> {wanted}"
        );
        let steps = if action == "NoOp" { json!([]) } else { json!(["make", "made"]) };
        assert_eq!(plan["steps"], steps);
    }
}

#[test]
fn inspect_equals_the_request_and_hides_secrets() {
    reset(json!({"main": {"size": 4, "password": "new"}}));
    let s = Session::<Machine>::new("orders", "prod", None);
    let seen = s.inspect(json!({"password": "old"}), Value::Null).unwrap();
    assert_eq!(seen["settings"], json!({}));
    assert_eq!(
        seen["differences"],
        json!([{"at": "/password", "class": "DifferenceClass::Drift", "expected": null, "actual": null}])
    );
    assert_eq!(s.inspect(json!({"password": "new"}), Value::Null).unwrap()["differences"], json!([]));
}
