//! Which of the ready jobs are taken: tenants in turn, the longest due of each first, within the limits.

use std::collections::VecDeque;

use crate::rules::{Lane, Places};

/// A ready job.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) n: i64,
    pub(super) wake: i64,
    pub(super) lane: Lane,
}

/// A tenant with its ready jobs, not all of them where there are many.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) tenancy: String,
    pub(super) jobs: Vec<Candidate>,
}

/// Goes once round the tenants, and then round those that had a job with room.
pub(super) struct Choice {
    pub(super) places: Places,
    most: usize,
    again: VecDeque<Tenant>,
    pub(super) chosen: Vec<Candidate>,
    /// The tenant that was served last.
    pub(super) last: Option<String>,
}

impl Choice {
    pub(super) fn new(places: Places, most: usize) -> Self {
        Self { places, most, again: VecDeque::new(), chosen: Vec::new(), last: None }
    }
    pub(super) fn full(&self) -> bool {
        self.chosen.len() >= self.most
    }

    /// The next tenants of the round.
    pub(super) fn round(&mut self, tenants: Vec<Tenant>) {
        for mut tenant in tenants {
            if self.full() {
                return;
            }
            if self.take(&mut tenant) {
                self.again.push_back(tenant);
            }
        }
    }

    /// After the round: whoever still has ready jobs.
    pub(super) fn finish(&mut self) {
        while !self.full()
            && let Some(mut tenant) = self.again.pop_front()
        {
            if self.take(&mut tenant) {
                self.again.push_back(tenant);
            }
        }
    }

    fn take(&mut self, tenant: &mut Tenant) -> bool {
        if !self.places.tenant_has_room(&tenant.tenancy) {
            return false;
        }
        let room = tenant.jobs.iter().enumerate().filter(|(_, c)| self.places.lane_has_room(&c.lane));
        let Some((at, _)) = room.min_by_key(|(_, c)| (c.wake, c.n)) else { return false };
        let job = tenant.jobs.swap_remove(at);
        self.places.add(&tenant.tenancy, &job.lane.plugin, &job.lane.pair);
        self.last = Some(tenant.tenancy.clone());
        self.chosen.push(job);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sutler_model::{Digest, PluginName};

    use super::*;
    use crate::{Claim, Limits};

    fn lane(plugin: &str) -> Lane {
        Lane {
            plugin: PluginName::parse(plugin).unwrap(),
            pair: "deployment/ksml".parse().unwrap(),
            digest: Digest::of(plugin.as_bytes()),
        }
    }

    fn tenant(name: &str, jobs: &[(i64, &str)]) -> Tenant {
        let job = |(n, plugin): &(i64, &str)| Candidate { n: *n, wake: *n, lane: lane(plugin) };
        Tenant { tenancy: name.into(), jobs: jobs.iter().map(job).collect() }
    }

    fn choose(most: usize, limits: Limits, pages: Vec<Vec<Tenant>>) -> Vec<i64> {
        let claim = Claim {
            holder: "host-1".into(),
            places: 0,
            lease_of: Default::default(),
            lease: Duration::ZERO,
            takeover_after: Duration::ZERO,
            digests: None,
            limits,
        };
        let mut choice = Choice::new(Places::new(&claim), most);
        for page in pages {
            choice.round(page);
        }
        choice.finish();
        choice.chosen.iter().map(|c| c.n).collect()
    }

    #[test]
    fn tenants_take_turns_over_pages_and_the_oldest_goes_first() {
        let pages = || {
            vec![
                vec![tenant("a", &[(3, "x"), (1, "y"), (2, "x")]), tenant("b", &[(9, "x")])],
                vec![tenant("c", &[(20, "x"), (10, "x")])],
            ]
        };
        assert_eq!(choose(9, Limits::default(), pages()), [1, 9, 10, 2, 20, 3]);
        assert_eq!(choose(2, Limits::default(), pages()), [1, 9]);
        assert_eq!(choose(0, Limits::default(), pages()), [0; 0]);
    }

    #[test]
    fn limits_pass_over_lanes_and_tenants() {
        let pages =
            || vec![vec![tenant("a", &[(1, "x"), (2, "x"), (3, "y")]), tenant("b", &[(4, "x"), (5, "y")])]];
        let one_x = Limits { plugins: [(lane("x").plugin, 1)].into(), ..Limits::default() };
        assert_eq!(choose(9, one_x, pages()), [1, 5, 3]);
        let one_each = Limits { each_tenant: Some(1), ..Limits::default() };
        assert_eq!(choose(9, one_each, pages()), [1, 4]);
    }
}
