//! Whether a ledger and what its jobs say of themselves agree: the plain columns with the sealed texts, the rows with
//! their events.

use std::collections::HashSet;

use futures::StreamExt as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use sutler_ledger::{Event, Happened, Job, Ledger, LedgerError, Problem, Record, Standing, Status};
use sutler_model::{Digest, Identifier};

use crate::machine::{Illegal, replay};

const RESTORE: &str = "restore a backup";

/// What of [`crate::Asked`] stands in plain columns too. What else is in the text is passed over, however deep it is.
#[derive(Deserialize)]
struct Named {
    id: String,
    pair: String,
    application: NamedApplication,
    changes: Vec<NamedChange>,
}

#[derive(Deserialize)]
struct NamedApplication {
    id: String,
    environment: String,
    tenant: Option<String>,
    instance: Option<String>,
}

#[derive(Deserialize)]
struct NamedChange {
    resource: String,
}

/// What of [`crate::Ended`] an event tells too.
#[derive(Deserialize)]
struct Coded {
    code: Option<String>,
}

/// Everything that is wrong with a ledger: what it finds by itself, and what only its jobs can tell. Of a job that
/// cannot be read the ledger has told.
///
/// # Errors
/// Where the ledger cannot be read at all.
pub async fn check(ledger: &dyn Ledger) -> Result<Vec<Problem>, LedgerError> {
    let mut out = ledger.check().await?;
    let mut plugins = HashSet::new();
    let mut records = ledger.export();
    while let Some(record) = records.next().await {
        match record {
            // They come before the jobs.
            Ok(Record::Plugin { digest, .. }) => {
                plugins.insert(digest);
            }
            Ok(Record::Job { job, events, .. }) => {
                let mut found = Found { job: &job, out: Vec::new() };
                found.plugin(&plugins);
                found.texts();
                found.claims(&events);
                found.history(&events);
                out.extend(found.out.into_iter().map(|message| Problem::new(job.id.as_str(), message)));
            }
            Ok(Record::Request { .. } | Record::Taken(_) | Record::Audit(_)) | Err(_) => {}
        }
    }
    Ok(out)
}

/// What is wrong with one job.
struct Found<'a> {
    job: &'a Job,
    out: Vec<String>,
}

