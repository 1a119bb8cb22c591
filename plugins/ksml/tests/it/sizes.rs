//! What can be applied can be stopped, started, updated and deleted; what is too large for that is told in the plan.

use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Delete, Update};
use sutler_sdk::testing::world;

use crate::{NONE, session, settings, with};

/// What a plugin may send as one object, and the API server keeps in one Secret or ConfigMap.
const OBJECT: usize = 1 << 20;

/// Text of 64 letters that does not pack into less than three quarters.
fn noise(bytes: usize) -> String {
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(letters[usize::try_from(state >> 58).unwrap()])
    };
    (0..bytes).map(next).collect()
}

fn definition(comment: &str) -> Value {
    with(settings(), json!({"definitions": {"main": format!("streams: {{}}\n# {comment}\n")}}))
}

#[test]
fn what_can_be_applied_can_be_stopped_started_updated_and_deleted() {
    for text in ["a line of words ".repeat(59_000), noise(430_000)] {
        let mut s = session();
        let running = definition(&text);
        let still = with(running.clone(), json!({"running": false}));
        let larger = with(running.clone(), json!({"size": "M"}));
        for (action, to, from) in [
            (Create, &running, &NONE),
            (Update, &still, &running),
            (Update, &running, &still),
            (Update, &larger, &running),
        ] {
            s.plan(action, to.clone(), from.clone()).unwrap();
            s.apply(action, to.clone(), from.clone()).unwrap();
            let seen = s.inspect(to.clone(), NONE).unwrap();
            assert_eq!((&seen["settings"], &seen["differences"]), (to, &json!([])));
            let largest = world(|w| w.objects.values().map(|o| o.to_string().len()).max());
            assert!(largest.unwrap_or_default() < OBJECT, "{largest:?}");
        }
        s.apply(Delete, NONE, larger).unwrap();
        assert!(world(|w| w.objects.is_empty() && w.releases.is_empty()));
    }
}

#[test]
fn what_is_too_large_is_told_before_any_write() {
    let loggers: Value = (0..12_000)
        .map(|n| (format!("org.example.Class{n}"), json!("DEBUG")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let pem = json!({"type": "pem", "certificate": "C", "key": "K", "ca": noise(400_000)});
    let rules: Vec<Value> = (0..20_000).map(|n| json!({"ports": [{"port": n}]})).collect();
    for (wanted, at, said) in [
        (definition(&noise(950_000)), "/definitions", "700000"),
        (with(definition(&noise(950_000)), json!({"running": false})), "/definitions", "700000"),
        (with(settings(), json!({"schemas": {"a.avsc": noise(950_000)}})), "/schemas", "700000"),
        (definition(&"a".repeat(1_000_001)), "/definitions", "1000000"),
        (with(settings(), json!({"kafka": {"security": pem}})), "/kafka", "300000"),
        (
            with(settings(), json!({"networkPolicy": {"enabled": true, "ingress": rules}})),
            "/networkPolicy",
            "300000",
        ),
        (with(settings(), json!({"kafka": {"topicPattern": "x".repeat(300_001)}})), "/kafka", "300000"),
        (with(settings(), json!({"logging": {"loggers": loggers}})), "/logging", "300000"),
    ] {
        let mut s = session();
        for e in [
            s.plan(Create, wanted.clone(), NONE).map(|_| at).unwrap_err(),
            s.apply(Create, wanted.clone(), NONE).map(|_| at).unwrap_err(),
        ] {
            let name = at.trim_start_matches('/');
            assert_eq!(e.code, "too-large", "{at}");
            assert!(
                e.reason.contains(name) && e.reason.contains(said) && e.reason.len() < 500,
                "{}",
                e.reason
            );
        }
        assert_eq!(world(|w| w.writes.clone()), Vec::<String>::new());
    }
}
