//! Streams in fair weather.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use sutler_logs::{Error, LogLine, Since, StreamOptions};

use crate::server::{START, Server, call, container, lines, open_grants, pod, source};

pub(crate) async fn open(server: &Server, options: StreamOptions) -> BoxStream<'static, LogLine> {
    server.logs().await.stream(&call(), &open_grants(), vec![source("acme")], options).await.unwrap()
}

pub(crate) fn follow() -> StreamOptions {
    StreamOptions { follow: true, ..StreamOptions::default() }
}

/// `pod/container text`, and `gap` for a gap.
pub(crate) fn show(line: &LogLine) -> String {
    match line {
        LogLine::Line { pod, container, text, .. } => format!("{pod}/{container} {text}"),
        LogLine::Gap { pod, container, .. } => format!("gap {pod}/{container}"),
    }
}

/// The next `n` items, within ten seconds.
pub(crate) async fn next(stream: &mut BoxStream<'static, LogLine>, n: usize) -> Vec<String> {
    let mut out = Vec::new();
    while out.len() < n {
        match tokio::time::timeout(Duration::from_secs(10), stream.next()).await {
            Ok(Some(line)) => out.push(show(&line)),
            Ok(None) => panic!("the stream ended after {out:?}"),
            Err(_) => panic!("nothing more came after {out:?}"),
        }
    }
    out
}

/// All items, within ten seconds.
pub(crate) async fn all(stream: BoxStream<'static, LogLine>) -> Vec<String> {
    let all = stream.map(|l| show(&l)).collect();
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("the stream does not end")
}

#[tokio::test]
async fn every_container_in_order() {
    let server = Server::default();
    let mut init = container("init").with(&[1]);
    (init.init, init.running) = (true, false);
    server.set("acme/a", pod(vec![init, container("c").with(&[1, 2, 3]), container("d").with(&[1])]));
    server.set("acme/b", pod(vec![container("c").with(&[5, 6])]));
    server.set("other/x", pod(vec![container("c").with(&[1])]));
    let mut got = all(open(&server, StreamOptions::default()).await).await;
    let of_a: Vec<&String> = got.iter().filter(|l| l.starts_with("a/c")).collect();
    assert_eq!(of_a, ["a/c line 0", "a/c line 1", "a/c line 2"]);
    got.sort();
    assert_eq!(got, ["a/c line 0", "a/c line 1", "a/c line 2", "a/d line 0", "b/c line 0", "b/c line 1"]);
    // By name.
    let named = StreamOptions { container: Some("init".into()), ..StreamOptions::default() };
    assert_eq!(all(open(&server, named).await).await, ["a/init line 0"]);
    let of_b = StreamOptions { pod: Some("b".into()), ..StreamOptions::default() };
    assert_eq!(all(open(&server, of_b).await).await, ["b/c line 0", "b/c line 1"]);
}

#[tokio::test]
async fn lines_carry_the_kubelets_time_stamp() {
    let server = Server::default();
    server.set("acme/a", pod(vec![container("c").with(&[7])]));
    let got: Vec<LogLine> = open(&server, StreamOptions::default()).await.collect().await;
    let want = LogLine::Line {
        pod: "a".into(),
        container: "c".into(),
        timestamp: "2026-01-02T03:04:05.007000000Z".into(),
        text: "line 0".into(),
    };
    assert_eq!(got, [want]);
}

