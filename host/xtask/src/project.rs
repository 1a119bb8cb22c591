//! Where things lie, and the keys under which built things are kept.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The checkout and the folders outside it.
pub struct Project {
    /// The checkout.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// What is kept between runs and checkouts, each entry under a key of its inputs.
    pub cache: PathBuf,
}

impl Project {
    pub fn find() -> Result<Self> {
        // As cargo says when it runs this: two checkouts with one target folder share the program.
        let said = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest = said.as_deref().unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR")));
        let root = manifest.ancestors().nth(2).context("xtask does not lie in host/xtask")?.to_owned();
        let cache = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(folder), _) if !folder.is_empty() => PathBuf::from(folder),
            (_, Some(home)) => PathBuf::from(home).join(".cache"),
            _ => bail!("neither XDG_CACHE_HOME nor HOME is set: there is nowhere to keep built things"),
        }
        .join("sutler");
        // CI starts from fresh clones: dependencies built for an earlier one serve the next.
        let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => root.join(folder),
            None if in_ci => cache.join("target"),
            None => root.join("target"),
        };
        Ok(Self { root, target, cache })
    }

    /// `cargo` on this workspace.
    pub fn cargo(&self) -> Command {
        self.of_cargo(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// A program that builds this workspace as cargo does. What cargo told of this very package when it ran it goes no
    /// further: build scripts would take it for a change, and ring and all on top of it be built anew.
    pub fn of_cargo(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        let told = |name: &OsString| {
            let name = name.to_string_lossy();
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| told(name)) {
            command.env_remove(name);
        }
        command
    }

    /// `cargo` on this workspace with the engine built in, as everything that compiles the host wants it:
    /// with and without would be two builds.
    pub fn cargo_with(&self, engine: &Path) -> Command {
        let mut command = self.cargo();
        command.env("SUTLER_HELM_ENGINE", engine);
        command
    }
}

/// A short name for a set of inputs.
#[derive(Default)]
pub struct Key(Sha256);

impl Key {
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Every file under `folder` but Markdown, by path and content.
    pub fn folder(mut self, folder: &Path) -> Result<Self> {
        let mut files = Vec::new();
        walk(folder, &mut files)?;
        files.sort();
        for file in files.iter().filter(|f| f.extension().is_none_or(|e| e != "md")) {
            let name = file.strip_prefix(folder).unwrap_or(file);
            let content = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            self = self.text(&name.to_string_lossy());
            self.0.update((content.len() as u64).to_le_bytes());
            self.0.update(content);
        }
        Ok(self)
    }

    pub fn finish(self) -> String {
        self.0.finalize().iter().take(8).fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        })
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

/// Writes a file so that no reader ever sees half of it.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a path without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let part = path.with_extension(format!("part-{}", std::process::id()));
    fs::write(&part, bytes).with_context(|| format!("writing {}", part.display()))?;
    fs::rename(&part, path).with_context(|| format!("naming {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_follows_names_and_contents_but_not_prose() {
        let folder = tempfile::tempdir().unwrap();
        let key = || Key::default().folder(folder.path()).unwrap().finish();
        fs::write(folder.path().join("a.go"), "one").unwrap();
        let first = key();
        fs::write(folder.path().join("README.md"), "prose").unwrap();
        assert_eq!(key(), first);
        fs::write(folder.path().join("a.go"), "two").unwrap();
        let second = key();
        assert_ne!(second, first);
        fs::rename(folder.path().join("a.go"), folder.path().join("b.go")).unwrap();
        assert_ne!(key(), second);
    }

    #[test]
    fn neighbouring_texts_do_not_run_together() {
        let key = |a: &str, b: &str| Key::default().text(a).text(b).finish();
        assert_ne!(key("ab", "c"), key("a", "bc"));
    }
}
