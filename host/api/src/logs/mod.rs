//! `GET /logs`: the query, and the three forms of a stream.

mod query;
mod render;
mod route;

pub(crate) use route::{__path_logs, logs};
