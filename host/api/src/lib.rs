//! The HTTP side: routes, bodies, status codes, OpenAPI, listeners with TLS, registration with a control plane.
//! It never decides what a plugin may do, knows no WebAssembly, and never logs a body, a token or a query.

mod admin;
mod answer;
mod audit;
mod body;
mod config;
mod edge;
mod error;
mod extract;
mod health;
mod in_flight;
mod logs;
mod openapi;
mod operations;
mod refusal;
mod registration;
mod request;
mod router;
mod server;
mod share;
mod state;
mod strict;
mod tls;
mod trace;
mod work;

pub use config::{ApiConfig, UnknownFields, own_path};
pub use error::ApiError;
pub use in_flight::Running;
pub use registration::{Register, RegisterConfig};
pub use router::{admin_router, router};
pub use server::{Server, ServerOptions};
pub use share::Share;
pub use state::Api;
pub use tls::TlsConfig;
