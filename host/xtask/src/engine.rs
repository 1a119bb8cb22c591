//! Helm's engine: Go to a core module, two adapters from text, one component, compressed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::process::call;
use crate::project::{Key, Project, write_whole};
use crate::tools;

/// Raised when the steps below change what comes out of the same inputs.
const STEPS: &str = "2";

/// About three seconds; level 19 takes a minute and saves 6 %.
const COMPRESSION: i32 = 12;

/// The compressed component, built unless one of exactly these sources is cached.
pub fn build(project: &Project) -> Result<PathBuf> {
    let source = project.root.join("plugins/helm-engine");
    let go = tools::go(project)?;
    let key = Key::default().text(STEPS).text(&go.version).folder(&source)?.finish();
    let cached = project.cache.join("helm-engine").join(key).join("helm-engine.wasm.zst");
    if !cached.is_file() {
        let component = component(&source, &go)?;
        let compressed = zstd::bulk::compress(&component, COMPRESSION).context("compressing the engine")?;
        eprintln!(
            "helm-engine: {} MB, compressed {} MB",
            component.len() / 1_000_000,
            compressed.len() / 1_000_000
        );
        write_whole(&cached, &compressed)?;
    }
    let beside = project.target.join("helm-engine.wasm.zst");
    write_whole(&beside, &fs::read(&cached)?)?;
    Ok(cached)
}

/// The engine's own unit tests, on this machine instead of in a sandbox.
pub fn test(project: &Project) -> Result<()> {
    let go = tools::go(project)?;
    call(
        Command::new(&go.program)
            .current_dir(project.root.join("plugins/helm-engine"))
            .args(["test", "-mod=readonly", "./..."])
            .env("GOWORK", "off")
            .env("GOTOOLCHAIN", "local")
            .env_remove("GOFLAGS"),
    )
}

fn component(source: &Path, go: &tools::Go) -> Result<Vec<u8>> {
    let core = core_module(source, go)?;
    let mut wit = Resolve::default();
    let (package, _) = wit.push_dir(source.join("wit")).context("reading the engine's WIT")?;
    let embed = |mut module: Vec<u8>, world: &str| -> Result<Vec<u8>> {
        let world = wit.select_world(&[package], Some(world))?;
        embed_component_metadata(&mut module, &wit, world, StringEncoding::UTF8, false)?;
        Ok(module)
    };
    let adapter = |file: &str, world: &str| -> Result<Vec<u8>> {
        let text = source.join("adapters").join(file);
        let module = wat::parse_file(&text).with_context(|| format!("assembling {}", text.display()))?;
        embed(module, world)
    };
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&embed(core, "engine")?)?
        .adapter("wasi_snapshot_preview1", &adapter("preview1.wat", "preview1-adapter")?)?
        .adapter("pull", &adapter("pull.wat", "pull-adapter")?)?
        .encode()
        .context("making the engine a component")?;
    imports_only(&component, "sutler:helm-engine/")?;
    Ok(component)
}

fn core_module(source: &Path, go: &tools::Go) -> Result<Vec<u8>> {
    eprintln!("helm-engine: compiling with {}", go.version);
    let out = std::env::temp_dir().join(format!("helm-engine-{}.wasm", std::process::id()));
    let go_mod = fs::read_to_string(source.join("go.mod"))?;
    let helm = helm_version(&go_mod)?;
    // The version is what charts see as .Capabilities.HelmVersion.
    let flags = format!("-s -w -X helm.sh/helm/v4/internal/version.version={helm}");
    call(
        Command::new(&go.program)
            .current_dir(source)
            .args([
                "build",
                "-trimpath",
                "-buildvcs=false",
                "-mod=readonly",
                "-buildmode=c-shared",
                "-ldflags",
            ])
            .arg(flags)
            .arg("-o")
            .arg(&out)
            .arg(".")
            .env("GOOS", "wasip1")
            .env("GOARCH", "wasm")
            .env("GOWORK", "off")
            .env("GOTOOLCHAIN", "local")
            .env_remove("GOFLAGS"),
    )?;
    let module = fs::read(&out).with_context(|| format!("reading {}", out.display()))?;
    fs::remove_file(&out)?;
    Ok(module)
}

fn helm_version(go_mod: &str) -> Result<&str> {
    let words = go_mod.lines().map(|line| line.trim().trim_start_matches("require "));
    words
        .filter_map(|line| line.strip_prefix("helm.sh/helm/v4 "))
        .next()
        .context("the engine's go.mod requires no helm.sh/helm/v4")
}

/// Everything the component asks for must be ours: a stray WASI import would fail at run time.
fn imports_only(component: &[u8], prefix: &str) -> Result<()> {
    let decoded = wit_component::decode(component).context("reading the engine's imports")?;
    let wit = decoded.resolve();
    for (_, world) in wit.worlds.iter() {
        for key in world.imports.keys() {
            let name = wit.name_world_key(key);
            ensure!(name.starts_with(prefix), "the engine imports {name}, which the host does not offer");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helms_version_is_read_from_either_form_of_require() {
        assert_eq!(helm_version("module m\nrequire helm.sh/helm/v4 v4.3.2\n").unwrap(), "v4.3.2");
        assert_eq!(helm_version("require (\n\thelm.sh/helm/v4 v4.4.0\n)\n").unwrap(), "v4.4.0");
        assert!(helm_version("module m\n").is_err());
    }

    #[test]
    fn a_foreign_import_is_named() {
        let component = wat::parse_str(
            r#"(component (import "wasi:cli/environment@0.2.0" (instance (export "get" (func)))))"#,
        )
        .unwrap();
        let error = imports_only(&component, "sutler:helm-engine/").unwrap_err().to_string();
        assert!(error.contains("wasi:cli/environment"), "{error}");
    }
}
