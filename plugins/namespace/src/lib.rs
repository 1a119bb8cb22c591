//! A Kubernetes namespace for each application. It never touches what is inside the namespace.
use std::collections::BTreeMap;

use sutler_sdk::kubernetes::{self, Reference, ours, text};
use sutler_sdk::{config, prelude::*};

pub struct Namespace;
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The namespace's name; without it the operator's pattern makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-requires-replace" = true))]
    name: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}
#[derive(Serialize, JsonSchema)]
pub struct Outputs {
    name: String,
    uid: String,
}
fn reference(settings: Option<&Settings>, of: &Subject<Settings>) -> Result<Reference> {
    let chosen = settings.and_then(|s| s.name.clone());
    let config: Value = config::settings()?;
    let pattern = config.get("name").and_then(Value::as_str).unwrap_or("{application}-{environment}-{hash}");
    Ok(Reference::new("v1", "Namespace", chosen.map_or_else(|| of.fill(pattern), Ok)?))
}
fn outputs(live: &Value) -> Outputs {
    Outputs { name: text(live, "/metadata/name"), uid: text(live, "/metadata/uid") }
}

impl Resource for Namespace {
    const PAIR: Pair = Pair::new(Kind::Target, "kubernetes-namespace");
    const SUMMARY: &'static str = "A Kubernetes namespace with labels and annotations";
    type Settings = Settings;
    type Outputs = Outputs;
    fn read(of: &Subject<Settings>) -> Result<Option<Actual<Outputs>>> {
        let before = of.believed.as_ref().or(of.wanted.as_ref()); // it still has its old name
        let Some(live) = kubernetes::get(&reference(before, of)?)? else { return Ok(None) };
        let name = of.settings().and_then(|s| s.name.as_ref()).map(|_| text(&live, "/metadata/name"));
        let [labels, annotations] =
            ["labels", "annotations"].map(|m| ours(&live, m, &of.keys(&format!("/{m}"))));
        Actual::new(Settings { name, labels, annotations }, outputs(&live)).map(Some)
    }
    fn write(of: &Subject<Settings>, to: &Settings) -> Result<Outputs> {
        let name = reference(Some(to), of)?.name;
        let metadata = json!({"name": name, "labels": to.labels, "annotations": to.annotations});
        Ok(outputs(&kubernetes::apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
        )?))
    }
    fn delete(of: &Subject<Settings>) -> Result<()> {
        kubernetes::delete(&reference(of.believed.as_ref(), of)?).map(|_| ())
    }
}
sutler_sdk::export!(Namespace);
