//! sutler: command line, configuration, wiring. No logic of its own.

mod command;
mod config;
mod host;
mod instances;
mod jobs;
mod ledger;
mod legacy;
mod reference;
mod telemetry;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let cli = command::Cli::parse();
    // The only provider that is linked; an error here would mean that somebody installed it before us.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match command::run(cli) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("error: {e:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
