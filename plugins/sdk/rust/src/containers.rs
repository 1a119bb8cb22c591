//! Containers on the local Docker daemon, only those that this plugin made.

pub use crate::wit::sutler::containers::read::State;
pub use crate::wit::sutler::containers::write::{MountFile, Port, Restart, Spec, Variable};
use crate::{Error, Result, raw};

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
