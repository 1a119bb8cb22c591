//! What the predecessor's variables come to, by tables.

use std::collections::HashMap;

use super::*;

fn beside(said: &Value, pairs: &[(&str, &str)]) -> Result<Option<Legacy>, String> {
    let all: HashMap<&str, &str> = pairs.iter().copied().collect();
    read(|name| all.get(name).map(|v| (*v).to_owned()), said).map_err(|e| e.to_string())
}

fn of(pairs: &[(&str, &str)]) -> Result<Option<Legacy>, String> {
    beside(&json!({}), pairs)
}

const BASE: [(&str, &str); 3] =
    [("REGISTRY_URL", "oci://r.example:5000/charts/"), ("CHART_NAME", "ksml"), ("NAMESPACE", "apps")];

#[test]
fn common_names_alone_mean_nothing() {
    assert!(of(&[]).unwrap().is_none());
    assert!(of(&[("NAMESPACE", "kube-system"), ("REGISTRY_URL", "r")]).unwrap().is_none());
    assert!(of(&[("CHART_NAME", "ksml"), ("REGISTRY_URL", " ")]).unwrap().is_none());
}

#[test]
fn every_variable_has_its_key() {
    let more = [
        ("CHART_VERSION", "1.2.3"),
        ("REGISTRY_AUTH_ENABLED", "True"),
        ("REGISTRY_USERNAME", "robot"),
        ("REGISTRY_PASSWORD", "hunter2"),
        ("CUSTOM_VALUES_FILE", "/etc/values.yaml"),
        ("CLIENT_CA_FILE", "LS0tLS1C"),
        ("INSECURE_SKIP_TLS_VERIFY", "false"),
        ("DISTRIBUTED_TRACING_ENABLED", "true"),
        ("BASIC_AUTH_ENABLED", "true"),
    ];
    let got = of(&[&BASE[..], &more[..]].concat()).unwrap().unwrap();
    let ksml = &got.keys["plugins"]["ksml"];
    let config =
        json!({"chart": "oci://r.example:5000/charts/ksml", "version": "1.2.3", "namespace": "apps"});
    assert_eq!(ksml["config"], config);
    assert_eq!(ksml["config-files"], json!({"values-file": "/etc/values.yaml"}));
    assert_eq!(ksml["grants"]["helm"]["charts"], json!(["oci://r.example:5000/charts/ksml"]));
    assert_eq!(ksml["grants"]["logs"], json!({"namespaces": ["apps"]}));
    let registry =
        json!({"username": "robot", "password-env": "REGISTRY_PASSWORD", "ca-env": "CLIENT_CA_FILE"});
    assert_eq!(got.keys["registries"], json!({"r.example:5000": registry}));
    let names: Vec<_> = got.notices.iter().map(|n| n.variable).collect();
    let all = [
        "REGISTRY_URL",
        "CHART_NAME",
        "CHART_VERSION",
        "NAMESPACE",
        "CUSTOM_VALUES_FILE",
        "REGISTRY_USERNAME",
        "REGISTRY_PASSWORD",
        "CLIENT_CA_FILE",
        "DISTRIBUTED_TRACING_ENABLED",
        "BASIC_AUTH_ENABLED",
    ];
    assert_eq!(names, all);
    let told = format!("{:?} {}", got, got.notices.iter().map(Notice::to_string).collect::<String>());
    assert!(!told.contains("hunter2") && !told.contains("LS0tLS1C"), "{told}");
    // Without the switch nobody signs in.
    assert_eq!(of(&BASE).unwrap().unwrap().keys.get("registries"), None);
}

#[test]
fn what_the_file_says_in_another_way_stays_its_own() {
    let variables = [
        ("REGISTRY_AUTH_ENABLED", "true"),
        ("REGISTRY_USERNAME", "robot"),
        ("REGISTRY_PASSWORD", "hunter2"),
        ("CLIENT_CA_FILE", "LS0tLS1C"),
    ];
    let (user, password, ca) =
        (json!("robot"), json!("REGISTRY_PASSWORD"), json!({"ca-env": "CLIENT_CA_FILE"}));
    let login = json!({"username": user, "password-env": password});
    let both = json!({"username": user, "password-env": password, "ca-env": "CLIENT_CA_FILE"});
    let signs = &["REGISTRY_USERNAME", "REGISTRY_PASSWORD"][..];
    let all = &["REGISTRY_USERNAME", "REGISTRY_PASSWORD", "CLIENT_CA_FILE"][..];
    for (said, filled, told) in [
        (json!({"ca": "ca.pem"}), &login, signs),
        (
            json!({"password-file": "pw"}),
            &json!({"username": user, "ca-env": "CLIENT_CA_FILE"}),
            &["REGISTRY_USERNAME", "CLIENT_CA_FILE"],
        ),
        (json!({"password": "x", "username": "me"}), &ca, &["CLIENT_CA_FILE"]),
        (
            json!({"username": "me"}),
            &json!({"password-env": password, "ca-env": "CLIENT_CA_FILE"}),
            &["REGISTRY_PASSWORD", "CLIENT_CA_FILE"],
        ),
        (json!({"token-file": "t"}), &ca, &["CLIENT_CA_FILE"]),
        (json!({"docker-config": "c.json"}), &ca, &["CLIENT_CA_FILE"]),
        (json!({"cosign-key": "k"}), &both, all),
    ] {
        let file = json!({"registries": {"r.example:5000": said, "other.example": {"ca": "x"}}});
        let got = beside(&file, &[&BASE[..], &variables[..]].concat()).unwrap().unwrap();
        assert_eq!(&got.keys["registries"]["r.example:5000"], filled, "{said}");
        // What the file overrides is not told of.
        let names: Vec<_> = got.notices.iter().skip(BASE.len()).map(|n| n.variable).collect();
        assert_eq!(names, told, "{said}");
    }
    // As the errors advise.
    let file = json!({"registries": {"r.example:5000": {"username": "me", "password-file": "pw"}}});
    assert!(beside(&file, &[&BASE[..], &variables[..1]].concat()).is_ok());
}

