//! What a hub keeps of its container's log, and how far each follower has come. Pure: the time is told to it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::output::Item;
use crate::parse::SECOND;

/// Bytes that a hub keeps; a single item may be larger.
pub(crate) const ROOM: usize = 128 << 10;
/// Bytes that a follower takes at once; a single item may be larger.
const HANDFUL: usize = 32 << 10;
/// A follower that is behind holds the others back for so long, once.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The last line that a follower has, as the kubelet tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) nanos: i64,
    pub(crate) text: std::sync::Arc<str>,
}

impl Last {
    pub(crate) fn is(&self, item: &Item) -> bool {
        let Item::Line { line, nanos, last: true, .. } = item else { return false };
        *nanos == self.nanos && line.text() == &*self.text
    }

    /// The log is beyond this line for sure: time stamps are out of order by less than a second.
    pub(crate) fn is_long_before(&self, item: &Item) -> bool {
        matches!(item, Item::Line { nanos, .. } if *nanos > self.nanos.saturating_add(SECOND))
    }
}

/// How a follower that has read its own past stands to what the hub keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Goes on there; the container's runs before it.
    At(u64, u32),
    /// The hub has still to come to the follower's last line.
    Before(u64, u32),
    /// Between the follower's last line and what is kept there is more, or may be.
    Beyond,
}

/// What a follower gets.
#[derive(Debug)]
pub(crate) enum Taken {
    Items(Vec<Item>),
    /// It has everything.
    Nothing,
    /// What comes next for it is not kept any more.
    Behind,
    /// It has everything, and nothing will come any more.
    Ended,
}

#[derive(Debug)]
struct Follower {
    /// `None` while it reads its own past.
    at: Option<u64>,
    /// When it had everything last, or joined.
    level: Instant,
}

#[derive(Debug)]
pub(crate) struct Ring {
    items: VecDeque<Item>,
    /// The place of the first item that is kept.
    first: u64,
    bytes: usize,
    /// Restarts before the first item.
    run: u32,
    /// Where the present run of the container begins, if it was read from its beginning.
    beginning: Option<u64>,
    /// A line has come.
    told: bool,
    ended: bool,
    followers: HashMap<u64, Follower>,
    joined: u64,
}

impl Ring {
    /// `whole`: the upstream is asked for the log from its beginning.
    pub(crate) fn new(run: u32, whole: bool) -> Self {
        Self {
            items: VecDeque::new(),
            first: 0,
            bytes: 0,
            run,
            beginning: whole.then_some(0),
            told: false,
            ended: false,
            followers: HashMap::new(),
            joined: 0,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a line has come: what is written from now on will come too.
    pub(crate) fn is_sure(&self) -> bool {
        self.told || self.beginning.is_some()
    }

    pub(crate) fn finish(&mut self) {
        self.ended = true;
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn is_left(&self) -> bool {
        self.followers.is_empty()
    }

    /// A new follower, which has no place yet.
    pub(crate) fn join(&mut self, now: Instant) -> u64 {
        self.joined += 1;
        self.followers.insert(self.joined, Follower { at: None, level: now });
        self.joined
    }

    pub(crate) fn leave(&mut self, id: u64) {
        self.followers.remove(&id);
    }

    /// It reads for itself now, and holds nobody back.
    pub(crate) fn detach(&mut self, id: u64) {
        if let Some(f) = self.followers.get_mut(&id) {
            f.at = None;
        }
    }

    pub(crate) fn attach(&mut self, id: u64, at: u64, now: Instant) {
        if let Some(f) = self.followers.get_mut(&id) {
            *f = Follower { at: Some(at), level: now };
        }
    }

    /// The beginning of the container's present run, if all of it is kept.
    pub(crate) fn beginning(&self) -> Option<(u64, u32)> {
        let at = self.beginning.filter(|at| *at >= self.first)?;
        Some((at, self.run_at(at)))
    }

    /// Where a follower goes on whose last line is this.
    pub(crate) fn after(&self, last: &Last) -> Place {
        let at = |index: usize| self.first + index as u64;
        if let Some(index) = self.items.iter().rposition(|item| last.is(item)) {
            let next = at(index + 1);
            return Place::At(next, self.run_at(next));
        }
        let nanos = |item: &Item| match item {
            Item::Line { nanos, .. } => Some(*nanos),
            Item::Gap { .. } | Item::Run(_) => None,
        };
        let times = || self.items.iter().filter_map(nanos);
        let newest = times().max().unwrap_or(i64::MIN);
        if newest < last.nanos {
            return Place::Before(self.end(), self.run_at(self.end()));
        }
        if newest > last.nanos.saturating_add(SECOND) && times().min() <= Some(last.nanos) {
            // The upstream lost this line, so only times can tell.
            let later = |item: &Item| nanos(item).is_some_and(|n| n > last.nanos);
            let next = self.items.iter().position(later).map_or(self.end(), at);
            return Place::At(next, self.run_at(next));
        }
        Place::Beyond
    }

    /// Restarts before this place.
    pub(crate) fn run_at(&self, place: u64) -> u32 {
        let before = usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let run = |item: &Item| match item {
            Item::Run(run) => Some(*run),
            Item::Line { .. } | Item::Gap { .. } => None,
        };
        self.items.iter().take(before).filter_map(run).next_back().unwrap_or(self.run)
    }

    /// Takes one item in, or gives it back where followers hold it up.
    pub(crate) fn push(&mut self, item: Item, now: Instant) -> Result<(), Item> {
        let size = item.size();
        while self.bytes + size > ROOM && !self.items.is_empty() {
            if !self.may_forget(now) {
                return Err(item);
            }
            self.forget();
        }
        self.bytes += size;
        self.told |= matches!(item, Item::Line { .. });
        let run = matches!(item, Item::Run(_));
        self.items.push_back(item);
        if run {
            self.beginning = Some(self.end());
        }
        Ok(())
    }

    /// Whether the first item can go: all have it; or one that has everything waits for more, and those that do not
    /// have it were given their time. While all of them read their own past, they are waited for.
    fn may_forget(&self, now: Instant) -> bool {
        let (mut attached, mut waiting, mut holding) = (false, false, false);
        for f in self.followers.values() {
            let Some(at) = f.at.filter(|at| *at >= self.first) else { continue };
            attached = true;
            waiting |= at == self.end();
            if at == self.first {
                holding = true;
                if now.saturating_duration_since(f.level) < GRACE {
                    return false;
                }
            }
        }
        attached && (!holding || waiting)
    }

    fn forget(&mut self) {
        let Some(item) = self.items.pop_front() else { return };
        self.bytes -= item.size();
        self.first += 1;
        if let Item::Run(run) = item {
            self.run = run;
        }
    }

    /// The next items for a follower.
    pub(crate) fn take(&mut self, id: u64, now: Instant) -> Taken {
        let (first, end, ended) = (self.first, self.end(), self.ended);
        let Some(follower) = self.followers.get_mut(&id) else { return Taken::Behind };
        let Some(at) = follower.at.filter(|at| *at >= first) else { return Taken::Behind };
        if at == end {
            follower.level = now;
            return if ended { Taken::Ended } else { Taken::Nothing };
        }
        let mut bytes = 0;
        let from = usize::try_from(at - first).unwrap_or(usize::MAX);
        let fits = |item: &&Item| {
            let before = bytes;
            bytes += item.size();
            before == 0 || bytes <= HANDFUL
        };
        let items: Vec<Item> = self.items.range(from..).take_while(fits).cloned().collect();
        let at = at + items.len() as u64;
        follower.at = Some(at);
        if at == end {
            follower.level = now;
        }
        Taken::Items(items)
    }
}
