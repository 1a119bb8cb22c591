//! `[operations]`

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_ledger::Limits;
use sutler_model::{InvalidName, Pair, PluginName};

/// `[operations]`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct OperationsConfig {
    /// How long an apply is waited for before its caller gets an operation id, in milliseconds.
    pub answer_within_milliseconds: u32,
    /// How many jobs that were claimed this host runs at once. Applies that run within their call are not counted.
    pub workers: u32,
    /// How often a step is tried in a row before the job fails.
    pub attempts: u32,
    /// The pause before the second attempt, in milliseconds; it doubles with every further one. After `throttled` it
    /// is eight times as long, after `conflict` a quarter.
    pub first_backoff_milliseconds: u32,
    /// The longest pause between two attempts, in seconds.
    pub longest_backoff_seconds: u32,
    /// When a job fails whatever it does, in seconds from its beginning, its retry or its cancellation.
    pub deadline_seconds: u32,
    /// The same for single pairs: `"deployment/ksml" = 3600`.
    pub deadlines: BTreeMap<String, u32>,
    /// How long a host has a job without a sign of life, in seconds. A pair whose longest step takes longer has
    /// the step's time-out and `lease-margin-seconds`.
    pub lease_seconds: u32,
    /// The same for single pairs. Where a step's time-out and `lease-margin-seconds` are longer, they hold.
    pub leases: BTreeMap<String, u32>,
    /// What a lease lasts at least beyond the longest step of its pair, in seconds.
    pub lease_margin_seconds: u32,
    /// How long after the end of its lease a job is taken over, in seconds: the longest request that a host
    /// without a lease may still have on its way. The clean-up after a call that was stopped waits as long.
    pub takeover_after_seconds: u32,
    /// How often due jobs are looked for at least, in milliseconds, 10 to 60000.
    pub poll_milliseconds: u32,
    /// How long final answers stay readable, in days.
    pub keep_days: u32,
    /// How long the audit stays readable, in days.
    pub keep_audit_days: u32,
    pub limits: LimitsConfig,
}

/// `[operations.limits]`: how many jobs run at once, over all hosts of one ledger. What is not named is not limited.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// By the plugin's name.
    pub plugins: BTreeMap<String, u32>,
    /// By pair: `"deployment/ksml" = 8`.
    pub pairs: BTreeMap<String, u32>,
    /// For each tenant alike.
    pub each_tenant: Option<u32>,
}

impl Default for OperationsConfig {
    fn default() -> Self {
        Self {
            answer_within_milliseconds: 2000,
            workers: 16,
            attempts: 10,
            first_backoff_milliseconds: 1000,
            longest_backoff_seconds: 60,
            deadline_seconds: 24 * 3600,
            deadlines: BTreeMap::new(),
            lease_seconds: 30,
            leases: BTreeMap::new(),
            lease_margin_seconds: 10,
            takeover_after_seconds: 15,
            poll_milliseconds: 1000,
            keep_days: 30,
            keep_audit_days: 365,
            limits: LimitsConfig::default(),
        }
    }
}

/// The configuration as the jobs use it.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) answer_within: Duration,
    pub(crate) workers: usize,
    pub(crate) attempts: u32,
    pub(crate) first_backoff: Duration,
    pub(crate) longest_backoff: Duration,
    deadline: Duration,
    deadlines: BTreeMap<Pair, Duration>,
    pub(crate) lease: Duration,
    pub(crate) leases: BTreeMap<Pair, Duration>,
    pub(crate) lease_margin: Duration,
    pub(crate) takeover_after: Duration,
    pub(crate) poll: Duration,
    pub(crate) keep: Duration,
    pub(crate) keep_audit: Duration,
    pub(crate) limits: Limits,
}

