//! Who gets in, for whom, and with which words the others are sent away.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails with the test")]

use expect_test::{Expect, expect};
use sutler_access::{
    Access, AccessConfig, AccessError, Denied, Incoming, InstanceAccess, Scope, hash_token, new_token,
};
use sutler_model::{Application, Identifier};

fn access() -> Access {
    let config = format!(
        r#"
        [[callers]]
        name = "axual"
        token-hash = ["{old}", "{new}"]
        tenants = ["acme"]

        [[callers]]
        name = "all"
        token-hash = ["{all}"]
        tenants = ["*"]
        instances = ["*"]

        [[callers]]
        name = "none"
        token-hash = ["{none}"]

        [[operators]]
        name = "ops"
        token-hash = ["{ops}"]
        "#,
        old = hash_token("old"),
        new = hash_token("new"),
        all = hash_token("all"),
        none = hash_token("none"),
        ops = hash_token("ops"),
    );
    Access::new(&toml::from_str::<AccessConfig>(&config).unwrap(), &[]).unwrap()
}

fn with(authorization: &str) -> Incoming<'_> {
    Incoming { authorization: Some(authorization), ..Incoming::default() }
}

#[test]
fn tokens() {
    let access = access();
    for (header, caller, operator) in [
        ("Bearer old", Ok("axual"), Err(Denied::NotAnOperator)),
        ("bearer new", Ok("axual"), Err(Denied::NotAnOperator)),
        ("Bearer all", Ok("all"), Err(Denied::NotAnOperator)),
        ("Bearer ops", Err(Denied::NotACaller), Ok("ops")),
        ("Bearer olD", Err(Denied::Unknown), Err(Denied::Unknown)),
        ("Bearer ", Err(Denied::Malformed), Err(Denied::Malformed)),
        ("Bearer a b", Err(Denied::Malformed), Err(Denied::Malformed)),
        ("Basic old", Err(Denied::Malformed), Err(Denied::Malformed)),
        ("old", Err(Denied::Malformed), Err(Denied::Malformed)),
        ("", Err(Denied::Malformed), Err(Denied::Malformed)),
    ] {
        let got = access.caller(&with(header)).map(|c| c.name.to_string());
        assert_eq!(got, caller.map(str::to_owned), "caller {header:?}");
        let got = access.operator(&with(header)).map(|o| o.name.to_string());
        assert_eq!(got, operator.map(str::to_owned), "operator {header:?}");
    }
    assert_eq!(access.caller(&Incoming::default()).unwrap_err(), Denied::Missing);
    // The hash itself is no token.
    let hash = format!("Bearer {}", hash_token("old"));
    assert_eq!(access.caller(&with(&hash)).unwrap_err(), Denied::Unknown);
}

#[test]
fn tenants_and_instances() {
    let access = access();
    let words = |token: &str, tenant: Option<&str>, instance: Option<&str>| {
        let id = |s: &str| Identifier::parse(s).unwrap();
        let application = Application {
            id: id("orders"),
            environment: id("prod"),
            tenant: tenant.map(id),
            instance: instance.map(id),
        };
        match access.caller(&with(&format!("Bearer {token}"))).unwrap().allows(&application) {
            Ok(()) => "allowed".to_owned(),
            Err(e) => format!("{}: {e}", e.path()),
        }
    };
    let check = |got: String, want: Expect| want.assert_eq(&got);
    check(words("old", Some("acme"), None), expect!["allowed"]);
    check(
        words("old", Some("other"), None),
        expect![[
            r#"/application/tenant: caller axual may not act for tenant "other"; its token is for tenant "acme""#
        ]],
    );
    check(
        words("old", None, None),
        expect![[
            r#"/application/tenant: caller axual may not act for no tenant; its token is for tenant "acme""#
        ]],
    );
    check(
        words("old", Some("acme"), Some("emea")),
        expect![[
            r#"/application/instance: caller axual may not act for instance "emea"; its token is for calls without instance (add instances = ["…"] to it)"#
        ]],
    );
    check(words("all", Some("other"), Some("emea")), expect!["allowed"]);
    check(words("all", None, None), expect!["allowed"]);
    check(words("none", None, None), expect!["allowed"]);
    check(
        words("none", Some("acme"), None),
        expect![[
            r#"/application/tenant: caller none may not act for tenant "acme"; its token is for calls without tenant (add tenants = ["…"] to it)"#
        ]],
    );
}

