//! The fair choice, by looking at every job.

use std::collections::BTreeMap;

use crate::rules::{self, Lane, Places};
use crate::{Claim, Job, JobId, Millis};

use super::state::State;

impl State {
    pub(super) fn claim(&mut self, claim: &Claim, now: Millis) -> Vec<Job> {
        let mut places = Places::new(claim);
        // By tenant, the one that is due longest first.
        let mut ready: BTreeMap<String, Vec<(Millis, JobId)>> = BTreeMap::new();
        for job in self.jobs.values().map(|e| &e.job) {
            let tenancy = rules::tenancy(&job.application);
            match rules::claimable_from(job, claim.takeover_after) {
                Some(due) if due <= now => ready.entry(tenancy).or_default().push((due, job.id.clone())),
                Some(_) if job.lease.is_some() && places.limited() => {
                    places.add(&tenancy, &job.plugin, &job.pair)
                }
                _ => {}
            }
        }
        ready.values_mut().for_each(|jobs| jobs.sort());
        let mut taken = Vec::new();
        while taken.len() < claim.places as usize {
            let Some((tenancy, id)) = self.next(&mut ready, &places) else { break };
            let Some(row) = self.jobs.get(&id).map(|e| e.job.clone()) else { break };
            places.add(&tenancy, &row.plugin, &row.pair);
            let (job, event) = rules::claimed(&row, claim, now);
            self.put(job.clone(), &[event], now);
            self.last = Some(tenancy);
            taken.push(job);
        }
        taken
    }

    /// The next job of the next tenant that has one with room.
    fn next(
        &self,
        ready: &mut BTreeMap<String, Vec<(Millis, JobId)>>,
        places: &Places,
    ) -> Option<(String, JobId)> {
        let after = |t: &&String| self.last.as_ref().is_none_or(|last| *t > last);
        let turn: Vec<String> =
            ready.keys().filter(after).chain(ready.keys().filter(|t| !after(t))).cloned().collect();
        for tenancy in turn.into_iter().filter(|t| places.tenant_has_room(t)) {
            let jobs = ready.get_mut(&tenancy)?;
            let fits = |(_, id): &(Millis, JobId)| {
                self.jobs.get(id).is_some_and(|e| places.lane_has_room(&Lane::of(&e.job)))
            };
            if let Some(at) = jobs.iter().position(fits) {
                return Some((tenancy, jobs.remove(at).1));
            }
        }
        None
    }
}
