//! Bounded reads.

use std::time::Duration;

use sutler_logs::{Error, TailOptions};

use crate::server::{Server, call, container, grants, open_grants, owner, pod};

#[tokio::test]
async fn the_last_lines_without_their_time_stamps() {
    let server = Server::default();
    server.set("acme/p", pod(vec![container("c").with(&[1, 2, 3, 4])]));
    let logs = server.logs().await;
    let tail =
        async |options: TailOptions| logs.tail(&call(), &open_grants(), None, "acme", "p", &options).await;
    assert_eq!(tail(TailOptions::default()).await.unwrap(), ["line 0", "line 1", "line 2", "line 3"]);
    let two =
        TailOptions { tail_lines: 2, since: Some(Duration::from_millis(1500)), ..TailOptions::default() };
    assert_eq!(tail(two).await.unwrap(), ["line 2", "line 3"]);
    assert!(server.requests().last().unwrap().contains("sinceSeconds=2"), "{:?}", server.requests());
    // 7 bytes a line with its newline.
    let cut = TailOptions { limit_bytes: 10, ..TailOptions::default() };
    assert_eq!(tail(cut).await.unwrap(), ["line 0", "lin"]);
}

#[tokio::test]
async fn what_cannot_be_read() {
    let server = Server::default();
    let mut refusing = container("c").with(&[1]);
    refusing.refusals = ["unable to retrieve container logs for containerd://abc".into()].into();
    server.set("acme/p", pod(vec![refusing]));
    let logs = server.logs().await;
    let options = TailOptions::default();
    let answer = logs.tail(&call(), &open_grants(), None, "acme", "p", &options).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    assert_eq!(logs.tail(&call(), &open_grants(), None, "acme", "q", &options).await, Err(Error::NotFound));
    // Another owner's pod in a shared namespace looks as if it were not there.
    let shared = grants(&["namespaces = ['acme']"]);
    assert_eq!(logs.tail(&call(), &shared, None, "acme", "p", &options).await, Err(Error::NotFound));
    server.change("acme/p", |p| {
        p.labels.insert("sutler.dev/owner".into(), owner("acme").hash());
    });
    assert_eq!(logs.tail(&call(), &shared, None, "acme", "p", &options).await.unwrap(), ["line 0"]);
    let none = TailOptions { previous: true, ..TailOptions::default() };
    let answer = logs.tail(&call(), &shared, None, "acme", "p", &none).await;
    assert!(matches!(answer, Err(Error::Other { code: "invalid", .. })), "{answer:?}");
}
