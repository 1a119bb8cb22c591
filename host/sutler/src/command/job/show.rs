//! Jobs as people and scripts read them: never with settings, outputs or secrets.

use std::time::Duration;

use serde_json::{Value, json};
use sutler_jobs::{Ended, Operation};
use sutler_ledger::{Event, Happened, Millis};

pub(super) use crate::command::columns::plain;
use crate::command::columns::{columns, place, time};

/// How long, in its two largest units at most.
fn age(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{:02}h", s / 86_400, s % 86_400 / 3600),
    }
}

fn status(o: &Operation) -> String {
    let status = o.job.standing.status;
    let cancelling = o.cancelling() && !status.is_final();
    format!("{status}{}", if cancelling { ", cancelling" } else { "" })
}

/// A head and a line for each job.
pub(super) fn table(jobs: &[Operation], now: Millis) -> Vec<String> {
    let head = ["ID", "STATUS", "PAIR", "APPLICATION", "STEP", "ATTEMPT", "AGE"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(jobs.iter().map(|o| {
        let (job, s) = (&o.job, &o.job.standing);
        let step = if s.step.is_empty() { "-".into() } else { plain(&s.step) };
        let age = age(now.since(job.created));
        [
            job.id.to_string(),
            status(o),
            job.pair.to_string(),
            place(&job.application),
            step,
            s.attempt.to_string(),
            age,
        ]
    }));
    columns(&rows)
}

/// A job, line by line, without its events.
pub(super) fn lines(o: &Operation, now: Millis) -> Vec<String> {
    let (job, s) = (&o.job, &o.job.standing);
    let ago = |at: Millis| format!("{} ({} ago)", time(at), age(now.since(at)));
    let resources: Vec<&str> = job.resources.iter().map(|r| r.as_str()).collect();
    let step = if s.step.is_empty() { "-".into() } else { plain(&s.step) };
    let mut out = vec![format!("{}  {}", job.id, status(o))];
    let mut add = |name: &str, text: String| out.push(format!("  {name:12} {text}"));
    add("pair", job.pair.to_string());
    add("application", place(&job.application));
    add("resources", resources.join(", "));
    add("plugin", format!("{} {}", job.plugin, job.digest));
    add("asked by", format!("{}, request {}", plain(&job.caller), plain(&job.request_id)));
    add("step", format!("{step}, attempt {}, {}", s.attempt, s.phase));
    if !o.message.is_empty() {
        add("waits for", plain(&o.message));
    }
    if let Some(lease) = &job.lease {
        add("held by", format!("{} until {}", plain(&lease.holder), time(lease.until)));
    }
    if !s.status.is_final() {
        if job.lease.is_none() {
            add("due", time(job.due));
        }
        add("deadline", time(job.deadline));
    }
    add("created", ago(job.created));
    add("updated", ago(job.updated));
    out.extend(ended(o));
    out
}

/// How it failed, for one that has.
pub(super) fn ended(o: &Operation) -> Option<String> {
    let Some(Ended::Failed { failure, fault_id, .. }) = &o.ended else { return None };
    let fault = fault_id.as_ref().map(|id| format!(" (fault {id})")).unwrap_or_default();
    Some(format!("  {:12} {}: {}{fault}", "ended", plain(&failure.code), plain(&failure.reason)))
}

/// One event on a line.
pub(super) fn event(e: &Event) -> String {
    let more = match &e.what {
        Happened::Claimed { token, holder } => format!("by {} with token {token}", plain(holder)),
        Happened::StepStarted { step, attempt } if step.is_empty() => format!("attempt {attempt}"),
        Happened::StepStarted { step, attempt } => format!("{}, attempt {attempt}", plain(step)),
        Happened::StepFinished { next } => format!("next is {}", plain(next)),
        Happened::Waiting { due } | Happened::Released { due } => format!("until {}", time(*due)),
        Happened::StepFailed { code, due } => format!("{}; again at {}", plain(code), time(*due)),
        Happened::Failed { code } => plain(code),
        Happened::Retried { phase } => phase.to_string(),
        Happened::Drafted
        | Happened::Submitted
        | Happened::Saved
        | Happened::Completed
        | Happened::CancelRequested
        | Happened::CleanupStarted
        | Happened::Cancelled => String::new(),
    };
    format!("{:4}  {}  {:16} {more}", e.seq, time(e.at), e.what.name()).trim_end().to_owned()
}

/// A job for scripts. `events` are added where they are asked for.
pub(super) fn json(o: &Operation) -> Value {
    let (job, s) = (&o.job, &o.job.standing);
    let a = &job.application;
    let mut out = json!({
        "id": job.id.as_str(),
        "status": s.status,
        "cancelling": o.cancelling(),
        "kind": job.pair.kind,
        "type": job.pair.type_name,
        "instance": a.instance,
        "tenant": a.tenant,
        "environment": a.environment,
        "application": a.id,
        "resources": job.resources,
        "plugin": job.plugin,
        "digest": job.digest.to_string(),
        "caller": job.caller,
        "requestId": job.request_id,
        "phase": s.phase,
        "step": s.step,
        "attempt": s.attempt,
        "message": o.message,
        "due": time(job.due),
        "lease": job.lease.as_ref().map(|l| json!({"holder": *l.holder, "until": time(l.until)})),
        "deadline": time(job.deadline),
        "createdAt": time(job.created),
        "updatedAt": time(job.updated),
    });
    if let (Some(Ended::Failed { failure, fault_id, .. }), Some(fields)) = (&o.ended, out.as_object_mut()) {
        fields.insert("code".into(), json!(failure.code));
        fields.insert("reason".into(), json!(failure.reason));
        fields.insert("retryable".into(), json!(failure.retryable));
        fields.insert("faultId".into(), json!(fault_id));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units() {
        for (s, text) in [(0, "0s"), (59, "59s"), (61, "1m01s"), (3_660, "1h01m"), (90_000, "1d01h")] {
            assert_eq!(age(Duration::from_secs(s)), text);
        }
    }

    #[test]
    fn a_text_moves_no_cursor() {
        assert_eq!(plain("a\x1b[2Jb\nü"), "a\\u{1b}[2Jb\\nü");
    }

    #[test]
    fn an_event_is_one_line() {
        let e = Event { seq: 3, at: Millis(1_000), what: Happened::Failed { code: "no\nquota".into() } };
        assert_eq!(event(&e), "   3  1970-01-01T00:00:01.000Z  failed           no\\nquota");
    }
}
