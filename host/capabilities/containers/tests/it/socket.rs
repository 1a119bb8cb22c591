//! What a real daemon cannot be made to do: not to answer, and to tell how often it was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sutler_containers::Error;
use sutler_model::{Call, Fence, Mode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use crate::support::{all, call, containers, spec};

/// A daemon that says its version, and nothing else ever. How often it was asked for anything else.
fn silent(folder: &std::path::Path) -> (std::path::PathBuf, Arc<AtomicUsize>) {
    let path = folder.join("docker.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                let n = connection.read(&mut head).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&head[..n]).into_owned();
                if head.contains("/version ") {
                    let body = r#"{"ApiVersion":"1.41"}"#;
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = connection.write_all(answer.as_bytes()).await;
                } else {
                    count.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    (path, asked)
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_waited_for_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, _) = silent(folder.path());
    let world = containers(&socket, 1);
    let slow = world.status(&call("acme", Mode::Inspect), &all(), "orders").await;
    assert!(matches!(&slow, Err(Error::Unavailable(why)) if why.contains("within 1 s")), "{slow:?}");
    // The call's own end comes first.
    let short = Call { deadline: Instant::now() + Duration::from_millis(100), ..call("acme", Mode::Inspect) };
    assert_eq!(world.status(&short, &all(), "orders").await, Err(Error::TimedOut));
}

#[tokio::test]
async fn nothing_is_sent_once_the_lease_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, asked) = silent(folder.path());
    let world = containers(&socket, 30);
    let fence = Fence::until(Instant::now() + Duration::from_secs(60));
    fence.lose();
    let lost = Call { fence, ..call("acme", Mode::Apply) };
    let wrote = [
        world.run(&lost, &all(), &spec("orders"), Duration::ZERO).await,
        world.stop(&lost, &all(), "orders", Duration::ZERO).await,
        world.remove(&lost, &all(), "orders").await,
        world.make_volume(&lost, &all(), "data", "").await,
        world.remove_volume(&lost, &all(), "data").await,
    ];
    assert!(wrote.iter().all(|w| *w == Err(Error::TimedOut)), "{wrote:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    // One that ends while the daemon is waited for ends the wait.
    let ends = Call {
        fence: Fence::until(Instant::now() + Duration::from_millis(100)),
        ..call("acme", Mode::Apply)
    };
    assert_eq!(world.remove(&ends, &all(), "orders").await, Err(Error::TimedOut));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
