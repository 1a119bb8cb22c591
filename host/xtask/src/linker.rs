//! A linker for WebAssembly: rust-lld of a Rust toolchain, or LLVM's wasm-ld.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{on_path, output};
use crate::project::Project;

/// Oldest LLVM whose linker reads what today's Rust compilers write.
const LLVM_LEAST: u32 = 19;

/// Whether rustc finds its own linker.
pub fn comes_with(rustc: &Path) -> bool {
    own(rustc).is_some()
}

/// One that a rustc without its own can be given by `-C linker`.
pub fn find(project: &Project) -> Result<PathBuf> {
    if let Some(linker) = on_path("rustc").and_then(|rustc| own(&rustc)) {
        return Ok(linker);
    }
    let newest = (LLVM_LEAST..100)
        .rev()
        .map(|version| PathBuf::from(format!("/usr/lib/llvm-{version}/bin/wasm-ld")))
        .find(|linker| linker.is_file());
    if let Some(linker) = newest.or_else(|| on_path("wasm-ld").filter(|linker| new_enough(linker))) {
        return named(project, &linker);
    }
    bail!(
        "no linker for WebAssembly: neither rust-lld in a Rust toolchain nor wasm-ld of LLVM {LLVM_LEAST} or newer"
    )
}

fn own(rustc: &Path) -> Option<PathBuf> {
    let sysroot = output(Command::new(rustc).args(["--print", "sysroot"])).ok()?;
    let host = crate::sysroot::host(rustc).ok()?;
    let linker = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/rust-lld");
    linker.is_file().then_some(linker)
}

fn new_enough(linker: &Path) -> bool {
    let said = output(Command::new(linker).arg("--version")).unwrap_or_default();
    let version = said.split_ascii_whitespace().find_map(|word| word.split('.').next()?.parse::<u32>().ok());
    version.is_some_and(|version| version >= LLVM_LEAST)
}

/// rustc reads the linker's flavour off its file name, which must be exactly wasm-ld.
fn named(project: &Project, linker: &Path) -> Result<PathBuf> {
    let folder = project.cache.join("linker");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let link = folder.join("wasm-ld");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(linker, &link).with_context(|| format!("linking {}", link.display()))?;
    Ok(link)
}
