//! Kafka Connect's workers, which somebody else runs: where their logs are and how they fare. It never changes
//! anything.

pub mod config;
pub mod workers;

use sutler_sdk::prelude::*;

use config::Config;
use workers::Worker;

pub struct KafkaConnect;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The name of the Connect cluster; what the operator wrote, or every one of the namespaces, where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"))]
    pub name: Option<String>,
}

/// What was found at that moment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outputs {
    #[schemars(extend("x-volatile" = true))]
    pub workers: Vec<Worker>,
    /// Workers that are ready.
    #[schemars(extend("x-volatile" = true))]
    pub ready: u32,
}

const NOT_OURS: &str = "nothing is deployed, changed or deleted: the workers are run by somebody else, and only their logs are read";

impl Pipeline for KafkaConnect {
    const PAIR: Pair = Pair::new(Kind::Tool, "kafka-connect");
    const SUMMARY: &'static str = "Kafka Connect's workers that run elsewhere: their logs and how they fare";
    type Settings = Settings;
    type Outputs = Outputs;
    type Step = ();

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let workers = workers::find(&Config::read()?.places(of)?)?;
        let told = of.wanted_json.as_ref().or(of.believed_json.as_ref());
        let settings = told.cloned().unwrap_or_else(|| json!({}));
        Ok((!workers.is_empty()).then(|| Actual {
            settings,
            outputs: outputs(workers),
            differences: vec![],
            warnings: vec![],
        }))
    }

    fn plan(of: &Subject<Settings>) -> Result<Planned> {
        Config::read()?.places(of)?;
        Ok(Planned {
            action: Action::NoOp,
            before: of.wanted_json.clone(),
            after: of.wanted_json.clone(),
            unknown: vec![],
            replace_because: vec![],
            warnings: vec![NOT_OURS.into()],
        })
    }

    fn apply(of: &Subject<Settings>, _: At<()>) -> Result<Progress<(), Outputs>> {
        if of.deletes() {
            return Ok(Progress::Gone);
        }
        workers::find(&Config::read()?.places(of)?).map(|workers| Progress::Done(outputs(workers)))
    }

    fn cancel(_: &Subject<Settings>, _: At<()>) -> Result<Progress<(), Outputs>> {
        Ok(Progress::Gone)
    }

    fn locate(of: &Subject<Settings>) -> Result<Vec<LogSource>> {
        let config = Config::read()?;
        let places = config.places(of)?;
        Ok(places
            .namespaces
            .into_iter()
            .map(|namespace| LogSource {
                cluster: None,
                namespace,
                label_selector: places.selector.clone(),
                container: config.container.clone(),
            })
            .collect())
    }
}

fn outputs(workers: Vec<Worker>) -> Outputs {
    let ready = workers.iter().filter(|w| w.ready).count();
    Outputs { workers, ready: u32::try_from(ready).unwrap_or(u32::MAX) }
}

sutler_sdk::export_with_logs!(KafkaConnect);
