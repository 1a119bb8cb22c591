//! Everything of a new row that does not depend on the time, for the two statements that make one.

use sutler_model::Identifier;

use super::broken::{Broken, unreadable};
use super::connections::Param;
use crate::seal::{Keys, Sealed};
use crate::{Happened, Job, LedgerError, rules};

/// The first columns of a new row.
macro_rules! given {
    () => {
        "id, kind, mode, subject_type, subject_id, pair, instance, tenant, environment, application, resources, plugin, \
         digest, caller, route, request_id, body, status, phase, step, attempt, cancel_requested, lease_holder, token, \
         scope, tenancy, queue, request, state, answer"
    };
}
/// Their values; [`Given::params`] gives them in this order.
macro_rules! values {
    () => {
        "$1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text, \
         $11::text[], $12::text, $13::text, $14::text, $15::text, $16::text, $17::bytea, $18::text, $19::text, \
         $20::text, $21::bigint, $22::boolean, $23::text, $24::bigint, $25::text, $26::text, $27::smallint, \
         $28::bytea, $29::bytea, $30::bytea"
    };
}
pub(super) use {given, values};

/// A row's values as the client library takes them.
pub(super) struct Given<'a> {
    job: &'a Job,
    id: &'a str,
    kind: &'static str,
    mode: &'static str,
    pair: String,
    instance: Option<&'a str>,
    tenant: Option<&'a str>,
    environment: &'a str,
    application: &'a str,
    resources: Vec<&'a str>,
    plugin: &'a str,
    digest: String,
    route: &'a str,
    body: &'a [u8],
    status: &'static str,
    phase: &'static str,
    attempt: i64,
    holder: Option<&'a str>,
    token: i64,
    scope: String,
    tenancy: String,
    queue: i16,
    texts: Sealed,
}

impl<'a> Given<'a> {
    pub(super) fn new(
        job: &'a Job,
        route: &'a str,
        body: &'a [u8; 32],
        keys: &Keys,
    ) -> Result<Self, LedgerError> {
        let text = |i: &'a Option<Identifier>| i.as_ref().map(|i| i.as_str());
        Ok(Self {
            id: job.id.as_str(),
            kind: job.kind.as_str(),
            mode: job.mode.as_str(),
            pair: job.pair.to_string(),
            instance: text(&job.application.instance),
            tenant: text(&job.application.tenant),
            environment: job.application.environment.as_str(),
            application: job.application.id.as_str(),
            resources: job.resources.iter().map(|r| r.as_str()).collect(),
            plugin: job.plugin.as_str(),
            digest: job.digest.to_string(),
            route,
            body,
            status: job.standing.status.as_str(),
            phase: job.standing.phase.as_str(),
            attempt: job.standing.attempt.into(),
            holder: job.lease.as_ref().map(|l| &*l.holder),
            token: rules::int(job.token),
            scope: rules::scope(&job.application, &job.pair),
            tenancy: rules::tenancy(&job.application),
            queue: rules::queue(job).0,
            texts: Sealed::of(job, keys)?,
            job,
        })
    }

    /// Whether a worker may take it when it is due.
    pub(super) const fn waits(&self) -> bool {
        self.queue == 0
    }

    /// With `further` after them.
    pub(super) fn params<'b>(&'b self, further: &[Param<'b>]) -> Vec<Param<'b>> {
        let (job, standing) = (self.job, &self.job.standing);
        let own: [Param<'b>; 30] = [
            &self.id,
            &self.kind,
            &self.mode,
            &job.subject_type,
            &job.subject_id,
            &self.pair,
            &self.instance,
            &self.tenant,
            &self.environment,
            &self.application,
            &self.resources,
            &self.plugin,
            &self.digest,
            &job.caller,
            &self.route,
            &job.request_id,
            &self.body,
            &self.status,
            &self.phase,
            &standing.step,
            &self.attempt,
            &standing.cancel_requested,
            &self.holder,
            &self.token,
            &self.scope,
            &self.tenancy,
            &self.queue,
            &self.texts.request,
            &self.texts.state,
            &self.texts.answer,
        ];
        own.into_iter().chain(further.iter().copied()).collect()
    }
}

/// New events on their way: the server adds its now to the distances in them.
pub(super) struct Told {
    /// JSON without its last brace, and without the distance.
    pub(super) whats: Vec<String>,
    pub(super) dues: Vec<Option<i64>>,
}

impl Told {
    pub(super) fn new(events: &[Happened]) -> Result<Self, Broken> {
        let (mut whats, mut dues) = (Vec::new(), Vec::new());
        for event in events {
            let mut what = serde_json::to_value(event).map_err(|e| unreadable("an event", e))?;
            let due = what.as_object_mut().and_then(|o| o.remove("due"));
            dues.push(due.and_then(|due| due.as_i64()));
            let mut text = what.to_string();
            text.pop();
            whats.push(text);
        }
        Ok(Self { whats, dues })
    }
}

/// The text of a new event `e`, as [`Told`] gives it.
macro_rules! told {
    ($now:literal) => {
        concat!("e.what || coalesce(',\"due\":' || (", $now, " + e.due), '') || '}'")
    };
}
pub(super) use told;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Millis;

    #[test]
    fn events_are_split_from_their_distances() {
        let events = [
            Happened::Saved,
            Happened::StepFailed { code: "a}\0".into(), due: Millis(250) },
            Happened::Waiting { due: Millis(0) },
        ];
        let told = Told::new(&events).unwrap();
        let expected = [
            "{\"event\":\"saved\"",
            "{\"code\":\"a}\\u0000\",\"event\":\"step-failed\"",
            "{\"event\":\"waiting\"",
        ];
        assert_eq!(told.whats, expected);
        assert_eq!(told.dues, [None, Some(250), Some(0)]);
    }
}
