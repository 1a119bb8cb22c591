//! Write a sutler plugin in Rust: implement [`Resource`] (read, write, delete) or [`Pipeline`] (steps), then
//! `sutler_sdk::export!(Mine)`. It never does anything but ask the host: there are no files, sockets or threads here.

mod drive;
mod error;
mod names;
mod pipeline;
mod raw;
mod standing;
mod subject;

#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, reason = "an allocator")]
mod arena;

pub mod config;
pub mod containers;
pub mod helm;
pub mod http;
pub mod kubernetes;
pub mod log;
pub mod logs;
pub mod schema;
/// A world in memory, so that plugins are tested with plain `cargo test`. Not there in a component.
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

/// The contract's own types, for what the SDK has no word for.
pub mod wit;
pub use error::{Error, Result};
pub use names::Pair;
pub use pipeline::{Pipeline, Resource, compare, observe};
pub use subject::{
    Action, Actual, Application, At, Difference, DifferenceClass, Kind, LogSource, Observed, Planned,
    Presence, Progress, StepInfo, Steps, Subject,
};

/// What nearly every plugin uses.
pub mod prelude {
    pub use crate::{
        Action, Actual, At, Difference, DifferenceClass, Error, Kind, LogSource, Observed, Pair, Pipeline,
        Planned, Presence, Progress, Resource, Result, StepInfo, Steps, Subject,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};
}

/// Milliseconds since 1970. A fixed instant during describe and plan.
pub fn now() -> u64 {
    raw::clock::now()
}

/// At most 4096 bytes that follow from the request during plan and from job and step during apply, so that a
/// repeated step makes the same names and tokens.
pub fn random(length: u32) -> Vec<u8> {
    raw::random::bytes(length)
}

/// Used by `export!`.
#[doc(hidden)]
pub mod macros {
    pub use crate::drive::{Handler, Handles, find, find_or_stop};

    /// Keeps a panic's text: on this target nothing else would.
    pub fn begin() {
        #[cfg(target_arch = "wasm32")]
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let text = info.payload_as_str().unwrap_or("a panic without text");
            crate::log::write(
                crate::log::Level::Error,
                &format!("panicked: {text}"),
                &serde_json::json!({ "at": place }),
            );
        }));
    }
}

/// Makes the crate a plugin for the pairs of these types, each a [`Resource`] or a [`Pipeline`]. Name, version and
/// summary come from Cargo.toml (name, version, description).
#[macro_export]
macro_rules! export {
    ($($pair:ty),+ $(,)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Exported;
            $crate::__guest!(Exported, $($pair),+);
            $crate::wit::export_provisioner!(Exported with_types_in $crate::wit);
        };
    };
}

/// [`export!`] for a plugin whose applications have logs: `locate` says where.
#[macro_export]
macro_rules! export_with_logs {
    ($($pair:ty),+ $(,)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Exported;
            $crate::__guest!(Exported, $($pair),+);
            impl $crate::wit::logs::exports::sutler::provisioner::log_sources::Guest for Exported {
                fn locate(
                    inquiry: $crate::wit::sutler::provisioner::types::Inquiry,
                ) -> ::core::result::Result<
                    ::std::vec::Vec<$crate::wit::logs::exports::sutler::provisioner::log_sources::Source>,
                    $crate::wit::sutler::provisioner::types::Failure,
                > {
                    $crate::macros::begin();
                    $crate::macros::find(HANDLERS, &inquiry.pair)?.locate(&inquiry)
                }
            }
            $crate::wit::export_provisioner!(Exported with_types_in $crate::wit);
            $crate::wit::logs::export_log_sources!(Exported with_types_in $crate::wit::logs);
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __guest {
    ($guest:ident, $($pair:ty),+) => {
        const HANDLERS: &[&dyn $crate::macros::Handles] = &[$(&$crate::macros::Handler::<$pair>::new()),+];
        use $crate::wit::exports::sutler::provisioner::provisioner as wire;
        use $crate::wit::sutler::provisioner::types as words;
        impl wire::Guest for $guest {
            fn describe() -> wire::Descriptor {
                $crate::macros::begin();
                wire::Descriptor {
                    name: env!("CARGO_PKG_NAME").into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                    summary: env!("CARGO_PKG_DESCRIPTION").into(),
                    pairs: HANDLERS.iter().map(|h| h.describe()).collect(),
                }
            }
            fn plan(request: words::Request) -> ::core::result::Result<wire::Proposal, words::Failure> {
                $crate::macros::begin();
                $crate::macros::find(HANDLERS, &request.pair)?.plan(&request)
            }
            fn apply(
                request: words::Request,
                at: wire::Checkpoint,
            ) -> ::core::result::Result<wire::Progress, wire::Stopped> {
                $crate::macros::begin();
                $crate::macros::find_or_stop(HANDLERS, &request.pair, &at)?.apply(&request, &at)
            }
            fn cancel(
                request: words::Request,
                at: wire::Checkpoint,
            ) -> ::core::result::Result<wire::Progress, wire::Stopped> {
                $crate::macros::begin();
                $crate::macros::find_or_stop(HANDLERS, &request.pair, &at)?.cancel(&request, &at)
            }
            fn inspect(
                inquiry: words::Inquiry,
            ) -> ::core::result::Result<::std::vec::Vec<wire::Observed>, words::Failure> {
                $crate::macros::begin();
                $crate::macros::find(HANDLERS, &inquiry.pair)?.inspect(&inquiry)
            }
        }
    };
}
