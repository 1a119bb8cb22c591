//! The built binary from outside: over HTTP and on its command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod audit;
mod bad_input;
mod catalog;
mod cli;
mod cluster;
mod crash;
mod disk;
mod doctor;
mod doctor_world;
mod faults;
mod instances;
mod instances_check;
mod kafka_connect;
mod ledger_cli;
mod ledger_wrong;
mod life;
mod life_states;
mod listeners;
mod metrics;
mod operations;
mod provisioner;
mod real_chart;
mod real_clock;
mod real_docker;
mod real_helm;
mod real_hosts;
mod real_in_pod;
mod real_killed;
mod real_ledger_cli;
mod real_life;
mod real_logs;
mod real_many;
mod real_rbac;
mod real_systemd;
mod real_trouble;
mod registry;
mod seven;
mod support;
mod wasi;
