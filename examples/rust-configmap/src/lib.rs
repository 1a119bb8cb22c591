//! A ConfigMap for each application: one Kubernetes object, no steps.
use std::collections::BTreeMap;

use sutler_sdk::kubernetes::{self, Reference, text};
use sutler_sdk::prelude::*;

pub struct Features;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Which features are on.
    features: BTreeMap<String, String>,
}

#[derive(Serialize, JsonSchema)]
pub struct Outputs {
    namespace: String,
    name: String,
}

fn reference(of: &Subject<Settings>) -> Result<Reference> {
    Ok(Reference::new("v1", "ConfigMap", of.name(63)).within(of.fill("{tenant}")?))
}

fn outputs(live: &Value) -> Outputs {
    Outputs { namespace: text(live, "/metadata/namespace"), name: text(live, "/metadata/name") }
}

impl Resource for Features {
    const PAIR: Pair = Pair::new(Kind::ManagedResource, "features");
    const SUMMARY: &'static str = "Feature flags in a ConfigMap";
    type Settings = Settings;
    type Outputs = Outputs;

    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let Some(live) = kubernetes::get(&reference(of)?)? else { return Ok(None) };
        let features = live.get("data").cloned().unwrap_or_else(|| json!({}));
        Actual::new(json!({ "features": features }), outputs(&live)).map(Some)
    }

    fn write(of: &Subject<Settings>, to: &Settings) -> Result<Outputs> {
        let at = reference(of)?;
        let metadata = json!({"name": at.name, "namespace": at.namespace});
        let wanted =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": to.features});
        kubernetes::apply(&wanted).map(|live| outputs(&live))
    }

    fn delete(of: &Subject<Settings>) -> Result<()> {
        kubernetes::delete(&reference(of)?).map(|_| ())
    }
}

sutler_sdk::export!(Features);
