//! The HTTP side through its routers and sockets, with a host behind it that does what a test says.

mod answers;
mod bodies;
mod fake;
mod logs;
mod openapi;
mod registration;
mod serving;
mod telemetry;
