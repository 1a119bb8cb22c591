//! Generated from the WIT. These types stay in this crate: their Debug prints secrets.
#![allow(unreachable_pub, clippy::all, missing_docs)]

pub mod plugin {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "provisioner-plugin",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}

pub mod logs {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "package sutler:host-side; world log-sources-only { export sutler:provisioner/log-sources@0.1.1; }",
        world: "sutler:host-side/log-sources-only",
        exports: { default: async },
        with: { "sutler:provisioner/types": crate::bindings::plugin::sutler::provisioner::types },
    });
}

pub mod engine {
    wasmtime::component::bindgen!({
        path: "../../plugins/helm-engine/wit",
        inline: "package sutler:engine-side; world engine-host { import sutler:helm-engine/host@0.1.0; import sutler:helm-engine/sys@0.1.0; export run: func(); }",
        world: "sutler:engine-side/engine-host",
        imports: { default: async | trappable },
        exports: { default: async },
    });
}
