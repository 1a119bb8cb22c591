//! A host's own work on large values, which other calls do not wait for.

use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Values from which on work on them takes longer than a call may keep a thread from others.
const LARGE: usize = 10_000;

pub(crate) fn large<'a>(values: impl IntoIterator<Item = &'a Value>) -> bool {
    let mut left = LARGE;
    !values.into_iter().all(|v| fits(v, &mut left))
}

/// Does the work, aside from other calls where it is on large values.
pub(crate) fn aside<R>(large: bool, work: impl FnOnce() -> R) -> R {
    // A runtime of one thread has nobody else to go on.
    let others = || Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    if !large || !others() { work() } else { tokio::task::block_in_place(work) }
}

fn fits(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Array(a) => a.iter().all(|v| fits(v, left)),
        Value::Object(o) => o.values().all(|v| fits(v, left)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_values_are_counted_together() {
        let list = |n| Value::Array(vec![Value::Null; n]);
        for (values, small) in [
            (vec![], true),
            (vec![list(LARGE - 1)], true),
            (vec![list(LARGE)], false),
            (vec![list(LARGE / 2), list(LARGE / 2 - 1)], false),
            (vec![serde_json::json!({"a": {"b": list(LARGE - 2)}})], false),
            (vec![serde_json::json!({"a": {"b": list(LARGE - 3)}})], true),
        ] {
            assert_eq!(large(&values), !small, "{}", values.len());
        }
    }
}
