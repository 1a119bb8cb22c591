//! Rust guests: every crate of `plugins/`, `examples/rust-*` and `host/testkit/guests` that is a cdylib becomes a
//! component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use wit_component::ComponentEncoder;

use crate::process::{call, output};
use crate::project::{Project, write_whole};
use crate::sysroot::{self, Compiler, TARGET};

/// Guests' calls are shallow; the default of 1 MiB would be most of a small guest's memory.
const STACK: &str = "-Clink-arg=-zstack-size=262144";

struct Guest {
    package: String,
    /// As cargo names the file it links.
    file: String,
}

/// Components' paths, `target/plugins/PACKAGE.wasm`.
pub fn build(project: &Project, only: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut components = Vec::new();
    let mut compiler = None;
    for manifest in manifests(project)? {
        let mut guests = guests(&manifest)?;
        guests.retain(|guest| only.is_none_or(|name| guest.package == name));
        if guests.is_empty() {
            continue;
        }
        let compiler = match &compiler {
            Some(found) => found,
            None => compiler.insert(sysroot::compiler(project)?),
        };
        compile(project, compiler, &manifest, &guests)?;
        for guest in guests {
            components.push(component(project, &guest)?);
        }
    }
    match only {
        Some(name) if components.is_empty() => bail!("no guest crate is named {name}"),
        Some(_) => {}
        None => remove_others(project, &components)?,
    }
    Ok(components)
}

/// The components of a crate that is not one of the project's.
pub fn build_folder(project: &Project, folder: &Path) -> Result<Vec<PathBuf>> {
    let manifest = fs::canonicalize(folder.join("Cargo.toml"))
        .with_context(|| format!("there is no crate in {}", folder.display()))?;
    let guests = guests(&manifest)?;
    if guests.is_empty() {
        bail!("{} has no target of type cdylib", manifest.display());
    }
    compile(project, &sysroot::compiler(project)?, &manifest, &guests)?;
    guests.iter().map(|guest| component(project, guest)).collect()
}

/// A plugin that was renamed or removed must not be served any more.
fn remove_others(project: &Project, components: &[PathBuf]) -> Result<()> {
    let folder = project.target.join("plugins");
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let file = entry?.path();
        if file.extension().is_some_and(|e| e == "wasm") && !components.contains(&file) {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
    }
    Ok(())
}

/// The guest workspace, and each workspace of its own among the Rust examples and the tests' guests.
pub fn manifests(project: &Project) -> Result<Vec<PathBuf>> {
    let mut found = vec![project.root.join("plugins/Cargo.toml")];
    for (folder, prefix) in [("examples", "rust-"), ("host/testkit/guests", "")] {
        let folder = project.root.join(folder);
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                found.push(entry.path().join("Cargo.toml"));
            }
        }
    }
    found.retain(|manifest| manifest.is_file());
    found.sort();
    Ok(found)
}

fn guests(manifest: &Path) -> Result<Vec<Guest>> {
    let metadata = output(
        Command::new("cargo")
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest),
    )?;
    parse(&metadata)
}

fn parse(metadata: &str) -> Result<Vec<Guest>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let mut guests = Vec::new();
    for package in list(metadata.get("packages")) {
        for target in list(package.get("targets")) {
            let cdylib = list(target.get("crate_types")).iter().any(|kind| kind == "cdylib");
            if let (true, Some(name), Some(file)) = (cdylib, text(package, "name"), text(target, "name")) {
                guests.push(Guest { package: name, file: file.replace('-', "_") });
            }
        }
    }
    Ok(guests)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(value: &Value, key: &str) -> Option<String> {
    Some(value.get(key)?.as_str()?.to_owned())
}

fn compile(project: &Project, compiler: &Compiler, manifest: &Path, guests: &[Guest]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--target", TARGET, "--manifest-path"]).arg(manifest);
    for guest in guests {
        cargo.args(["--package", &guest.package]);
    }
    cargo
        .current_dir(&project.root)
        .env("RUSTC", &compiler.rustc)
        .env("CARGO_TARGET_DIR", target(project))
        .env("CARGO_ENCODED_RUSTFLAGS", flags(project, compiler).join("\u{1f}"));
    if !compiler.flags.iter().any(|flag| flag.starts_with("-Clinker=")) {
        // A guest's own configuration may name wasm-component-ld, for authors who build without xtask.
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "rust-lld");
    }
    call(&mut cargo)
}

/// The same component from any checkout and any user's folder.
fn flags(project: &Project, compiler: &Compiler) -> Vec<String> {
    let mut flags = compiler.flags.clone();
    flags.push(STACK.into());
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo_home = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    let places =
        [(home.as_str(), "/home"), (&cargo_home, "/cargo"), (&project.root.to_string_lossy(), "/sutler")];
    // The last prefix that fits counts.
    for (from, to) in places.into_iter().filter(|(from, _)| !from.is_empty()) {
        flags.push(format!("--remap-path-prefix={from}={to}"));
    }
    flags
}

/// Not the host's target folder: other flags there would rebuild what is shared.
fn target(project: &Project) -> PathBuf {
    project.target.join("guests")
}

fn component(project: &Project, guest: &Guest) -> Result<PathBuf> {
    let linked = target(project).join(TARGET).join("release").join(format!("{}.wasm", guest.file));
    let module = fs::read(&linked).with_context(|| format!("reading {}", linked.display()))?;
    let component = match is_component(&module) {
        true => module,
        false => ComponentEncoder::default()
            .validate(true)
            .module(&module)
            .and_then(|encoder| encoder.encode())
            .with_context(|| format!("making {} a component", guest.package))?,
    };
    let path = project.target.join("plugins").join(format!("{}.wasm", guest.package));
    // An unchanged file keeps its time, so a host that watches the folder does not load it again.
    if fs::read(&path).ok().as_deref() != Some(component.as_slice()) {
        write_whole(&path, &component)?;
    }
    Ok(path)
}

/// The layer field behind the magic bytes: 0 is a module, 1 a component.
fn is_component(wasm: &[u8]) -> bool {
    wasm.get(6..8) == Some(&[1, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cdylibs_are_guests() {
        let metadata = r#"{"packages": [
            {"name": "sdk", "targets": [{"name": "sdk", "crate_types": ["lib"]}]},
            {"name": "key-value", "targets": [
                {"name": "key-value", "crate_types": ["cdylib", "rlib"]},
                {"name": "it", "crate_types": ["bin"]}]}]}"#;
        let guests = parse(metadata).unwrap();
        assert_eq!(guests.len(), 1);
        assert_eq!((guests[0].package.as_str(), guests[0].file.as_str()), ("key-value", "key_value"));
    }

    #[test]
    fn modules_and_components_differ_in_their_layer() {
        assert!(!is_component(&wat::parse_str("(module)").unwrap()));
        assert!(is_component(&wat::parse_str("(component)").unwrap()));
        assert!(!is_component(b""));
    }
}
