//! Names: never too long, never shared, and the same as the host's.

use std::collections::BTreeSet;

use sutler_model as model;
use sutler_sdk::{Action, Application, Kind, Pair, Subject};

fn subject(id: &str, environment: &str, tenant: Option<&str>, resource: &str) -> Subject<()> {
    let application = Application {
        id: id.into(),
        environment: environment.into(),
        tenant: tenant.map(Into::into),
        instance: None,
    };
    Subject {
        application,
        pair: Pair::new(Kind::Deployment, "ksml"),
        resource: resource.into(),
        action: Action::Create,
        wanted: None,
        believed: None,
        wanted_json: None,
        believed_json: None,
        believed_outputs: None,
        marked: true,
    }
}

#[test]
fn names_fit_and_differ() {
    let long = "a".repeat(63);
    let digits = "9".repeat(63);
    let owners = [
        subject("a-b", "c", None, "main"),
        subject("a", "b-c", None, "main"),
        subject("a", "b-c", Some("t"), "main"),
        subject("a", "b-c", Some("t"), "other"),
        subject(&long, "prod", None, "main"),
        subject(&long, "prod2", None, "main"),
        subject(&digits, &digits, None, "main"),
        subject("9", "9", None, "main"),
    ];
    for max in [12, 20, 45, 53, 63] {
        let names: BTreeSet<String> = owners.iter().map(|o| o.name(max)).collect();
        assert_eq!(names.len(), owners.len(), "shared: {names:?}");
        for name in names {
            assert!(name.len() <= max, "{name} is longer than {max}");
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
            assert!(model::Identifier::parse(&name).is_ok(), "{name}");
        }
    }
    assert!(owners[0].name(53).starts_with("a-b-c-"));
}

#[test]
fn patterns_fill_as_the_hosts_grants_do() {
    for (pattern, tenant) in [
        ("ksml-{tenant}", Some("acme")),
        ("fixed", None),
        ("{application}-x", None),
        ("{tenant}-{environment}-{hash}", Some("acme")),
        ("{hash}", None),
        ("{instance}", None),
        ("{tenant}", None),
    ] {
        let ours = subject("orders", "prod", tenant, "main").fill(pattern);
        let id = |s: &str| model::Identifier::parse(s).unwrap();
        let owner = model::Owner {
            application: model::Application {
                id: id("orders"),
                environment: id("prod"),
                tenant: tenant.map(id),
                instance: None,
            },
            pair: "deployment/ksml".parse().unwrap(),
        };
        let theirs = pattern.parse::<model::Pattern>().unwrap().fill(&owner);
        assert_eq!(ours.ok(), theirs, "{pattern}");
    }
}

#[test]
fn a_bad_pattern_says_why() {
    for (pattern, code) in [
        ("{tenant}-{environment}", "invalid-config"),
        ("x-{nope}", "invalid-config"),
        ("x-{tenant", "invalid-config"),
        ("{instance}", "instance-required"),
    ] {
        let error = subject("orders", "prod", Some("acme"), "main").fill(pattern).unwrap_err();
        assert_eq!(error.code, code, "{pattern}");
        assert!(error.reason.contains(pattern), "{}", error.reason);
    }
}
