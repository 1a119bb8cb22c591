//! Who calls, and for whom: bearer tokens (kept as hashes), callers and operators, instances and tenants, and what
//! holds while no token is configured. It never does I/O and never sees a body.

mod access;
mod browser;
mod config;
mod error;
mod scope;
mod token;

pub use access::{Access, Caller, Incoming, Operator};
pub use config::{AccessConfig, CallerConfig, InstanceAccess, OperatorConfig};
pub use error::{AccessError, Denied, Forbidden, NoAudit, Refused};
pub use scope::Scope;
pub use token::{hash_token, new_token};
