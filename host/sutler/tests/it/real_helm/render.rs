//! Rendering, byte for byte.

use serde_json::Value;
use sutler_helm::{EngineError, RenderAnswer, RenderRequest, TemplateEngine as _};
use sutler_testkit::real;

use super::charts::{Chart, all};
use super::rig::Rig;

/// As `helm template` prints it.
fn printed(answer: &RenderAnswer) -> String {
    let text = |h: &Value, key: &str| h[key].as_str().unwrap_or_default().to_owned();
    let hooks =
        answer.hooks.iter().map(|h| format!("---\n# Source: {}\n{}\n", text(h, "path"), text(h, "manifest")));
    format!("{}\n{}", answer.manifest.trim(), hooks.collect::<String>())
}

async fn rendered(
    engine: &sutler_runtime::HelmEngine,
    chart: &Chart,
    archive: Vec<u8>,
) -> Result<RenderAnswer, EngineError> {
    let mut request = RenderRequest {
        name: "app".into(),
        namespace: "space".into(),
        revision: 1,
        upgrade: false,
        chart: archive.into(),
        values: chart.values.clone(),
        kube_version: "v1.37.2".into(),
        api_versions: vec!["apps/v1".into(), "apps/v1/Deployment".into()],
        lookups: Vec::new(),
        seed: [1; 32],
        now_millis: 0,
    };
    let answer = engine.render(request.clone()).await?;
    if answer.lookups.is_empty() {
        return Ok(answer);
    }
    // Nothing is there.
    request.lookups = answer.lookups;
    engine.render(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn real_charts_render_byte_for_byte() {
    let Some(world) = real() else { return };
    let rig = Rig::start(world, None).await;
    let charts = all();
    assert!(charts.len() >= 40, "{}", charts.len());
    let mut wrong = Vec::new();
    for chart in charts {
        let archive = chart.write(rig.folder.path());
        let values = rig.folder.path().join("values.json");
        std::fs::write(&values, chart.values.to_string()).unwrap();
        let theirs = rig.tool(&[
            "template",
            "app",
            archive.to_str().unwrap(),
            "-n",
            "space",
            "-f",
            values.to_str().unwrap(),
            "--kube-version",
            "v1.37.2",
            "--api-versions",
            "apps/v1",
            "--api-versions",
            "apps/v1/Deployment",
        ]);
        let ours = rendered(&rig.engine, &chart, std::fs::read(&archive).unwrap()).await;
        match (&chart.fails, theirs, ours) {
            (None, Ok(theirs), Ok(ours)) if theirs == printed(&ours) => {}
            (Some(text), Err(theirs), Err(EngineError::Template(ours)))
                if theirs.contains(text) && ours.contains(text) => {}
            // Helm stops at a thousand calls within each other, the sandbox's stack before that.
            (Some(_), Err(_), Err(EngineError::Limit(_))) if chart.name == "endless" => {}
            (_, theirs, ours) => {
                wrong.push(format!("{}: {theirs:?}\n{:?}", chart.name, ours.map(|o| printed(&o))))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