/// What of `[operations]` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("[operations] {0}")]
    Name(#[from] InvalidName),
    #[error("[operations] {key}: {rule}")]
    Value { key: String, rule: &'static str },
}

impl OperationsConfig {
    /// # Errors
    /// `ConfigError` for a pair or a plugin's name that is none, and for a number with which nothing could run.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.policy().map(drop)
    }

    fn numbers(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, rule| Err(ConfigError::Value { key: key.to_owned(), rule });
        let singles = [
            ("workers", self.workers),
            ("attempts", self.attempts),
            ("first-backoff-milliseconds", self.first_backoff_milliseconds),
            ("longest-backoff-seconds", self.longest_backoff_seconds),
            ("deadline-seconds", self.deadline_seconds),
            ("lease-seconds", self.lease_seconds),
            ("keep-days", self.keep_days),
            ("keep-audit-days", self.keep_audit_days),
            ("limits.each-tenant", self.limits.each_tenant.unwrap_or(1)),
        ];
        if let Some((key, _)) = singles.iter().find(|(_, n)| *n == 0) {
            return bad(key, "use at least 1");
        }
        if !(10..=60_000).contains(&self.poll_milliseconds) {
            return bad("poll-milliseconds", "use 10 to 60000");
        }
        for (table, of) in [("deadlines", &self.deadlines), ("leases", &self.leases)] {
            if let Some((pair, _)) = of.iter().find(|(_, n)| **n == 0) {
                return bad(&format!("{table}.{pair:?}"), "use at least 1");
            }
        }
        Ok(())
    }

    /// # Errors
    /// As [`OperationsConfig::check`].
    pub(crate) fn policy(&self) -> Result<Policy, ConfigError> {
        self.numbers()?;
        let seconds = |n: u32| Duration::from_secs(u64::from(n));
        let millis = |n: u32| Duration::from_millis(u64::from(n));
        let by_pair = |of: &BTreeMap<String, u32>| {
            of.iter()
                .map(|(p, n)| Ok((p.parse::<Pair>()?, seconds(*n))))
                .collect::<Result<BTreeMap<_, _>, InvalidName>>()
        };
        let l = &self.limits;
        let limits = Limits {
            plugins: l
                .plugins
                .iter()
                .map(|(p, n)| Ok((PluginName::parse(p)?, *n)))
                .collect::<Result<_, InvalidName>>()?,
            pairs: l.pairs.iter().map(|(p, n)| Ok((p.parse()?, *n))).collect::<Result<_, InvalidName>>()?,
            each_tenant: l.each_tenant,
        };
        Ok(Policy {
            answer_within: millis(self.answer_within_milliseconds),
            workers: usize::try_from(self.workers).unwrap_or(usize::MAX),
            attempts: self.attempts,
            first_backoff: millis(self.first_backoff_milliseconds),
            longest_backoff: seconds(self.longest_backoff_seconds),
            deadline: seconds(self.deadline_seconds),
            deadlines: by_pair(&self.deadlines)?,
            lease: seconds(self.lease_seconds),
            leases: by_pair(&self.leases)?,
            lease_margin: seconds(self.lease_margin_seconds),
            takeover_after: seconds(self.takeover_after_seconds),
            poll: millis(self.poll_milliseconds),
            keep: seconds(self.keep_days) * 24 * 3600,
            keep_audit: seconds(self.keep_audit_days) * 24 * 3600,
            limits,
        })
    }
}

impl Policy {
    pub(crate) fn limited(&self) -> bool {
        let l = &self.limits;
        !l.plugins.is_empty() || !l.pairs.is_empty() || l.each_tenant.is_some()
    }

    pub(crate) fn deadline(&self, pair: &Pair) -> Duration {
        self.deadlines.get(pair).copied().unwrap_or(self.deadline)
    }

    /// The leases of the pairs that do not have the usual one. `longest` is each pair's longest step.
    pub(crate) fn leases(&self, longest: &BTreeMap<Pair, Duration>) -> BTreeMap<Pair, Duration> {
        let mut out = self.leases.clone();
        for (pair, step) in longest {
            let least = *step + self.lease_margin;
            let lease = out.get(pair).copied().unwrap_or(self.lease);
            if lease < least {
                out.insert(pair.clone(), least);
            }
        }
        out
    }

