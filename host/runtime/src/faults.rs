//! From wasmtime's errors to faults.

use sutler_model::{Fault, FaultKind, Mode};
use wasmtime::{Trap, WasmBacktrace};

use crate::budget::Stop;

/// Frames that are kept of a trap.
const FRAMES: usize = 20;

pub(crate) fn fault_id() -> String {
    let mut b = [0; 6];
    // An id without randomness still marks a fault; the log tells the two apart by time.
    let _ = getrandom::fill(&mut b);
    b.iter().fold(String::from("flt_"), |s, b| format!("{s}{b:02x}"))
}

pub(crate) fn new(plugin: &str, mode: Mode, kind: FaultKind, message: impl Into<String>) -> Fault {
    Fault {
        id: fault_id(),
        kind,
        plugin: plugin.into(),
        export: mode.as_str().into(),
        message: message.into(),
        frames: vec![],
    }
}

/// Classes an error that came out of a guest call.
pub(crate) fn classify(plugin: &str, mode: Mode, error: &wasmtime::Error) -> Fault {
    let (kind, message) = if let Some(stop) = error.downcast_ref::<Stop>() {
        (kind_of(stop), stop.to_string())
    } else if let Some(trap) = error.downcast_ref::<Trap>() {
        (FaultKind::Trap, format!("it trapped: {}", trap.to_string().trim_start_matches("wasm trap: ")))
    } else if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        (FaultKind::Trap, Stop::Exit(exit.0).to_string())
    } else {
        // The root cause is wasmtime's own text and holds none of the plugin's data.
        (FaultKind::Trap, format!("it could not be run: {}", error.root_cause()))
    };
    Fault { frames: frames(error), ..new(plugin, mode, kind, message) }
}

const fn kind_of(stop: &Stop) -> FaultKind {
    match stop {
        Stop::Cpu(_) => FaultKind::Cpu,
        Stop::Memory(_) => FaultKind::Memory,
        Stop::HostBytes(_) => FaultKind::Output,
        Stop::Dependency(_) | Stop::Lease => FaultKind::DependencyTimeout,
        Stop::Exit(_) => FaultKind::Trap,
    }
}

fn frames(error: &wasmtime::Error) -> Vec<String> {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return vec![] };
    trace
        .frames()
        .iter()
        .take(FRAMES)
        .map(|f| {
            let symbol = f.symbols().iter().find_map(|s| s.name()).or_else(|| f.func_name());
            symbol.map_or_else(|| format!("<function {}>", f.func_index()), str::to_owned)
        })
        .collect()
}