#[tokio::test]
async fn options_as_the_kubelet_means_them() {
    let server = Server::default();
    let mut c = container("c").with(&[0, 1000, 2000, 3000]);
    c.previous = Some(lines(&[-500], 90));
    server.set("acme/a", pod(vec![c]));
    let since = |s: i64| chrono::DateTime::from_timestamp(START + s, 0).unwrap().to_rfc3339();
    let base = StreamOptions::default;
    // A line is 7 bytes with its newline; the time stamp, which nobody asked for, is not counted.
    for (options, want) in [
        (StreamOptions { tail_lines: Some(2), ..base() }, vec!["a/c line 2", "a/c line 3"]),
        (StreamOptions { tail_lines: Some(0), ..base() }, vec![]),
        (StreamOptions { since: Some(Since::Time(since(2))), ..base() }, vec!["a/c line 2", "a/c line 3"]),
        (StreamOptions { previous: true, ..base() }, vec!["a/c line 90"]),
        (StreamOptions { previous: true, follow: true, ..base() }, vec!["a/c line 90"]),
        (StreamOptions { limit_bytes: Some(7), ..base() }, vec!["a/c line 0"]),
        (StreamOptions { limit_bytes: Some(6), ..base() }, vec!["a/c line 0"]),
        (StreamOptions { limit_bytes: Some(10), ..base() }, vec!["a/c line 0", "a/c lin"]),
        (
            StreamOptions { limit_bytes: Some(10), follow: true, tail_lines: Some(2), ..base() },
            vec!["a/c line 2", "a/c lin"],
        ),
    ] {
        let text = format!("{options:?}");
        let mut stream = open(&server, options.clone()).await;
        if options.follow && !options.previous {
            assert_eq!(next(&mut stream, want.len()).await, want, "{text}");
        } else {
            assert_eq!(all(stream).await, want, "{text}");
        }
    }
    let ago = StreamOptions { since: Some(Since::Ago(Duration::from_secs(60))), ..base() };
    all(open(&server, ago).await).await;
    assert!(server.requests().last().unwrap().contains("sinceSeconds=60"), "{:?}", server.requests());
    // Neither more than the API server reads nor more than a kubelet can reckon with.
    let most = StreamOptions {
        since: Some(Since::Ago(Duration::MAX)),
        tail_lines: Some(u64::MAX),
        limit_bytes: Some(u64::MAX),
        ..base()
    };
    assert_eq!(all(open(&server, most).await).await.len(), 4);
    let asked = server.requests().pop().unwrap();
    for part in ["sinceSeconds=3162240000", "tailLines=9223372036854775807"] {
        assert!(asked.contains(part), "{asked}");
    }
    assert!(!asked.contains("limitBytes"), "{asked}");
}

#[tokio::test]
async fn the_limit_of_bytes_counts_what_is_delivered() {
    // (texts, limit, connection cuts, what comes)
    for (texts, limit, cuts, want) in [
        (&["a", "bb", "ccc"][..], 9, &[][..], &["a", "bb", "ccc"][..]),
        (&["a", "bb", "ccc"], 8, &[], &["a", "bb", "ccc"]),
        (&["a", "bb", "ccc"], 6, &[], &["a", "bb", "c"]),
        (&["a", "bb", "ccc"], 5, &[], &["a", "bb"]),
        (&["", "", "x"], 2, &[], &["", ""]),
        // A character is not cut: what replaced it would be longer than what is left.
        (&["aé€"], 5, &[], &["aé"]),
        (&["aé€", "b"], 7, &[], &["aé€"]),
        (&["€"], 2, &[], &[]),
        // What comes again after a cut is not counted again.
        (&["a", "bb", "ccc", "dddd"], 11, &[2, 3], &["a", "bb", "ccc", "dd"]),
    ] {
        let server = Server::default();
        let mut c = container("c");
        let at = |i: usize| START * 1_000_000_000 + i64::try_from(i).unwrap() * 1_000_000;
        c.lines = texts.iter().enumerate().map(|(i, t)| (at(i), (*t).into())).collect();
        c.cuts = cuts.iter().copied().collect();
        server.set("acme/a", pod(vec![c]));
        let options = StreamOptions { limit_bytes: Some(limit), ..StreamOptions::default() };
        let want: Vec<String> = want.iter().map(|t| format!("a/c {t}")).collect();
        assert_eq!(all(open(&server, options).await).await, want, "{texts:?} {limit}");
    }
}

