//! What runs too long for every day.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use clap::Args;

use crate::process::call;
use crate::project::Project;
use crate::real::background::Build;
use crate::real::{World, packages};
use crate::stages::Stages;
use crate::{engine, guests, previous, tools};

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
    /// Random sequences of operations, each step by one of the two tools
    #[arg(long, default_value_t = 200)]
    sequences: u64,
    /// Operations on releases and objects through a faulty way to a real API server
    #[arg(long, default_value_t = 1_000)]
    operations: u32,
    /// Seconds that twenty pods write for while their logs are followed
    #[arg(long, default_value_t = 60)]
    log_seconds: u32,
    /// The commit whose binary runs beside this one
    #[arg(long, default_value = "HEAD^")]
    previous: String,
    /// Only stages whose name contains this; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// First seed (default: from the clock); a failing run prints its own
    #[arg(long)]
    seed: Option<u64>,
}

/// Each part as a stage: one that fails does not stop the next. All run what is built at the start, whatever becomes
/// of the checkout meanwhile.
pub fn run(project: &Project, args: &SoakArgs) -> Result<()> {
    guests::build(project, None)?;
    call(nextest(project)?.args(["archive", "--workspace", "--archive-file"]).arg(archive(project)))?;
    let mut stages = Stages::new(&args.only);
    let all = &mut stages;
    let cases = [("PROPTEST_CASES", args.cases.to_string())];
    stage(all, "every test, many cases", || {
        let told = tests(project, "not test(/(^|::)real_/)", &cases)?;
        Ok(with(told, format!("{} cases a property", args.cases)))
    });
    let seeds = [("SUTLER_SIMULATION_SEEDS", args.simulations.to_string())];
    stage(all, "simulation of the jobs", || tests(project, "test(/simulation/)", &seeds));
    let crashes = [("SUTLER_CRASH_SEEDS", args.crashes.to_string())];
    stage(all, "kills on SQLite", || tests(project, "test(/(^|::)crash::/)", &crashes));
    stage(all, "kills on PostgreSQL", || {
        packages::ensure()?;
        tests(project, "test(real_postgres_killed) or test(real_postgres_a_host_an_hour_ahead)", &crashes)
    });
    stage(all, "faults", || faults(project, args));
    stage(all, "releases beside helm", || {
        let told = on_a_cluster(
            project,
            "test(/real_helm::/)",
            &[("SUTLER_CHART", "all".into()), ("SUTLER_SEEDS", args.sequences.to_string())],
        )?;
        Ok(with(told, format!("every chart, {} sequences", args.sequences)))
    });
    stage(all, "a faulty API server", || {
        let mut told = vec![("SUTLER_FAULTY_OPERATIONS", args.operations.to_string())];
        told.extend(args.seed.map(|seed| ("SUTLER_FAULTY_SEED", seed.to_string())));
        on_a_cluster(project, "test(real_operations_through_a_faulty_api_server)", &told)
    });
    stage(all, "kills at requests of a release", || {
        on_a_cluster(project, "test(/real_trouble::killed::/)", &[("SUTLER_KILL_POINTS", "all".into())])
    });
    let seconds = [("SUTLER_LOG_SECONDS", args.log_seconds.to_string())];
    stage(all, "logs through trouble", || on_a_cluster(project, "test(real_logs_of_twenty_pods)", &seconds));
    stage(all, "the binary of before", || {
        let previous = previous::build(project, &args.previous)?;
        // Ignored on other days, for want of that binary.
        let mut command = soak(project, "test(real_postgres_the_binary_of_before)")?;
        told(command.args(["--run-ignored", "only"]).env("SUTLER_PREVIOUS_BIN", previous))
    });
    stages.close()
}

fn with(mut figures: Vec<String>, one: String) -> Vec<String> {
    figures.push(one);
    figures
}

fn stage(stages: &mut Stages, name: &'static str, work: impl FnOnce() -> Result<Vec<String>>) {
    for figure in stages.run(name, work).unwrap_or_default() {
        stages.figure(figure);
    }
}

fn faults(project: &Project, args: &SoakArgs) -> Result<Vec<String>> {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let first = args.seed.unwrap_or(clock);
    for seed in (first..).take(args.seeds as usize) {
        println!("SUTLER_FAULT_SEED={seed}");
        tests(project, "test(/fault/)", &[("SUTLER_FAULT_SEED", seed.to_string())])?;
    }
    Ok(vec![format!("{} rounds, seeds from {first} on", args.seeds)])
}

/// On a cluster of its own.
fn on_a_cluster(project: &Project, filter: &str, env: &[(&str, String)]) -> Result<Vec<String>> {
    packages::ensure()?;
    let world = World::start(project, &Build::start(project)?.finish()?)?;
    let mut command = soak(project, filter)?;
    command.envs(world.env.iter().map(|(name, value)| (name, value)));
    told(command.envs(env.iter().map(|(name, value)| (name, value))))
}

/// What tests tell for the table begins so.
const FIGURE: &str = "figure: ";

/// Answers the figures that the tests told.
fn tests(project: &Project, filter: &str, env: &[(&str, String)]) -> Result<Vec<String>> {
    told(soak(project, filter)?.envs(env.iter().map(|(name, value)| (name, value))))
}

fn soak(project: &Project, filter: &str) -> Result<Command> {
    let (mut command, built) = (nextest(project)?, project.target.join("soak"));
    fs::create_dir_all(&built)?;
    command.args([
        "run",
        "--no-fail-fast",
        "--profile",
        "soak",
        "--success-output",
        "immediate",
        "-E",
        filter,
    ]);
    command.arg("--archive-file").arg(archive(project)).arg("--workspace-remap").arg(&project.root);
    command.arg("--extract-to").arg(&built).arg("--extract-overwrite");
    command.env("SUTLER_BIN", built.join("target/debug/sutler"));
    Ok(command)
}

fn archive(project: &Project) -> PathBuf {
    project.target.join("soak.tar.zst")
}

fn told(command: &mut Command) -> Result<Vec<String>> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut figures = Vec::new();
    for line in child.stderr.take().into_iter().flat_map(|s| BufReader::new(s).lines()) {
        let line = line?;
        match line.trim().strip_prefix(FIGURE) {
            Some(figure) => figures.push(figure.to_owned()),
            None => eprintln!("{line}"),
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "the tests ended with {status}");
    Ok(figures)
}

/// `cargo nextest` on the workspace with the engine built in.
pub fn nextest(project: &Project) -> Result<Command> {
    let mut command = project.of_cargo(tools::nextest(project)?);
    command.arg("nextest").env("SUTLER_HELM_ENGINE", engine::build(project)?);
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
    // It builds the image's program.
    bench.env("PATH", tools::go(project)?.path());
    call(bench.env("SUTLER_BIN", built.join("sutler")))
}
