//! Everything that a running host needs.

use std::path::PathBuf;

use anyhow::Result;

use crate::process::call;
use crate::project::Project;
use crate::{engine, guests};

pub fn everything(project: &Project, release: bool) -> Result<()> {
    let engine = engine::build(project)?;
    let plugins = guests::build(project, None)?;
    println!("host:    {}", host(project, &engine, release)?.display());
    for plugin in &plugins {
        println!("plugin:  {}", plugin.display());
    }
    Ok(())
}

pub fn host(project: &Project, engine: &std::path::Path, release: bool) -> Result<PathBuf> {
    let mut cargo = project.cargo_with(engine);
    if release {
        cargo.args(["build", "--release", "--package", "sutler"]);
    } else {
        // With the features that the tests' builds have: one package alone would build its dependencies once more.
        cargo.args(["build", "--workspace", "--bin", "sutler", "--bin", "sutler-demo"]);
    }
    call(&mut cargo)?;
    Ok(project.target.join(if release { "release" } else { "debug" }).join("sutler"))
}
