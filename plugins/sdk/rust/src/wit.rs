//! What wit-bindgen makes of `wit/`. Authors meet it only through the rest of the SDK, or on purpose
//! through `sutler_sdk::wit`. Its Debug shows secrets: never log these types.

wit_bindgen::generate!({
    path: "../../../wit",
    world: "provisioner-plugin",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "export_provisioner",
    default_bindings_module: "sutler_sdk::wit",
});

/// The interface that only plugins with logs export; a world of its own, so that others do not.
pub mod logs {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "package sutler:sdk; world log-sources-only { export sutler:provisioner/log-sources@0.1.1; }",
        world: "sutler:sdk/log-sources-only",
        with: { "sutler:provisioner/types@0.1.1": crate::wit::sutler::provisioner::types },
        pub_export_macro: true,
        export_macro_name: "export_log_sources",
        default_bindings_module: "sutler_sdk::wit::logs",
    });
}