#[tokio::test]
async fn following_ends_with_the_pods() {
    let server = Server::default();
    server.set("acme/job", pod(vec![container("c").with(&[1])]));
    let mut stream = open(&server, follow()).await;
    assert_eq!(next(&mut stream, 1).await, ["job/c line 0"]);
    server.change("acme/job", |p| {
        p.containers[0].lines.extend(lines(&[5], 1));
        p.containers[0].running = false;
        p.phase = "Succeeded".into();
    });
    assert_eq!(all(stream).await, ["job/c line 1"]);
}

#[tokio::test]
async fn a_new_pod_is_picked_up_from_its_first_line() {
    let server = Server::default();
    let options = StreamOptions { tail_lines: Some(1), ..follow() };
    server.set("acme/a", pod(vec![container("c").with(&[1, 2, 3])]));
    let mut stream = open(&server, options).await;
    assert_eq!(next(&mut stream, 1).await, ["a/c line 2"]);
    let mut new = pod(vec![container("c").with(&[9, 10])]);
    new.uid = "u-2".into();
    server.set("acme/b", new);
    assert_eq!(next(&mut stream, 2).await, ["b/c line 0", "b/c line 1"]);
    // Gone, and back under the same name as another pod.
    server.remove("acme/a");
    let mut again = pod(vec![container("c").with(&[20])]);
    again.uid = "u-3".into();
    server.set("acme/a", again);
    assert_eq!(next(&mut stream, 1).await, ["a/c line 0"]);
}

#[tokio::test]
async fn dropping_the_stream_ends_the_requests() {
    let server = Server::default();
    server.set("acme/a", pod(vec![container("c").with(&[1]), container("quiet")]));
    let mut stream = open(&server, follow()).await;
    next(&mut stream, 1).await;
    assert_eq!(server.streams(), 2);
    drop(stream);
    for _ in 0..100 {
        if server.streams() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} streams are still open", server.streams());
}

#[tokio::test]
async fn a_reader_that_waits_holds_the_cluster_back() {
    let server = Server::default();
    let mut c = container("c");
    let text: std::sync::Arc<str> = "x".repeat(100 << 10).into();
    c.lines = (0..1000_i64).map(|i| (START * 1_000_000_000 + i * 1_000_000_000, text.clone())).collect();
    server.set("acme/a", pod(vec![c]));
    let mut stream = open(&server, StreamOptions::default()).await;
    stream.next().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = server.sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(sent < 40 << 20, "{sent} bytes of 100 MiB were taken although nobody reads");
    assert_eq!(stream.count().await, 999);
}

#[tokio::test]
async fn what_is_not_there() {
    let server = Server::default();
    let logs = server.logs().await;
    let open = async |options| logs.stream(&call(), &open_grants(), vec![source("acme")], options).await;
    let named = StreamOptions { pod: Some("nope".into()), ..StreamOptions::default() };
    assert!(matches!(open(named).await.map(drop), Err(Error::NotFound)));
    assert_eq!(open(StreamOptions::default()).await.unwrap().count().await, 0);
    // Without a pod nobody knows the containers.
    let of = |name: &str| StreamOptions { container: Some(name.into()), ..StreamOptions::default() };
    assert_eq!(open(of("nope")).await.unwrap().count().await, 0);
    server.set("acme/a", pod(vec![container("c").with(&[1])]));
    server.set("acme/b", pod(vec![container("d").with(&[1])]));
    for follow in [false, true] {
        let answer = open(StreamOptions { follow, ..of("nope") }).await.map(drop);
        assert_eq!(answer, Err(Error::NotFound), "follow: {follow}");
    }
    assert_eq!(all(open(of("d")).await.unwrap()).await, ["b/d line 0"]);
    server.set("acme/big", pod((0..201).map(|i| container(&format!("c{i}"))).collect()));
    let answer = open(StreamOptions::default()).await.map(drop);
    assert!(matches!(answer, Err(Error::Other { code: "too-many-containers", .. })), "{answer:?}");
}
