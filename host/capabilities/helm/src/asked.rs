//! What a call may ask at all, and what a rendering of it follows from.

use serde_json::Value;
use sutler_model::{Call, Digest, Effective};

use crate::error::Error;
use crate::grant::Grants;
use crate::releases::Target;
use crate::types::Options;

pub(crate) const fn writes(call: &Call) -> Result<(), Error> {
    if call.mode.writes() { Ok(()) } else { Err(Error::ReadOnlyCall) }
}

pub(crate) fn check_options(grants: &Effective<Grants>, options: Options) -> Result<(), Error> {
    if options.take_ownership {
        grants.check(Grants::take_ownership)?;
    }
    Ok(())
}

/// Helm's rule: a DNS subdomain of at most 53 characters.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let part = |p: &str| {
        let b = p.as_bytes();
        edge(b.first())
            && edge(b.last())
            && b.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    };
    if name.len() <= 53 && name.split('.').all(part) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(Error::other(
        "invalid-release-name",
        format!(
            "release name {shown:?} is not valid: use at most 53 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit"
        ),
    ))
}

/// In a plan the chart's random numbers follow from what is asked, so that equal plans are equal. What is written gets
/// its keys and passwords from the operating system: nobody can foretell them.
pub(crate) fn seed(target: &Target<'_>, chart: &Digest, values: &Value) -> Result<[u8; 32], Error> {
    let call = target.call;
    if call.mode.writes() {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| Error::Unavailable(format!("the operating system gives no random numbers: {e}")))?;
        return Ok(seed);
    }
    let text = format!("helm/{}/{}/{}/{chart}/{values}", call.owner.hash(), target.namespace, target.name);
    Ok(*Digest::of(text.as_bytes()).as_bytes())
}

/// During apply the clock runs; a plan sees a fixed instant, so that two equal plans are equal.
pub(crate) fn now_millis(call: &Call) -> u64 {
    if call.mode.writes() {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
    } else {
        0
    }
}
