//! How large an answer is, in bytes of text and data.

use crate::bindings::plugin::exports::sutler::provisioner::provisioner as p;

fn len(s: Option<&String>) -> usize {
    s.map_or(0, String::len)
}

pub(crate) fn proposal_bytes(x: &p::Proposal) -> usize {
    let texts = |v: &[String]| v.iter().map(String::len).sum::<usize>();
    x.steps.iter().map(String::len).sum::<usize>()
        + x.changes
            .iter()
            .map(|c| {
                len(c.before.as_ref())
                    + len(c.after.as_ref())
                    + texts(&c.unknown)
                    + texts(&c.replace_because)
                    + texts(&c.warnings)
            })
            .sum::<usize>()
}

pub(crate) fn progress_bytes(x: &p::Progress) -> usize {
    match x {
        p::Progress::Done(a) => a.iter().map(|a| a.outputs.len() + a.secret_outputs.len()).sum(),
        p::Progress::Next(n) => n.state.len(),
        p::Progress::Save(s) => s.len(),
        p::Progress::Wait(w) => w.state.len() + w.message.len(),
    }
}

pub(crate) fn observed_bytes(x: &[p::Observed]) -> usize {
    x.iter()
        .map(|o| {
            let differences: usize = o
                .differences
                .iter()
                .map(|d| d.at.len() + len(d.expected.as_ref()) + len(d.actual.as_ref()))
                .sum();
            len(o.settings.as_ref())
                + len(o.outputs.as_ref())
                + differences
                + o.warnings.iter().map(String::len).sum::<usize>()
        })
        .sum()
}