#[test]
fn a_variable_that_the_file_overrides_is_not_told_of() {
    let all = [("CHART_VERSION", "1.2.3"), ("CUSTOM_VALUES_FILE", "v.yaml"), ("BASIC_AUTH_ENABLED", "true")];
    let told = |said: &Value| -> Vec<&str> {
        let got = beside(said, &[&BASE[..], &all].concat()).unwrap().unwrap();
        got.notices.iter().map(|n| n.variable).collect()
    };
    let config = json!({"chart": "oci://x/y", "version": "2", "namespace": "n"});
    let said = json!({"plugins": {"ksml": {"config": config}}});
    // Their grants are filled in still.
    let rest = ["REGISTRY_URL", "CHART_NAME", "NAMESPACE", "CUSTOM_VALUES_FILE", "BASIC_AUTH_ENABLED"];
    assert_eq!(told(&said), rest);
    let grants =
        json!({"helm": {"charts": [], "namespaces": []}, "kubernetes": [], "logs": {"namespaces": []}});
    let ksml = json!({"config": config, "grants": grants, "config-files": {"values-file": "x"}});
    assert_eq!(told(&json!({"plugins": {"ksml": ksml}, "access": {"callers": []}})), [""; 0]);
}

#[test]
fn docker_needs_neither_cluster_nor_chart() {
    let file = json!({"plugins": {"ksml": {"config": {"target": "docker"}}}});
    let login =
        [("REGISTRY_AUTH_ENABLED", "true"), ("REGISTRY_USERNAME", "robot"), ("REGISTRY_PASSWORD", "hunter2")];
    // NAMESPACE has no meaning there either.
    let got = beside(&file, &[&BASE[..2], &login].concat()).unwrap().unwrap();
    let registry = json!({"username": "robot", "password-env": "REGISTRY_PASSWORD"});
    assert_eq!(got.keys, json!({"registries": {"r.example:5000": registry}}));
    assert!(got.notices.iter().take(2).all(|n| n.instead.contains("come from no chart")), "{got:?}");
}

#[test]
fn addresses_and_names_are_plain_and_never_repeated() {
    let with = |more: &[(&str, &str)]| {
        let e = of(&[&BASE[..], more].concat()).map(drop).unwrap_err();
        assert!(!e.contains("hunter2"), "{e}");
        e
    };
    for url in
        ["oci://user:hunter2@r.example/charts", "user:hunter2@r.example", "HTTPS://user:hunter2@r.example/x"]
    {
        let e = with(&[("REGISTRY_URL", url)]);
        assert!(e.contains("REGISTRY_USERNAME and REGISTRY_PASSWORD"), "{e}");
    }
    for url in ["HTTPS://r.example/charts", "ftp://r.example", "file:///charts"] {
        assert!(with(&[("REGISTRY_URL", url)]).contains("OCI registries only"), "{url}");
    }
    for url in
        ["oci://r.example/*", "oci://r.example/../x", "oci://oci://r.example/x", "oci://r.example/{tenant}"]
    {
        assert!(with(&[("REGISTRY_URL", url)]).starts_with("REGISTRY_URL with CHART_NAME: "), "{url}");
    }
    for name in ["../x:1*", "*", "a/b", "ksml:1.0", "ksml@sha256:00", "KSML", "{tenant}", "a b", "/"] {
        assert!(with(&[("CHART_NAME", name)]).contains("CHART_NAME is not the name of a chart"), "{name}");
    }
    for namespace in ["*", "{tenant}", "apps-*", "a\nb", "Apps", "a.b", "-a", "a, b"] {
        assert!(with(&[("NAMESPACE", namespace)]).contains("NAMESPACE has to be"), "{namespace}");
    }
    let upper = of(&[("REGISTRY_URL", "OCI://r.example/charts"), BASE[1], BASE[2]]).unwrap().unwrap();
    assert_eq!(upper.keys["plugins"]["ksml"]["config"]["chart"], "oci://r.example/charts/ksml");
}

#[test]
fn what_has_no_equal_is_refused() {
    let with = |more: &[(&str, &str)]| of(&[&BASE[..], more].concat()).map(drop).unwrap_err();
    assert!(with(&[("INSECURE_SKIP_TLS_VERIFY", "true")]).contains("ca in [registries.\"r.example:5000\"]"));
    assert!(
        with(&[("REGISTRY_URL", "https://nexus.example/repository/charts")]).contains("OCI registries only")
    );
    assert!(with(&[("REGISTRY_URL", "oci://")]).contains("names no registry"));
    assert!(with(&[("NAMESPACE", "")]).contains("not NAMESPACE"));
    assert!(with(&[("REGISTRY_AUTH_ENABLED", "1")]).contains("REGISTRY_USERNAME"));
    let user = [("REGISTRY_AUTH_ENABLED", "1"), ("REGISTRY_USERNAME", "u")];
    assert!(with(&user).contains("REGISTRY_PASSWORD"));
}
