//! However lines, cuts, restarts, joins and slow readers come together: each line comes once, in order.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sutler_logs::{LogLine, Since, StreamOptions};

use crate::server::{START, Server, call, container, open_grants, pod, source};

#[derive(Debug, Clone)]
enum Step {
    /// So many lines so many milliseconds after those before, `same` of them with one time stamp.
    Write {
        lines: usize,
        after: i64,
        same: usize,
    },
    /// A line written late: its time is before the last one's, in the same second. A kubelet leaves out each line from
    /// before the second that a request names, not only the first ones.
    Late,
    Cut,
    Restart,
    Join(Ask),
    /// A follower reads so many lines.
    Read {
        who: usize,
        lines: usize,
    },
    Leave(usize),
    /// Milliseconds.
    Wait(u64),
}

#[derive(Debug, Clone)]
enum Ask {
    All,
    Tail(u64),
    /// So many lines ago.
    Since(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = prop_oneof![
        2 => Just(Ask::All),
        3 => (0..6_u64).prop_map(Ask::Tail),
        1 => (0..8_usize).prop_map(Ask::Since),
    ];
    prop_oneof![
        6 => (1..6_usize, prop_oneof![0..5_i64, 900..1200_i64], 1..5_usize)
            .prop_map(|(lines, after, same)| Step::Write { lines, after, same }),
        // More than what is kept for a follower.
        1 => (400..900_usize, 1..3_i64, 1..3_usize)
            .prop_map(|(lines, after, same)| Step::Write { lines, after, same }),
        1 => Just(Step::Late),
        2 => Just(Step::Cut),
        1 => Just(Step::Restart),
        4 => ask.prop_map(Step::Join),
        3 => (0..4_usize, 1..50_usize).prop_map(|(who, lines)| Step::Read { who, lines }),
        1 => (0..4_usize).prop_map(Step::Leave),
        2 => (1..40_u64).prop_map(Step::Wait),
    ]
}

/// Of about 2 kB, so that a few hundred are too many to keep.
fn text(n: usize) -> std::sync::Arc<str> {
    format!("{n} {:>2000}", "").into()
}

struct Follower {
    stream: BoxStream<'static, LogLine>,
    ask: String,
    /// Any of these may be its first line. A tail without a line has nothing to hold on to: it begins where its request
    /// found the log, or, where the container began anew before a line came, with that run.
    first: std::ops::RangeInclusive<usize>,
    got: Vec<usize>,
    gaps: usize,
}

impl Follower {
    /// Whether there was one more.
    async fn read(&mut self, patience: Duration) -> bool {
        match tokio::time::timeout(patience, self.stream.next()).await {
            Ok(Some(LogLine::Line { text, .. })) => {
                self.got.push(text.split(' ').next().unwrap().parse().unwrap());
                true
            }
            Ok(Some(LogLine::Gap { .. })) => {
                self.gaps += 1;
                true
            }
            Ok(None) | Err(_) => false,
        }
    }
}

#[derive(Default)]
struct World {
    server: Server,
    /// Lines so far, and the time of the last.
    written: usize,
    now: i64,
    /// Where the container's present run begins.
    run: usize,
    restarted_at: usize,
    followers: Vec<Follower>,
}

impl World {
    fn write(&mut self, lines: usize, after: i64, same: usize) {
        for i in 0..lines {
            if i % same == 0 {
                self.now += after * 1_000_000 + 1;
            }
            self.line(self.now);
        }
    }

    fn line(&mut self, at: i64) {
        let n = self.written;
        self.server.change("acme/a", |p| p.containers[0].lines.push((START * 1_000_000_000 + at, text(n))));
        self.written += 1;
    }

    /// Who is to begin with a line that is written has it. Where a container starts anew before that, a follower begins
    /// with the new run: a known limit.
    async fn first_lines(&mut self) {
        let written = self.written;
        for f in self.followers.iter_mut().filter(|f| f.got.is_empty() && *f.first.end() < written) {
            assert!(f.read(Duration::from_secs(20)).await, "{}", f.ask);
        }
    }

    fn restart(&mut self) {
        self.server.change("acme/a", |p| {
            let c = &mut p.containers[0];
            c.previous = Some(std::mem::take(&mut c.lines));
            c.restarts += 1;
        });
        (self.restarted_at, self.run) = (self.run, self.written);
        self.now += 2_000_000_000;
    }

    fn times(&self) -> Vec<i64> {
        let inner = self.server.inner.lock().unwrap();
        inner.pods["acme/a"].containers[0].lines.iter().map(|l| l.0).collect()
    }

