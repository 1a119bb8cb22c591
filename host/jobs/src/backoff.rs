//! Whether a failed attempt is made again, and after which pause: a table by what it failed of.
//!
//! A lost lease is none of these: another host goes on as soon as it may take the job over.

use std::time::Duration;

use sutler_model::Failure;

use crate::config::Policy;

/// The pauses of one class of failures: they double from the first to the longest, and chance takes away up to a part
/// of each.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pauses {
    /// Of the configured first pause.
    first: f64,
    /// Of the configured longest pause; at most 1.
    longest: f64,
    chance: f64,
}

/// Whatever has no row of its own: a dependency that is away or too slow, and the plugins' own codes.
const USUAL: Pauses = Pauses { first: 1.0, longest: 1.0, chance: 0.5 };
/// Who asks too much asks less often from the first time on.
const THROTTLED: Pauses = Pauses { first: 8.0, longest: 1.0, chance: 0.5 };
/// Somebody else wrote at the same time: soon again, but hardly at the same time as the other.
const CONFLICT: Pauses = Pauses { first: 0.25, longest: 0.25, chance: 0.9 };

/// The table; `None` is never made again.
fn pauses(code: &str) -> Option<Pauses> {
    match code {
        // A plugin that traps or breaks its contract does so again.
        "plugin-fault" | "plugin-broke-contract" => None,
        "throttled" | "rate-limited" | "too-many-requests" => Some(THROTTLED),
        "conflict" | "field-conflict" | "pending" => Some(CONFLICT),
        _ => Some(USUAL),
    }
}

/// The pause after the `attempt`th attempt in a row; `None` where it is not made again. `jitter` is from 0 to 1, by
/// chance.
pub(crate) fn backoff(policy: &Policy, failure: &Failure, attempt: u32, jitter: f64) -> Option<Duration> {
    let pauses = pauses(&failure.code).filter(|_| failure.retryable)?;
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    let longest = policy.longest_backoff.mul_f64(pauses.longest);
    let pause = policy.first_backoff.mul_f64(pauses.first).saturating_mul(doubled).min(longest);
    Some(pause.mul_f64(1.0 - pauses.chance * (1.0 - jitter.clamp(0.0, 1.0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OperationsConfig;

    fn millis(code: &str, attempt: u32, jitter: f64) -> Option<u128> {
        let policy = OperationsConfig::default().policy().unwrap();
        let failure = Failure::new(code, "why").retryable();
        backoff(&policy, &failure, attempt, jitter).map(|d| d.as_millis())
    }

    #[test]
    fn each_class_has_its_pauses() {
        for (codes, longest, shortest) in [
            (
                &["unavailable", "dependency-timeout", "quota-exceeded"][..],
                [1000, 2000, 4000, 60_000, 60_000],
                [500, 1000, 2000, 30_000, 30_000],
            ),
            (
                &["throttled", "rate-limited", "too-many-requests"],
                [8000, 16_000, 32_000, 60_000, 60_000],
                [4000, 8000, 16_000, 30_000, 30_000],
            ),
            (
                &["conflict", "field-conflict", "pending"],
                [250, 500, 1000, 15_000, 15_000],
                [25, 50, 100, 1500, 1500],
            ),
        ] {
            for code in codes {
                let of = |jitter| [1, 2, 3, 7, 40].map(|n| millis(code, n, jitter).unwrap());
                assert_eq!((of(1.0), of(0.0)), (longest, shortest), "{code}");
            }
        }
    }

    #[test]
    fn what_fails_the_same_way_again_is_not_made_again() {
        for code in ["plugin-fault", "plugin-broke-contract"] {
            assert_eq!(millis(code, 1, 0.5), None, "{code}");
        }
        let policy = OperationsConfig::default().policy().unwrap();
        assert_eq!(backoff(&policy, &Failure::new("unavailable", "why"), 1, 0.5), None, "not retryable");
    }
}
