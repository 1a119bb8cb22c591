//! Runs the commands that the documentation shows: every block of a Markdown file that is marked `sh test`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::path_with;
use crate::project::Project;
use crate::tidy;

/// Seconds a block may take.
const TIME: &str = "300";

struct Block {
    line: usize,
    script: String,
}

pub fn run(project: &Project) -> Result<()> {
    let _link = TargetLink::new(project)?;
    let (mut ran, mut failed) = (0_usize, Vec::new());
    let markdown =
        tidy::files(&project.root)?.into_iter().filter(|f| f.extension().is_some_and(|e| e == "md"));
    for file in markdown {
        let Ok(content) = std::fs::read_to_string(project.root.join(&file)) else { continue };
        for block in blocks(&content) {
            let place = format!("{}:{}", file.display(), block.line);
            println!("{place}");
            ran += 1;
            if let Err(error) = run_block(project, &block) {
                failed.push(format!("{place}: {error:#}"));
            }
        }
    }
    println!("docs: {ran} blocks, {} failed", failed.len());
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

/// Each block in a shell of its own at the root of the checkout, with the built `sutler` on PATH. `$SCRATCH`
/// is an empty folder, removed afterwards.
fn run_block(project: &Project, block: &Block) -> Result<()> {
    let scratch = Scratch::new(project, block.line)?;
    let out = Command::new("timeout")
        .args([TIME, "bash", "-euo", "pipefail", "-c", &block.script])
        .current_dir(&project.root)
        .env("PATH", path_with(&project.target.join("debug")))
        .env("SCRATCH", &scratch.0)
        .env("XDG_STATE_HOME", scratch.0.join("state"))
        .stdin(Stdio::null())
        .output()
        .context("starting bash")?;
    if out.status.success() {
        return Ok(());
    }
    let said = [out.stdout, out.stderr].concat();
    bail!("{}\n{}{}", out.status, block.script, String::from_utf8_lossy(&said))
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(project: &Project, line: usize) -> Result<Self> {
        let folder = project.target.join("docs").join(format!("{}-{line}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.0));
    }
}

/// Readers have `target` in the checkout; where cargo builds elsewhere, a link stands in for it.
struct TargetLink(Option<PathBuf>);

impl TargetLink {
    fn new(project: &Project) -> Result<Self> {
        let usual = project.root.join("target");
        if usual.exists() {
            return Ok(Self(None));
        }
        std::os::unix::fs::symlink(&project.target, &usual).context("linking target")?;
        Ok(Self(Some(usual)))
    }
}

impl Drop for TargetLink {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            let _ = std::fs::remove_file(link);
        }
    }
}

fn blocks(content: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in content.lines().enumerate() {
        match &mut open {
            Some(block) if line.trim() == "```" => {
                found.push(Block { line: block.line, script: std::mem::take(&mut block.script) });
                open = None;
            }
            Some(block) => {
                block.script.push_str(line);
                block.script.push('\n');
            }
            None if line.trim() == "```sh test" => {
                open = Some(Block { line: index + 1, script: String::new() });
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_run() {
        let found = blocks("```sh\nrm\n```\ntext\n```sh test\necho a\necho b\n```\n```sh test\nopen\n");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].script.as_str()), (5, "echo a\necho b\n"));
    }
}
