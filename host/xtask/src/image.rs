//! `cargo xtask image`: a container image of the host and the plugins that ship, made of files of this machine, without
//! a daemon or a network. examples/deploy/Dockerfile makes the same where both are at hand.

mod archive;
mod files;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use self::files::Files;
use crate::process::output;
use crate::project::{Project, write_whole};
use crate::{build, engine, guests};

#[derive(Args)]
pub struct ImageArgs {
    /// The archive that is written; without it target/sutler-image.tar
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What the image is called
    #[arg(long, default_value = concat!("sutler:", env!("CARGO_PKG_VERSION")))]
    name: String,
    /// Build nothing: take this binary and the plugins of target/plugins
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// The plugins that lie in the image.
const PLUGINS: [&str; 2] = ["ksml", "namespace"];
const PLUGIN_FOLDER: &str = "usr/lib/sutler/plugins";
/// The user that the image's process is; the number that distroless images have for theirs.
const USER: u64 = 65532;
/// Where registries' authorities are looked for.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const PASSWD: &str =
    "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:sutler:/var/lib/sutler:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";

/// What runs, as whom, with what; the Dockerfile says the same.
fn runs() -> Value {
    json!({
        "User": "65532:65532",
        "Entrypoint": ["/usr/bin/sutler"],
        "Cmd": ["serve"],
        "Env": [
            "PATH=/usr/bin", "SUTLER__CATALOG__DIR=/usr/lib/sutler/plugins", "XDG_STATE_HOME=/var/lib", "XDG_CACHE_HOME=/var/cache",
        ],
    })
}

/// An OCI layout as a tar, with the manifest that older Docker daemons look for.
pub fn run(project: &Project, args: &ImageArgs) -> Result<()> {
    let binary = match &args.binary {
        Some(file) => file.clone(),
        None => {
            for plugin in PLUGINS {
                guests::build(project, Some(plugin))?;
            }
            build::host(project, &engine::build(project)?, true)?
        }
    };
    let layer = layer(&binary, &project.target.join("plugins"))?;
    let archive = archive::of(&layer, runs(), &args.name)?;
    let out = args.out.clone().unwrap_or_else(|| project.target.join("sutler-image.tar"));
    write_whole(&out, &archive)?;
    println!("{}", out.display());
    Ok(())
}

/// The image's one layer, as a tar. The same files give the same bytes.
fn layer(binary: &Path, plugins: &Path) -> Result<Vec<u8>> {
    let mut files = Files::new();
    files.folder("tmp", 0o1777, 0)?;
    files.folder("etc/sutler", 0o755, 0)?;
    // A volume that is mounted here for the first time takes the owner over.
    for state in ["var/lib/sutler", "var/cache/sutler"] {
        files.folder(state, 0o750, USER)?;
    }
    files.bytes("etc/passwd", PASSWD.as_bytes())?;
    files.bytes("etc/group", GROUP.as_bytes())?;
    files.bytes("etc/nsswitch.conf", b"hosts: files dns\n")?;
    if Path::new(AUTHORITIES).is_file() {
        files.copy(Path::new(AUTHORITIES), AUTHORITIES.trim_start_matches('/'), 0o644)?;
    }
    for library in libraries(binary)? {
        files.copy(Path::new(&library), library.trim_start_matches('/'), 0o755)?;
    }
    files.copy(binary, "usr/bin/sutler", 0o755)?;
    for plugin in PLUGINS {
        let name = format!("{plugin}.wasm");
        files.copy(&plugins.join(&name), &format!("{PLUGIN_FOLDER}/{name}"), 0o644)?;
    }
    files.finish()
}

/// The shared libraries of a program, and what loads them; none of a static one.
fn libraries(program: &Path) -> Result<Vec<String>> {
    match output(Command::new("ldd").arg(program).env("LC_ALL", "C")) {
        Ok(listed) => parse(&listed),
        Err(e) if e.to_string().contains("not a dynamic executable") => Ok(Vec::new()),
        Err(e) => Err(e).context("looking for the libraries of the host"),
    }
}

fn parse(listed: &str) -> Result<Vec<String>> {
    if let Some(missing) = listed.lines().find(|line| line.contains("not found")) {
        bail!("a library of the host is missing on this machine: {}", missing.trim());
    }
    // `libc.so.6 => /lib/libc.so.6 (0x…)`, `/lib64/ld-linux.so.2 (0x…)`, and the kernel's own without a path.
    let path = |line: &str| line.split_ascii_whitespace().find(|w| w.starts_with('/')).map(str::to_owned);
    let mut paths: Vec<String> = listed.lines().filter_map(path).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_from_the_kernels_own() {
        let listed = "\tlinux-vdso.so.1 (0x01)\n\tlibm.so.6 => /lib/libm.so.6 (0x02)\n\t/lib64/ld-linux.so.2 (0x03)\n\
                      \tstatically linked\n";
        assert_eq!(parse(listed).unwrap(), ["/lib/libm.so.6", "/lib64/ld-linux.so.2"]);
        assert!(parse("\tlibx.so => not found\n").unwrap_err().to_string().contains("libx.so"));
    }

    #[test]
    fn equal_files_make_equal_layers_that_the_user_can_write_where_it_must() {
        let folder = tempfile::tempdir().unwrap();
        for plugin in PLUGINS {
            std::fs::write(folder.path().join(format!("{plugin}.wasm")), plugin).unwrap();
        }
        let made = || layer(Path::new("/bin/sh"), folder.path()).unwrap();
        let first = made();
        assert_eq!(first, made());
        let mut archive = tar::Archive::new(first.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().display().to_string();
            seen.push((path, header.uid().unwrap(), header.mode().unwrap()));
        }
        let has = |path: &str, uid: u64, mode: u32| {
            assert!(seen.contains(&(path.into(), uid, mode)), "{path} is not there so: {seen:?}");
        };
        has("usr/bin/sutler", 0, 0o755);
        has("usr/lib/sutler/plugins/ksml.wasm", 0, 0o644);
        has("var/lib/sutler/", USER, 0o750);
        has("var/cache/sutler/", USER, 0o750);
        assert!(seen.iter().any(|(path, ..)| path.contains("libc.so")), "{seen:?}");
    }

    /// Who follows either way gets the same.
    #[test]
    fn the_dockerfile_runs_the_same_as_the_same_user() {
        let root = crate::project::Project::find().unwrap().root;
        let text = std::fs::read_to_string(root.join("examples/deploy/Dockerfile")).unwrap();
        let last = text.split("\nFROM ").last().unwrap().replace("\\\n", " ");
        let said = |word: &str| -> String {
            let line = last.lines().find_map(|l| l.strip_prefix(&format!("{word} ")));
            line.unwrap_or_else(|| panic!("no {word}")).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let runs = runs();
        assert_eq!(said("USER"), runs["User"].as_str().unwrap());
        let words = |key: &str| serde_json::to_string(&runs[key]).unwrap();
        assert_eq!(said("ENTRYPOINT"), words("Entrypoint"));
        assert_eq!(said("CMD"), words("Cmd"));
        let env: Vec<&str> = runs["Env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(said("ENV"), env.join(" "));
        for plugin in PLUGINS {
            assert!(last.contains(&format!("{plugin}.wasm")), "{plugin}");
        }
    }
}
