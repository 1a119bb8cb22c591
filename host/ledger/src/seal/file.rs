//! The key file: TOML, that nobody but the host reads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sutler_model::hex;

use crate::LedgerError;

use super::keys::Ring;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    active: String,
    hashes: Option<String>,
    keys: BTreeMap<String, String>,
}

fn failed(path: &Path, what: &str, e: impl std::fmt::Display) -> LedgerError {
    LedgerError::Open(format!("the ledger's key file {} {what}: {e}", path.display()))
}

pub(super) fn read(path: &Path) -> Result<Ring, LedgerError> {
    let meta = match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(LedgerError::Open(format!(
                "there is no key file {}; restore the one that the ledger was made with, or, for a new ledger, \
                 make one with `sutler ledger rotate-key`",
                path.display()
            )));
        }
        got => got.map_err(|e| failed(path, "cannot be read", e))?,
    };
    let mode = meta.mode() & 0o777;
    if !private(mode, meta.uid(), rustix::process::geteuid().as_raw()) {
        let path = path.display();
        return Err(LedgerError::Open(format!(
            "the ledger's key file {path} can be read by others than its owner (mode {mode:o}); run chmod 600 {path}"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|e| failed(path, "cannot be read", e))?;
    parse(&text).map_err(|e| failed(path, "is not right", e))
}

/// Whether its owner alone reads it. Root's own may be lent to the group of a process that is not root: so do Secrets of
/// Kubernetes with an fsGroup, and systemd's credentials, where the mask of their ACL stands for the group.
const fn private(mode: u32, owner: u32, process: u32) -> bool {
    let others = if owner == 0 && process != 0 { 0o037 } else { 0o077 };
    mode & others == 0
}

fn parse(text: &str) -> Result<Ring, String> {
    // The message of a TOML error shows the line, which may hold a key.
    let Text { active, hashes, keys } = toml::from_str(text)
        .map_err(|_| "write active = \"ID\" and, under [keys], ID = \"64 hex digits\"".to_owned())?;
    let keys = keys
        .into_iter()
        .map(|(id, hex)| {
            let named = (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
            let key = unhex(&hex).filter(|_| named);
            key.map(|k| (id.clone(), k)).ok_or_else(|| format!("the key {id:?} must be 64 hex digits"))
        })
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    if !keys.contains_key(&active) {
        return Err(format!("the active key {active:?} is not under [keys]"));
    }
    let hashes = hashes.map(|h| unhex(&h).ok_or("hashes must be 64 hex digits")).transpose()?;
    Ok(Ring { active, hashes, keys })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

/// Adds a key under a new id and makes it the active one. Ids are random, so that the keys of two ledgers are
/// never taken for one another.
pub(super) fn fresh(ring: &mut Ring) -> Result<String, LedgerError> {
    let bytes = random::<36>()?;
    let (name, key) = bytes.split_at(4);
    let id = format!("k{}", hex(name));
    let key = key.try_into().map_err(|_| LedgerError::Open("a key has the wrong length".into()))?;
    ring.keys.insert(id.clone(), key);
    ring.active.clone_from(&id);
    Ok(id)
}

fn random<const N: usize>() -> Result<[u8; N], LedgerError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| LedgerError::Open(format!("the operating system gives no random numbers: {e}")))?;
    Ok(bytes)
}

fn show(ring: &Ring) -> String {
    let mut text = format!(
        "# The keys of sutler's ledger. Whoever has them can read it; without them nobody can.\nactive = \"{}\"\n",
        ring.active
    );
    if let Some(hashes) = &ring.hashes {
        let _ = writeln!(
            text,
            "# Repeats are recognised by it: it stays when keys come and go.\nhashes = \"{}\"",
            hex(hashes)
        );
    }
    text.push_str("\n[keys]\n");
    for (id, key) in &ring.keys {
        let _ = writeln!(text, "{id} = \"{}\"", hex(key));
    }
    text
}

/// A new key file. One that another process makes at the same moment wins.
pub(super) fn make(path: &Path) -> Result<(), LedgerError> {
    let mut ring = Ring { active: String::new(), hashes: Some(random()?), keys: BTreeMap::new() };
    fresh(&mut ring)?;
    let temporary = write(path, &ring)?;
    let linked = std::fs::hard_link(&temporary, path);
    let _ = std::fs::remove_file(&temporary);
    match linked {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        got => got.and_then(|()| keep(path)).map_err(|e| failed(path, "cannot be made", e)),
    }
}

/// Puts another content in the file's place, at once.
pub(super) fn replace(path: &Path, ring: &Ring) -> Result<(), LedgerError> {
    let temporary = write(path, ring)?;
    std::fs::rename(&temporary, path)
        .and_then(|()| keep(path))
        .map_err(|e| failed(path, "cannot be replaced", e))
}

fn write(path: &Path, ring: &Ring) -> Result<PathBuf, LedgerError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let _ = std::fs::remove_file(&temporary);
    let written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut f| {
            f.write_all(show(ring).as_bytes())?;
            f.sync_all()
        });
    written.map_err(|e| failed(path, "cannot be written", e))?;
    Ok(temporary)
}

/// The folder's entry survives a loss of power.
fn keep(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => File::open(p)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::private;

    #[test]
    fn only_roots_file_may_be_lent_to_a_group() {
        for (mode, owner, process, fine) in [
            (0o600, 1000, 1000, true),
            (0o400, 0, 0, true),
            (0o640, 1000, 1000, false),
            (0o440, 0, 0, false),
            (0o440, 0, 65532, true),
            (0o640, 0, 65532, true),
            (0o660, 0, 65532, false),
            (0o444, 0, 65532, false),
            (0o440, 1000, 65532, false),
        ] {
            assert_eq!(private(mode, owner, process), fine, "{mode:o} of {owner} for {process}");
        }
    }
}
