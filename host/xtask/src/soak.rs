//! What runs too long for every day.

use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::process::call;
use crate::project::Project;
use crate::{engine, guests, tools};

#[derive(Args)]
pub struct SoakArgs {
    /// Cases a property test
    #[arg(long, default_value_t = 20_000)]
    cases: u32,
    /// Runs of the fault suite, each with a seed of its own
    #[arg(long, default_value_t = 20)]
    seeds: u32,
    /// Interleavings that the simulation of the jobs explores
    #[arg(long, default_value_t = 10_000)]
    simulations: u32,
    /// Kills that the crash suite survives, each with a seed of its own
    #[arg(long, default_value_t = 1_000)]
    crashes: u32,
    /// First seed (default: from the clock); a failing run prints its own
    #[arg(long)]
    seed: Option<u64>,
}

pub fn run(project: &Project, args: &SoakArgs) -> Result<()> {
    println!("soak: every test without a real world, property tests with {} cases", args.cases);
    tests(project, "not test(/(^|::)real_/)", &[("PROPTEST_CASES", args.cases.to_string())])?;
    println!("soak: the jobs' simulation with {} seeds", args.simulations);
    tests(project, "test(/simulation/)", &[("SUTLER_SIMULATION_SEEDS", args.simulations.to_string())])?;
    println!("soak: the crash suite with {} seeds", args.crashes);
    let crashes = [("SUTLER_CRASH_SEEDS", args.crashes.to_string())];
    tests(project, "test(/(^|::)crash::/)", &crashes)?;
    println!("soak: the same on PostgreSQL, which has to be installed");
    tests(project, "test(real_postgres_killed_anywhere)", &crashes)?;
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let first = args.seed.unwrap_or(clock);
    for seed in (first..).take(args.seeds as usize) {
        println!("soak: fault suite with SUTLER_FAULT_SEED={seed}");
        tests(project, "test(/fault/)", &[("SUTLER_FAULT_SEED", seed.to_string())])?;
    }
    Ok(())
}

fn tests(project: &Project, filter: &str, env: &[(&str, String)]) -> Result<()> {
    let mut command = nextest(project)?;
    command.args(["--workspace", "--no-fail-fast", "--profile", "soak", "-E", filter]);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    call(&mut command)
}

/// `cargo nextest run` on the workspace with the engine built in.
pub fn nextest(project: &Project) -> Result<Command> {
    let mut command = Command::new(tools::nextest(project)?);
    command
        .args(["nextest", "run"])
        .current_dir(&project.root)
        .env("CARGO_TARGET_DIR", &project.target)
        .env("SUTLER_HELM_ENGINE", engine::build(project)?);
    Ok(command)
}

/// Everything in release mode, so that a figure is of what ships.
pub fn bench(project: &Project, args: &[String]) -> Result<()> {
    let engine = engine::build(project)?;
    guests::build(project, None)?;
    let mut cargo = project.cargo_with(&engine);
    call(cargo.args(["build", "--release", "--package", "sutler", "--package", "sutler-bench"]))?;
    let built = project.target.join("release");
    let mut bench = Command::new(built.join("sutler-bench"));
    bench.args(args).current_dir(&project.root);
    bench.env("SUTLER_HELM_ENGINE", engine).env("CARGO_TARGET_DIR", &project.target);
    call(bench.env("SUTLER_BIN", built.join("sutler")))
}
