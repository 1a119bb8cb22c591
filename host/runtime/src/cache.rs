//! Compiled plugins on disk. A compiled form is native code, so it is authenticated before it is loaded.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use sutler_model::Digest;
use wasmtime::component::Component;

use crate::engine::Engine;

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error(
        "the cache folder {0} cannot be used: {1}; give sutler a folder that only it can write ([cache] dir)"
    )]
    Folder(PathBuf, std::io::Error),
    #[error("the folder {0} can be written by others; run: chmod go-w {0}")]
    Shared(PathBuf),
}

/// A folder of compiled forms, keyed by plugin digest and engine, each with an HMAC under a key of mode 0600.
#[derive(Debug, Clone)]
pub struct CompileCache {
    dir: PathBuf,
    key: [u8; 32],
}

impl CompileCache {
    /// Opens the folder, making it and its key if need be.
    ///
    /// # Errors
    /// `CacheError` when the folder cannot be made or others may write to it.
    pub fn open(dir: &Path) -> Result<Self, CacheError> {
        let fail = |e| CacheError::Folder(dir.into(), e);
        std::fs::create_dir_all(dir).map_err(fail)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(dir).map_err(fail)?.permissions().mode();
            if mode & 0o022 != 0 {
                return Err(CacheError::Shared(dir.into()));
            }
        }
        let key = host_key(&dir.join("key")).map_err(fail)?;
        Ok(Self { dir: dir.into(), key })
    }

    /// The host's own key, from which others are derived by name.
    pub fn derived_key(&self, name: &str) -> [u8; 32] {
        self.mac(&[name.as_bytes()])
    }

    /// The compiled form of a component, from the cache or made now. Call it where blocking is allowed.
    /// `wasm` is asked for its bytes only when they are needed.
    pub(crate) fn compile<'a>(
        &self,
        engine: &Engine,
        digest: &Digest,
        wasm: impl FnOnce() -> std::io::Result<Cow<'a, [u8]>>,
    ) -> Result<(Component, bool), wasmtime::Error> {
        let file = self.dir.join(format!("{}-{:016x}.cwasm", digest.hex(), engine.compatibility()));
        if let Some(component) = self.read(engine, &file) {
            return Ok((component, true));
        }
        let native = engine.wasmtime().precompile_component(&wasm()?)?;
        if let Err(error) = self.write(&file, &native) {
            tracing::warn!(event = "compile-cache-write-failed", file = %file.display(), %error);
        }
        Ok((load(engine, &native)?, false))
    }

    fn read(&self, engine: &Engine, file: &Path) -> Option<Component> {
        let bytes = std::fs::read(file).ok()?;
        let (tag, native) = bytes.split_at_checked(32)?;
        let name = file.file_name()?.to_string_lossy().into_owned();
        if self.mac(&[name.as_bytes(), native]) != *tag {
            tracing::warn!(event = "compile-cache-refused", file = %file.display(), "its authentication tag is wrong; compiling again");
            return None;
        }
        load(engine, native).ok()
    }

    fn write(&self, file: &Path, native: &[u8]) -> std::io::Result<()> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tmp = self.dir.join(format!(".{}.{}", name, std::process::id()));
        let mut bytes = Vec::with_capacity(native.len() + 32);
        bytes.extend_from_slice(&self.mac(&[name.as_bytes(), native]));
        bytes.extend_from_slice(native);
        std::fs::write(&tmp, bytes)?;
        std::fs::rename(&tmp, file)
    }

    fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let Ok(mut m) = Hmac::<Sha256>::new_from_slice(&self.key) else { return [0; 32] };
        for p in parts {
            m.update(&(p.len() as u64).to_le_bytes());
            m.update(p);
        }
        m.finalize().into_bytes().into()
    }
}

/// # Errors
/// wasmtime's own where the bytes are of another engine.
#[allow(unsafe_code)]
fn load(engine: &Engine, native: &[u8]) -> Result<Component, wasmtime::Error> {
    // SAFETY: the bytes were just made by this engine, or carry an HMAC under a key that only this host can read.
    unsafe { Component::deserialize(engine.wasmtime(), native) }
}

/// Reads 32 bytes, or makes them of the operating system's randomness with mode 0600.
fn host_key(file: &Path) -> std::io::Result<[u8; 32]> {
    if let Ok(bytes) = std::fs::read(file)
        && let Ok(key) = bytes.try_into()
    {
        return Ok(key);
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|e| std::io::Error::other(e.to_string()))?;
    let tmp = file.with_extension(format!("tmp{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    std::io::Write::write_all(&mut options.open(&tmp)?, &key)?;
    // Two hosts that start at once agree on the key that was linked first.
    match std::fs::hard_link(&tmp, file) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let _ = std::fs::remove_file(&tmp);
    std::fs::read(file)?
        .try_into()
        .map_err(|_| std::io::Error::other("the key file does not hold 32 bytes; remove it"))
}
