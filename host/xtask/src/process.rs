//! Running other programs, with errors that name the command and what it said.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs with the terminal's own output.
pub fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {}", shown(command)))?;
    match status.success() {
        true => Ok(()),
        false => bail!("{} ended with {status}", shown(command)),
    }
}

/// Runs and returns stdout; stderr becomes part of the error.
pub fn output(command: &mut Command) -> Result<String> {
    let out =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", shown(command)))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{} ended with {}: {}", shown(command), out.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The first program of this name on PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// PATH with `folder` first.
pub fn path_with(folder: &Path) -> std::ffi::OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// CPU seconds of this process and all children waited for so far, by proc(5); 0 where there is no /proc.
pub fn cpu_seconds() -> f64 {
    const TICKS_A_SECOND: f64 = 100.0; // USER_HZ of every Linux port that Rust supports
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_ticks(&stat).map_or(0.0, |ticks| ticks as f64 / TICKS_A_SECOND)
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The command's name may hold blanks; it ends at the last bracket. State, the next, is field 3;
    // utime, stime, cutime and cstime are fields 14 to 17.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = rest.split_ascii_whitespace().skip(11).take(4).flat_map(str::parse).collect();
    (fields.len() == 4).then(|| fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_fields_14_to_17() {
        let stat = "7 (a (b) c) S 4 5 6 7 8 9 10 11 12 13 100 20 10 7 20 0";
        assert_eq!(cpu_ticks(stat), Some(137));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn a_failure_names_the_command_and_its_words() {
        let error = output(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("no such thing") && error.contains("exit status: 3"), "{error}");
    }
}
