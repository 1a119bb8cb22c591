//! An emulator of a Kubernetes API server, in this process.
//!
//! It is an emulator and says so: its version ends in `-sutler-emulator` and every answer carries
//! `X-Sutler-Emulator: true`. It makes tests of this project quick. It never proves that anything works on
//! Kubernetes: it knows no schemas, no admission, no authorization, no controllers; workloads become ready by
//! assertion. What matters is shown again on a real cluster.

mod admission;
mod apply;
mod discovery;
mod emulator;
mod fields;
mod kinds;
mod kubeconfig;
mod logs;
mod managed;
mod pods;
mod proxy;
mod resource;
mod selector;
mod serve;
mod status;
mod store;
mod watch;
mod write;

pub use emulator::{Emulator, Fault, SeenAnswer, SeenRequest};
pub use pods::Readiness;
pub use proxy::{ApiProxy, Passed, namespace};
