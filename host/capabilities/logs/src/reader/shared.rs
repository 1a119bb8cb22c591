//! A reader that follows by its container's hub: its own past first, then what the hub tells, each line once.

use super::{End, Reader};
use crate::LogLine;
use crate::hub::{Follower, Last, Place, Taken};
use crate::output::{Closed, Item};
use crate::parse::Stamp;

/// What the hub tells is this follower's.
#[derive(Debug)]
enum Turn {
    Now,
    /// After this line, which the hub has still to tell.
    After(Last),
    /// From this run of the container on, whose log has nothing yet.
    Run(u32),
    /// Not known: nothing was found in the past, and the hub may begin later.
    Unsure,
}

impl Reader {
    pub(super) async fn shared(&mut self) -> End {
        let Some(mut follower) = self.follower.take() else { return End::Idle };
        let end = match self.place(&mut follower).await {
            Ok(turn) => self.listen(&follower, turn).await,
            Err(end) => end,
        };
        follower.detach();
        self.follower = Some(follower);
        end
    }

    /// Whether everything is wanted that the container's present run has told, and nothing of it is delivered.
    fn wants_whole(&self) -> bool {
        let narrow = self.options.tail_lines.is_some() || self.options.since.is_some();
        self.last.is_none() && !(self.narrowed && narrow)
    }

    /// Finds the follower's place in the hub; where needed, it reads its past for that.
    async fn place(&mut self, follower: &mut Follower) -> Result<Turn, End> {
        if follower.take_placed() {
            return Ok(Turn::Now);
        }
        if self.wants_whole()
            && let Some(run) = follower.attach_at_beginning()
        {
            return Ok(self.turn_at(run));
        }
        let (now, sure) = follower.now();
        self.past().await?;
        let Some(last) = self.last.clone() else {
            let run = follower.at(now);
            return Ok(if sure { self.turn_at(run) } else { Turn::Unsure });
        };
        let (turn, run) = match follower.after(&last) {
            Place::At(_, run) => (Turn::Now, run),
            Place::Before(_, run) => (Turn::After(last), run),
            Place::Beyond => return Err(End::Behind),
        };
        self.restarts = self.restarts.max(run);
        Ok(turn)
    }

    /// The hub is at this run, and this reader has nothing yet of the run that it is to read.
    fn turn_at(&mut self, run: u32) -> Turn {
        if run < self.restarts {
            return Turn::Run(self.restarts);
        }
        self.restarts = run;
        Turn::Now
    }

    /// What the log holds now.
    async fn past(&mut self) -> Result<(), End> {
        // Of a log of which nothing is wanted, the last line is the place to go on from.
        self.silent = self.narrowed && self.last.is_none() && self.options.tail_lines == Some(0);
        let end = self.read(false, false).await;
        self.silent = false;
        self.unfinished = None;
        match end {
            // Whatever is written from now on is wanted.
            End::Clean => self.options.tail_lines = None,
            other => return Err(other),
        }
        Ok(())
    }

    async fn listen(&mut self, follower: &Follower, mut turn: Turn) -> End {
        self.resume.joined();
        // In the middle of a long line its rest is skipped.
        let mut inside = false;
        loop {
            let items = match follower.next().await {
                Taken::Items(items) => items,
                Taken::Ended if matches!(turn, Turn::Now) => return End::Done,
                Taken::Nothing | Taken::Behind | Taken::Ended => return End::Behind,
            };
            for item in items {
                match &turn {
                    Turn::Now => self.pass(item, &mut inside),
                    Turn::Unsure => return self.behind().await,
                    Turn::Run(run) if matches!(item, Item::Run(n) if n >= *run) => {
                        self.pass(item, &mut inside);
                        turn = Turn::Now;
                    }
                    Turn::Run(_) => {}
                    Turn::After(last) if last.is(&item) => turn = Turn::Now,
                    Turn::After(last) if last.is_long_before(&item) || matches!(item, Item::Run(_)) => {
                        return self.behind().await;
                    }
                    Turn::After(_) => {}
                }
            }
            if let Err(Closed) = self.deliver().await {
                return End::Done;
            }
        }
    }

    async fn behind(&mut self) -> End {
        match self.deliver().await {
            Ok(()) => End::Behind,
            Err(Closed) => End::Done,
        }
    }

    /// One item of the hub that is new for this follower.
    fn pass(&mut self, item: Item, inside: &mut bool) {
        match &item {
            Item::Run(run) => {
                self.restarts = self.restarts.max(*run);
                self.same_file = false;
                return;
            }
            // What the hub missed before this follower's last line, it has read by itself.
            Item::Gap { after, .. } => {
                if *after < self.resume.last_nanos() {
                    return;
                }
            }
            Item::Line { line, nanos, first, last, counts } => {
                *inside |= *first || !*counts;
                if !*inside || self.since.is_some_and(|since| self.narrowed && *nanos < since) {
                    return;
                }
                let LogLine::Line { timestamp, text, .. } = line else { return };
                self.same_file = true;
                self.resume.begins(*nanos, text.as_bytes());
                let skipped = self.skip_piece(*nanos, *first, *last);
                if *last {
                    self.last = Some(Last { nanos: *nanos, text: text.clone() });
                    if *counts {
                        self.resume.delivered(&Stamp { text: timestamp.clone(), nanos: *nanos });
                    }
                }
                if skipped {
                    return;
                }
            }
        }
        self.pending.push(item);
    }
}