#[test]
fn without_tokens_no_browser_and_no_other_machine() {
    let access = Access::open();
    let host = |host| Incoming { host: Some(host), ..Incoming::default() };
    for (name, fits) in [
        ("localhost", true),
        ("LOCALHOST:8080", true),
        ("127.0.0.1:1", true),
        ("127.9.9.9", true),
        ("[::1]:8080", true),
        ("[::1]", true),
        ("localhost.evil.example", false),
        ("evil.example:8080", false),
        ("127.0.0.1.evil.example", false),
        ("localhost:8080@evil.example", false),
        ("[::2]", false),
        ("10.0.0.1", false),
        ("", false),
        ("[::1", false),
        ("localhost:", false),
    ] {
        assert_eq!(access.caller(&host(name)).is_ok(), fits, "{name}");
        assert_eq!(access.operator(&host(name)).is_ok(), fits, "{name}");
    }
    assert!(access.caller(&Incoming::default()).is_err(), "no Host at all");
    for (origin, fetch_site, fits) in [
        (Some("https://evil.example"), None, false),
        (Some("null"), None, false),
        (Some("http://localhost:8080"), None, false),
        (None, Some("cross-site"), false),
        (None, Some("same-site"), false),
        (None, Some("none"), true),
    ] {
        let incoming = Incoming { origin, fetch_site, ..host("localhost") };
        assert_eq!(access.caller(&incoming).is_ok(), fits, "{origin:?} {fetch_site:?}");
    }
    let address = |s: &str| s.parse().unwrap();
    for (a, fits) in [
        ("127.0.0.1:80", true),
        ("[::1]:80", true),
        ("[::ffff:127.0.0.1]:80", true),
        ("0.0.0.0:80", false),
        ("[::]:80", false),
        ("10.1.2.3:80", false),
    ] {
        assert_eq!(access.listen_rule(address(a)).is_ok(), fits, "{a}");
        assert_eq!(access.admin_listen_rule(address(a)).is_ok(), fits, "{a}");
        assert!(self::access().listen_rule(address(a)).is_ok(), "{a} with tokens");
    }
    expect!["the provisioner API would listen on 0.0.0.0:80 without any token, where other machines can reach it; add [[access.callers]] with a token (sutler token new makes one), or listen on 127.0.0.1"]
        .assert_eq(&access.listen_rule(address("0.0.0.0:80")).unwrap_err().to_string());
}

#[test]
fn configurations_that_are_refused() {
    let hash = hash_token("x");
    let check = |config: &str, want: Expect| {
        let got = match toml::from_str::<AccessConfig>(config) {
            Ok(c) => Access::new(&c, &[]).map_or_else(|e| e.to_string(), |_| "fine".into()),
            Err(e) => e.message().to_owned(),
        };
        want.assert_eq(&got);
    };
    check("", expect!["fine"]);
    check(
        &format!("[[callers]]\nname = \"a b\"\ntoken-hash = [\"{hash}\"]"),
        expect![[
            r#"access.callers "a b": the name "a b" is not valid; use 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.'"#
        ]],
    );
    check(
        "[[callers]]\nname = \"a\"\ntoken-hash = []",
        expect![[
            r#"access.callers "a": no token-hash; make a token with `sutler token new` and put its hash there"#
        ]],
    );
    check(
        "[[operators]]\nname = \"a\"\ntoken-hash = [\"hunter2\"]",
        expect![[
            r#"access.operators "a": token-hash 1 is not sha256: and 64 lower-case hex digits; make one with `sutler token new`"#
        ]],
    );
    check(
        &format!(
            "[[callers]]\nname = \"a\"\ntoken-hash = [\"{hash}\"]\n[[operators]]\nname = \"b\"\ntoken-hash = [\"{hash}\"]"
        ),
        expect![[
            r#"access.operators "b": token-hash 1 belongs to access.callers "a" as well; a token has one owner, so make another one"#
        ]],
    );
    check(
        &format!("[[callers]]\nname = \"a\"\ntoken-hash = [\"{hash}\"]\ntenants = [\"Acme\"]"),
        expect![[
            r#"access.callers "a": tenants has "Acme": use 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit, or "*" for all"#
        ]],
    );
    check(
        &format!("[[callers]]\nname = \"a\"\ntoken-hash = [\"{hash}\"]\ntenant = []"),
        expect![
            "unknown field `tenant`, expected one of `name`, `token-hash`, `tenants`, `instances`, `max-requests`, `max-log-streams`, `audit`"
        ],
    );
}

#[test]
fn new_tokens_work_and_differ() {
    let (a, b) = (new_token().unwrap(), new_token().unwrap());
    assert_ne!(a, b);
    assert_eq!(a.expose().len(), "sut_".len() + 43);
    assert_eq!(format!("{a:?}"), "[redacted]");
    let config = format!("[[callers]]\nname = \"a\"\ntoken-hash = [\"{}\"]", hash_token(a.expose()));
    let access = Access::new(&toml::from_str(&config).unwrap(), &[]).unwrap();
    assert!(access.caller(&with(&format!("Bearer {}", a.expose()))).is_ok());
    assert!(access.caller(&with(&format!("Bearer {}", b.expose()))).is_err());
}

fn instance(name: &str, token: Option<&str>, tenants: Option<&[&str]>) -> InstanceAccess {
    InstanceAccess {
        name: name.into(),
        token_hash: token.map(hash_token).into_iter().collect(),
        tenants: tenants.map(|t| t.iter().map(|t| (*t).to_owned()).collect()),
        audit: false,
    }
}

