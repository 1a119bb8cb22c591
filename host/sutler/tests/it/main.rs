//! The built binary from outside: over HTTP and on its command line.

mod bad_input;
mod catalog;
mod cli;
mod cluster;
mod faults;
mod life;
mod listeners;
mod real_life;
mod registry;
mod support;
