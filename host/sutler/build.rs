//! Embeds Helm's engine, compressed. Without it the host builds, and says at run time what is missing.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=SUTLER_HELM_ENGINE");
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    // <target>/<profile>/build/<crate>/out
    let beside = out.ancestors().nth(4).map(|t| t.join("helm-engine.wasm.zst"));
    let given = std::env::var_os("SUTLER_HELM_ENGINE").map(PathBuf::from);
    let source = given.or(beside);
    if let Some(s) = &source {
        println!("cargo:rerun-if-changed={}", s.display());
    }
    let bytes = source.filter(|s| Path::exists(s)).and_then(|s| std::fs::read(s).ok()).unwrap_or_default();
    if let Err(e) = std::fs::write(out.join("helm-engine.wasm.zst"), bytes) {
        println!("cargo:error=the engine cannot be written to {}: {e}", out.display());
    }
}
