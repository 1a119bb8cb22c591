//! What tests share: an emulated cluster, a chart registry, a control plane, hostile plugins, and the built binary.
//! It never is part of the host, and what passes here is not shown to work on a real cluster.
#![allow(clippy::indexing_slicing, reason = "only JSON is indexed, by name: what is not there reads as null")]

pub mod cluster;
pub mod control_plane;
mod dice;
pub mod docker;
mod guests;
mod host;
pub mod http;
mod net;
pub mod postgres;
mod real;
pub mod registry;
mod tls;

pub use dice::Dice;
pub use guests::{
    checkout, core_module, future_version, guest, hostile, no_exports, random_bytes, target_dir, truncated,
    unknown_import, wrong_export_type,
};
pub use host::{SutlerProcess, sutler_binary};
pub use real::{RealWorld, real};
pub use tls::{TestAuthority, TestCertificate};
