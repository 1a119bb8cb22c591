//! Rules that no compiler checks. Each rule is a function from what it reads to the places that break it.

mod edges;
mod features;
mod links;
mod text;
mod wit;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::output;
use crate::project::Project;

pub fn run(project: &Project) -> Result<()> {
    let files = files(&project.root)?;
    let mut broken = edges::check(&edges::read(project)?);
    broken.extend(features::check(&features::read(project)?));
    for file in &files {
        let Ok(content) = std::fs::read_to_string(project.root.join(file)) else {
            continue; // deleted but not yet committed, or not text
        };
        broken.extend(text::check(file, &content));
        if file.extension().is_some_and(|e| e == "md") {
            broken.extend(links::check(&project.root, file, &content));
        }
    }
    broken.extend(wit::check(&project.root.join("wit"))?);
    if broken.is_empty() {
        println!("tidy: {} files", files.len());
        return Ok(());
    }
    for place in &broken {
        println!("{place}");
    }
    bail!("{} places are untidy", broken.len())
}

/// What git tracks or would track, relative to the checkout.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let list = output(Command::new("git").current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))
    .context("listing the project's files")?;
    let mut files: Vec<PathBuf> = list.split('\0').filter(|f| !f.is_empty()).map(PathBuf::from).collect();
    files.sort();
    files.dedup();
    Ok(files)
}
