//! Releases on a real Kubernetes, with the helm binary as the judge: what it renders, what it makes of our releases, and
//! what we make of its.

pub(crate) mod charts;
mod helm3;
mod lifecycle;
mod render;
mod rig;
mod sequences;
mod state;

/// Seconds since 1970: what makes a sample another one each time.
pub(crate) fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
