//! The capability and its client against a small API server that records what it is asked.

mod capability;
mod cluster;
mod grants;
mod ownership;
mod server;
