//! The one wasmtime engine of a host, and the ticker of its epochs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Semaphore;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

/// The epoch's tick: the grain of CPU accounting.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// `[runtime]`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Sandboxes that may exist at once in the whole host; calls beyond are answered 503.
    pub sandboxes: u32,
    /// The most memory that any plugin's limit may allow, in MiB.
    pub max_memory_mib: u32,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { sandboxes: 128, max_memory_mib: 512 }
    }
}

impl EngineConfig {
    /// # Errors
    /// `EngineError::Config` with the key and what it may be.
    pub const fn check(&self) -> Result<(), EngineError> {
        if self.sandboxes == 0 || self.sandboxes > 4_096 {
            return Err(EngineError::Config("sandboxes", "use 1 to 4096"));
        }
        if self.max_memory_mib == 0 || self.max_memory_mib > 4_096 {
            return Err(EngineError::Config("max-memory-mib", "use 1 to 4096"));
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("runtime.{0}: {1}")]
    Config(&'static str, &'static str),
    #[error("wasmtime cannot start here: {0}")]
    Start(String),
}

/// Shared by every plugin. Cloning is cheap.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    sandboxes: Arc<Semaphore>,
    config: Arc<EngineConfig>,
    ticker: Arc<Ticker>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

struct Ticker {
    stop: Arc<AtomicBool>,
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Engine {
    /// # Errors
    /// `EngineError` where the machine cannot give what the pool needs (address space, mostly).
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let inner = wasmtime::Engine::new(&wasmtime_config(&config))
            .map_err(|e| EngineError::Start(format!("{e:#}")))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (weak, stopped) = (inner.weak(), stop.clone());
        std::thread::Builder::new()
            .name("sutler-epoch".into())
            .spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    match weak.upgrade() {
                        Some(e) => e.increment_epoch(),
                        None => return,
                    }
                }
            })
            .map_err(|e| EngineError::Start(format!("no thread for the epoch ticker: {e}")))?;
        Ok(Self {
            inner,
            sandboxes: Arc::new(Semaphore::new(config.sandboxes as usize)),
            config: Arc::new(config),
            ticker: Arc::new(Ticker { stop }),
        })
    }

    /// The engine itself, for who measures what the host adds to it.
    pub const fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner
    }
    pub(crate) const fn sandboxes(&self) -> &Arc<Semaphore> {
        &self.sandboxes
    }
    /// The engine's configuration.
    pub fn config(&self) -> &EngineConfig {
        let _owner = &self.ticker;
        &self.config
    }
    /// Sandboxes that exist now.
    pub fn sandboxes_in_use(&self) -> usize {
        (self.config.sandboxes as usize).saturating_sub(self.sandboxes.available_permits())
    }
    /// Compiled forms made by an engine with another hash cannot be loaded by this one.
    pub(crate) fn compatibility(&self) -> u64 {
        let mut h = DefaultHasher::new();
        self.inner.precompile_compatibility_hash().hash(&mut h);
        h.finish()
    }
}

/// Beyond those that may work: of Helm's engine, until a rendering takes them.
const SPARE_SANDBOXES: u32 = 2;

fn wasmtime_config(config: &EngineConfig) -> Config {
    let n = config.sandboxes.saturating_add(SPARE_SANDBOXES);
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(n)
        .total_core_instances(n.saturating_mul(8))
        .total_memories(n.saturating_mul(2))
        .total_tables(n.saturating_mul(8))
        .total_stacks(n)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .max_core_instances_per_component(64)
        .max_tables_per_component(64)
        .max_memories_per_component(8)
        .table_elements(100_000)
        .max_memory_size((config.max_memory_mib as usize) << 20)
        .linear_memory_keep_resident(1 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .pagemap_scan(Enabled::Auto);
    let mut c = Config::new();
    c.allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .epoch_interruption(true)
        .concurrency_support(false)
        .max_wasm_stack(512 << 10)
        .async_stack_size(2 << 20);
    c
}
