//! The chart that sutler is installed with, as the helm binary renders it. What people read of it lies in `chart/`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use sutler_testkit::{RealWorld, checkout, real, sutler_binary};

/// Values files that come with the chart.
const CASES: [&str; 5] = ["ksml", "hosts", "logs", "plugins", "copy"];

pub(crate) fn folder() -> PathBuf {
    checkout().join("examples/deploy/helm/sutler")
}

fn template(world: &RealWorld, case: &str, more: &[&str]) -> Result<String, String> {
    let (chart, values) = (folder(), folder().join(format!("ci/{case}.yaml")));
    let (chart, values) = (chart.to_str().unwrap(), values.to_str().unwrap());
    let words = ["template", "sutler", chart, "--namespace", "platform", "--values", values];
    world.run(&world.helm, &[words.as_slice(), more].concat())
}

/// The documents of a file of YAML.
fn documents(yaml: &str) -> Vec<Value> {
    let texts = yaml.split("\n---\n").map(|d| d.trim_start_matches("---\n")).filter(|d| !d.trim().is_empty());
    texts.map(|d| serde_saphyr::from_str(d).unwrap_or_else(|e| panic!("{e}: {d}"))).collect()
}

/// (namespace, group, resource, verb) of each right that roles give.
fn rights(documents: &[Value]) -> BTreeSet<(String, String, String, String)> {
    let texts = |v: &Value| -> Vec<String> {
        v.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut out = BTreeSet::new();
    for role in documents.iter().filter(|d| d["kind"] == "Role") {
        let namespace = role["metadata"]["namespace"].as_str().unwrap();
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        out.insert((namespace.into(), group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    out
}

#[test]
fn real_chart_renders_as_it_did() {
    let Some(world) = real() else { return };
    for case in CASES {
        let rendered = template(&world, case, &[]).unwrap();
        expect_test::expect_file![format!("chart/{case}.yaml")].assert_eq(&rendered);
    }
}

/// The roles of the chart, and what the host itself says that its configuration needs.
#[test]
fn real_chart_gives_the_least_rights() {
    let Some(world) = real() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sutler.toml");
    for case in CASES {
        let chart = documents(&template(&world, case, &[]).unwrap());
        let config = chart.iter().find_map(|d| d["data"]["sutler.toml"].as_str()).unwrap();
        std::fs::write(&file, config).unwrap();
        let printed = Command::new(sutler_binary())
            .args(["rbac", "print", "--service-account", "platform/sutler", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(printed.status.success(), "{case}: {}", String::from_utf8_lossy(&printed.stderr));
        let needed = documents(&String::from_utf8_lossy(&printed.stdout));
        let given = rights(&chart);
        assert!(!given.is_empty(), "{case}");
        assert_eq!(given, rights(&needed), "{case}");
        assert!(!chart.iter().any(|d| d["kind"].as_str().is_some_and(|k| k.starts_with("Cluster"))));
        if case == "logs" {
            let written: Vec<_> =
                given.iter().filter(|r| !matches!(&*r.3, "get" | "list" | "watch")).collect();
            assert!(written.is_empty(), "{written:?}");
        }
    }
}

#[test]
fn real_chart_refuses_what_cannot_work() {
    let Some(world) = real() else { return };
    for (case, sets, words) in [
        ("ksml", "replicas=3", "at '/replicas': value must be 1"),
        ("ksml", "replica=3", "additional properties 'replica' not allowed"),
        ("ksml", "ksml.namespace=", "at '/ksml/namespace': minLength: got 0, want 1"),
        ("ksml", "ksml.namespaces=null", "at '/ksml': missing property 'namespaces'"),
        ("ksml", "ksml.chart=http://x/y", "does not match pattern '^oci://"),
        ("ksml", "access.callers=null", "at '/access': missing property 'callers'"),
        ("ksml", "access.secret.name=x", "at '/access/callers': maxItems: got 1, want 0"),
        ("ksml", "ledger.type=postgres", "at '/ledger/urlSecret/name': minLength: got 0, want 1"),
        ("ksml", "logs.enabled=true", "at '/logs/namespaces': minItems: got 0, want 1"),
        ("ksml", "networkPolicy.enabled=true", "at '/networkPolicy/callers': minItems: got 0, want 1"),
        ("ksml", "serviceMonitor.enabled=true", "at '/access/operators': minItems: got 0, want 1"),
        ("ksml", "plugins.source=volume", "at '/plugins/volume': minProperties: got 0, want 1"),
        ("ksml", "tls.clientCa=true", "at '/tls/secretName': minLength: got 0, want 1"),
        ("ksml", "env[0].name=X_TOKEN,env[0].value=x", "at '/env/0': missing property 'valueFrom'"),
        ("ksml", "config=[a]\npassword = \"x\"", "config: a password or token stands in plain"),
        ("ksml", "config=[a]\nb = \"postgres://u:p@h/d\"", "comes from a Secret"),
        ("ksml", "config=a = 1", "it has to begin with one ([NAME])"),
        ("hosts", "ledger.type=sqlite", "at '/replicas': value must be 1"),
        ("hosts", "ledger.keySecret.name=", "at '/ledger/keySecret/name': minLength: got 0, want 1"),
        ("logs", "logs.namespaces=null", "at '/logs': missing property 'namespaces'"),
        ("logs", "ksml.enabled=true", "at '/ksml/namespaces': minItems: got 0, want 1"),
        ("plugins", "rbac.roles[0].name=ksml", "at '/rbac/roles/0/name'"),
    ] {
        let said = template(&world, case, &["--set", sets]).expect_err(sets);
        assert!(said.contains(words), "{case} --set {sets}: {said}");
    }
}
