//! Streams over cuts, restarts and rotations: each line once, and a gap where one may be missing.

use std::time::Duration;

use futures::StreamExt as _;
use sutler_logs::{LogLine, Since, StreamOptions};

use crate::server::{Server, call, container, lines, open_grants, pod, source};
use crate::stream::{all, follow, next, open};

/// Twelve lines over three seconds, several with one time stamp, two out of order.
const MILLIS: [i64; 12] = [100, 100, 100, 900, 1100, 1100, 1050, 1900, 2000, 2000, 2000, 2500];

fn want(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("a/c line {i}")).collect()
}

#[tokio::test]
async fn cut_anywhere_each_line_comes_once() {
    for follows in [false, true] {
        let mut tasks = tokio::task::JoinSet::new();
        for first in 0..MILLIS.len() {
            tasks.spawn(async move {
                let server = Server::default();
                let mut c = container("c").with(&MILLIS);
                // The second request begins a second earlier, so this cuts within what comes again, or soon after.
                c.cuts = [first, 3, 6].into();
                server.set("acme/a", pod(vec![c]));
                let mut stream =
                    open(&server, StreamOptions { follow: follows, ..StreamOptions::default() }).await;
                assert_eq!(next(&mut stream, MILLIS.len()).await, want(MILLIS.len()), "cut after {first}");
                server.change("acme/a", |p| {
                    p.containers[0].running = false;
                    p.phase = "Succeeded".into();
                });
                assert_eq!(all(stream).await, Vec::<String>::new(), "cut after {first}");
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    }
}

#[tokio::test]
async fn tail_holds_for_the_first_request_only() {
    let server = Server::default();
    let mut c = container("c").with(&MILLIS);
    c.cuts = [2].into();
    server.set("acme/a", pod(vec![c]));
    let mut stream = open(&server, StreamOptions { tail_lines: Some(4), ..follow() }).await;
    assert_eq!(next(&mut stream, 4).await, want(12)[8..]);
    server.change("acme/a", |p| p.containers[0].lines.extend(lines(&[9000], 12)));
    assert_eq!(next(&mut stream, 1).await, ["a/c line 12"]);
}

fn restart(p: &mut crate::server::PodState) {
    let c = &mut p.containers[0];
    c.previous = Some(std::mem::replace(&mut c.lines, lines(&[5000, 6000], 12)));
    c.restarts += 1;
}

#[tokio::test]
async fn a_restart_during_a_cut_loses_nothing_that_is_kept() {
    // Before the reader looks at the pod, and between that look and its next request.
    for at_once in [true, false] {
        let server = Server::default();
        let mut c = container("c").with(&MILLIS);
        c.cuts = [5].into();
        c.at_cut = at_once.then_some(restart as fn(&mut crate::server::PodState));
        server.set("acme/a", pod(vec![c]));
        let mut stream = open(&server, follow()).await;
        let mut got = next(&mut stream, 5).await;
        if !at_once {
            while !server.requests().iter().any(|r| r.starts_with("get")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.change("acme/a", restart);
        }
        got.extend(next(&mut stream, 9).await);
        assert_eq!(got, want(14), "at once: {at_once}");
        // And once more, in fair weather.
        server.change("acme/a", |p| {
            restart(p);
            p.containers[0].lines = lines(&[7000], 14);
        });
        assert_eq!(next(&mut stream, 1).await, ["a/c line 14"], "at once: {at_once}");
    }
}

#[tokio::test]
async fn cuts_while_the_run_before_is_read_lose_nothing() {
    for cuts in [&[5, 0][..], &[5, 3], &[5, 2, 1, 0]] {
        let server = Server::default();
        let mut c = container("c").with(&MILLIS);
        c.cuts = cuts.iter().copied().collect();
        c.at_cut = Some(restart);
        server.set("acme/a", pod(vec![c]));
        let mut stream = open(&server, follow()).await;
        assert_eq!(next(&mut stream, 14).await, want(14), "{cuts:?}");
    }
}

/// A kubelet serves the new run's log a while before the pod's status tells of that run.
#[tokio::test]
async fn a_restart_that_is_told_late_is_no_rotation() {
    // The stream ends with the container, or by a cut; the pod tells of the run before, or that it waits for another.
    for (cut, waits) in [(false, false), (true, false), (false, true)] {
        let server = Server::default();
        server.set("acme/a", pod(vec![container("c").with(&MILLIS)]));
        let mut stream = open(&server, follow()).await;
        assert_eq!(next(&mut stream, 12).await, want(12));
        server.change("acme/a", |p| {
            p.containers[0].lines.extend(lines(&[4500], 12));
            restart(p);
            let c = &mut p.containers[0];
            (c.lines, c.told) = (lines(&[5000, 6000], 13), Some(0));
            (c.running, c.waiting) = (!waits, waits);
        });
        if cut {
            server.cut();
        }
        let late = tokio::time::sleep(Duration::from_millis(700));
        let told = async {
            late.await;
            server.change("acme/a", |p| {
                let c = &mut p.containers[0];
                (c.told, c.running, c.waiting) = (None, true, false);
            });
        };
        let (got, ()) = tokio::join!(next(&mut stream, 3), told);
        assert_eq!(got, want(15)[12..], "cut: {cut}, waits: {waits}");
    }
}

#[tokio::test]
async fn restarts_that_destroyed_a_log_are_a_gap() {
    let server = Server::default();
    let mut c = container("c").with(&[100, 200, 300]);
    c.cuts = [2].into();
    server.set("acme/a", pod(vec![c]));
    let mut stream = open(&server, follow()).await;
    assert_eq!(next(&mut stream, 2).await, want(2));
    server.change("acme/a", |p| {
        let c = &mut p.containers[0];
        c.previous = Some(lines(&[5000], 50));
        c.lines = lines(&[6000], 51);
        c.restarts = 3;
    });
    let gap = stream.next().await.unwrap();
    assert!(
        matches!(&gap, LogLine::Gap { from: Some(from), reason, .. } if from.contains(":05.2") && reason.contains("3 times")),
        "{gap:?}"
    );
    assert_eq!(next(&mut stream, 2).await, ["a/c line 50", "a/c line 51"]);
}

#[tokio::test]
async fn a_rotation_during_a_cut_is_a_gap_with_its_bounds() {
    let server = Server::default();
    let mut c = container("c").with(&MILLIS);
    c.cuts = [5].into();
    c.at_cut = Some(|p| p.containers[0].lines = lines(&[30_000, 31_000], 70));
    server.set("acme/a", pod(vec![c]));
    let mut stream = open(&server, follow()).await;
    assert_eq!(next(&mut stream, 5).await, want(5));
    let gap = stream.next().await.unwrap();
    let LogLine::Gap { from: Some(from), to: Some(to), .. } = &gap else { panic!("{gap:?}") };
    assert!(from.starts_with("2026-01-02T03:04:06.1") && to.starts_with("2026-01-02T03:04:35"), "{gap:?}");
    assert_eq!(next(&mut stream, 2).await, ["a/c line 70", "a/c line 71"]);
}

#[tokio::test]
async fn a_refusal_in_the_body_is_no_line() {
    for follows in [false, true] {
        let server = Server::default();
        let mut c = container("c").with(&[1, 2]);
        c.refusals = [
            "unable to retrieve container logs for containerd://abc".into(),
            "unable to retrieve container logs for x\n".into(),
        ]
        .into();
        server.set("acme/a", pod(vec![c]));
        let mut stream = open(&server, StreamOptions { follow: follows, ..StreamOptions::default() }).await;
        assert_eq!(next(&mut stream, 2).await, want(2));
    }
}

#[tokio::test]
async fn a_refusal_that_stays_is_a_gap() {
    for follows in [false, true] {
        let server = Server::default();
        let mut c = container("c").with(&[1, 2]);
        c.refusals = std::iter::repeat_n("unable to retrieve container logs for x\n".to_owned(), 5).collect();
        server.set("acme/a", pod(vec![c]));
        let logs = server.logs().await;
        let options = StreamOptions { follow: follows, ..StreamOptions::default() };
        let mut stream = logs.stream(&call(), &open_grants(), vec![source("acme")], options).await.unwrap();
        let gap = tokio::time::timeout(Duration::from_secs(30), stream.next()).await.unwrap().unwrap();
        assert!(
            matches!(&gap, LogLine::Gap { reason, .. } if reason.contains("unable to retrieve")),
            "{gap:?}"
        );
        if follows {
            let line = tokio::time::timeout(Duration::from_secs(30), stream.next()).await.unwrap().unwrap();
            assert!(matches!(&line, LogLine::Line { text, .. } if &**text == "line 0"), "{line:?}");
        } else {
            assert_eq!(stream.next().await, None);
        }
    }
}

#[tokio::test]
async fn a_container_that_crashes_is_read_once_a_run() {
    let server = Server::default();
    let mut c = container("c").with(&[100, 200]);
    (c.running, c.waiting) = (false, true);
    server.set("acme/a", pod(vec![c]));
    let mut stream = open(&server, follow()).await;
    assert_eq!(next(&mut stream, 2).await, want(2));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let reads = server.requests().iter().filter(|r| r.starts_with("log")).count();
    assert!(reads <= 2, "a container that waits is not read again and again: {reads}");
    server.change("acme/a", |p| {
        let c = &mut p.containers[0];
        c.previous = Some(std::mem::replace(&mut c.lines, lines(&[5000], 2)));
        (c.running, c.waiting, c.restarts) = (true, false, 1);
    });
    assert_eq!(next(&mut stream, 1).await, ["a/c line 2"]);
}

#[tokio::test]
async fn a_pod_that_goes_during_a_cut_is_a_gap() {
    let server = Server::default();
    let mut c = container("c").with(&[100, 200, 300]);
    c.cuts = [2].into();
    server.set("acme/a", pod(vec![c]));
    let mut stream = open(&server, follow()).await;
    assert_eq!(next(&mut stream, 2).await, want(2));
    server.remove("acme/a");
    assert_eq!(next(&mut stream, 1).await, ["gap a/c"]);
}

/// The reason of the one gap that comes within half a minute.
async fn refusal(server: &Server, options: StreamOptions) -> String {
    let mut stream = open(server, options).await;
    match tokio::time::timeout(Duration::from_secs(30), stream.next()).await {
        Ok(Some(LogLine::Gap { reason, .. })) => reason,
        other => panic!("no gap but {other:?}"),
    }
}

#[tokio::test]
async fn what_the_api_server_refuses_is_a_gap_with_its_reason() {
    let server = Server::default();
    server.set("acme/a", pod(vec![container("c").with(&[1, 2])]));
    let bad = Some(Since::Time("not a time".into()));
    for (options, want) in [
        (StreamOptions { previous: true, ..StreamOptions::default() }, "previous terminated container"),
        (StreamOptions { previous: true, ..follow() }, "previous terminated container"),
        (StreamOptions { since: bad.clone(), ..StreamOptions::default() }, "sinceTime cannot be read"),
        (StreamOptions { since: bad.clone(), ..follow() }, "sinceTime cannot be read"),
    ] {
        let text = format!("{options:?}");
        let reason = refusal(&server, options).await;
        assert!(reason.contains(want), "{reason}; {text}");
    }
    // A pod that is over before it could be read.
    server.change("acme/a", |p| {
        p.containers[0].running = false;
        p.phase = "Failed".into();
    });
    let reason = refusal(&server, StreamOptions { since: bad, ..follow() }).await;
    assert!(reason.contains("sinceTime cannot be read"), "{reason}");
}
