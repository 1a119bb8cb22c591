//! `cargo xtask test`: every check and test as a stage.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process::call;
use crate::project::Project;
use crate::real::background::Build;
use crate::real::{World, packages};
use crate::soak::nextest;
use crate::stages::Stages;
use crate::{build, demo, docs, engine, guests, tidy, tools};

/// Tests that need the real world carry this in their names.
const REAL: &str = "test(/(^|::)real_/)";

pub fn run(project: &Project, real: bool, only: &[String]) -> Result<()> {
    let mut stages = Stages::new(only);
    let mut kubernetes = None;
    if real && stages.wants("real") {
        stages.run("real: packages", packages::ensure);
        kubernetes = stages.run("real: start the Kubernetes build", || Build::start(project));
    }
    checks(project, &mut stages);
    tests(project, &mut stages);
    if let Some(kubernetes) = kubernetes {
        real_tests(project, &mut stages, kubernetes);
    }
    stages.close()
}

fn checks(project: &Project, stages: &mut Stages) {
    stages.run("format", || call(project.cargo().args(["fmt", "--all", "--check"])));
    stages.run("format: guests", || {
        guests::manifests(project)?.iter().try_for_each(|manifest| {
            call(project.cargo().args(["fmt", "--all", "--check", "--manifest-path"]).arg(manifest))
        })
    });
    stages.run("tidy", || tidy::run(project));
    stages.run("spelling", || call(Command::new(tools::typos(project)?).current_dir(&project.root)));
    stages.run("build: Helm's engine", || engine::build(project).map(drop));
    stages.run("build: guests", || guests::build(project, None).map(drop));
    stages.run("clippy", || {
        let mut cargo = project.cargo_with(&engine::build(project)?);
        call(cargo.args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))
    });
    stages.run("deny", || tools::deny(project, false));
}

fn tests(project: &Project, stages: &mut Stages) {
    // Builds the binary too, for the tests that run it: by itself it would be built with other features, and
    // most dependencies twice.
    stages.run("tests", || {
        let mut command = nextest(project)?;
        call(command.args(["run", "--workspace", "--no-fail-fast", "-E"]).arg(format!("not {REAL}")))
    });
    stages.run("guest tests", || {
        // The tests' own guests are tested by the host's tests.
        let ours = project.root.join("host/testkit/guests");
        guests::manifests(project)?.iter().filter(|m| !m.starts_with(&ours)).try_for_each(|manifest| {
            let mut cargo = project.cargo();
            cargo.env("CARGO_TARGET_DIR", project.target.join("guests-on-host"));
            call(cargo.args(["test", "--workspace", "--quiet", "--manifest-path"]).arg(manifest))
        })
    });
    stages.run("engine tests", || engine::test(project));
    stages.run("commands in the documentation", || {
        if !project.target.join("debug/sutler").is_file() {
            build::host(project, &engine::build(project)?, false)?;
        }
        docs::run(project)
    });
    stages.run("demonstration", || demo::show(project, None));
}

fn real_tests(project: &Project, stages: &mut Stages, kubernetes: Build) {
    let binary = stages.run("real: Kubernetes built", || kubernetes.finish());
    let world = stages.run("real: cluster and registries up", || {
        World::start(project, &binary.context("there is no Kubernetes to start")?)
    });
    if let Some(world) = &world {
        stages.run("real: tests", || {
            let mut command = nextest(project)?;
            command.envs(world.env.iter().map(|(name, value)| (name, value)));
            // They build the image's program.
            command.env("PATH", tools::go(project)?.path());
            call(command.args(["run", "--workspace", "--no-fail-fast", "--profile", "real", "-E", REAL]))
        });
    }
    if let Some(world) = &world {
        stages.run("real: demonstration", || {
            let registry = format!("http://{}", world.value("SUTLER_REAL_REGISTRY")?);
            demo::show(project, Some((world.value("KUBECONFIG")?.as_ref(), &registry)))
        });
    }
    stages.run("real: cluster and registries down", || {
        drop(world);
        Ok(())
    });
}
