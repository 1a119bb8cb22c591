//! The Kubernetes build takes ten minutes the first time, so it runs beside the other stages.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::project::Project;

/// A running build; ended with all its compilers when dropped unfinished.
pub struct Build {
    child: Child,
    log: PathBuf,
    finished: bool,
}

impl Build {
    pub fn start(project: &Project) -> Result<Self> {
        let log = project.cache.join("kubernetes/build.log");
        fs::create_dir_all(project.cache.join("kubernetes"))?;
        let script = super::script(project, "build.sh")?;
        let mut command = Command::new("nice");
        // The stages in the foreground go first; this takes what they leave.
        command.args(["-n", "19"]).arg(script.get_program());
        for (name, value) in script.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .process_group(0)
            .spawn()
            .context("starting the Kubernetes build")?;
        Ok(Self { child, log, finished: false })
    }

    /// Waits; the path of the binary.
    pub fn finish(mut self) -> Result<PathBuf> {
        if self.child.try_wait()?.is_none() {
            println!("waiting for the Kubernetes build (log: {})", self.log.display());
        }
        let mut path = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut path)?;
        }
        let status = self.child.wait()?;
        self.finished = true;
        if !status.success() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the Kubernetes build ended with {status}:\n{log}");
        }
        Ok(PathBuf::from(path.trim()))
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if !self.finished {
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
            let _ = self.child.wait();
        }
    }
}
