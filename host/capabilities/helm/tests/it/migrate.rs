//! Fields that were applied client-side move to server-side apply, whoever else writes the object meanwhile.

use std::time::Duration;

use serde_json::json;
use sutler_helm::{Error, Options, Outcome};
use sutler_model::Mode;
use sutler_testkit::cluster::Fault;

use crate::support::{World, call, config_map, done, of};

const OBJECT: &str = "/api/v1/namespaces/ns/configmaps/m";
const PATCH: &str = "PATCH /api/v1/namespaces/ns/configmaps/m?fieldManager=helm";

/// Revision 2 is deployed, and its object has a field that Helm wrote client-side.
async fn world() -> World {
    let w = World::start().await;
    w.installed(&[config_map("m", "1")]).await;
    w.installed(&[config_map("m", "2")]).await;
    w.patch(&format!("{OBJECT}?fieldManager=helm"), &json!({"data": {"dropped": "x"}})).await;
    w
}

async fn back(w: &World) -> Result<Outcome, Error> {
    w.helm.rollback(&call(Mode::Apply), &w.grants, &of("app"), 1, Options::default()).await
}

#[tokio::test]
async fn a_write_in_between_is_read_again() {
    let w = world().await;
    w.cluster.fail_next_matching(PATCH, Fault::Late(Duration::from_millis(300)));
    let meanwhile = async {
        w.cluster.until_held(1).await;
        w.patch(&format!("{OBJECT}?fieldManager=kubectl-edit"), &json!({"data": {"theirs": "y"}})).await;
    };
    let (got, ()) = tokio::join!(back(&w), meanwhile);
    assert_eq!(done(got.unwrap()).revision, 3);
    let live = w.cluster.object("ConfigMap", "ns", "m").unwrap();
    assert_eq!(live["data"], json!({"key": "1", "theirs": "y"}), "what the chart does not name goes");
    let refused = w.cluster.answers().iter().filter(|a| a.status == 409).count();
    assert_eq!(refused, 1, "the first try came too late");
}

#[tokio::test]
async fn not_for_ever() {
    let w = world().await;
    for _ in 0..100 {
        w.cluster.fail_next_matching(PATCH, Fault::Status(409));
    }
    let got = back(&w).await;
    assert!(matches!(&got, Err(Error::Unavailable(m)) if m.contains("again and again")), "{got:?}");
}