    /// The pairs that are given a shorter lease than they have, with both: what is given and what holds.
    pub(crate) fn short(&self, longest: &BTreeMap<Pair, Duration>) -> Vec<(Pair, Duration, Duration)> {
        let holds = self.leases(longest);
        let both = |(pair, given): (&Pair, &Duration)| {
            let held = *holds.get(pair)?;
            (*given < held).then(|| (pair.clone(), *given, held))
        };
        self.leases.iter().filter_map(both).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_outlasts_the_longest_step() {
        let config = OperationsConfig {
            leases: BTreeMap::from([("tool/a".into(), 5), ("tool/b".into(), 500)]),
            ..OperationsConfig::default()
        };
        let policy = config.policy().unwrap();
        let pair = |s: &str| s.parse::<Pair>().unwrap();
        let secs = Duration::from_secs;
        let longest = BTreeMap::from([
            (pair("tool/a"), secs(7)),
            (pair("tool/b"), secs(7)),
            (pair("tool/c"), secs(60)),
            (pair("tool/d"), secs(3)),
        ]);
        let want = BTreeMap::from([
            (pair("tool/a"), secs(17)),
            (pair("tool/b"), secs(500)),
            (pair("tool/c"), secs(70)),
        ]);
        assert_eq!(policy.leases(&longest), want);
        assert_eq!(policy.short(&longest), [(pair("tool/a"), secs(5), secs(17))]);
        assert_eq!(policy.short(&BTreeMap::new()), []);
    }

    #[test]
    fn what_would_let_nothing_run_is_refused() {
        let default = OperationsConfig::default;
        let table = |n| BTreeMap::from([("tool/a".to_owned(), n)]);
        let limits = LimitsConfig { each_tenant: Some(0), ..LimitsConfig::default() };
        for (config, words) in [
            (OperationsConfig { workers: 0, ..default() }, "workers: use at least 1"),
            (OperationsConfig { attempts: 0, ..default() }, "attempts: use at least 1"),
            (OperationsConfig { lease_seconds: 0, ..default() }, "lease-seconds: use at least 1"),
            (OperationsConfig { keep_days: 0, ..default() }, "keep-days: use at least 1"),
            (OperationsConfig { keep_audit_days: 0, ..default() }, "keep-audit-days: use at least 1"),
            (OperationsConfig { deadline_seconds: 0, ..default() }, "deadline-seconds: use at least 1"),
            (
                OperationsConfig { first_backoff_milliseconds: 0, ..default() },
                "first-backoff-milliseconds: use at least 1",
            ),
            (
                OperationsConfig { longest_backoff_seconds: 0, ..default() },
                "longest-backoff-seconds: use at least 1",
            ),
            (OperationsConfig { poll_milliseconds: 0, ..default() }, "poll-milliseconds: use 10 to 60000"),
            (OperationsConfig { poll_milliseconds: 9, ..default() }, "poll-milliseconds: use 10 to 60000"),
            (OperationsConfig { limits, ..default() }, "limits.each-tenant: use at least 1"),
            (OperationsConfig { deadlines: table(0), ..default() }, "deadlines.\"tool/a\": use at least 1"),
            (OperationsConfig { leases: table(0), ..default() }, "leases.\"tool/a\": use at least 1"),
        ] {
            assert_eq!(config.check().unwrap_err().to_string(), format!("[operations] {words}"));
        }
        let none = OperationsConfig {
            answer_within_milliseconds: 0,
            lease_margin_seconds: 0,
            takeover_after_seconds: 0,
            deadlines: table(1),
            ..default()
        };
        assert_eq!(none.check(), Ok(()));
    }

    #[test]
    fn names_are_checked() {
        let mut config = OperationsConfig::default();
        config.limits.pairs.insert("ksml".into(), 1);
        let ConfigError::Name(e) = config.check().unwrap_err() else { panic!("a name") };
        assert_eq!(e.what, "pair");
    }
}
