//! `sutler config check`: everything that can be known to be wrong before anything is started.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use futures::future::BoxFuture;
use sutler_access::Access;
use sutler_api::{Register, Server, ServerOptions};
use sutler_catalog::config_of;
use sutler_helm::{EngineError, Helm, NoJobs, RegistryLogins, RenderAnswer, RenderRequest, TemplateEngine};
use sutler_kubernetes::Clusters;
use sutler_model::{Identifier, Pair, PluginName};

use super::{ConfigFile, say};
use crate::config::Config;
use crate::{instances, telemetry};

pub(super) fn check(file: &ConfigFile) -> anyhow::Result<ExitCode> {
    let config = file.load()?;
    config.legacy.iter().for_each(|notice| say(notice.to_string()));
    instances::notices(&config).iter().for_each(say);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let wrong = runtime.block_on(mistakes(&config));
    let from = file.path().map_or_else(|| "the defaults".to_owned(), |p| p.display().to_string());
    if wrong.is_empty() {
        say(format!(
            "{from}: fine. API on {}, operators on {}, plugins from {}, {} plugin tables, {}.",
            config.server.listen,
            config.server.admin_listen,
            config.catalog.dir.display(),
            config.plugins.len(),
            if config.kubernetes.is_some() { "clusters configured" } else { "no cluster" },
        ));
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::bail!("{from}: {} mistakes\n  {}", wrong.len(), wrong.join("\n  "))
}

/// Every mistake, each with its place.
pub(super) async fn mistakes(config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut add = |e: Option<String>| wrong.extend(e);
    add(config.api.check().err().map(|e| e.to_string()));
    add(config.log.level.as_deref().and_then(|l| telemetry::check_level(l).err()).map(|e| e.to_string()));
    add(config.runtime.check().err().map(|e| e.to_string()));
    add(config.operations.check().err().map(|e| e.to_string()));
    add(config.ledger.check().err().map(|e| e.to_string()));
    match Access::new(&config.access, &config.instance_access()) {
        Err(e) => add(Some(e.to_string())),
        Ok(access) => {
            add(access.listen_rule(config.server.listen).err().map(|e| e.to_string()));
            add(access.admin_listen_rule(config.server.admin_listen).err().map(|e| e.to_string()));
        }
    }
    let (public, admin) = (config.server.listen, config.server.admin_listen);
    if public == admin && public.port() != 0 {
        add(Some(format!("server.listen and server.admin-listen are both {public}; give each its own")));
    }
    if let Some(tls) = &config.server.tls {
        // Bound to any free port: only the files are looked at.
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = Server::bind(any, Some(tls.clone()), ServerOptions::from(&config.api));
        add(bound.err().map(|e| format!("[server.tls] {e}")));
    }
    plugins(config, &mut add);
    names(config, &mut add);
    capabilities(config, &mut add).await;
    wrong
}

fn plugins(config: &Config, add: &mut impl FnMut(Option<String>)) {
    let dir = &config.catalog.dir;
    if !dir.is_dir() {
        add(Some(format!(
            "[catalog] dir {} is not a folder; make it, or name the folder that holds the *.wasm files",
            dir.display()
        )));
        return;
    }
    for (name, plugin) in &config.plugins {
        if !dir.join(format!("{name}.wasm")).is_file() {
            add(Some(format!("[plugins.{name}]: there is no {name}.wasm in {}", dir.display())));
        }
        add(PluginName::parse(name).err().map(|e| format!("[plugins.{name}]: {e}")));
        let limits = plugin.limits.check(config.runtime.max_memory_mib);
        add(limits.err().map(|e| format!("[plugins.{name}.limits] {e}")));
        add(plugin.whole().err().map(|e| format!("[plugins.{name}] {e}")));
        for (secret, source) in &plugin.secrets {
            add(source.read().err().map(|e| format!("[plugins.{name}.secrets] {secret}: {e}")));
        }
    }
    for file in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if file.extension().is_some_and(|e| e == "wasm") {
            add(beside(&file, config).err());
        }
    }
    for (pair, owner) in &config.pairs {
        add(pair.parse::<Pair>().err().map(|e| format!("[pairs] {pair:?}: {e}")));
        if !dir.join(format!("{owner}.wasm")).is_file() {
            add(Some(format!("[pairs] {pair:?} = {owner:?}: there is no {owner}.wasm in {}", dir.display())));
        }
    }
}

/// What is wrong with the `NAME.toml` beside a plugin.
fn beside(wasm: &Path, config: &Config) -> Result<(), String> {
    let plugin = config_of(wasm, &config.plugins).map_err(|e| format!("{}: {e}", wasm.display()))?;
    let own = wasm.with_extension("toml");
    if !own.is_file() {
        return Ok(());
    }
    let at = |e: String| format!("{}: {e}", own.display());
    plugin.whole().map_err(at)?;
    plugin.limits.check(config.runtime.max_memory_mib).map_err(|e| at(format!("limits: {e}")))?;
    for (secret, source) in &plugin.secrets {
        source.read().map_err(|e| at(format!("secrets: {secret}: {e}")))?;
    }
    Ok(())
}

fn names(config: &Config, add: &mut impl FnMut(Option<String>)) {
    for name in config.tenants.keys() {
        add(Identifier::parse(name).err().map(|e| format!("[tenants.{name:?}]: {e}")));
    }
    instances::mistakes(config).into_iter().for_each(|e| add(Some(e)));
    instances::namespaces(config).into_iter().for_each(|e| add(Some(e)));
}

async fn capabilities(config: &Config, add: &mut impl FnMut(Option<String>)) {
    if let Some(clusters) = &config.kubernetes {
        match Clusters::connect(clusters).await {
            Err(e) => add(Some(format!("[kubernetes] {e}"))),
            Ok(c) => {
                let (c, engine, jobs) = (Arc::new(c), Arc::new(NoEngine), Arc::new(NoJobs));
                let helm = Helm::new(&config.helm, &config.registries, c, engine, jobs);
                add(helm.err().map(|e| e.to_string()));
            }
        }
    }
    if config.containers.is_some() && config.kubernetes.is_none() {
        add(RegistryLogins::new(&config.helm, &config.registries).err().map(|e| e.to_string()));
    }
    if let Some(register) = &config.register {
        let provisioner = Arc::new(crate::host::Nobody);
        add(Register::new(register.clone(), provisioner).err().map(|e| format!("[register] {e}")));
    }
}

/// Renders nothing: the configuration is looked at, not used.
struct NoEngine;

impl TemplateEngine for NoEngine {
    fn render(&self, _: RenderRequest) -> BoxFuture<'_, Result<RenderAnswer, EngineError>> {
        Box::pin(async { Err(EngineError::Unavailable("nothing is rendered here".into())) })
    }
}