#[test]
fn an_instance_has_its_own_token_and_tenants() {
    let config = format!(
        "[[callers]]\nname = \"all\"\ntoken-hash = [\"{}\"]\ntenants = [\"*\"]\ninstances = [\"*\"]\n",
        hash_token("all")
    );
    // Not in the order of their names.
    let instances =
        [instance("emea", Some("of-emea"), Some(&["acme"])), instance("apac", Some("of-apac"), None)];
    let access = Access::new(&toml::from_str(&config).unwrap(), &instances).unwrap();
    let id = |s: &str| Identifier::parse(s).unwrap();
    let words = |token: &str, route: Option<&str>, tenant: &str, of: Option<&str>| {
        let caller = access.caller(&with(&format!("Bearer {token}"))).unwrap();
        if let Err(e) = caller.at_home(route.map(id).as_ref()) {
            return e.to_string();
        }
        let application = Application {
            id: id("orders"),
            environment: id("prod"),
            tenant: Some(id(tenant)),
            instance: of.map(id),
        };
        caller.allows(&application).map_or_else(|e| e.to_string(), |()| "allowed".into())
    };
    for (token, route, tenant, of, said) in [
        ("of-emea", Some("emea"), "acme", Some("emea"), "allowed"),
        ("of-apac", Some("apac"), "globex", Some("apac"), "allowed"),
        ("of-emea", Some("apac"), "acme", Some("apac"), "token of instance \"emea\""),
        ("of-emea", None, "acme", Some("emea"), "token of instance \"emea\""),
        ("of-emea", Some("emea"), "acme", Some("apac"), "may not act for instance \"apac\""),
        ("of-emea", Some("emea"), "acme", None, "may not act for no instance"),
        (
            "of-emea",
            Some("emea"),
            "globex",
            Some("emea"),
            "caller instances/emea may not act for tenant \"globex\" in instance \"emea\"; its token is for tenant \"acme\" there",
        ),
        ("all", None, "acme", Some("emea"), "allowed"),
        ("all", None, "globex", Some("emea"), "tenant \"globex\" in instance \"emea\""),
        ("all", Some("apac"), "globex", Some("apac"), "allowed"),
        ("all", None, "globex", None, "allowed"),
        ("all", None, "acme", Some("emeaa"), "there is no instance \"emeaa\" here"),
        ("of-emea", Some("emea"), "acme", Some("emeaa"), "may not act for instance \"emeaa\""),
    ] {
        let got = words(token, route, tenant, of);
        assert!(got.contains(said), "{token} {route:?} {tenant} {of:?}: {got}");
    }
    let all = access.caller(&with("Bearer all")).unwrap();
    assert_eq!(all.tenants_in(Some(&id("emea"))), Some(Scope::Only(vec![id("acme")])));
    assert_eq!(all.tenants_in(Some(&id("apac"))), Some(Scope::All));
    assert_eq!(all.tenants_in(None), Some(Scope::All));
    let twice = [instance("emea", Some("all"), None)];
    let e = Access::new(&toml::from_str(&config).unwrap(), &twice).unwrap_err();
    assert!(matches!(&e, AccessError::HashTwice { at, .. } if at == "instances.emea"), "{e}");
    // A token of an instance alone opens nothing to others.
    let alone = Access::new(&AccessConfig::default(), &instances).unwrap();
    assert!(!alone.callers_open());
    assert_eq!(alone.caller(&Incoming::default()).unwrap_err(), Denied::Missing);
}

#[test]
fn what_is_seen_in_an_instance_lies_within_both_rules() {
    let config = format!(
        "[[callers]]\nname = \"two\"\ntoken-hash = [\"{}\"]\ntenants = [\"acme\", \"globex\"]\ninstances = [\"*\"]\n\
         [[callers]]\nname = \"none\"\ntoken-hash = [\"{}\"]\ninstances = [\"*\"]\n",
        hash_token("two"),
        hash_token("none")
    );
    let instances = [
        instance("emea", None, Some(&["globex", "initech"])),
        instance("apac", None, Some(&["initech"])),
        instance("free", None, None),
    ];
    let access = Access::new(&toml::from_str(&config).unwrap(), &instances).unwrap();
    let seen = |token: &str, of: &str| {
        let caller = access.caller(&with(&format!("Bearer {token}"))).unwrap();
        caller.tenants_in(Some(&Identifier::parse(of).unwrap()))
    };
    let only =
        |names: &[&str]| Some(Scope::Only(names.iter().map(|n| Identifier::parse(n).unwrap()).collect()));
    assert_eq!(seen("two", "emea"), only(&["globex"]));
    assert_eq!(seen("two", "apac"), None);
    assert_eq!(seen("two", "free"), only(&["acme", "globex"]));
    assert_eq!(seen("none", "emea"), None);
    assert_eq!(seen("none", "free"), only(&[]));
}
