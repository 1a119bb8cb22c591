//! The binary of a commit before this one, for hosts of both versions beside each other.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{call, output};
use crate::project::Project;
use crate::{engine, guests};

/// Builds it, or finds it in the cache; `SUTLER_PREVIOUS_BIN` names one that is there.
pub fn build(project: &Project, commit: &str) -> Result<PathBuf> {
    if let Some(given) = std::env::var_os("SUTLER_PREVIOUS_BIN").map(PathBuf::from) {
        ensure!(given.is_file(), "SUTLER_PREVIOUS_BIN names {}, which is not there", given.display());
        return Ok(given);
    }
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(&project.root).args(words);
        command
    };
    let name = format!("{commit}^{{commit}}");
    let id = output(&mut git(&["rev-parse", "--verify", "--quiet", &name]));
    let id = id.with_context(|| format!("there is no commit {commit} in this checkout; fetch it"))?;
    let id = id.trim();
    let folder = project.cache.join("previous");
    let kept = folder.join(id).join("sutler");
    if kept.is_file() {
        return Ok(kept);
    }
    let source = folder.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    fs::create_dir_all(&source)?;
    let archive = folder.join("source.tar");
    call(git(&["archive", "--output"]).arg(&archive).arg(id))?;
    call(Command::new("tar").arg("-xf").arg(&archive).current_dir(&source))?;
    fs::remove_file(&archive)?;
    // Its dependencies are mostly ours, but its features are its own: a target folder for itself.
    let target = folder.join("target");
    let mut cargo = project.cargo_with(&engine::build(project)?);
    cargo.current_dir(&source).env("CARGO_TARGET_DIR", &target);
    call(cargo.args(["build", "--package", "sutler"]))?;
    fs::create_dir_all(folder.join(id))?;
    fs::copy(target.join("debug/sutler"), &kept)?;
    // What it is tested with is this checkout's.
    guests::build(project, None)?;
    Ok(kept)
}