    async fn join(&mut self, logs: &sutler_logs::Logs, ask: &Ask) {
        let (mut options, times) = (StreamOptions { follow: true, ..StreamOptions::default() }, self.times());
        let first = match ask {
            Ask::All => self.run,
            Ask::Tail(n) => {
                let mut from = times.len().saturating_sub(usize::try_from(*n).unwrap());
                // A tail that begins among lines that are out of order is told from those before it by their times
                // alone: after a cut it may begin a line earlier. Here it begins where they are in order.
                while from > 0 && times[from..].iter().any(|t| *t < times[from - 1]) {
                    from -= 1;
                }
                options.tail_lines = Some((times.len() - from) as u64);
                self.run + from
            }
            Ask::Since(ago) => {
                // The test's server reads whole seconds, as the API server does.
                let at = times.iter().rev().nth(*ago).or(times.first());
                let second = at.map_or(START, |t| t.div_euclid(1_000_000_000));
                let time = chrono::DateTime::from_timestamp(second, 0).unwrap();
                options.since = Some(Since::Time(time.to_rfc3339()));
                self.run + times.iter().position(|t| *t >= second * 1_000_000_000).unwrap_or(times.len())
            }
        };
        let no_line = options.tail_lines == Some(0);
        let ask = format!("{ask:?} at {}", self.written);
        let stream = logs.stream(&call(), &open_grants(), vec![source("acme")], options).await.unwrap();
        let last = if no_line { usize::MAX } else { first };
        let mut follower = Follower { stream, ask, first: first..=last, got: Vec::new(), gaps: 0 };
        if first < self.written {
            assert!(follower.read(Duration::from_secs(20)).await, "{}", follower.ask);
        } else {
            // With nothing to read yet, nobody knows when it has looked: until its request is there.
            let _ = follower.read(Duration::from_millis(60)).await;
        }
        self.followers.push(follower);
    }
}

async fn play(steps: &[Step]) -> Result<(), String> {
    let mut world = World::default();
    world.server.set("acme/a", pod(vec![container("c")]));
    let logs = world.server.logs().await;
    let (mut restarts, mut seen) = (0, 0);
    for step in steps {
        match step {
            Step::Write { lines, after, same } => world.write(*lines, *after, *same),
            Step::Late if world.written > world.run => {
                let second = world.now.div_euclid(1_000_000_000) * 1_000_000_000;
                let at = (world.now - 300_000).max(second);
                world.line(at);
                world.write(1, 1, 1);
            }
            // Two restarts at once destroy a log; that is told elsewhere.
            Step::Restart if restarts == 0 => {
                restarts += 1;
                world.first_lines().await;
                world.restart();
            }
            Step::Late | Step::Restart => {}
            Step::Cut => world.server.cut(),
            Step::Join(ask) if seen < 8 => {
                seen += 1;
                world.join(&logs, ask).await;
            }
            Step::Join(_) => {}
            Step::Read { who, lines } => {
                if let Some(f) = world.followers.get_mut(*who) {
                    for _ in 0..*lines {
                        if !f.read(Duration::from_millis(20)).await {
                            break;
                        }
                    }
                }
            }
            Step::Leave(who) => {
                if *who < world.followers.len() {
                    world.followers.remove(*who);
                }
            }
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        }
    }
    world.write(1, 1000, 1);
    let end = world.written - 1;
    for f in &mut world.followers {
        while f.got.last() != Some(&end) && f.read(Duration::from_secs(20)).await {}
        let begin = f.got.first().copied().filter(|n| f.first.contains(n)).unwrap_or(*f.first.start());
        let want: Vec<usize> = (begin..=end).collect();
        if f.got != want || f.gaps > 0 {
            return Err(format!(
                "{} should begin with {}; begins {:?}, breaks {:?}, ends {:?} of {end}, {} gaps",
                f.ask,
                f.first.start(),
                f.got.first(),
                f.got.windows(2).filter(|w| w[1] != w[0] + 1).take(5).collect::<Vec<_>>(),
                f.got.last(),
                f.gaps
            ));
        }
    }
    Ok(())
}

#[test]
fn each_line_comes_once_however_it_is_joined() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cases = Config::default().cases.min(2_000).div_ceil(8);
    let mut runner = TestRunner::new(Config {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let plays = prop::collection::vec(step(), 4..24);
    let played = runner.run(&plays, |steps| runtime.block_on(play(&steps)).map_err(TestCaseError::fail));
    played.unwrap_or_else(|e| panic!("{e}"));
}
