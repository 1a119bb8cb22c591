//! Wasmtime for plugins: one engine, limits for each plugin, a calling and a read-only linker, a fresh sandbox for
//! each call. It never decides what is granted, reads no configuration file and keeps nothing between two calls.

mod bindings;
mod budget;
mod cache;
mod clock;
mod convert;
mod engine;
mod faults;
mod helm_engine;
mod imports;
mod limits;
mod loader;
mod plugin;
mod random;
mod sandbox;
mod settings;
mod size;
mod wasi;

pub use cache::{CacheError, CompileCache};
pub use engine::{Engine, EngineConfig, EngineError};
pub use helm_engine::HelmEngine;
pub use limits::Limits;
pub use loader::{LoadError, Runtime, WasiPolicy};
pub use plugin::{Plugin, RunError, StepCall};
pub use sandbox::{Capabilities, GrantSet, Pins};
pub use settings::PluginSettings;
