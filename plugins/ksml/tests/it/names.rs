//! No two applications have one release, whatever they and their tenants are called.

use std::collections::BTreeMap;

use serde_json::json;
use sutler_sdk::testing::{Session, reset};

use crate::NONE;

#[test]
fn releases_never_meet() {
    reset(json!({"chart": "oci://registry.example/charts/ksml", "namespace": "shared"}));
    let long = "a".repeat(63);
    let parts = ["a", "b", "a-b", "b-a", "a-b-a", "9", long.as_str()];
    let maybe: Vec<Option<&str>> = parts.into_iter().map(Some).chain([None]).collect();
    let mut seen = BTreeMap::new();
    for tenant in &maybe {
        for instance in &maybe {
            for environment in parts {
                for id in parts {
                    let mut s: Session<ksml::Ksml> = Session::new(id, environment, *tenant);
                    s.application.instance = instance.map(str::to_owned);
                    let selector = s.locate(NONE).unwrap()[0].label_selector.clone();
                    let name = selector.strip_prefix("app.kubernetes.io/instance=").unwrap().to_owned();
                    assert!(name.len() <= 53 && name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
                    let owner = format!("{tenant:?} {instance:?} {environment} {id}");
                    if let Some(other) = seen.insert(name.clone(), owner.clone()) {
                        panic!("{name} is of {other} and of {owner}");
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), 8 * 8 * 7 * 7);
    assert!(seen.keys().any(|name| name.starts_with("a-b-")), "readable: application and environment");
}
