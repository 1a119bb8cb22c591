//! `sutler plugin check`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use sutler_catalog::Schema;
use sutler_model::{Descriptor, Effective, PluginName};
use sutler_runtime::{GrantSet, Limits, Plugin, PluginSettings, RunError};

use super::{ConfigFile, say};
use crate::{host, telemetry};

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The component
    file: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
}

/// An imported interface and the grant without which its functions answer `not-granted`.
const GRANTS: [(&str, &str, &str); 6] = [
    (
        "sutler:kubernetes/read",
        "grants.kubernetes",
        r#"[[plugins.NAME.grants.kubernetes]] verbs = ["get"], kinds, namespaces"#,
    ),
    (
        "sutler:kubernetes/write",
        "grants.kubernetes",
        r#"[[plugins.NAME.grants.kubernetes]] verbs = ["apply", "delete"], kinds, namespaces"#,
    ),
    ("sutler:helm/", "grants.helm", r#"[plugins.NAME.grants.helm] charts = ["oci://…"], namespaces"#),
    ("sutler:logs/read", "grants.logs", "[plugins.NAME.grants.logs] namespaces"),
    ("sutler:http/", "—", "not offered by this version"),
    (
        "sutler:containers/",
        "grants.containers",
        r#"[plugins.NAME.grants.containers] images = ["REGISTRY/IMAGE"], networks, volumes"#,
    ),
];

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.load()?;
        telemetry::logs(&config.log, true)?;
        let wasm = sutler_catalog::component(&self.file)
            .map_err(|e| anyhow::anyhow!("{} is refused: {e}", self.file.display()))?;
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = PluginName::parse(&stem).with_context(|| format!("rename {}", self.file.display()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let (sandboxes, _) = host::bare_runtime(&config)?;
            let plugin = sandboxes
                .load(name, &wasm, PluginSettings::default(), Limits::default())
                .with_context(|| format!("{} is refused", self.file.display()))?;
            let none = Arc::new(GrantSet {
                kubernetes: Effective::new(vec![]),
                helm: Effective::new(vec![]),
                logs: Effective::new(vec![]),
                containers: Effective::new(vec![]),
            });
            let descriptor = plugin.describe(&none).await.map_err(|e| match e {
                RunError::Fault(f) => anyhow::anyhow!("{} is refused: {f}", self.file.display()),
                RunError::Overloaded { what, .. } => anyhow::anyhow!("{what} has no sandbox free"),
            })?;
            let wrong = show(&plugin, &descriptor);
            Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }
}

fn show(plugin: &Plugin, d: &Descriptor) -> usize {
    let compiled = if plugin.cached {
        "compiled before".into()
    } else {
        format!("compiled in {:.1?}", plugin.compile_time)
    };
    say(format!("{} {} — {}", d.name, d.version, d.summary));
    say(format!("  file      {} bytes, {}, {compiled}", plugin.size, plugin.digest));
    say("  contract  sutler:provisioner 0.1.1");
    say(format!("  logs      {}", if plugin.has_logs() { "yes, it locates log sources" } else { "no" }));
    say("  imports");
    for i in &plugin.imports {
        let need = GRANTS.iter().find(|(prefix, _, _)| i.starts_with(prefix));
        let note = match need {
            Some((_, _, toml)) => format!("needs {}", toml.replace("NAME", plugin.name.as_str())),
            None if i.starts_with("wasi:") => "WASI, with nothing in it".into(),
            None => "always there".into(),
        };
        say(format!("    {i:42} {note}"));
    }
    let mut wrong = 0;
    say("  pairs");
    for p in &d.pairs {
        say(format!("    {} — {}", p.pair, p.summary));
        for (what, schema) in [("settings", &p.settings_schema), ("outputs", &p.outputs_schema)] {
            match Schema::compile(schema.clone()) {
                Ok(s) => say(format!("      {what:9} {}", fields(s.text()))),
                Err(e) => {
                    wrong += 1;
                    say(format!("      {what:9} REFUSED: {e}"));
                }
            }
        }
        let steps: Vec<String> =
            p.steps.iter().map(|s| format!("{} ({} s)", s.name, s.timeout_seconds)).collect();
        if !steps.is_empty() {
            say(format!("      steps     {}", steps.join(" → ")));
        }
    }
    wrong
}

/// The fields of a schema, those that are required with a star.
fn fields(schema: &serde_json::Value) -> String {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(|r| r.as_array())
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str())
        .collect();
    let names = schema.get("properties").and_then(|p| p.as_object()).into_iter().flat_map(|m| m.keys());
    let all: Vec<String> =
        names.map(|n| if required.contains(&n.as_str()) { format!("{n}*") } else { n.clone() }).collect();
    if all.is_empty() { "no fields".into() } else { all.join(", ") }
}
