//! Containers on the local Docker daemon, only those that this plugin made for the call's owner.

pub use crate::wit::sutler::containers::read::{Report as Status, State};
pub use crate::wit::sutler::containers::types::{Extras, Mount, MountFile, Port, Restart, Spec, Variable};
use crate::{Error, Result, raw};

impl Spec {
    /// Of this name and image, and nothing besides: no limits, and not started again when it ends.
    pub fn new(name: impl Into<String>, image: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            image: image.into(),
            command: vec![],
            env: vec![],
            files: vec![],
            memory_bytes: 0,
            milli_cpus: 0,
            restart: Restart::Never,
            ports: vec![],
            network: None,
        }
    }
}

/// More than [`inspect`] tells.
///
/// # Errors
/// `not-granted`, `unavailable`.
pub fn status(name: &str) -> Result<Option<Status>> {
    absent(raw::containers_read::status(name), "inspect", name)
}

/// Whether there is a container and [`run_with`] would leave it alone.
///
/// # Errors
/// `not-granted`, `invalid`, `unavailable`.
pub fn same(spec: &Spec, extras: &Extras) -> Result<bool> {
    raw::containers_read::same(spec, extras).map_err(|e| doing(e.into(), "compare", &spec.name))
}

/// The note of a named volume.
///
/// # Errors
/// `not-granted`, `unavailable`.
pub fn volume(name: &str) -> Result<Option<String>> {
    absent(raw::containers_read::volume(name), "inspect the volume of", name)
}

/// [`run`] with volumes and a note; a container that is replaced gets `grace_seconds` to end.
///
/// # Errors
/// `not-granted`, `read-only-call`, `conflict`, `pulling`, `image`, `invalid`, `daemon`, `unavailable`.
pub fn run_with(spec: &Spec, extras: &Extras, grace_seconds: u32) -> Result<()> {
    raw::containers_write::run_with(spec, extras, grace_seconds)
        .map_err(|e| doing(e.into(), "run", &spec.name))
}

/// Makes a named volume; an empty one in the place of one with another note.
///
/// # Errors
/// `not-granted`, `read-only-call`, `conflict`, `unavailable`.
pub fn make_volume(name: &str, note: &str) -> Result<()> {
    raw::containers_write::make_volume(name, note).map_err(|e| doing(e.into(), "make the volume of", name))
}

/// Whether there was one.
///
/// # Errors
/// `not-granted`, `read-only-call`, `conflict` while a container uses it, `unavailable`.
pub fn remove_volume(name: &str) -> Result<bool> {
    absent(raw::containers_write::remove_volume(name), "remove the volume of", name).map(|o| o.is_some())
}

/// # Errors
/// `not-granted`, `unavailable`.
pub fn inspect(name: &str) -> Result<Option<State>> {
    absent(raw::containers_read::inspect(name), "inspect", name)
}

/// # Errors
/// `not-granted`, `unavailable`.
pub fn list() -> Result<Vec<State>> {
    raw::containers_read::list().map_err(Error::from)
}

/// The last lines of a container.
///
/// # Errors
/// `not-granted`, `not-found`, `unavailable`.
pub fn logs(name: &str, tail_lines: u32) -> Result<Vec<String>> {
    raw::containers_read::logs(name, tail_lines).map_err(|e| doing(e.into(), "read the log of", name))
}

/// Pulls the image if absent; replaces a container whose spec differs; otherwise leaves it alone.
///
/// # Errors
/// `not-granted`, `read-only-call`, `conflict`, `unavailable`.
pub fn run(spec: &Spec) -> Result<()> {
    raw::containers_write::run(spec).map_err(|e| doing(e.into(), "run", &spec.name))
}

/// # Errors
/// `not-granted`, `read-only-call`, `unavailable`.
pub fn stop(name: &str, grace_seconds: u32) -> Result<bool> {
    absent(raw::containers_write::stop(name, grace_seconds), "stop", name).map(|o| o.is_some())
}

/// Whether there was one.
///
/// # Errors
/// `not-granted`, `read-only-call`, `unavailable`.
pub fn remove(name: &str) -> Result<bool> {
    absent(raw::containers_write::remove(name), "remove", name).map(|o| o.is_some())
}

fn absent<T>(
    r: Result<T, crate::wit::sutler::containers::types::Error>,
    verb: &str,
    name: &str,
) -> Result<Option<T>> {
    match r.map_err(Error::from) {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.is("not-found") => Ok(None),
        Err(e) => Err(doing(e, verb, name)),
    }
}

fn doing(e: Error, verb: &str, name: &str) -> Error {
    e.while_doing(format_args!("{verb} container {name}"))
}
