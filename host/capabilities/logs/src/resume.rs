//! Going on after a cut: which lines were delivered, and which of those that come again are new. Pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::parse::{SECOND, Stamp};

/// Distinct time stamps remembered.
const REMEMBERED: usize = 1 << 12;

/// `sinceTime` has whole seconds, and stdout and stderr may be written a little out of order: so the delivered lines
/// of the last second and the one before are remembered by time stamp and count.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    last: Option<Stamp>,
    /// The first line, by its time and a hash of its text: what comes before it again, nobody asked for.
    first: Option<(i64, u64)>,
    seen: BTreeMap<i64, u32>,
    /// Lines up to here are long delivered, or came before the first that was asked for.
    floor: i64,
    replay: Option<Replay>,
}

#[derive(Debug)]
struct Replay {
    left: BTreeMap<i64, u32>,
    /// The floor when the request began.
    floor: i64,
    /// What is later than this cannot have been delivered before.
    until: i64,
    /// A line came again, so nothing between was destroyed.
    overlapped: bool,
    /// The first line came again.
    begun: bool,
    /// A line that does not join on to the last is a loss.
    must_overlap: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Deliver,
    /// It was delivered before.
    Drop,
    /// It is new, but what lay between it and the last is not served any more.
    Lost,
}

impl Resume {
    /// The last line delivered.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_ref().map(|s| &*s.text)
    }

    /// Its time, since 1970.
    pub(crate) fn last_nanos(&self) -> Option<i64> {
        self.last.as_ref().map(|s| s.nanos)
    }

    /// What comes now is known to be new.
    pub(crate) fn joined(&mut self) {
        self.replay = None;
    }

    /// `sinceTime` for the next request; `None` before the first line.
    pub(crate) fn since(&self) -> Option<String> {
        let time = chrono::DateTime::from_timestamp(self.since_second()?, 0)?;
        Some(time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
    }

    /// The same as seconds since 1970.
    pub(crate) fn since_second(&self) -> Option<i64> {
        self.last.as_ref().map(|last| last.nanos.div_euclid(SECOND) - 1)
    }

    /// A request begins. `must_overlap`: it reads the same file as before.
    pub(crate) fn begin(&mut self, must_overlap: bool) {
        self.replay = self.last.as_ref().map(|last| Replay {
            left: self.seen.clone(),
            floor: self.floor,
            until: last.nanos + SECOND,
            overlapped: false,
            begun: false,
            must_overlap,
        });
    }

    /// What is delivered begins with this line, unless it has begun.
    pub(crate) fn begins(&mut self, nanos: i64, text: &[u8]) {
        if self.last.is_none() && self.first.is_none() {
            self.first = Some((nanos, hash(text)));
        }
    }

    /// What to do with a line that came, by the beginning of its text.
    pub(crate) fn admit(&mut self, stamp: &Stamp, text: &[u8]) -> Verdict {
        let Some(replay) = &mut self.replay else {
            self.begins(stamp.nanos, text);
            return Verdict::Deliver;
        };
        if stamp.nanos <= replay.floor {
            replay.overlapped = true;
            return Verdict::Drop;
        }
        if let Some((nanos, first)) = self.first
            && !replay.begun
            && stamp.nanos <= nanos
            && nanos > replay.floor
        {
            replay.begun = stamp.nanos == nanos && hash(text) == first;
            if !replay.begun {
                replay.overlapped = true;
                return Verdict::Drop;
            }
        }
        if let Some(count) = replay.left.get_mut(&stamp.nanos).filter(|c| **c > 0) {
            *count -= 1;
            replay.overlapped = true;
            return Verdict::Drop;
        }
        if replay.must_overlap && !replay.overlapped {
            return Verdict::Lost;
        }
        if stamp.nanos > replay.until {
            self.replay = None;
        }
        Verdict::Deliver
    }

    /// A line went out whole.
    pub(crate) fn delivered(&mut self, stamp: &Stamp) {
        *self.seen.entry(stamp.nanos).or_default() += 1;
        let last = match &self.last {
            None => stamp.nanos,
            Some(last) => last.nanos.max(stamp.nanos),
        };
        if self.last.as_ref().is_none_or(|l| l.nanos < stamp.nanos) {
            self.last = Some(stamp.clone());
        }
        self.floor = self.floor.max((last.div_euclid(SECOND) - 1) * SECOND - 1);
        while let Some(oldest) = self.seen.first_entry() {
            if *oldest.key() > self.floor {
                break;
            }
            oldest.remove();
        }
        if self.seen.len() > REMEMBERED
            && let Some((oldest, _)) = self.seen.pop_first()
        {
            self.floor = self.floor.max(oldest);
        }
    }
}

