//! A host that is killed by SIGKILL on either side of a write; what it had an answer for is there afterwards.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output};
use std::sync::Arc;

use sutler_ledger::{Keys, Ledger, POSTGRES_FAILPOINTS, Postgres, PostgresOptions};
use tokio::task::JoinSet;

use super::contract::rig;
use crate::crash::{JOBS, SAVES, WRITERS, acknowledged, finish, whole};

const URL: &str = "SUTLER_CRASH_TEST_URL";
const KEY: &str = "SUTLER_CRASH_TEST_KEY";

/// Says what it has an answer for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that the test below kills"]
async fn killed() {
    let (Ok(url), Ok(key)) = (std::env::var(URL), std::env::var(KEY)) else { return };
    let keys = Keys::open(key.as_ref()).unwrap();
    let ledger = Arc::new(Postgres::open(&url, keys, PostgresOptions::default()).await.unwrap());
    let mut writers = JoinSet::new();
    for w in 0..WRITERS {
        let ledger: Arc<dyn Ledger> = ledger.clone();
        writers.spawn(async move {
            for n in 0..JOBS {
                finish(&*ledger, 100 * w + n).await;
            }
        });
    }
    writers.join_all().await;
}

fn run(url: &str, key: &std::path::Path, failpoint: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "real_postgres::crash::killed", "--ignored", "--nocapture"])
        .envs([(URL, url.as_ref()), (KEY, key.as_os_str()), ("SUTLER_FAILPOINT", failpoint.as_ref())])
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_answered_is_lost_wherever_a_host_dies() {
    for point in POSTGRES_FAILPOINTS {
        let rig = rig().await;
        let key = rig.folder.path().join("ledger.key");
        let mut known = HashMap::new();
        for n in [1, 2, 5, 9, 20] {
            let at = format!("{point}:{n}");
            let output = run(&rig.url, &key, &at);
            assert_eq!(output.status.signal(), Some(9), "{at}: {output:?}");
            acknowledged(&output, &mut known);
            whole(&*rig.ledger, &known, &at).await;
        }
        let output = run(&rig.url, &key, "none:1");
        assert!(output.status.success(), "{output:?}");
        acknowledged(&output, &mut known);
        assert_eq!(known.len(), WRITERS * JOBS);
        assert!(known.values().all(|revision| *revision == SAVES + 2), "{known:?}");
        whole(&*rig.ledger, &known, point).await;
    }
}
