//! A plugin that only computes: what a plan through it costs is what a call costs.
use sutler_sdk::prelude::*;

pub struct Pure;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    size: u32,
    zones: Vec<String>,
    owner: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub struct Outputs {
    name: String,
}

impl Resource for Pure {
    const PAIR: Pair = Pair::new(Kind::Tool, "pure");
    const SUMMARY: &'static str = "Nothing but computation";
    type Settings = Settings;
    type Outputs = Outputs;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let size = of.settings().map_or(1, |s| s.size.saturating_sub(1));
        let settings = Settings { size, zones: vec!["a".into()], owner: None };
        Actual::new(settings, Outputs { name: of.name(40) }).map(Some)
    }

    fn write(of: &Subject<Settings>, _: &Settings) -> Result<Outputs> {
        Ok(Outputs { name: of.name(40) })
    }

    fn delete(_: &Subject<Settings>) -> Result<()> {
        Ok(())
    }
}

sutler_sdk::export!(Pure);
