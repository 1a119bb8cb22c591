//! `sutler plugin run`: one call through the same path as the server's, without listening.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt as _;
use sutler_access::Access;
use sutler_api::{Api, router};
use sutler_catalog::CatalogConfig;
use tower::ServiceExt as _;

use super::{ConfigFile, say};
use crate::config::Config;
use crate::ledger::Opened;
use crate::{host, telemetry};

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The component; NAME.toml beside it, or [plugins.NAME], says what it is granted
    file: PathBuf,
    /// What to ask it
    export: Export,
    /// The body that POST /plan, /apply or /inspect would take; - is stdin
    #[arg(long, short, value_name = "FILE")]
    request: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Export {
    Plan,
    Apply,
    Inspect,
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let config = self.config.load()?;
        telemetry::logs(&config.log, true)?;
        let body = if self.request == Path::new("-") {
            std::io::read_to_string(std::io::stdin())?
        } else {
            std::fs::read_to_string(&self.request)
                .with_context(|| format!("the request {} cannot be read", self.request.display()))?
        };
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.call(config, body))
    }

    async fn call(self, config: Config, body: String) -> anyhow::Result<ExitCode> {
        let folder = alone(&self.file)?;
        let ledger = Opened::forgetful([0; 32]);
        let host = host::build(&config, CatalogConfig { dir: folder.path().into() }, ledger).await?;
        host.dispatcher.operations().start();
        let snapshot = host.dispatcher.catalog().reload().await.map_err(anyhow::Error::msg)?;
        if let Some(reason) = snapshot.files.values().find_map(|f| f.reason.as_ref()) {
            anyhow::bail!("{} is refused: {reason}", self.file.display());
        }
        let api = Api::new(Arc::new(host.dispatcher.clone()), Access::open(), config.api, None)?;
        let path = match self.export {
            Export::Plan => "/plan",
            Export::Apply => "/apply",
            Export::Inspect => "/inspect",
        };
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::HOST, "localhost")
            .body(Body::from(body))?;
        let (ok, mut json) = ask(&api, request).await?;
        while let Some(id) = pending(&json) {
            let request = Request::get(format!("/operations/{id}")).header(header::HOST, "localhost");
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
            json = ask(&api, request.body(Body::empty())?).await?.1;
            if let Some(message) = json.pointer("/progress/message").and_then(|m| m.as_str()) {
                tracing::info!(event = "waiting", "{message}");
            }
        }
        if let Some(answer) = json.as_object_mut() {
            // A single call has no operation to be asked for later.
            answer.remove("operationId");
            answer.remove("status");
        }
        say(serde_json::to_string_pretty(&json)?);
        let failed = json.get("outcome").and_then(|o| o.as_str()) == Some("failed");
        Ok(if ok && !failed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

async fn ask(api: &Api, request: Request<Body>) -> anyhow::Result<(bool, serde_json::Value)> {
    let answer = router(api).oneshot(request).await?;
    let ok = answer.status().is_success();
    let bytes = answer.into_body().collect().await?.to_bytes();
    Ok((ok, serde_json::from_slice(&bytes)?))
}

/// The operation that goes on, where the answer is not the last one.
fn pending(json: &serde_json::Value) -> Option<String> {
    let id = json.get("operationId").and_then(|o| o.as_str())?;
    (json.get("status").and_then(|s| s.as_str()) != Some("done")).then(|| id.to_owned())
}

/// A folder that holds nothing but this plugin and what stands beside it.
fn alone(file: &Path) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let file = std::fs::canonicalize(file).with_context(|| format!("{} cannot be read", file.display()))?;
    for f in [file.clone(), file.with_extension("toml")] {
        if let Some(name) = f.file_name().filter(|_| f.is_file()) {
            std::os::unix::fs::symlink(&f, folder.path().join(name))?;
        }
    }
    Ok(folder)
}
