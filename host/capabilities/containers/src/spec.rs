//! A container as a plugin asks for it.

use std::collections::BTreeSet;

use serde_json::json;
use sutler_model::Digest;

use crate::{Error, Image};

/// What files may hold together, in bytes.
pub(crate) const MAX_FILES: usize = 16 << 20;
/// A note, in bytes: it is kept as a label.
pub(crate) const MAX_NOTE: usize = 4 << 20;

/// When Docker starts a container again that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    Never,
    OnFailure,
    UnlessStopped,
}

/// A file that is put into the container before its start.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub contents: Vec<u8>,
    /// Only the image's user may read it.
    pub secret: bool,
}

/// A port of the host that leads to one of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    pub host: u16,
    pub container: u16,
}

/// A named volume and where it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub volume: String,
    pub path: String,
}

/// Without Debug: variables and files may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub image: String,
    /// After the image's entry point; its own where it is empty.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub files: Vec<File>,
    /// 0 for no limit.
    pub memory_bytes: u64,
    /// 0 for no limit.
    pub milli_cpus: u32,
    pub restart: Restart,
    pub ports: Vec<Port>,
    /// Docker's `bridge` where it is left out.
    pub network: Option<String>,
    pub mounts: Vec<Mount>,
    /// The plugin's own, kept beside the container.
    pub note: String,
}

/// The grammar of Docker's names of containers and volumes.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let b = name.as_bytes();
    let ok = (2..=128).contains(&b.len())
        && b.first().is_some_and(u8::is_ascii_alphanumeric)
        && b.iter().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(b));
    match ok {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{:?} is no name of a container or volume: use 2 to 128 of a-z, A-Z, 0-9, '_', '.' and '-'",
            name.chars().take(130).collect::<String>()
        ))),
    }
}

pub(crate) fn check_note(note: &str) -> Result<(), Error> {
    match note.len() <= MAX_NOTE {
        true => Ok(()),
        false => Err(Error::invalid(format!("a note has at most {MAX_NOTE} bytes"))),
    }
}

/// Absolute, without `.`, `..` and empty parts, and not the root.
fn check_path(path: &str) -> Result<(), Error> {
    let parts = path.strip_prefix('/').map(|p| p.split('/').collect::<Vec<_>>());
    let ok = parts.is_some_and(|p| p.iter().all(|p| !matches!(*p, "" | "." | "..") && !p.contains('\0')));
    match ok && path.len() <= 4096 {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{:?} is no path in a container: write /FOLDER/FILE without . and ..",
            path.chars().take(200).collect::<String>()
        ))),
    }
}

impl Spec {
    pub(crate) fn network(&self) -> &str {
        self.network.as_deref().unwrap_or("bridge")
    }

    /// What Docker would refuse late, or should never get. The image's name, read.
    ///
    /// # Errors
    /// `Other` with code `invalid`.
    pub(crate) fn check(&self) -> Result<Image, Error> {
        check_name(&self.name)?;
        check_note(&self.note)?;
        let image = self.image.parse().map_err(|e: crate::InvalidImage| Error::invalid(e.to_string()))?;
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(Error::invalid("a variable needs a name without = and no zero bytes"));
            }
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return Err(Error::invalid("a word of the command has a zero byte"));
        }
        let mut paths = BTreeSet::new();
        for path in self.files.iter().map(|f| &f.path).chain(self.mounts.iter().map(|m| &m.path)) {
            check_path(path)?;
            if !paths.insert(path) {
                return Err(Error::invalid(format!("{path} is there twice; keep one")));
            }
        }
        let bytes: usize = self.files.iter().map(|f| f.contents.len()).sum();
        if bytes > MAX_FILES {
            return Err(Error::invalid(format!(
                "the files have {bytes} bytes; at most {MAX_FILES} are put in"
            )));
        }
        self.mounts.iter().try_for_each(|m| check_name(&m.volume))?;
        if self.ports.iter().any(|p| p.host == 0 || p.container == 0) {
            return Err(Error::invalid("a port is a number from 1 to 65535"));
        }
        let network = self.network();
        if network == "host" || network.contains(':') {
            let why =
                "a container never gets the host's network or another container's; name a Docker network";
            return Err(Error::invalid(why));
        }
        Ok(image)
    }

    /// Changes with everything that a container is made of. `public`: its ports are reached from other machines.
    pub(crate) fn hash(&self, image: &Image, public: bool) -> String {
        let files: Vec<_> =
            self.files.iter().map(|f| (&f.path, Digest::of(&f.contents).hex(), f.secret)).collect();
        let ports: Vec<_> = self.ports.iter().map(|p| (p.host, p.container)).collect();
        let mounts: Vec<_> = self.mounts.iter().map(|m| (&m.volume, &m.path)).collect();
        let text = json!([
            image.to_string(),
            self.command,
            self.env,
            files,
            self.memory_bytes,
            self.milli_cpus,
            format!("{:?}", self.restart),
            ports,
            public && !ports.is_empty(),
            self.network(),
            mounts,
            self.note,
        ]);
        Digest::of(text.to_string().as_bytes()).hex()
    }
}
