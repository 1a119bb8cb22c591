//! A database in steps: an intent that is stored before anything is made, a server, a wait until it is up.
//!
//! The cloud here is a ConfigMap, so that the example needs nothing but a cluster: `state: up` in it stands for a
//! server that has started. Change it by hand and watch the operation end.
use std::time::Duration;

use sutler_sdk::kubernetes::{self, Reference, text};
use sutler_sdk::prelude::*;

pub struct Database;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The engine cannot change in place.
    #[schemars(extend("x-requires-replace" = true))]
    engine: String,
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 1000))]
    gigabytes: u32,
}

const fn ten() -> u32 {
    10
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    server_id: String,
    address: String,
}

/// Each step with what it has to remember.
#[derive(Default, Serialize, Deserialize)]
#[serde(tag = "step", content = "state", rename_all = "kebab-case")]
pub enum Step {
    #[default]
    Choose,
    Create {
        id: String,
    },
    Start {
        id: String,
    },
}

impl Steps for Step {
    const ALL: &'static [StepInfo] = &[
        StepInfo::new("choose", "Choose the server's id", 10),
        StepInfo::new("create", "Create the server", 60),
        StepInfo::new("start", "Wait until it is up", 30),
    ];
}

fn reference(of: &Subject<Settings>) -> Result<Reference> {
    Ok(Reference::new("v1", "ConfigMap", of.name(63)).within(of.fill("{tenant}")?))
}

fn outputs(live: &Value) -> Outputs {
    let server_id = text(live, "/data/id");
    Outputs { address: format!("{server_id}.databases.example:5432"), server_id }
}

impl Pipeline for Database {
    const PAIR: Pair = Pair::new(Kind::ManagedResource, "database");
    const SUMMARY: &'static str = "A database, made in steps";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = Step;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let Some(live) = kubernetes::get(&reference(of)?)? else { return Ok(None) };
        let gigabytes: u32 = text(&live, "/data/gigabytes").parse().unwrap_or(0);
        Actual::new(Settings { engine: text(&live, "/data/engine"), gigabytes }, outputs(&live)).map(Some)
    }

    fn apply(of: &Subject<Settings>, at: At<Step>) -> Result<Progress<Step, Outputs>> {
        let server = reference(of)?;
        if of.deletes() {
            return kubernetes::delete(&server).map(|_| Progress::Gone);
        }
        match at.step {
            // The id is stored before anything is made of it: a crash after the creation finds it again.
            Step::Choose => {
                let id = match kubernetes::get(&server)? {
                    Some(live) if of.action != Action::Replace => text(&live, "/data/id"),
                    _ => format!(
                        "db-{}",
                        sutler_sdk::random(4).iter().map(|b| format!("{b:02x}")).collect::<String>()
                    ),
                };
                Ok(Progress::Next(Step::Create { id }))
            }
            Step::Create { id } => {
                let wanted = of.wanted()?;
                let before = kubernetes::get(&server)?.filter(|live| text(live, "/data/id") == id);
                let state = before.map_or_else(|| "starting".into(), |live| text(&live, "/data/state"));
                kubernetes::apply(&json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": server.name, "namespace": server.namespace},
                    "data": {"id": id, "engine": wanted.engine, "gigabytes": wanted.gigabytes.to_string(), "state": state},
                }))?;
                Ok(Progress::Next(Step::Start { id }))
            }
            // The host parks the operation between two looks: no sandbox waits.
            Step::Start { id } => {
                let live = kubernetes::get(&server)?.filter(|live| text(live, "/data/id") == id).ok_or_else(
                    || Error::new("server-gone", format!("somebody deleted server {id}; apply again")),
                )?;
                match text(&live, "/data/state").as_str() {
                    "up" => Ok(Progress::Done(outputs(&live))),
                    "broken" => {
                        Err(Error::new("server-broken", format!("server {id} does not start")).retryable())
                    }
                    state => Ok(Progress::wait(
                        Step::Start { id },
                        Duration::from_secs(2),
                        format!("the server is {state}"),
                    )),
                }
            }
        }
    }

    fn cancel(of: &Subject<Settings>, _: At<Step>) -> Result<Progress<Step, Outputs>> {
        match of.action {
            Action::Create => kubernetes::delete(&reference(of)?).map(|_| Progress::Gone),
            _ => Err(Error::new(
                "cannot-cancel",
                "a change of a database is not taken back; apply the settings of before",
            )),
        }
    }
}

sutler_sdk::export!(Database);
