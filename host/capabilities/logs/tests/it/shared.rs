//! Many who follow one container.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use metrics_exporter_prometheus::PrometheusBuilder;
use sutler_logs::{LogLine, Logs, Since, StreamOptions};

use crate::server::{START, Server, call, container, lines, open_grants, pod, source};
use crate::stream::{follow, next};

async fn open(logs: &Logs, options: StreamOptions) -> BoxStream<'static, LogLine> {
    logs.stream(&call(), &open_grants(), vec![source("acme")], options).await.unwrap()
}

/// Writes lines `from..to` of `size` bytes, a millisecond apart.
fn write(server: &Server, from: usize, to: usize, size: usize) {
    server.change("acme/a", |p| p.containers[0].lines.extend(long(from, to, size)));
}

fn long(from: usize, to: usize, size: usize) -> Vec<(i64, Arc<str>)> {
    let rest = " ".repeat(size);
    let line = |n: usize| format!("line {n}{rest}");
    (from..to).map(|n| ((START * 1000 + n as i64) * 1_000_000, line(n).into())).collect()
}

fn numbered(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("a/c line {n}")).collect()
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The numbers of the next lines, up to `last`, and the gaps between.
async fn numbers(stream: &mut BoxStream<'static, LogLine>, last: usize) -> (Vec<usize>, Vec<LogLine>) {
    let (mut got, mut gaps) = (Vec::new(), Vec::new());
    while got.last() != Some(&last) {
        let item = tokio::time::timeout(Duration::from_secs(30), stream.next()).await;
        match item.unwrap_or_else(|_| panic!("nothing comes after {:?}; {gaps:?}", got.last())).unwrap() {
            LogLine::Line { text, .. } => got.push(text.split_whitespace().nth(1).unwrap().parse().unwrap()),
            gap => gaps.push(gap),
        }
    }
    (got, gaps)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_followers_are_one_request() {
    let server = Server::default();
    server.set("acme/a", pod(vec![container("c").with(&[1, 2, 3])]));
    let logs = server.logs().await;
    let mut streams = join_all((0..200).map(|_| open(&logs, follow()))).await;
    for got in join_all(streams.iter_mut().map(|s| next(s, 3))).await {
        assert_eq!(got, numbered(0, 3));
    }
    server.change("acme/a", |p| p.containers[0].lines.extend(lines(&[10, 20], 3)));
    server.cut();
    for got in join_all(streams.iter_mut().map(|s| next(s, 2))).await {
        assert_eq!(got, numbered(3, 5));
    }
    // The cut was made up for once.
    assert_eq!((server.log_requests(), server.streams()), ((2, 0), 1), "{:?}", server.requests());
    streams.truncate(1);
    server.change("acme/a", |p| p.containers[0].lines.extend(lines(&[30], 5)));
    assert_eq!(next(&mut streams[0], 1).await, numbered(5, 6));
    assert_eq!(server.streams(), 1, "the upstream stays for the last");
    drop(streams);
    until("the upstream goes with the last", || server.streams() == 0).await;
    // And comes again with the next.
    let mut again = open(&logs, follow()).await;
    assert_eq!(next(&mut again, 6).await, numbered(0, 6));
    assert_eq!(server.log_requests(), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_later_gets_what_it_asks_for() {
    // Several lines with one time stamp, as some runtimes write them.
    let millis = [0, 0, 0, 1000, 2000, 2000, 2000, 2000, 3000, 3000];
    let time = |s: i64| chrono::DateTime::from_timestamp(START + s, 0).unwrap().to_rfc3339();
    let tail = |n| StreamOptions { tail_lines: Some(n), ..follow() };
    let since = |s| StreamOptions { since: Some(Since::Time(time(s))), ..follow() };
    for founder in [follow(), tail(0), tail(2), since(2), since(1_000_000)] {
        let server = Server::default();
        server.set("acme/a", pod(vec![container("c").with(&millis)]));
        let logs = server.logs().await;
        let what = format!("{founder:?}");
        let mut first = open(&logs, founder.clone()).await;
        until("the upstream is open", || server.log_requests().0 == 1).await;
        let wanted = |o: &StreamOptions| match (o.tail_lines, &o.since) {
            (Some(n), _) => 10 - usize::try_from(n).unwrap(),
            (_, Some(Since::Time(t))) if *t == time(2) => 4,
            (_, Some(_)) => 10,
            _ => 0,
        };
        assert_eq!(next(&mut first, 10 - wanted(&founder)).await, numbered(wanted(&founder), 10), "{what}");
        let asks = [follow(), tail(0), tail(1), tail(3), tail(100), since(2), since(60)];
        let mut later = join_all(asks.iter().map(|o| open(&logs, o.clone()))).await;
        for (stream, ask) in later.iter_mut().zip(&asks) {
            let from = if ask.tail_lines == Some(100) { 0 } else { wanted(ask) };
            assert_eq!(next(stream, 10 - from).await, numbered(from, 10), "{what}, then {ask:?}");
        }
        // Those that got nothing have read the past once the requests stand still.
        until("every past is read", || server.log_requests().1 >= 5 && server.streams() == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.change("acme/a", |p| p.containers[0].lines.extend(lines(&[3000, 4000], 10)));
        for (stream, ask) in later.iter_mut().zip(&asks) {
            // The kubelet leaves out what is older than `since`, whenever it is written.
            if ask.since != since(60).since {
                assert_eq!(next(stream, 2).await, numbered(10, 12), "{what}, then {ask:?}");
            }
        }
        server.change("acme/a", |p| p.containers[0].lines.extend(lines(&[61_000], 12)));
        for (stream, ask) in later.iter_mut().zip(&asks) {
            assert_eq!(next(stream, 1).await, numbered(12, 13), "{what}, then {ask:?}");
        }
        assert_eq!(server.log_requests().0, 1, "{what}: {:?}", server.requests());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_nobody_and_catches_up() {
    let server = Server::default();
    server.set("acme/a", pod(vec![container("c").with(&[0])]));
    let logs = server.logs().await;
    let mut slow = open(&logs, follow()).await;
    let mut fast = open(&logs, follow()).await;
    assert_eq!(numbers(&mut slow, 0).await.0, [0]);
    write(&server, 1, 3000, 1000);
    let (got, gaps) = numbers(&mut fast, 2999).await;
    assert_eq!((got, gaps), ((0..3000).collect(), vec![]));
    // Three MB are too many to be kept for it, but the kubelet still has them.
    let (got, gaps) = numbers(&mut slow, 2999).await;
    assert_eq!((got, gaps), ((1..3000).collect(), vec![]));
    let before = server.log_requests();
    assert!(before.0 == 1 && before.1 >= 1, "{:?}", server.requests());
    // From here on it shares again.
    write(&server, 3000, 3010, 20);
    for stream in [&mut slow, &mut fast] {
        assert_eq!(numbers(stream, 3009).await.0, (3000..3010).collect::<Vec<_>>());
    }
    assert_eq!(server.log_requests(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_slow_reader_missed_for_good_is_a_gap_with_its_bounds() {
    let server = Server::default();
    server.set("acme/a", pod(vec![container("c").with(&[0])]));
    let logs = server.logs().await;
    let mut slow = open(&logs, follow()).await;
    let mut fast = open(&logs, follow()).await;
    write(&server, 1, 3000, 1000);
    assert_eq!(numbers(&mut fast, 2999).await.0.len(), 3000);
    // Rotated: what was written is not served any more.
    server.change("acme/a", |p| p.containers[0].lines = long(60_000, 60_003, 20));
    server.cut();
    let (got, gaps) = numbers(&mut slow, 60_002).await;
    let missing = got.windows(2).position(|w| w[1] != w[0] + 1).unwrap();
    let [LogLine::Gap { from: Some(from), to: Some(to), reason, .. }] = &gaps[..] else { panic!("{gaps:?}") };
    assert!(reason.contains("rotated"), "{reason}");
    let stamp = |n: usize| {
        let time = chrono::DateTime::from_timestamp_millis(START * 1000 + n as i64).unwrap();
        time.to_rfc3339_opts(chrono::SecondsFormat::Nanos, true)
    };
    assert_eq!((from, to), (&stamp(got[missing]), &stamp(60_000)));
    assert_eq!(got[..=missing], (0..=missing).collect::<Vec<_>>());
    assert_eq!(got[missing + 1..], [60_000, 60_001, 60_002]);
}

/// The bytes that are kept: for followers, and in upstreams.
fn kept(shown: &str) -> (f64, f64) {
    let of = |what: &str| {
        let start = format!("sutler_log_queued_bytes{{of=\"{what}\"}} ");
        shown.lines().find_map(|l| l.strip_prefix(&start)?.parse().ok()).unwrap_or(0.0)
    };
    (of("followers"), of("upstreams"))
}

#[test]
fn what_is_kept_for_slow_readers_is_bounded() {
    const SLOW: usize = 20;
    let recorder = PrometheusBuilder::new().build_recorder();
    let show = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = async {
        let server = Server::default();
        server.set("acme/a", pod(vec![container("c").with(&[0])]));
        let logs = server.logs().await;
        let mut slow = Vec::new();
        for _ in 0..SLOW {
            slow.push(open(&logs, follow()).await);
        }
        let mut fast = open(&logs, follow()).await;
        // A line of 200 kB is more than a hub keeps of small ones.
        for (round, size) in [(0, 1000), (1, 200_000)] {
            let (from, to) = (1 + round * 3000, 1 + (round + 1) * if size == 1000 { 3000 } else { 1515 });
            write(&server, from, to, size);
            numbers(&mut fast, to - 1).await;
            let (followers, upstreams) = kept(&show.render());
            assert!(followers > 0.0 && followers < SLOW as f64 * 1e6, "{followers} bytes for {SLOW}");
            assert!(upstreams > 0.0 && upstreams < 1e6, "{upstreams} bytes for all");
        }
        let shown = show.render();
        assert!(shown.contains("sutler_log_upstreams 1\n"), "{shown}");
        assert!(shown.contains(&format!("sutler_log_followers {}\n", SLOW + 1)), "{shown}");
        drop((slow, fast));
        until("everything is given back", || kept(&show.render()) == (0.0, 0.0)).await;
        assert!(show.render().contains("sutler_log_upstreams 0\n"));
    };
    metrics::with_local_recorder(&recorder, || runtime.block_on(read));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hostile_comes_to_all_alike() {
    let server = Server::default();
    let mut c = container("c");
    let mut raw = b"2026-01-02T03:04:05.000000001Z ".to_vec();
    raw.extend(std::iter::repeat_n(0xFF, 3 << 20));
    raw.extend(b"\nno time stamp\n2026-01-02T03:04:06.000000001Z \0\x1b[31m\xc3\x28\n");
    raw.extend(b"2026-01-02T03:04:07.000000001Z ");
    raw.extend(std::iter::repeat_n(b'x', 1 << 20));
    c.raw = Some(raw.into());
    server.set("acme/a", pod(vec![c]));
    let logs = server.logs().await;
    let mut streams = join_all((0..5).map(|_| open(&logs, follow()))).await;
    let mut all = Vec::new();
    for stream in &mut streams {
        let (mut got, mut sizes) = (Vec::new(), 0);
        while got.len() < 30 {
            let item = tokio::time::timeout(Duration::from_secs(20), stream.next()).await.unwrap().unwrap();
            let LogLine::Line { text, timestamp, .. } = &item else { panic!("{item:?}") };
            sizes += text.chars().count();
            got.push((timestamp.clone(), text.len(), text.chars().take(20).collect::<String>()));
            if text.starts_with('\0') {
                break;
            }
        }
        assert_eq!(sizes, (3 << 20) + "no time stamp".len() + "\0\x1b[31m?(".len(), "{got:?}");
        all.push(got);
    }
    assert!(all.windows(2).all(|w| w[0] == w[1]), "{all:?}");
    // Those that were not read meanwhile have caught up.
    assert_eq!(server.log_requests().0, 1);
}
