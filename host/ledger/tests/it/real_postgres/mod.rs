//! The ledger on a real PostgreSQL server. Everything in here needs one installed, and fails without it.

mod contract;
mod crash;
mod faults;
mod hosts;
mod moves;
mod scale;
mod schema;
mod secure;
