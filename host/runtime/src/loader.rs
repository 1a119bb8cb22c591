//! From a file's bytes to a plugin that can be called.

use std::sync::Arc;
use std::time::Instant;

use sutler_model::{Digest, PluginName};
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};

use crate::bindings::{logs, plugin as bound};
use crate::cache::CompileCache;
use crate::engine::Engine;
use crate::imports;
use crate::limits::Limits;
use crate::plugin::{Exports, Plugin};
use crate::sandbox::{Capabilities, State};
use crate::settings::PluginSettings;

/// Whether components that import WASI may be loaded: `[policy] wasi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WasiPolicy {
    /// WASI 0.2 is linked with nothing in it: no files, no sockets, no environment.
    #[default]
    Empty,
    /// A component that imports WASI is refused.
    None,
}

/// Why a file is not a plugin that can run here.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "it is a core WebAssembly module, not a component; build it as a component (see plugins/README.md)"
    )]
    CoreModule,
    #[error("it is not a WebAssembly component: {0}")]
    NotComponent(String),
    #[error("{0}; sutler offers the imports of world sutler:provisioner/provisioner-plugin@0.1.1")]
    UnknownImport(String),
    #[error("it imports {0} and [policy] wasi = \"none\" refuses WASI; build it without WASI or allow it")]
    WasiRefused(String),
    #[error("it does not export sutler:provisioner/provisioner@0.1.1 as the contract has it: {0}")]
    WrongExport(String),
}

/// Builds plugins and the linkers they share.
pub struct Runtime {
    engine: Engine,
    cache: CompileCache,
    world: Arc<Capabilities>,
    wasi: WasiPolicy,
    reading: Linker<State>,
    calling: Linker<State>,
    random_key: [u8; 32],
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Runtime {
    /// # Errors
    /// wasmtime's, where the linkers do not fit the bindings; a fault of the build.
    pub fn new(
        engine: Engine,
        cache: CompileCache,
        world: Capabilities,
        wasi: WasiPolicy,
    ) -> Result<Self, LoadError> {
        let linker = |writing| -> wasmtime::Result<Linker<State>> {
            let mut l = Linker::new(engine.wasmtime());
            imports::link(&mut l, writing)?;
            if wasi == WasiPolicy::Empty {
                wasmtime_wasi::p2::add_to_linker_async(&mut l)?;
            }
            Ok(l)
        };
        let broken = |e: wasmtime::Error| LoadError::WrongExport(format!("{e:#}"));
        Ok(Self {
            reading: linker(false).map_err(broken)?,
            calling: linker(true).map_err(broken)?,
            random_key: cache.derived_key("random"),
            engine,
            cache,
            world: Arc::new(world),
            wasi,
        })
    }

    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Compiles (or takes from the cache) and links. Blocks for as long as compiling takes.
    ///
    /// # Errors
    /// `LoadError` naming what the file lacks or asks for.
    pub fn load(
        &self,
        name: PluginName,
        wasm: &[u8],
        settings: PluginSettings,
        limits: Limits,
    ) -> Result<Plugin, LoadError> {
        if wasm.get(..8) == Some(&[0, b'a', b's', b'm', 1, 0, 0, 0]) {
            return Err(LoadError::CoreModule);
        }
        let digest = Digest::of(wasm);
        let started = Instant::now();
        let (component, cached) = self
            .cache
            .compile(&self.engine, &digest, || Ok(wasm.into()))
            .map_err(|e| LoadError::NotComponent(first_line(&e)))?;
        let imports: Vec<String> =
            component.component_type().imports(self.engine.wasmtime()).map(|(n, _)| n.to_owned()).collect();
        if self.wasi == WasiPolicy::None
            && let Some(w) = imports.iter().find(|i| i.starts_with("wasi:"))
        {
            return Err(LoadError::WasiRefused(w.clone()));
        }
        let link = |l: &Linker<State>| {
            l.instantiate_pre(&component).map_err(|e| LoadError::UnknownImport(one_line(&e)))
        };
        let (reading, calling) = (link(&self.reading)?, link(&self.calling)?);
        // The generated check of every export's type; what is called later is looked up by index.
        bound::ProvisionerPluginPre::new(reading.clone())
            .map_err(|e| LoadError::WrongExport(one_line(&e)))?;
        Ok(Plugin {
            exports: exports(&component, logs::LogSourcesOnlyPre::new(reading.clone()).is_ok())?,
            reading,
            calling,
            calls: Arc::new(Semaphore::new(limits.concurrent_calls as usize)),
            compile_time: started.elapsed(),
            engine: self.engine.clone(),
            world: self.world.clone(),
            settings: Arc::new(settings),
            limits: Arc::new(limits),
            random_key: self.random_key,
            size: wasm.len(),
            name,
            digest,
            cached,
            imports,
        })
    }
}

fn exports(component: &Component, has_logs: bool) -> Result<Exports, LoadError> {
    let of = |interface: &str, name: &str| {
        let interface = component.get_export_index(None, interface);
        let found = interface.and_then(|i| component.get_export_index(Some(&i), name));
        found.ok_or_else(|| LoadError::WrongExport(format!("there is no {name}")))
    };
    let own = |name| of("sutler:provisioner/provisioner@0.1.1", name);
    Ok(Exports {
        describe: own("describe")?,
        plan: own("plan")?,
        apply: own("apply")?,
        cancel: own("cancel")?,
        inspect: own("inspect")?,
        locate: has_logs.then(|| of("sutler:provisioner/log-sources@0.1.1", "locate")).transpose()?,
    })
}

fn one_line(e: &wasmtime::Error) -> String {
    format!("{e:#}").lines().collect::<Vec<_>>().join(" ")
}

/// What wasmtime says without its dump of bytes.
fn first_line(e: &wasmtime::Error) -> String {
    e.root_cause().to_string().lines().next().unwrap_or_default().chars().take(300).collect()
}
