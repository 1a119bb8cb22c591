//! Bounded reads of pod logs for a plugin's own decisions; a person's stream goes through `locate`.

pub use crate::wit::sutler::logs::read::{Options, Pod};
use crate::{Error, Result, raw};

/// # Errors
/// `not-granted`, `unavailable`.
pub fn pods(namespace: &str, label_selector: &str) -> Result<Vec<Pod>> {
    raw::logs_read::pods(None, namespace, label_selector)
        .map_err(|e| Error::from(e).while_doing(format_args!("list the pods of {namespace}")))
}

/// The last lines of a pod.
///
/// # Errors
/// `not-granted`, `not-found`, `unavailable`.
pub fn tail(namespace: &str, pod: &str, options: &Options) -> Result<Vec<String>> {
    raw::logs_read::tail(None, namespace, pod, options)
        .map_err(|e| Error::from(e).while_doing(format_args!("read the log of pod {namespace}/{pod}")))
}
