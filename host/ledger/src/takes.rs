//! What applications take of their quotas, as functions of values: which side of a job counts, and what is too much.

use std::collections::HashMap;

use sutler_model::{
    Application, Identifier, InvalidName, Measure, OverQuota, Pair, Quota, QuotaOf, Quotas, Use,
};

use crate::{InvalidJobId, JobId, Status};

/// What a job makes of what its application takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Takes {
    /// What each resource takes once the job is completed; `None`: it is gone then.
    pub resources: Vec<(Identifier, Option<Use>)>,
    pub quotas: Quotas,
}

/// What a resource takes: before the job that last changed it, and after it. `None`: it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub application: Application,
    pub pair: Pair,
    pub resource: Identifier,
    /// `None` once that job is forgotten: what is after it holds.
    pub job: Option<JobId>,
    pub before: Option<Use>,
    pub after: Option<Use>,
}

impl Taken {
    /// As ledgers on a database keep it: instance, tenant, environment, application, pair and resource, where an empty
    /// instance or tenant is none.
    ///
    /// # Errors
    /// In words, for a name that is none.
    pub(crate) fn read(
        [instance, tenant, environment, application, pair, resource]: [&str; 6],
        job: Option<&str>,
        before: Option<Use>,
        after: Option<Use>,
    ) -> Result<Self, String> {
        let must = |text: &str| Identifier::parse(text).map_err(|e| e.to_string());
        let may = |text: &str| (!text.is_empty()).then(|| must(text)).transpose();
        Ok(Self {
            application: Application {
                instance: may(instance)?,
                tenant: may(tenant)?,
                environment: must(environment)?,
                id: must(application)?,
            },
            pair: pair.parse().map_err(|e: InvalidName| e.to_string())?,
            resource: must(resource)?,
            job: job.map(|id| id.parse().map_err(|e: InvalidJobId| e.to_string())).transpose()?,
            before,
            after,
        })
    }

    /// What counts where the job stands there. What a job that has failed made may still run: the larger side counts
    /// until another job, or its clean-up, has ended.
    pub fn counts(&self, status: Option<Status>) -> Option<Use> {
        match status {
            None | Some(Status::Completed) => self.after,
            Some(Status::Cancelled) => self.before,
            Some(_) => larger(self.before, self.after),
        }
    }
}

fn larger(a: Option<Use>, b: Option<Use>) -> Option<Use> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// A number as ledgers keep it: so small that a sum of many stays one.
pub(crate) fn kept(n: u64) -> i64 {
    const MOST: u64 = 1_000_000_000_000;
    i64::try_from(n.min(MOST)).unwrap_or(i64::MAX)
}

/// What [`kept`] kept of both measures; `None`: the resource is not there.
pub(crate) fn used(milli_cpus: Option<i64>, memory_mib: Option<i64>) -> Option<Use> {
    let both = milli_cpus.zip(memory_mib);
    both.map(|(cpu, memory)| Use { milli_cpus: cpu.unsigned_abs(), memory_mib: memory.unsigned_abs() })
}

/// A name as a column has it: empty where there is none.
pub(crate) fn text(name: Option<&Identifier>) -> &str {
    name.map_or("", Identifier::as_str)
}

/// What several resources take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) applications: u64,
    pub(crate) used: Use,
}

impl Totals {
    const fn of(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Applications => self.applications,
            Measure::MilliCpus => self.used.milli_cpus,
            Measure::MemoryMib => self.used.memory_mib,
        }
    }
}

/// What counts before a job begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) instance: Totals,
    pub(crate) tenant: Totals,
    /// Whether the application is counted already.
    pub(crate) application: bool,
    /// The job's own resources that are there.
    pub(crate) own: HashMap<String, Use>,
}