fn hash(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: f64) -> Stamp {
        Stamp { text: format!("{seconds}").into(), nanos: (seconds * 1000.0) as i64 * (SECOND / 1000) }
    }

    /// Delivers what of `served` is new after `before`, in the order it is served.
    fn after(before: &[f64], served: &[f64], must_overlap: bool) -> Result<Vec<f64>, f64> {
        let mut resume = Resume::default();
        for s in before {
            assert_eq!(resume.admit(&stamp(*s), b""), Verdict::Deliver);
            resume.delivered(&stamp(*s));
        }
        resume.begin(must_overlap);
        let mut out = Vec::new();
        for s in served {
            match resume.admit(&stamp(*s), b"") {
                Verdict::Deliver => {
                    resume.delivered(&stamp(*s));
                    out.push(*s);
                }
                Verdict::Drop => {}
                Verdict::Lost => return Err(*s),
            }
        }
        Ok(out)
    }

    #[test]
    fn what_comes_again() {
        for (before, served, must, want) in [
            // The same file, from the second before.
            (&[10.0, 10.5, 11.2][..], &[10.0, 10.5, 11.2, 11.3][..], true, Ok(vec![11.3])),
            // Two lines with one time stamp, one of them delivered.
            (&[10.0, 11.2], &[10.0, 11.2, 11.2, 11.2], true, Ok(vec![11.2, 11.2])),
            (&[11.2, 11.2], &[11.2, 11.2, 11.2], true, Ok(vec![11.2])),
            // Out of order: 11.1 was written after 11.2 and not delivered before the cut.
            (&[11.0, 11.2], &[11.0, 11.2, 11.1, 11.3], true, Ok(vec![11.1, 11.3])),
            // Out of order over the edge of a second.
            (&[10.5, 11.0], &[10.5, 11.0, 10.998, 11.5], true, Ok(vec![10.998, 11.5])),
            // Late, right after the first line.
            (&[10.5], &[10.1, 10.5, 10.4, 10.6], true, Ok(vec![10.4, 10.6])),
            // A clock that is set back after the cut was made up for.
            (&[10.5, 11.0], &[11.0, 12.5, 9.0], true, Ok(vec![12.5, 9.0])),
            // Older than what the first request asked for.
            (&[10.5], &[10.1, 10.2, 10.5, 10.6], true, Ok(vec![10.6])),
            // A rotation destroyed what joined on.
            (&[10.0, 11.0], &[14.0, 15.0], true, Err(14.0)),
            // Another run of the container need not join on.
            (&[10.0, 11.0], &[14.0, 15.0], false, Ok(vec![14.0, 15.0])),
            // Nothing new.
            (&[10.0, 11.0], &[10.0, 11.0], true, Ok(vec![])),
            (&[10.0, 11.0], &[], true, Ok(vec![])),
            // Nothing before.
            (&[], &[1.0, 1.0], true, Ok(vec![1.0, 1.0])),
        ] {
            let got = after(before, served, must);
            assert_eq!(got, want, "{before:?} {served:?}");
        }
    }

    /// The tail began in the middle of lines with one time stamp.
    #[test]
    fn lines_before_the_first_do_not_come_later() {
        let mut resume = Resume::default();
        let at = stamp(10.0);
        for text in [b"c", b"d"] {
            assert_eq!(resume.admit(&at, text), Verdict::Deliver);
            resume.delivered(&at);
        }
        resume.begin(true);
        let verdicts = [b"a", b"b", b"c", b"d", b"e"].map(|text| resume.admit(&at, text));
        assert_eq!(verdicts[..4], [const { Verdict::Drop }; 4]);
        assert_eq!(verdicts[4], Verdict::Deliver);
    }

    #[test]
    fn since_is_the_second_before_and_memory_is_bounded() {
        let mut resume = Resume::default();
        assert_eq!(resume.since(), None);
        assert_eq!(resume.admit(&stamp(100.7), b""), Verdict::Deliver);
        resume.delivered(&stamp(100.7));
        assert_eq!(resume.since().unwrap(), "1970-01-01T00:01:39Z");
        for i in 0..200_000_i64 {
            resume.delivered(&Stamp { text: "".into(), nanos: 200 * SECOND + i });
        }
        assert!(resume.seen.len() <= REMEMBERED, "{}", resume.seen.len());
        resume.begin(true);
        assert_eq!(resume.admit(&Stamp { text: "".into(), nanos: 200 * SECOND + 5 }, b""), Verdict::Drop);
        assert_eq!(
            resume.admit(&Stamp { text: "".into(), nanos: 200 * SECOND + 199_999 }, b""),
            Verdict::Drop
        );
        assert_eq!(
            resume.admit(&Stamp { text: "".into(), nanos: 200 * SECOND + 200_000 }, b""),
            Verdict::Deliver
        );
        for i in 0..10 {
            resume.delivered(&stamp(300.0 + f64::from(i)));
        }
        assert!(resume.seen.len() <= 2, "{}", resume.seen.len());
    }
}
