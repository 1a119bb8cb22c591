//! The real world of the tests: a Kubernetes and two registries, by the scripts of host/testkit/kubernetes, and a Docker
//! daemon by those of host/testkit/docker.

pub mod background;
pub mod packages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{call, output};
use crate::project::Project;
use crate::tools;

/// The world as it stands, and what tests must be told of it. Taken down when dropped.
pub struct World {
    scripts: PathBuf,
    pub env: Vec<(String, String)>,
    keep: bool,
}

/// `cargo xtask cluster up`
pub fn up(project: &Project) -> Result<()> {
    packages::ensure()?;
    let binary = background::Build::start(project)?.finish()?;
    let mut world = World::start(project, &binary)?;
    world.keep = true;
    for (name, value) in &world.env {
        println!("export {name}={value}");
    }
    Ok(())
}

/// `cargo xtask cluster down`
pub fn down(project: &Project) -> Result<()> {
    stop(&scripts(project))
}

fn scripts(project: &Project) -> PathBuf {
    project.root.join("host/testkit/kubernetes")
}

/// One name for every run: what a crashed run left is found and removed by the next.
fn state(part: &str) -> PathBuf {
    std::env::temp_dir().join("sutler-real").join(part)
}

impl World {
    /// What tests are told under this name.
    pub fn value(&self, name: &str) -> Result<&str> {
        let found = self.env.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str()).with_context(|| format!("the world has no {name}"))
    }

    pub fn start(project: &Project, binary: &Path) -> Result<Self> {
        let helm3 = output(&mut script(project, "helm3.sh")?)?;
        let mut world = Self { scripts: scripts(project), env: Vec::new(), keep: false };
        fs::create_dir_all(state(""))?;
        call(
            Command::new(world.scripts.join("up.sh"))
                .arg("--root")
                .arg(state("cluster"))
                .arg("--binary")
                .arg(binary),
        )?;
        call(
            Command::new(world.scripts.join("registries.sh")).args(["up", "--root"]).arg(state("registries")),
        )?;
        call(docker(&world.scripts, "up.sh").arg("--root").arg(state("docker")))?;
        world.env.push(("SUTLER_REAL".into(), "1".into()));
        for part in ["cluster", "registries", "docker"] {
            let file = state(part).join("env");
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            world.env.extend(variables(&text));
        }
        world.env.push(("SUTLER_REAL_HELM3".into(), helm3.trim().into()));
        Ok(world)
    }
}

/// A script of the Docker daemon, beside those of the cluster.
fn docker(scripts: &Path, script: &str) -> Command {
    Command::new(scripts.with_file_name("docker").join(script))
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = stop(&self.scripts)
        {
            eprintln!("the test cluster was not wholly removed: {error:#}");
        }
    }
}

fn stop(scripts: &Path) -> Result<()> {
    call(docker(scripts, "down.sh").arg("--root").arg(state("docker")))?;
    call(Command::new(scripts.join("registries.sh")).args(["down", "--root"]).arg(state("registries")))?;
    call(Command::new(scripts.join("down.sh")).arg("--root").arg(state("cluster")))
}

/// The Go that the scripts are to find first.
pub fn script(project: &Project, name: &str) -> Result<Command> {
    let mut command = Command::new(scripts(project).join(name));
    command.env("PATH", tools::go(project)?.path());
    command.env("SUTLER_KUBERNETES_CACHE", project.cache.join("kubernetes"));
    Ok(command)
}

fn variables(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_equals_signs() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(variables("A=1\n\nB=x=y\n"), [pair("A", "1"), pair("B", "x=y")]);
    }
}
