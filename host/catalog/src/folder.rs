//! The folder of plugins: which files are there and what stands beside them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sutler_model::{Digest, PluginName};

use crate::config::PluginConfig;

/// A plugin's file, larger than which none is read.
const MAX_BYTES: u64 = 256 << 20;

/// One `NAME.wasm` as it lies there now.
pub(crate) struct Found {
    pub(crate) name: PluginName,
    pub(crate) wasm: Bytes,
    pub(crate) config: PluginConfig,
    /// Of the component and its configuration together: equal means nothing changed.
    pub(crate) fingerprint: Digest,
}

/// Everything in the folder: what can be read, and what cannot with its reason.
pub(crate) type Listing = BTreeMap<String, Result<Found, String>>;

/// Reads the folder. `configured` are the `[plugins.NAME]` tables.
///
/// # Errors
/// Words where the folder itself cannot be read.
pub(crate) fn read(dir: &Path, configured: &BTreeMap<String, PluginConfig>) -> Result<Listing, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| {
        format!(
            "the plugin folder {} cannot be read: {e}; set [catalog] dir to a folder of *.wasm",
            dir.display()
        )
    })?;
    let mut out = Listing::new();
    for entry in entries {
        let path =
            entry.map_err(|e| format!("the plugin folder {} cannot be read: {e}", dir.display()))?.path();
        if path.extension().is_none_or(|e| e != "wasm") {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let found = one(&path, &stem, configured);
        out.insert(stem, found);
    }
    Ok(out)
}

fn one(path: &Path, stem: &str, configured: &BTreeMap<String, PluginConfig>) -> Result<Found, String> {
    let name = PluginName::parse(stem)
        .map_err(|e| format!("its file cannot be a plugin's: {e}; rename {stem}.wasm"))?;
    let wasm = component(path)?;
    let (config, text) = config(path, stem, configured)?;
    let mut all = [Digest::of(&wasm).as_bytes().as_slice(), text.unwrap_or_default().as_bytes()].concat();
    // A secret that was rotated is a change as well.
    for source in config.secrets.values() {
        let read = source.read().map(|s| Digest::of(s.expose().as_bytes()));
        all.extend_from_slice(read.unwrap_or_else(|_| Digest::of(b"")).as_bytes());
    }
    if !config.config_files.is_empty() {
        // What cannot be read is told when the plugin is loaded.
        let read = config.whole().map(|c| c.to_string()).unwrap_or_else(|e| e);
        all.extend_from_slice(Digest::of(read.as_bytes()).as_bytes());
    }
    Ok(Found { name, wasm: wasm.into(), config, fingerprint: Digest::of(&all) })
}

/// What the operator wrote for the plugin of this `NAME.wasm`, in `[plugins.NAME]` or beside it.
///
/// # Errors
/// Words where it cannot be read, or stands in both.
pub fn config_of(wasm: &Path, configured: &BTreeMap<String, PluginConfig>) -> Result<PluginConfig, String> {
    let stem = wasm.file_stem().unwrap_or_default().to_string_lossy();
    config(wasm, &stem, configured).map(|(config, _)| config)
}

/// What the operator wrote for the plugin of this file, and the text where it stands beside the file.
pub(crate) fn config(
    path: &Path,
    stem: &str,
    configured: &BTreeMap<String, PluginConfig>,
) -> Result<(PluginConfig, Option<String>), String> {
    let beside = path.with_extension("toml");
    let text = match std::fs::read_to_string(&beside) {
        Ok(t) => Some(t),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(unreadable(&beside, &e)),
    };
    let config = match (text.as_deref(), configured.get(stem)) {
        (Some(_), Some(_)) => {
            return Err(format!(
                "it is configured twice, by {} and by [plugins.{stem}]; keep one of them",
                beside.display()
            ));
        }
        (Some(t), None) => {
            let mut config: PluginConfig = toml::from_str(t).map_err(|e| told(&beside, t, &e))?;
            config.beside(beside.parent().unwrap_or(Path::new("")));
            config
        }
        (None, c) => c.cloned().unwrap_or_default(),
    };
    Ok((config, text))
}

/// Where a file is wrong and why, without its lines: one may hold a secret.
fn told(file: &Path, text: &str, e: &toml::de::Error) -> String {
    let before = e.span().and_then(|s| text.get(..s.start)).unwrap_or_default();
    format!("{} line {}: {}", file.display(), before.matches('\n').count() + 1, e.message())
}

/// The bytes of a component: a regular file of bounded size, since a pipe or a device would be read for ever.
///
/// # Errors
/// Words on why it cannot be one.
pub fn component(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let kind = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    if !kind.is_file() {
        return Err("it is not a regular file".into());
    }
    let file = std::fs::File::open(path).map_err(|e| unreadable(path, &e))?;
    let mut bytes = Vec::with_capacity(usize::try_from(kind.len().min(MAX_BYTES)).unwrap_or_default());
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    if bytes.is_empty() {
        return Err("the file is empty; copy it again".into());
    }
    Ok(bytes)
}

fn unreadable(path: &Path, e: &std::io::Error) -> String {
    format!("{} cannot be read: {e}", PathBuf::from(path).display())
}