/// What does not fit. Only what a job takes more of is held against a quota: what runs stays, shrinks and goes
/// whatever the quota is by now.
pub(crate) fn over(takes: &Takes, before: &Counted) -> Option<OverQuota> {
    let mut more = Totals::default();
    for (resource, after) in &takes.resources {
        let Some(after) = after else { continue };
        more.applications = u64::from(!before.application);
        let now = before.own.get(resource.as_str()).copied().unwrap_or_default();
        more.used = more.used
            + Use {
                milli_cpus: after.milli_cpus.saturating_sub(now.milli_cpus),
                memory_mib: after.memory_mib.saturating_sub(now.memory_mib),
            };
    }
    let of: [(QuotaOf, &Quota, &Totals); 2] = [
        (QuotaOf::Instance, &takes.quotas.instance, &before.instance),
        (QuotaOf::Tenant, &takes.quotas.tenant, &before.tenant),
    ];
    of.into_iter().find_map(|(of, quota, used)| {
        Measure::ALL.into_iter().find_map(|measure| {
            let (used, asked, limit) = (used.of(measure), more.of(measure), quota.of(measure)?);
            let fits = asked == 0 || used.saturating_add(asked) <= limit;
            (!fits).then_some(OverQuota { of, measure, used, asked, limit })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn uses(milli_cpus: u64, memory_mib: u64) -> Use {
        Use { milli_cpus, memory_mib }
    }

    #[test]
    fn which_side_of_a_job_counts() {
        let id = |s: &str| Identifier::parse(s).unwrap();
        let taken = |before, after| Taken {
            application: Application { id: id("a"), environment: id("e"), tenant: None, instance: None },
            pair: "tool/x".parse().unwrap(),
            resource: id("main"),
            job: None,
            before,
            after,
        };
        let (small, large) = (Some(uses(1, 9)), Some(uses(3, 2)));
        for (before, after, running, completed, cancelled) in [
            (None, small, small, small, None),
            (small, None, small, None, small),
            (small, large, Some(uses(3, 9)), large, small),
            (None, None, None, None, None),
        ] {
            let t = taken(before, after);
            for status in [Status::Draft, Status::Queued, Status::Running, Status::Failed] {
                assert_eq!(t.counts(Some(status)), running, "{status}");
            }
            assert_eq!((t.counts(Some(Status::Completed)), t.counts(None)), (completed, completed));
            assert_eq!(t.counts(Some(Status::Cancelled)), cancelled);
        }
    }

    #[test]
    fn only_what_grows_is_held_against_a_quota() {
        let main = || Identifier::parse("main").unwrap();
        let counted = |application, own: Option<Use>| Counted {
            instance: Totals { applications: 5, used: uses(5000, 500) },
            tenant: Totals { applications: 1, used: uses(1000, 100) },
            application,
            own: own.into_iter().map(|u| ("main".into(), u)).collect(),
        };
        let quota = |a, c, m| Quota { applications: a, milli_cpus: c, memory_mib: m };
        let ask = |after, instance, tenant, before: &Counted| {
            let takes = Takes { resources: vec![(main(), after)], quotas: Quotas { instance, tenant } };
            over(&takes, before).map(|o| (o.of, o.measure, o.used, o.asked, o.limit))
        };
        let (free, new, there) =
            (Quota::default(), counted(false, None), counted(true, Some(uses(1000, 100))));
        let (instance, tenant) = (QuotaOf::Instance, QuotaOf::Tenant);
        for (after, i, t, before, expected) in [
            (Some(uses(9, 9)), free, free, &new, None),
            (Some(uses(9, 9)), quota(Some(6), None, None), free, &new, None),
            (
                Some(uses(9, 9)),
                quota(Some(5), None, None),
                free,
                &new,
                Some((instance, Measure::Applications, 5, 1, 5)),
            ),
            (
                Some(uses(9, 9)),
                free,
                quota(Some(0), None, None),
                &new,
                Some((tenant, Measure::Applications, 1, 1, 0)),
            ),
            // Another resource of an application that is there.
            (Some(uses(9, 9)), quota(Some(5), None, None), free, &counted(true, None), None),
            (
                Some(uses(1001, 0)),
                quota(None, Some(5000), None),
                free,
                &there,
                Some((instance, Measure::MilliCpus, 5000, 1, 5000)),
            ),
            (
                Some(uses(0, 200)),
                free,
                quota(None, None, Some(150)),
                &there,
                Some((tenant, Measure::MemoryMib, 100, 100, 150)),
            ),
            // Far over a quota that was lowered: the same, less, or nothing at all is still allowed.
            (Some(uses(1000, 100)), quota(Some(1), Some(1), Some(1)), free, &there, None),
            (Some(uses(0, 0)), quota(Some(1), Some(1), Some(1)), free, &there, None),
            (None, quota(Some(0), Some(0), Some(0)), quota(Some(0), Some(0), Some(0)), &there, None),
            (
                Some(uses(u64::MAX, 1)),
                quota(None, Some(9999), None),
                free,
                &new,
                Some((instance, Measure::MilliCpus, 5000, u64::MAX, 9999)),
            ),
        ] {
            assert_eq!(ask(after, i, t, before), expected, "{after:?} {i:?} {t:?}");
        }
    }
}
