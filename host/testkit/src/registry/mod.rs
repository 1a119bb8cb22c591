//! A chart registry (OCI distribution 1.1) in this process, from memory or from a folder of charts.

mod auth;
mod chart;
mod fault;
mod push;
mod serve;
mod server;
mod store;

pub use auth::Auth;
pub use chart::{ChartError, package};
pub use fault::{Fault, FaultBody};
pub use push::{PushError, Target};
pub use server::{Misbehaviour, Pushed, Registry, RegistryOptions, RegistryRequest};
