//! Wasmtime for plugins: engine, limits, linkers.
