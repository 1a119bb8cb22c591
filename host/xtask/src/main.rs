//! The project's own chores: builds what cargo alone cannot, checks, tests, demonstrates.
//! Never part of what ships.

mod build;
mod demo;
mod docs;
mod engine;
mod guests;
mod image;
mod linker;
mod previous;
mod process;
mod project;
mod real;
mod soak;
mod stages;
mod sysroot;
mod test;
mod tidy;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::project::Project;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, checks, tests and demonstrates sutler")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build the plugins and Rust examples into target/plugins/NAME.wasm
    BuildGuests {
        /// Only the crate of this name
        #[arg(long)]
        only: Option<String>,
        /// A crate of yours, anywhere, instead of the project's
        #[arg(long, value_name = "FOLDER", conflicts_with = "only")]
        folder: Option<PathBuf>,
    },
    /// Build Helm's engine into target/helm-engine.wasm.zst (cached by content)
    BuildEngine,
    /// Build the engine, the guests and the host
    Build {
        #[arg(long)]
        release: bool,
    },
    /// Make a container image of the host and the plugins that ship, without a daemon or a network
    Image(image::ImageArgs),
    /// Build everything and show it at work
    Demo(DemoArgs),
    /// Check the rules that no compiler checks: crate edges, file lengths, words, WIT copies, links
    Tidy,
    /// Run every check and test, each as a stage, and print what each took
    Test {
        /// Also run the tests against a real Kubernetes, real registries and a Docker daemon (root, Debian or Ubuntu)
        #[arg(long)]
        real: bool,
        /// Only stages whose name contains this; may be repeated
        #[arg(long)]
        only: Vec<String>,
    },
    /// Run cargo-deny over licences, bans and sources
    Deny {
        /// Also look the dependencies up in the advisory database (needs the network)
        #[arg(long)]
        advisories: bool,
    },
    /// Start or stop the real test cluster, registries and Docker daemon by hand
    Cluster {
        #[command(subcommand)]
        action: ClusterAction,
    },
    /// Run what runs too long for every day: many cases and seeds, kills on both ledgers, the binary of before beside
    /// this one; prints a table with figures
    Soak(soak::SoakArgs),
    /// Run the benchmarks in release mode
    Bench {
        /// Handed to the benchmark binary
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

#[derive(Subcommand)]
enum ClusterAction {
    /// Start them and print the environment the tests want
    Up,
    /// Stop them and remove their state
    Down,
}

#[derive(Args)]
pub struct DemoArgs {
    /// Leave everything running at the end
    #[arg(long)]
    pub keep: bool,
    /// Use this cluster instead of starting one
    #[arg(long, value_name = "KUBECONFIG", requires = "registry")]
    pub cluster: Option<PathBuf>,
    /// Use this OCI registry instead of starting one
    #[arg(long, value_name = "URL", requires = "cluster")]
    pub registry: Option<String>,
}

fn main() -> ExitCode {
    match run(Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}"); // without the backtrace that RUST_BACKTRACE would add
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    let project = Project::find()?;
    match chore {
        Chore::BuildGuests { only, folder } => {
            let components = match folder {
                Some(folder) => guests::build_folder(&project, &folder)?,
                None => guests::build(&project, only.as_deref())?,
            };
            for component in components {
                println!("{}", component.display());
            }
            Ok(())
        }
        Chore::BuildEngine => {
            println!("{}", engine::build(&project)?.display());
            Ok(())
        }
        Chore::Build { release } => build::everything(&project, release),
        Chore::Image(args) => image::run(&project, &args),
        Chore::Demo(args) => demo::run(&project, &args),
        Chore::Tidy => tidy::run(&project),
        Chore::Test { real, only } => test::run(&project, real, &only),
        Chore::Deny { advisories } => tools::deny(&project, advisories),
        Chore::Cluster { action: ClusterAction::Up } => real::up(&project),
        Chore::Cluster { action: ClusterAction::Down } => real::down(&project),
        Chore::Soak(args) => soak::run(&project, &args),
        Chore::Bench { args } => soak::bench(&project, &args),
    }
}
