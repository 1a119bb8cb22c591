//! Logs against a small API server that cuts connections, rotates files and restarts containers.

mod grants;
mod server;
mod stream;
mod survive;
mod tail;
