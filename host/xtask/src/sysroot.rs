//! A Rust compiler that has a standard library for WebAssembly: as installed, by rustup, or from a
//! distribution's source, built once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::linker;
use crate::process::{call, on_path, output};
use crate::project::{Key, Project};

pub const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's and Ubuntu's own Rust with its source, and a linker in case no toolchain brings one.
const APT_PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "lld-22"];

/// A compiler and what it must be told.
pub struct Compiler {
    pub rustc: PathBuf,
    pub flags: Vec<String>,
}

/// Takes the first way that works; the later ones cost more.
pub fn compiler(project: &Project) -> Result<Compiler> {
    let usual = std::env::var_os("RUSTC").map(PathBuf::from).or_else(|| on_path("rustc"));
    let distribution = PathBuf::from("/usr/bin/rustc");
    if let Some(rustc) = &usual
        && (has_std(rustc) || (rustup_manages(rustc) && rustup_adds() && has_std(rustc)))
    {
        return with(project, rustc, None);
    }
    let mut candidates: Vec<PathBuf> = usual.into_iter().collect();
    candidates.push(distribution.clone());
    for rustc in candidates.iter().filter(|rustc| rustc.is_file()) {
        if let Some(source) = source_of(rustc) {
            return with(project, rustc, Some(built(project, rustc, &source)?));
        }
    }
    install()?;
    let source = source_of(&distribution).context("apt-get installed no Rust source")?;
    with(project, &distribution, Some(built(project, &distribution, &source)?))
}

fn with(project: &Project, rustc: &Path, sysroot: Option<PathBuf>) -> Result<Compiler> {
    let mut flags: Vec<String> = sysroot.map(|s| format!("--sysroot={}", s.display())).into_iter().collect();
    if !linker::comes_with(rustc) {
        flags.push(format!("-Clinker={}", linker::find(project)?.display()));
    }
    Ok(Compiler { rustc: rustc.to_owned(), flags })
}

fn has_std(rustc: &Path) -> bool {
    let Ok(folder) = output(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]))
    else {
        return false;
    };
    let Ok(entries) = fs::read_dir(folder.trim()) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

fn rustup_manages(rustc: &Path) -> bool {
    let sysroot = output(Command::new(rustc).args(["--print", "sysroot"])).unwrap_or_default();
    on_path("rustup").is_some() && sysroot.contains("toolchains")
}

fn rustup_adds() -> bool {
    eprintln!("adding {TARGET} by rustup");
    // Without its server rustup retries for minutes.
    let added = Command::new("timeout").args(["90", "rustup", "target", "add", TARGET]).status();
    added.is_ok_and(|status| status.success())
}

/// The standard library's source as rust-src, or Debian's rust-web-src, lays it out.
fn source_of(rustc: &Path) -> Option<PathBuf> {
    let sysroot = output(Command::new(rustc).args(["--print", "sysroot"])).ok()?;
    let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    source.join("library/std/Cargo.toml").is_file().then_some(source)
}

pub fn host(rustc: &Path) -> Result<String> {
    let said = output(Command::new(rustc).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.with_context(|| format!("{} names no host", rustc.display()))?.to_owned())
}

fn install() -> Result<()> {
    let by_hand = format!(
        "no Rust compiler here has a standard library for {TARGET}. Do one of:\n  \
         rustup target add {TARGET}\n  \
         apt-get install --no-install-recommends {}",
        APT_PACKAGES.join(" ")
    );
    let root = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || on_path("apt-get").is_none() {
        bail!("{by_hand}");
    }
    crate::real::packages::install(&APT_PACKAGES).context(by_hand)
}

/// A sysroot that plain `cargo build --target` can use: std built once for this compiler.
fn built(project: &Project, rustc: &Path, source: &Path) -> Result<PathBuf> {
    let version = output(Command::new(rustc).arg("-vV"))?;
    let key = Key::default().text(&version).text(TARGET).finish();
    let sysroot = project.cache.join("wasm-sysroot").join(key);
    if sysroot.is_dir() {
        return Ok(sysroot);
    }
    eprintln!("building std for {TARGET} once, with {}", rustc.display());
    let work = sysroot.with_extension(format!("part-{}", std::process::id()));
    let made = build_std(rustc, source, &work);
    if made.is_ok() {
        fs::rename(work.join("sysroot"), &sysroot)?;
    }
    let _ = fs::remove_dir_all(&work);
    made.map(|()| sysroot)
}

fn build_std(rustc: &Path, source: &Path, work: &Path) -> Result<()> {
    fs::create_dir_all(work.join("src"))?;
    fs::write(work.join("src/lib.rs"), "")?;
    fs::write(
        work.join("Cargo.toml"),
        "[package]\nname = \"nothing\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[profile.release]\npanic = \"abort\"\n[workspace]\n",
    )?;
    let flags = [
        "-Cembed-bitcode=yes",
        "-Copt-level=s",
        "-Ccodegen-units=1",
        &format!("--remap-path-prefix={}=/rustc", source.display()),
    ];
    call(
        Command::new("cargo")
            .args(["build", "--quiet", "--release", "--target", TARGET, "-Zbuild-std=std,panic_abort"])
            .current_dir(work)
            .env("RUSTC", rustc)
            .env("RUSTC_BOOTSTRAP", "1") // build-std is a nightly flag
            .env("CARGO_TARGET_DIR", work.join("target"))
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")),
    )?;
    let library = work.join("sysroot/lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&library)?;
    for entry in fs::read_dir(work.join("target").join(TARGET).join("release/deps"))? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".rlib") && !name.starts_with("libnothing-") {
            fs::copy(&file, library.join(name))?;
        }
    }
    Ok(())
}