impl Found<'_> {
    fn wrong(&mut self, message: String) {
        self.out.push(message);
    }

    fn plugin(&mut self, kept: &HashSet<Digest>) {
        let digest = self.job.digest;
        if !self.job.standing.status.is_final() && !kept.contains(&digest) {
            self.wrong(format!(
                "is unfinished and its plugin {digest} is not in the ledger; put that very file into the plugin folder \
                 until the job has ended, or {RESTORE}"
            ));
        }
    }

    /// They are JSON, however deep, and the plain columns are what the request says.
    fn texts(&mut self) {
        let job = self.job;
        let others = [("state", Some(&job.state)), ("answer", job.answer.as_ref())];
        for (what, text) in others.into_iter().filter_map(|(what, text)| Some((what, text?))) {
            if let Err(e) = serde_json::from_str::<IgnoredAny>(text) {
                self.wrong(format!("its {what} is damaged ({e}); {RESTORE}"));
            }
        }
        match serde_json::from_str(&job.request) {
            Ok(named) => self.named(&named),
            Err(e) => self.wrong(format!("its request is damaged ({e}); {RESTORE}")),
        }
    }

    fn named(&mut self, named: &Named) {
        let (job, a) = (self.job, &self.job.application);
        let asked = &named.application;
        let text = |i: &Option<Identifier>| i.as_ref().map(ToString::to_string);
        let rows: Vec<String> = job.resources.iter().map(ToString::to_string).collect();
        let changes: Vec<&str> = named.changes.iter().map(|c| c.resource.as_str()).collect();
        let pairs = [
            ("request id", Some(job.request_id.clone()), Some(named.id.clone())),
            ("pair", Some(job.pair.to_string()), Some(named.pair.clone())),
            ("application", Some(a.id.to_string()), Some(asked.id.clone())),
            ("environment", Some(a.environment.to_string()), Some(asked.environment.clone())),
            ("tenant", text(&a.tenant), asked.tenant.clone()),
            ("instance", text(&a.instance), asked.instance.clone()),
            ("resources", Some(rows.join(", ")), Some(changes.join(", "))),
        ];
        for (what, row, request) in pairs {
            if row != request {
                let (row, request) = (row.unwrap_or_default(), request.unwrap_or_default());
                self.wrong(format!("its row says {what} {row:?} and its request {request:?}; {RESTORE}"));
            }
        }
        if job.subject_type == "application" && job.subject_id != asked.id {
            let (row, request) = (&job.subject_id, &asked.id);
            self.wrong(format!("its row is about {row:?} and its request about {request:?}; {RESTORE}"));
        }
    }

    /// The row's token is the last one that was given, and its revision is as many writes as its events can come of:
    /// of one write they have one time, and a write without an event follows a claim at most.
    fn claims(&mut self, events: &[Event]) {
        let job = self.job;
        let claims: Vec<(u64, &str)> = events
            .iter()
            .filter_map(|e| match &e.what {
                Happened::Claimed { token, holder } => Some((*token, holder.as_str())),
                _ => None,
            })
            .collect();
        if claims.is_sorted_by(|a, b| a.0 < b.0) {
            let (token, holder) = claims.last().copied().unwrap_or_default();
            if job.token != token {
                self.wrong(format!(
                    "has the token {}, and its events end with {token}; {RESTORE}",
                    job.token
                ));
            }
            if let Some(lease) = job.lease.as_ref().filter(|l| *l.holder != *holder) {
                self.wrong(format!(
                    "is held by {:?}, and was last claimed by {holder:?}; {RESTORE}",
                    lease.holder
                ));
            }
        } else {
            self.wrong(format!("its tokens do not grow; {RESTORE}"));
        }
        let times = events.iter().zip(events.iter().skip(1)).filter(|(a, b)| a.at != b.at).count();
        let (least, most) = (times as u64 + 1, (events.len() + claims.len()) as u64);
        if !events.is_empty() && !(least..=most).contains(&job.revision) {
            let revision = job.revision;
            self.wrong(format!(
                "has revision {revision}, and its events are of {least} to {most} writes; {RESTORE}"
            ));
        }
    }

    /// The events are allowed in this order and come to what the row says, and so does the answer.
    fn history(&mut self, events: &[Event]) {
        let (job, row) = (self.job, &self.job.standing);
        match replay(job.mode, events.iter().map(|e| &e.what)) {
            Ok(at) if at == *row => {}
            Ok(at) => {
                let (at, row) = (words(&at), words(row));
                self.wrong(format!("its events come to {at}, and its row says {row}; {RESTORE}"));
            }
            // The ledger has told.
            Err(Illegal::Empty) => {}
            Err(e) => self.wrong(format!("its events do not follow each other: {e}; {RESTORE}")),
        }
        if !row.status.is_final() {
            return;
        }
        let Some(answer) = &job.answer else {
            return self.wrong(format!("has ended and has no answer; {RESTORE}"));
        };
        let last = events.iter().rev().find_map(|e| match &e.what {
            Happened::Failed { code } => Some(code.as_str()),
            _ => None,
        });
        // One that is no JSON was told.
        if let (Status::Failed, Some(last), Ok(of)) =
            (row.status, last, serde_json::from_str::<Coded>(answer))
            && of.code.as_deref() != Some(last)
        {
            let code = of.code.unwrap_or_default();
            self.wrong(format!(
                "failed with {last:?} by its events and with {code:?} by its answer; {RESTORE}"
            ));
        }
    }
}

fn words(s: &Standing) -> String {
    let cancel = if s.cancel_requested { ", to be taken back" } else { "" };
    format!("{} ({}, attempt {} of step {:?}{cancel})", s.status, s.phase, s.attempt, s.step)
}
