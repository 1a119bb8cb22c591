//! What is kept as JSON reads back exactly.

use proptest::prelude::*;
use serde_json::{Value, json};
use sutler_jobs::{Asked, Ended};
use sutler_model::{Action, Applied, Change, Failure, Identifier, Planned};

use crate::common;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("a number", |f| f.is_finite()).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map("[a-z$/~ é]{0,6}", inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn any_applied() -> impl Strategy<Value = Applied> {
    ("[a-z][a-z0-9]{0,8}", any_json(), any_json()).prop_map(|(r, outputs, secret_outputs)| Applied {
        resource: Identifier::parse(&r).unwrap(),
        outputs,
        secret_outputs,
    })
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let text = || proptest::option::of(".{0,12}");
    ("[a-z-]{1,12}", ".{0,40}", text(), text(), any::<bool>(), proptest::option::of(any_json())).prop_map(
        |(code, reason, resource, path, retryable, details)| Failure {
            code,
            reason,
            resource,
            path,
            retryable,
            details,
        },
    )
}

proptest! {
    #[test]
    fn final_answers(
        applied in proptest::collection::vec(any_applied(), 0..4),
        failure in any_failure(),
        fault_id in proptest::option::of("flt_[0-9a-f]{12}"),
    ) {
        for ended in [
            Ended::Succeeded(applied.clone()),
            Ended::Failed { failure: failure.clone(), applied: applied.clone(), fault_id: fault_id.clone() },
        ] {
            prop_assert_eq!(Ended::from_json(&ended.to_json()).unwrap(), ended);
        }
    }

    #[test]
    fn what_was_asked(
        settings in proptest::option::of(any_json()),
        hint in proptest::option::of(any_json()),
        pins in any_json(),
        before in proptest::option::of(any_json()),
    ) {
        let resource = Identifier::parse("main").unwrap();
        let mut asked: Asked = common::asked("r-1");
        asked.request.application.instance = Some(Identifier::parse("emea").unwrap());
        asked.request.changes = vec![Change {
            resource: resource.clone(),
            action: Action::Replace,
            settings: settings.clone(),
            previous_settings: hint.clone(),
            previous_outputs: hint,
        }];
        asked.planned = vec![Planned {
            resource,
            action: Action::NoOp,
            before,
            after: settings,
            unknown: vec!["/a~1b".into()],
            replace_because: vec!["/c".into()],
            warnings: vec!["w".into()],
        }];
        asked.pins = pins;
        prop_assert_eq!(Asked::from_json(&asked.to_json()).unwrap(), asked);
    }
}

#[test]
fn null_and_nothing_differ() {
    let failure = Failure { details: Some(Value::Null), ..Failure::new("x", "y") };
    let ended = Ended::Failed { failure, applied: vec![], fault_id: None };
    assert_eq!(Ended::from_json(&ended.to_json()).unwrap(), ended);
}

#[test]
fn a_newer_host_may_write_more() {
    let text = json!({"outcome": "succeeded", "applied": [], "later": 1}).to_string();
    assert_eq!(Ended::from_json(&text).unwrap(), Ended::Succeeded(vec![]));
    assert!(Ended::from_json("{}").is_err());
}
