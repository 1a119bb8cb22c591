//! Plain `cargo test`: the SDK brings a world in memory.

use rust_steps::Database;
use sutler_sdk::Action::{Create, Update};
use sutler_sdk::prelude::*;
use sutler_sdk::testing::{Session, reset, world};

/// The cloud: everything that is starting is up.
fn start() {
    world(|w| w.objects.values_mut().for_each(|o| o["data"]["state"] = json!("up")));
}

#[test]
fn it_is_made_once_and_found_again() {
    reset(json!({}));
    let mut session = Session::<Database>::new("orders", "prod", Some("acme"));
    let settings = json!({"engine": "postgres"});
    let stuck = session.apply(Create, settings.clone(), Value::Null).unwrap_err();
    assert_eq!(stuck.code, "no-end", "a server that never starts keeps the operation waiting");
    assert_eq!(session.trail[..3], ["create", "start", "the server is starting"]);
    start();
    let made = session.apply(Create, settings.clone(), Value::Null).unwrap();
    assert_eq!(session.apply(Create, settings.clone(), Value::Null).unwrap(), made, "repeated");
    assert_eq!(session.plan(Update, settings.clone(), settings.clone()).unwrap()["action"], "Action::NoOp");
    let other = session.plan(Update, json!({"engine": "mysql"}), settings).unwrap();
    assert_eq!(other["replaceBecause"], json!(["/engine"]));
}
